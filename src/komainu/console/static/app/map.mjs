// The cluster map: what is broken, who needs someone, and what is happening, at a glance.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ago, clock, count } from '../core/format.mjs';
import { busy, countByStanding, gpuWords, listed, matches, needs } from '../core/picture.mjs';
import { MEANING, STANDINGS } from '../core/standing.mjs';
import { tell } from '../core/story.mjs';
import { get, getPicture, nodeApi, withQuery } from './api.mjs';
import { html } from './dom.mjs';
import { Badge, Glyph } from './glyph.mjs';
import { GuardAlarm } from './guard.mjs';
import { Inspector } from './inspector.mjs';
import { LabPanel } from './lab.mjs';
import { useLoad } from './load.mjs';
import { GuardRoom, Text } from './parts.mjs';
import { findingsPath, go, nodePath, setParams } from './route.mjs';
import { MapStage } from './stage.mjs';
import { Banner, Empty, Failed, Skeleton } from './states.mjs';
import { NodeTable } from './table.mjs';

const MOST_NEEDS = 7;
const MOST_STORY = 20;
/** Findings read for it; most are not worth a line. */
const STORY_FROM = 100;

/** @param {{shell: import('./shell.mjs').Shell}} props */
export function MapScreen({ shell }) {
  const { cluster, clusterView, params, tick } = shell;
  const load = useLoad(`map ${cluster}`, (signal) => getPicture(cluster, signal), tick);
  useEffect(() => shell.sayFresh(load.at, Boolean(load.error)), [load.at, load.error]);
  const chosenSet = new Set((params.get('standing') ?? '').split(',').filter(Boolean));
  const filter = { standings: chosenSet, text: params.get('q') ?? '' };
  const table = params.get('view') === 'table';
  useKeys(filter);
  const picture = load.data;
  if (!picture) {
    return html`<main class="screen map-screen"><${GuardAlarm} shell=${shell} /><${Failed} load=${load} zone=${shell.time.zone} />${!load.error && html`<${Skeleton} lines=${9} />`}</main>`;
  }
  const kept = picture.nodes.filter((/** @type {any} */ node) => matches(node, filter));
  const hidden = picture.nodes.length - kept.length;
  const selected = params.get('sel') ?? '';
  return html`<main class="screen map-screen" data-loading=${load.loading}>
    <${GuardAlarm} shell=${shell} />
    <${Counts} picture=${picture} filter=${filter} clusterView=${clusterView} />
    <${Failed} load=${load} zone=${shell.time.zone} />
    ${clusterView?.scheduler_error && html`<${Banner} tone="bad"><strong>The scheduler cannot be read.</strong> ${clusterView.scheduler_error}</${Banner}>`}
    ${clusterView?.advise_only && html`<${Banner}>Advise-only: Komainu says what it would do, and does nothing.</${Banner}>`}
    <div class="map-body">
      <section class="panel map-panel" aria-label="Map of the cluster">
        <${FilterBar} filter=${filter} hidden=${hidden} total=${picture.nodes.length} table=${table} />
        ${picture.nodes.length === 0
          ? html`<${Empty} title="No node is known in this cluster yet" text="Nodes appear when the scheduler lists them or an agent enrols. Start an agent on a node with: komainu agent" />`
          : kept.length === 0
            ? html`<${Empty} title=${`The filter hides all ${count(picture.nodes.length, 'node')}`} text=${filterWords(filter)}
                action=${html`<button type="button" onClick=${clearFilter}>Show all</button>`} />`
            : table
              ? html`<${NodeTable} nodes=${kept} cluster=${cluster} sort=${params.get('sort') ?? 'standing'} zone=${shell.time.zone} now=${shell.time.now} chosen=${selected} />`
              : html`<${MapStage} picture=${picture} theme=${shell.theme} filterKey=${location.search}
                  lit=${(/** @type {number} */ i) => matches(picture.nodes[i], filter)} chosen=${selected}
                  at=${params.get('at') ?? ''} onMove=${(/** @type {string} */ at) => setParams({ at })}
                  onChoose=${(/** @type {string} */ node) => setParams({ sel: node === selected ? null : node, act: null })}
                  onOpen=${(/** @type {string} */ node) => go(nodePath(cluster, node))}
                  card=${(/** @type {any} */ node, /** @type {number} */ gpu) => html`<${HoverCard} cluster=${cluster} node=${node} gpu=${gpu} shell=${shell} />`} />`}
        <${Legend} />
      </section>
      <${Happening} shell=${shell} />
      <aside class="side">
        ${selected && html`<${Inspector} key=${selected} shell=${shell} node=${selected} act=${params.get('act') ?? ''} />`}
        ${clusterView?.lab && shell.me.role !== 'viewer' && html`<${LabPanel} cluster=${cluster} node=${selected} zone=${shell.time.zone}
          gpus=${picture.nodes.reduce((/** @type {number} */ m, /** @type {any} */ n) => Math.max(m, n.gpus.length), 0)}
          anyNode=${() => pickHealthy(picture)} />`}
        <${Needs} picture=${picture} shell=${shell} />
        ${clusterView && html`<section class="panel"><header><h3>Guard</h3></header><${GuardRoom} guard=${clusterView.guard} /></section>`}
      </aside>
    </div>
  </main>`;
}

