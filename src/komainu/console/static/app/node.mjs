// The node page: its state now, why, since when, on what evidence, and what can be done about it.
import { useEffect } from 'preact/hooks';
import { clock, count, moment } from '../core/format.mjs';
import { finishing } from '../core/draw.mjs';
import { atPlaces, gpuWords } from '../core/picture.mjs';
import { kindOf } from '../core/standing.mjs';
import { foldByCause, worstFirst } from '../core/findings.mjs';
import { heldBack } from '../core/guard.mjs';
import { get, nodeApi } from './api.mjs';
import { ActionButtons, ActionPanel } from './act.mjs';
import { html } from './dom.mjs';
import { Glyph } from './glyph.mjs';
import { GuardAlarm } from './guard.mjs';
import { useLoad } from './load.mjs';
import { DecisionLine, Facts, FindingBlock, GuardRoom, StandingLine, Text, When } from './parts.mjs';
import { findingsPath, mapPath, setParams } from './route.mjs';
import { Banner, Empty, Failed, Skeleton } from './states.mjs';

const PAGE_OF_FINDINGS = 100;
const PAGE_OF_STORY = 200;

/** @param {{shell: import('./shell.mjs').Shell, node: string}} props */
export function NodeScreen({ shell, node }) {
  const { cluster, me, time, params } = shell;
  const path = nodeApi(cluster, node);
  const load = useLoad(path, (signal) => get(path, signal), shell.tickOf(node));
  useEffect(() => shell.sayFresh(load.at, Boolean(load.error)), [load.at, load.error]);
  const view = load.data;
  const act = params.get('act');
  if (!view) {
    return html`<main class="screen"><${Crumbs} cluster=${cluster} node=${node} /><${GuardAlarm} shell=${shell} node=${node} /><${Failed} load=${load} zone=${time.zone} />
      ${!load.error && html`<${Skeleton} lines=${8} />`}</main>`;
  }
  const open = worstFirst(foldByCause(view.findings.filter((/** @type {any} */ f) => f.open)));
  const closed = view.findings.filter((/** @type {any} */ f) => !f.open);
  return html`<main class="screen node-screen" data-loading=${load.loading}>
    <${Crumbs} cluster=${cluster} node=${node} />
    <${GuardAlarm} shell=${shell} node=${node} />
    <${Failed} load=${load} zone=${time.zone} />
    <header class="node-head panel"><div><h1>${node}</h1>
      <${StandingLine} row=${view.row} verdict=${view.verdict} time=${time} />
      <p class="why"><${Text} text=${view.row.why || (view.row.standing === 'healthy' ? 'Nothing speaks against this node.' : 'No reason was recorded.')} /></p></div>
      <${ActionButtons} role=${me.role} standing=${view.row.standing} onAsk=${(/** @type {string} */ what) => setParams({ act: what })} /></header>
    <${Silent} view=${view} time=${time} />
    <div class="node-body">
      <div class="column">
        <section class="panel"><header><h2>Why</h2><span class="dim">${count(open.length, 'open finding')}</span></header>
          ${open.length === 0 && html`<p class="dim">No open finding.${closed.length ? ` ${count(closed.length, 'earlier one')} below.` : ''}</p>`}
          ${open.map(({ head, parts }) => html`<${FindingBlock} key=${head.finding.id} view=${head} time=${time} parts=${parts.length} />
            ${parts.length > 0 && html`<details class="fold"><summary>${count(parts.length, 'finding')} with this cause</summary>
              ${parts.map((/** @type {any} */ part) => html`<${FindingBlock} key=${part.finding.id} view=${part} time=${time} />`)}</details>`}`)}
          ${closed.length > 0 && html`<details class="fold"><summary>${count(closed.length, 'closed finding')}</summary>
            ${closed.map((/** @type {any} */ f) => html`<${FindingBlock} key=${f.finding.id} view=${f} time=${time} most=${3} />`)}</details>`}
          ${view.findings.length >= PAGE_OF_FINDINGS && html`<p class="cut">The ${PAGE_OF_FINDINGS} newest are shown. <a href=${findingsPath({ cluster, node, state: 'all' })}>All findings of ${node}</a></p>`}
        </section>
        <${Gpus} row=${view.row} />
        <${Story} story=${view.story} time=${time} />
      </div>
      <aside class="side">
        ${(act === 'hold' || act === 'release') && html`<${ActionPanel} key=${node + act} cluster=${cluster} node=${node} what=${act} role=${me.role} onDone=${load.retry} />`}
        <${Decided} view=${view} time=${time} />
        <${SchedulerFacts} view=${view} time=${time} />
        <${Jobs} jobs=${view.jobs} time=${time} />
        <section class="panel"><header><h2>Guard</h2></header><${GuardRoom} guard=${view.guard} /></section>
        <section class="panel"><header><h2>Agent</h2></header><${Facts} rows=${[
          ['Last heard', view.row.seen ? html`<${When} at=${view.row.seen} ...${time} />` : 'never'],
          ['Verdict', view.verdict ? `${view.verdict.verdict} · ${view.verdict.phase}` : ''],
          ...Object.entries(view.verdict?.checks ?? {}).map(([name, said]) => /** @type {[string, any]} */ ([name, html`<${Check} said=${said} why=${view.verdict.details?.[name] ?? ''} />`])),
          ['Version', view.agent_version], ['Policy', view.policy_version],
          ['Boot', view.boot_id ? html`<span class="mono small">${view.boot_id}</span>` : ''],
        ]} /></section>
      </aside>
    </div></main>`;
}

