// The node that was picked on the map, beside the map: why, since when, and what can be done.
import { foldByCause, worstFirst } from '../core/findings.mjs';
import { get, nodeApi } from './api.mjs';
import { ActionButtons, ActionPanel, Panel } from './act.mjs';
import { html } from './dom.mjs';
import { useLoad } from './load.mjs';
import { FindingBlock, Facts, StandingLine, Text, When } from './parts.mjs';
import { nodePath, setParams } from './route.mjs';
import { Failed, Skeleton } from './states.mjs';

const MOST_FINDINGS = 3;

/** @param {{shell: import('./shell.mjs').Shell, node: string, act: string}} props */
export function Inspector({ shell, node, act }) {
  const { cluster, me, time } = shell;
  const load = useLoad(nodeApi(cluster, node), (signal) => get(nodeApi(cluster, node), signal), shell.tickOf(node));
  if (act === 'hold' || act === 'release') {
    return html`<${ActionPanel} key=${node + act} cluster=${cluster} node=${node} what=${act} role=${me.role} onDone=${load.retry} />`;
  }
  const view = load.data;
  const open = worstFirst(foldByCause((view?.findings ?? []).filter((/** @type {any} */ f) => f.open)));
  return html`<${Panel} title=${node} close=${() => setParams({ sel: null })}>
    <${Failed} load=${load} zone=${time.zone} />
    ${!view && !load.error && html`<${Skeleton} />`}
    ${view && html`
      <${StandingLine} row=${view.row} verdict=${view.verdict} time=${time} />
      ${view.row.why && html`<p class="why"><${Text} text=${view.row.why} /></p>`}
      <${ActionButtons} role=${me.role} standing=${view.row.standing} onAsk=${(/** @type {string} */ what) => setParams({ act: what })} />
      ${open.slice(0, MOST_FINDINGS).map(({ head, parts }) => html`<${FindingBlock} key=${head.finding.id} view=${head} time=${time} most=${3} parts=${parts.length} />`)}
      ${open.length > MOST_FINDINGS && html`<p class="dim small">${open.length - MOST_FINDINGS} more on the node's page.</p>`}
      <${Facts} rows=${[
        ['Rack', view.row.rack],
        ['Scheduler', view.row.scheduler],
        ['Jobs now', String(view.row.jobs)],
        ['Agent heard', view.row.seen ? html`<${When} at=${view.row.seen} ...${time} />` : ''],
      ]} />
      <a class="button wide" href=${nodePath(cluster, node)}>Open ${node}</a>`}
  </${Panel}>`;
}