const clearFilter = () => setParams({ standing: null, q: null });

/** @param {import('../core/picture.mjs').Filter} filter */
function filterWords(filter) {
  const words = [];
  if (filter.standings.size) words.push(`standing is ${[...filter.standings].join(' or ')}`);
  if (filter.text) words.push(`node or rack contains “${filter.text}”`);
  return `Shown are nodes whose ${words.join(' and whose ')}.`;
}

/** @param {import('../core/picture.mjs').Filter} filter */
function useKeys(filter) {
  const held = useRef(filter);
  held.current = filter;
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const pressed = (event) => {
      const typing = event.target instanceof Element && event.target.closest('input, textarea, select, dialog');
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === 't' || event.key === 'T') setParams({ view: new URLSearchParams(location.search).get('view') === 'table' ? null : 'table' });
      else if (event.key === 'h') setParams({ standing: held.current.standings.size ? null : STANDINGS.filter((s) => s !== 'healthy').join(',') });
      else if (event.key === '/') document.getElementById('map-filter')?.focus();
      else if (event.key === 'Escape') setParams({ sel: null, act: null });
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, []);
}

/** @param {import('../core/picture.mjs').Picture} picture */
function pickHealthy(picture) {
  const healthy = picture.nodes.filter((node) => node.standing === 'healthy');
  const among = healthy.length ? healthy : picture.nodes;
  return among[Math.floor(Math.random() * among.length)].name;
}

/** @param {{picture: any, filter: any, clusterView: any}} props */
function Counts({ picture, filter, clusterView }) {
  const counts = countByStanding(picture);
  /** @param {string} standing */
  const toggle = (standing) => {
    const next = new Set(filter.standings);
    if (!next.delete(standing)) next.add(standing);
    setParams({ standing: [...next].join(',') });
  };
  return html`<div class="counts" role="group" aria-label="Nodes by standing; each is a filter">
    <button type="button" class="count" aria-pressed=${filter.standings.size === 0} onClick=${clearFilter}>
      <b>${picture.nodes.length.toLocaleString('en-US')}</b><span>nodes · ${picture.gpus.toLocaleString('en-US')} GPUs</span></button>
    ${STANDINGS.map((standing) => html`<button type="button" key=${standing} title=${MEANING[standing]}
      class=${`count count-${standing}${counts[standing] ? '' : ' none'}`} data-standing=${standing}
      aria-pressed=${filter.standings.has(standing)} onClick=${() => toggle(standing)}>
      <b>${(counts[standing] ?? 0).toLocaleString('en-US')}</b><span>${standing === 'healthy' ? html`<${Glyph} kind="alloc" />` : html`<${Glyph} kind=${standing} />`}${standing}</span></button>`)}
    ${clusterView && html`<div class="count-jobs"><div class="count count-plain"><b>${clusterView.jobs_running.toLocaleString('en-US')}</b><span>jobs running</span></div>
      <div class="count count-plain"><b>${clusterView.jobs_pending.toLocaleString('en-US')}</b><span>pending</span></div></div>`}
  </div>`;
}

/** @param {{filter: any, hidden: number, total: number, table: boolean}} props */
function FilterBar({ filter, hidden, total, table }) {
  return html`<div class="bar">
    <input id="map-filter" type="search" placeholder="Filter by node or rack  ( / )" aria-label="Filter by node or rack" value=${filter.text}
      onInput=${(/** @type {any} */ e) => setParams({ q: e.currentTarget.value })} />
    ${hidden > 0 && html`<span class="hidden-note">The filter ${table ? 'hides' : 'dims'} ${hidden.toLocaleString('en-US')} of ${count(total, 'node')}
      <button type="button" class="link" onClick=${clearFilter}>Show all</button></span>`}
    <div class="switch push" role="group" aria-label="View">
      <button type="button" aria-pressed=${!table} onClick=${() => setParams({ view: null })}>Map</button>
      <button type="button" aria-pressed=${table} title="T" onClick=${() => setParams({ view: 'table' })}>Table</button>
    </div></div>`;
}