/** @param {{cluster: string, node: string}} props */
function Crumbs({ cluster, node }) {
  return html`<nav class="crumbs" aria-label="You are here"><a href=${mapPath(cluster)}>${cluster}</a><span aria-hidden="true">/</span><span>${node}</span></nav>`;
}

/** @param {{view: any, time: any}} props */
function Silent({ view, time }) {
  const silent = view.row.verdict === 'UNKNOWN' && view.verdict?.verdict !== 'UNKNOWN';
  if (!view.row.seen) return html`<${Banner}>No agent has ever spoken for this node: whether it is healthy is not known.</${Banner}>`;
  if (silent) return html`<${Banner}>The agent has been silent since ${moment(view.row.seen, time.zone)}: what is below is the last that was known.</${Banner}>`;
  const blind = Object.entries(view.verdict?.checks ?? {}).filter(([, said]) => said === 'UNKNOWN');
  if (!blind.length) return null;
  return html`<${Banner}><strong>${count(blind.length, 'check')} could not look,</strong> so this node is not known to be healthy:
    <ul class="blind">${blind.map(([name]) => html`<li key=${name}><span class="mono">${name}</span>: ${view.verdict.details?.[name] ?? 'no detail'}</li>`)}</ul></${Banner}>`;
}

/** What one check said, and why it did not say OK. @param {{said: string, why: string}} props */
function Check({ said, why }) {
  return html`<span class=${said === 'OK' ? '' : 'warn-text'}>${said}</span>${why && html`<span class="dim"> · ${why}</span>`}`;
}

