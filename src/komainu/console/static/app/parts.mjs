// Pieces of a node's story that the inspector and the node page share.
import { ago, author, clock, count, moment, pieces } from '../core/format.mjs';
import { roomOf } from '../core/guard.mjs';
import { html } from './dom.mjs';
import { Badge } from './glyph.mjs';
import { findingsPath } from './route.mjs';

/** @typedef {{zone: any, now: number}} Time */

/** A time with its distance; hover tells the whole date. @param {{at: any} & Time} props */
export function When({ at, zone, now }) {
  return html`<time title=${moment(at, zone)} datetime=${at ?? ''}>${clock(at, zone)}<span class="dim"> · ${ago(at, now)}</span></time>`;
}

/** A text whose long ids are shortened; hover tells the whole one. @param {{text: string}} props */
export function Text({ text }) {
  return pieces(text).map((piece, i) => (piece.id ? html`<abbr key=${i} class="mono" title=${piece.id}>${piece.text}</abbr>` : piece.text));
}

/** @param {{rows: [string, any][]}} props name and value; an empty value shows as missing, not as blank */
export function Facts({ rows }) {
  return html`<dl class="facts">${rows.map(([name, value]) => html`<div key=${name}><dt>${name}</dt>
    <dd>${value === '' || value === null || value === undefined ? html`<span class="dim">not known</span>` : value}</dd></div>`)}</dl>`;
}

/** @param {{guard: any}} props */
export function GuardRoom({ guard }) {
  const room = roomOf(guard);
  const minutes = Math.round(guard.window_s / 60);
  return html`<div class=${`guard${room === 0 ? ' guard-full' : ''}`}>
    <p><strong>${room === 0 ? 'No room' : `Room for ${room}`}</strong>
      ${guard.tripped_at ? ' · tripped' : ''}<span class="dim"> · ${room === 0 ? 'Komainu takes no further node out' : `further ${room === 1 ? 'node' : 'nodes'} Komainu may take out`}</span></p>
    <${Meter} word="Out now" value=${guard.out} limit=${guard.limit} />
    <${Meter} word=${`Last ${minutes} min`} value=${guard.removed_in_window} limit=${guard.max_in_window} />
  </div>`;
}

/** @param {{word: string, value: number, limit: number}} props */
function Meter({ word, value, limit }) {
  const share = limit ? Math.min(1, value / limit) : 1;
  return html`<div class="meter"><span>${word}</span>
    <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect class="meter-bed" width="100" height="6" rx="1" /><rect class="meter-fill" width=${share * 100} height="6" rx="1" /></svg>
    <span class="num">${value} of ${limit}</span></div>`;
}

/** Evidence as it was read. The text may be a tenant's: it is only ever text. @param {{finding: any, most?: number} & Time} props */
export function Evidence({ finding, zone, most = 20 }) {
  const shown = finding.evidence.slice(0, most);
  const left = finding.evidence.length - shown.length;
  if (!shown.length) return html`<p class="dim">No evidence lines were kept.</p>`;
  return html`<ol class="evidence">${shown.map((/** @type {any} */ line) => html`<li key=${line.observation}>
    <time title=${moment(line.at, zone)}>${clock(line.at, zone)}</time><code>${line.text}</code></li>`)}
    ${left > 0 && html`<li class="dim">and ${count(left, 'more line')}</li>`}</ol>`;
}

/** @param {{view: any, time: Time, most?: number, parts?: number}} props */
export function FindingBlock({ view, time, most, parts = 0 }) {
  const f = view.finding;
  return html`<article class=${`finding sev-${view.severity}${view.open ? '' : ' closed'}`}>
    <header><${SeverityWord} word=${view.severity} /><a class="code" href=${findingsPath({ cluster: f.cluster, node: f.node, code: f.code, state: 'all' })}>${f.code}</a>
      <span class="dim">${f.component.kind}${f.component.id ? ` ${f.component.id}` : ''}</span>
      <span class="push"><${When} at=${f.at} ...${time} /></span></header>
    <p>${f.summary}${parts ? html`<span class="dim"> · ${count(parts, 'finding')} folded into it</span>` : ''}</p>
    <${Evidence} finding=${f} ...${time} most=${most} />
  </article>`;
}

/** @param {{word: string}} props */
export function SeverityWord({ word }) {
  return html`<span class=${`severity sev-${word}`}>${word}</span>`;
}

/** @param {{view: any, time: Time}} props DecisionView */
export function DecisionLine({ view, time }) {
  const d = view.decision;
  const last = view.outcomes[view.outcomes.length - 1];
  return html`<div class="decision"><p><strong>${d.action}</strong> <span class=${`state state-${view.state.replace(/\W/g, '-')}`}>${view.state}</span>
      <span class="dim">by</span> ${author(d.by)} <span class="push"><${When} at=${d.at} ...${time} /></span></p>
    <p><${Text} text=${d.reason} /></p>
    ${view.limit && html`<p class="warn-text">Held back by the guard: ${view.limit}</p>`}
    ${last?.detail && last.detail !== view.limit && html`<p class="dim"><${Text} text=${last.detail} /></p>`}
    <p class="dim small">${d.id}${d.policy_version ? ` · policy ${d.policy_version}` : ''}${d.job ? ` · job ${d.job}` : ''}</p></div>`;
}

/** @param {{row: any, verdict: any, time: Time}} props */
export function StandingLine({ row, verdict, time }) {
  return html`<div class="standing-line"><${Badge} standing=${row.standing} large />
    <span>${row.since ? html`since <${When} at=${row.since} ...${time} />` : html`<span class="dim">since when is not known</span>`}</span>
    ${verdict && verdict.phase !== 'settled' && html`<span class="state">${verdict.phase}</span>`}
    ${verdict?.advise_only && html`<span class="state">advise-only</span>`}</div>`;
}
