// The same rows and filters as the canvas, for keyboards, screen readers and copying.
import { busy, gpuWords, listed, sorted } from '../core/picture.mjs';
import { ago, count, moment } from '../core/format.mjs';
import { html } from './dom.mjs';
import { Badge, Glyph } from './glyph.mjs';
import { finishing } from '../core/draw.mjs';
import { kindOf } from '../core/standing.mjs';
import { nodePath, setParams } from './route.mjs';

/** More rows than a browser scrolls with pleasure; what is cut is counted. */
const MOST_ROWS = 2500;
/** @type {[string, string][]} */
const COLUMNS = [
  ['node', 'Node'], ['rack', 'Rack'], ['standing', 'Standing'], ['since', 'Since'],
  ['open', 'Open findings'], ['busy', 'GPUs busy'], ['gpus', 'GPUs'],
];

/**
 * @param {{nodes: import('../core/picture.mjs').Node[], cluster: string, sort: string, zone: any,
 *   now: number, chosen: string}} props nodes: those the filters keep
 */
export function NodeTable({ nodes, cluster, sort, zone, now, chosen }) {
  const reverse = sort.startsWith('-');
  const key = sort.replace(/^-/, '') || 'standing';
  const rows = sorted(nodes, key, reverse);
  /** @param {string} column */
  const by = (column) => setParams({ sort: key === column && !reverse ? `-${column}` : column });
  return html`<div class="table-wrap">
    <table class="rows" aria-label="Nodes" aria-rowcount=${rows.length}>
      <thead><tr>${COLUMNS.map(([column, word]) => html`<th key=${column} scope="col"
        aria-sort=${column === key ? (reverse ? 'descending' : 'ascending') : 'none'}>
        <button type="button" onClick=${() => by(column)}>${word}${column === key ? (reverse ? ' ↑' : ' ↓') : ''}</button></th>`)}</tr></thead>
      <tbody>${rows.slice(0, MOST_ROWS).map((node) => html`<tr key=${node.name} class=${node.name === chosen ? 'chosen' : ''}>
        <th scope="row"><a href=${nodePath(cluster, node.name)}>${node.name}</a></th>
        <td>${node.rack || html`<span class="dim">not known</span>`}</td>
        <td><${Badge} standing=${node.standing} /></td>
        <td title=${node.since ? moment(node.since * 1000, zone) : ''}>${node.since ? ago(node.since * 1000, now) : html`<span class="dim">not known</span>`}</td>
        <td class="num">${node.open || html`<span class="dim">0</span>`}</td>
        <td class="num">${busy(node)} / ${listed(node)}</td>
        <td><span class="strip">${node.gpus.length
          ? node.gpus.map((gpu) => html`<span key=${gpu.index} title=${`GPU ${gpu.index}: ${gpuWords(gpu)}${gpu.busy && gpu.standing !== 'healthy' ? ', a job holds it' : ''}`}><${Glyph} kind=${kindOf(gpu.standing, gpu.busy)} missing=${gpu.missing} busy=${gpu.busy && finishing(gpu.standing)} /></span>`)
          : html`<span class="dim">none seen</span>`}</span></td>
      </tr>`)}</tbody>
    </table>
    ${rows.length > MOST_ROWS && html`<p class="cut">Showing ${MOST_ROWS.toLocaleString('en-US')} of ${count(rows.length, 'node')}: narrow the filter to see the rest.</p>`}
  </div>`;
}