/** @param {{row: any}} props */
function Gpus({ row }) {
  const places = atPlaces(row.gpus.map((/** @type {any} */ gpu) => ({ ...gpu, busy: gpu.job !== '', missing: gpu.here === false })))
    .map((/** @type {any} */ gpu) => ({ job: '', pci: '', uuid: '', model: '', ...gpu }));
  const gone = places.filter((/** @type {any} */ gpu) => gpu.missing).length;
  return html`<section class="panel"><header><h2>GPUs</h2><span class="dim">${gone ? `${places.length - gone} of ${places.length} listed now` : row.gpus.length || 'none seen'}</span></header>
    ${row.gpus.length === 0 && html`<${Empty} title="No GPU was seen on this node" text="The agent lists them when the driver answers; until then nothing is drawn as healthy." />`}
    <div class="gpus">${places.map((/** @type {any} */ gpu) => html`<div key=${gpu.index} class=${`gpu gpu-${gpu.standing}${gpu.missing ? ' gpu-missing' : ''}`}>
      <p><${Glyph} kind=${kindOf(gpu.standing, gpu.job !== '')} missing=${gpu.missing} busy=${gpu.job !== '' && finishing(gpu.standing)} /><strong>GPU ${gpu.index}</strong></p>
      <p>${gpuWords(gpu)}${gpu.job ? html` · job <span class="mono">${gpu.job}</span>` : ''}</p>
      <p class="dim small mono" title=${gpu.uuid}>${gpu.pci || 'address not known'}</p><p class="dim small">${gpu.model}</p></div>`)}</div></section>`;
}

/** What stands, or what waits for the guard. @param {{view: any, time: any}} props */
function Decided({ view, time }) {
  const waits = view.standing_decision ? null : heldBack(view.decisions, time.now);
  const shown = view.standing_decision ?? waits;
  return html`<section class=${`panel${waits ? ' panel-alarm' : ''}`}><header><h2>${waits ? 'Held back, not done' : 'Standing decision'}</h2></header>
    ${shown ? html`<${DecisionLine} view=${shown} time=${time} />` : html`<p class="dim">None: nothing is decided about this node.</p>`}</section>`;
}

/** @param {{view: any, time: any}} props */
function SchedulerFacts({ view, time }) {
  const s = view.scheduler;
  return html`<section class="panel"><header><h2>Scheduler</h2></header>
    ${!s && html`<p class="dim">The scheduler does not know this node, or has not been read yet.</p>`}
    ${s && html`<${Facts} rows=${[
      ['State', html`<span class="mono">${view.row.scheduler}</span>`],
      ['Reason', s.reason ? html`<${Text} text=${s.reason} />` : 'none'],
      ['Set by', s.reason ? s.reason_by : 'nobody'],
      ...(s.reason_at ? [/** @type {[string, any]} */ (['Set at', html`<${When} at=${s.reason_at} ...${time} />`])] : []),
    ]} />`}</section>`;
}

/** @param {{jobs: any[], time: any}} props */
function Jobs({ jobs, time }) {
  return html`<section class="panel"><header><h2>Jobs</h2><span class="dim">${jobs.length || ''}</span></header>
    ${jobs.length === 0 && html`<p class="dim">No job here now.</p>`}
    ${jobs.length > 0 && html`<table class="small-rows"><thead><tr><th>Job</th><th>State</th><th>User</th><th class="num">GPUs</th><th>Started</th></tr></thead><tbody>
      ${jobs.map((job) => html`<tr key=${job.id} title=${job.name}><td class="mono">${job.id}</td><td>${job.state.toLowerCase()}</td><td class="clip">${job.user}</td><td class="num">${job.gpus}</td><td>${job.started ? clock(job.started, time.zone) : '–'}</td></tr>
        ${job.name && html`<tr class="job-name" key=${`${job.id} name`}><td colspan="5" class="dim clip">${job.name}</td></tr>`}`)}</tbody></table>`}</section>`;
}

/** @param {{story: any[], time: any}} props */
function Story({ story, time }) {
  return html`<section class="panel"><header><h2>History</h2><span class="dim">newest first</span></header>
    ${story.length === 0 && html`<p class="dim">Nothing has happened here since Komainu watches.</p>`}
    <ol class="story">${story.map((line, i) => html`<li key=${`${line.at} ${line.ref} ${i}`}>
      <${When} at=${line.at} ...${time} /><span class=${`what what-${line.what}`}>${line.what}</span><span class="text"><${Text} text=${line.text} /></span></li>`)}</ol>
    ${story.length >= PAGE_OF_STORY && html`<p class="cut">The ${PAGE_OF_STORY} newest lines are shown.</p>`}</section>`;
}