function Legend() {
  return html`<div class="legend" aria-label="Legend">
    <span><${Glyph} kind="alloc" />busy</span><span><${Glyph} kind="idle" />idle</span>
    <span><${Glyph} kind="watched" />watched</span><span><${Glyph} kind="faulty" />faulty</span>
    <span><${Glyph} kind="quarantined" />quarantined</span><span><${Glyph} kind="quarantined" busy />job finishing</span>
    <span><${Glyph} kind="foreign" />foreign</span><span><${Glyph} kind="unseen" />unseen</span><span><${Glyph} kind="unseen" missing />gone</span></div>`;
}

/** The row of one node, read when somebody looks. @param {{shell: any, cluster: string, node: any}} props */
function useWhy({ shell, cluster, node }) {
  const path = node.standing === 'healthy' ? '' : nodeApi(cluster, node.name);
  const load = useLoad(path, (signal) => get(path, signal), `${shell.tickOf(node.name)} ${node.standing} ${node.since}`);
  return { row: load.data?.row ?? null, error: load.error };
}

/** @param {{cluster: string, node: any, gpu: number, shell: any}} props */
function HoverCard({ cluster, node, gpu, shell }) {
  const { row } = useWhy({ shell, cluster, node });
  const one = node.gpus[gpu];
  return html`<div class="card-head"><strong>${node.name}</strong><${Badge} standing=${node.standing} /></div>
    <p class="dim">${node.rack || 'rack not known'}${node.since ? ` · ${node.standing} for ${ago(node.since * 1000, shell.time.now).replace(' ago', '')}` : ''}</p>
    ${row?.why && html`<p><${Text} text=${row.why} /></p>`}
    <p>${node.gpus.length ? `${busy(node)} of ${listed(node)} GPUs busy` : 'No GPU seen'}${node.open ? ` · ${count(node.open, 'open finding')}` : ''}</p>
    ${one && html`<p class="dim">GPU ${one.index}: ${gpuWords(one)}${one.busy && one.standing !== 'healthy' ? ', a job holds it' : ''}</p>`}`;
}

/** @param {{picture: any, shell: any}} props */
function Needs({ picture, shell }) {
  const held = useMemo(() => new Set(shell.clusterView?.held_back), [shell.clusterView]);
  const { shown, more } = useMemo(() => needs(picture, MOST_NEEDS, held), [picture, held]);
  return html`<section class="panel needs"><header><h3>Needs you</h3>${more > 0 && html`<span class="dim">and ${more.toLocaleString('en-US')} more</span>`}</header>
    ${shown.length === 0 && html`<p class="dim">Nothing: every node is healthy, or out by someone else's hand.</p>`}
    <ul>${shown.map((node) => html`<${Need} key=${node.name} node=${node} held=${held.has(node.name)} shell=${shell} />`)}</ul></section>`;
}

/** @param {{node: any, held: boolean, shell: any}} props */
function Need({ node, held, shell }) {
  const { row, error } = useWhy({ shell, cluster: shell.cluster, node });
  return html`<li><a href=${nodePath(shell.cluster, node.name)}>
    <span class="need-head"><${Glyph} kind=${node.standing} /><strong>${node.name}</strong><span class=${held ? 'warn-text' : 'dim'}>${held ? 'held back, in service' : node.standing}</span><span class="push dim">${node.since ? ago(node.since * 1000, shell.time.now) : ''}</span></span>
    <span class="need-why">${row ? html`<${Text} text=${row.why || 'no reason was given'} />` : error ? 'the reason could not be read' : '…'}</span></a></li>`;
}

/** @param {{shell: any}} props */
function Happening({ shell }) {
  const { cluster, tick, time } = shell;
  const load = useLoad(`story ${cluster}`, async (signal) => {
    const [findings, decisions] = await Promise.all([
      get(withQuery('/api/v1/findings', { cluster, limit: STORY_FROM }), signal),
      get(withQuery('/api/v1/decisions', { cluster, limit: MOST_STORY }), signal),
    ]);
    return tell(findings.findings, decisions.decisions, MOST_STORY);
  }, tick);
  const [first] = useState(() => Date.now());
  return html`<section class="panel happening"><header><h3>What is happening</h3><a class="small" href=${findingsPath({ cluster })}>All findings</a></header>
    <${Failed} load=${load} zone=${time.zone} />
    ${!load.data && !load.error && html`<${Skeleton} />`}
    ${load.data?.length === 0 && html`<p class="dim">Nothing has been found or decided here yet.</p>`}
    <ol>${(load.data ?? []).map((/** @type {any} */ line) => html`<li key=${line.key} class=${Date.parse(line.at) > first ? 'fresh' : ''}>
      <time>${clock(line.at, time.zone)}</time><span class=${`dot dot-${line.tone}`} aria-hidden="true"></span>
      <span class="line" title=${line.text}><a href=${nodePath(cluster, line.node)}>${line.node}</a> <${Text} text=${line.text} /></span></li>`)}</ol></section>`;
}
