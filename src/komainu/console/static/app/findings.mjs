// The findings list. Its filters are in the address; rows never jump: what is new waits behind a button.
import { useEffect, useState } from 'preact/hooks';
import { count } from '../core/format.mjs';
import { foldByCause, SEVERITIES, steady } from '../core/findings.mjs';
import { get, withQuery } from './api.mjs';
import { html } from './dom.mjs';
import { GuardAlarm } from './guard.mjs';
import { useLoad } from './load.mjs';
import { Evidence, Facts, SeverityWord, When } from './parts.mjs';
import { nodePath, setParams } from './route.mjs';
import { Empty, Failed, Skeleton } from './states.mjs';

const PAGE = 100;

/** @param {{shell: import('./shell.mjs').Shell}} props */
export function FindingsScreen({ shell }) {
  const { params, cluster, tick, time } = shell;
  const wanted = { cluster, node: params.get('node') ?? '', code: params.get('code') ?? '', all: params.get('state') === 'all' };
  const severities = new Set((params.get('severity') ?? '').split(',').filter(Boolean));
  const path = withQuery('/api/v1/findings', { cluster, node: wanted.node, code: wanted.code, open: wanted.all ? undefined : 'true', limit: PAGE });
  const load = useLoad(cluster ? path : '', (signal) => get(path, signal), tick);
  useEffect(() => shell.sayFresh(load.at, Boolean(load.error)), [load.at, load.error]);
  const list = useSteadyList(path, load.data);
  // Folded first: a cause keeps what followed from it, also what the filter would hide by itself.
  const folds = foldByCause(list.shown).filter((fold) => !severities.size || severities.has(fold.head.severity));
  const hidden = list.shown.length - folds.reduce((sum, fold) => sum + 1 + fold.parts.length, 0);
  return html`<main class="screen findings-screen" data-loading=${load.loading}>
    <header class="screen-head"><h1>Findings</h1>
      <span class="dim">${load.data ? `${count(list.total, 'finding')}${wanted.all ? '' : ', open'} · ${cluster}` : cluster}</span>
      ${list.waiting.length > 0 && html`<button type="button" class="primary push new-rows" onClick=${list.take}>${list.waiting.length} new</button>`}</header>
    <${GuardAlarm} shell=${shell} />
    <${Filters} wanted=${wanted} severities=${severities} />
    <${Failed} load=${load} zone=${time.zone} />
    ${!load.data && !load.error && html`<${Skeleton} lines=${8} />`}
    ${load.data && folds.length === 0 && html`<${Empty} title=${hidden ? `The severity filter hides all ${count(hidden, 'finding')}` : wanted.all ? 'No finding matches' : 'No open finding matches'}
      text=${why(wanted)} action=${html`<button type="button" onClick=${() => setParams({ node: null, code: null, severity: null, state: 'all' })}>Show all findings</button>`} />`}
    ${folds.length > 0 && html`<div class="panel table-wrap"><table class="rows findings" aria-label="Findings">
      <thead><tr><th scope="col" class="c-sev">Severity</th><th scope="col" class="c-code">Code</th><th scope="col" class="c-node">Node</th><th scope="col" class="c-part">Component</th><th scope="col">Summary</th><th scope="col" class="c-at">First seen</th><th scope="col" class="c-state">State</th></tr></thead>
      <tbody>${folds.map((fold) => html`<${Row} key=${fold.head.finding.id} fold=${fold} time=${time} chosen=${params.get('sel') ?? ''} />`)}</tbody></table>
      ${hidden > 0 && html`<p class="cut">The severity filter hides ${count(hidden, 'finding')}.</p>`}
      ${list.more && html`<p class="cut">${count(list.shown.length, 'finding')} of ${list.total.toLocaleString('en-US')} shown. <button type="button" class="link" disabled=${list.fetching} onClick=${list.older}>Load older ones</button>${list.error}</p>`}
    </div>`}
  </main>`;
}

/**
 * The rows a person reads: they keep their places while newer answers come in behind them.
 * @param {string} path @param {any} page FindingPage
 */
function useSteadyList(path, page) {
  const [state, setState] = useState(/** @type {any} */ ({ path: '', shown: [], waiting: [], total: 0, more: false, before: null }));
  const [fetching, setFetching] = useState(false);
  const [error, setError] = useState('');
  useEffect(() => {
    if (!page) return;
    setState((/** @type {any} */ old) => {
      if (old.path !== path) return { path, shown: page.findings, waiting: [], total: page.total, more: page.more, before: page.before };
      return { ...old, ...steady(old.shown, page.findings), total: page.total };
    });
  }, [path, page]);
  const take = () => setState({ ...state, shown: [...state.waiting, ...state.shown], waiting: [] });
  const older = async () => {
    setFetching(true);
    try {
      const next = await get(`${path}&before=${encodeURIComponent(state.before)}`);
      setState((/** @type {any} */ old) => (old.path === path ? { ...old, shown: [...old.shown, ...steady(old.shown, next.findings).waiting], more: next.more, before: next.before } : old));
      setError('');
    } catch (failure) {
      setError(failure instanceof Error ? ` ${failure.message}` : String(failure));
    }
    setFetching(false);
  };
  const own = state.path === path ? state : { shown: [], waiting: [], total: 0, more: false };
  return { .../** @type {any} */ (own), take, older, fetching, error };
}

/** @param {any} wanted */
function why(wanted) {
  const words = [`cluster ${wanted.cluster}`, wanted.node && `node ${wanted.node}`, wanted.code && `code ${wanted.code}`, wanted.all ? '' : 'open ones only'];
  return `Asked for: ${words.filter(Boolean).join(', ')}.`;
}

/** @param {{wanted: any, severities: Set<string>}} props */
function Filters({ wanted, severities }) {
  /** @param {string} word */
  const toggle = (word) => {
    const next = new Set(severities);
    if (!next.delete(word)) next.add(word);
    setParams({ severity: [...next].join(',') });
  };
  /** @param {string} key */
  const field = (key) => (/** @type {any} */ event) => setParams({ [key]: event.currentTarget.value.trim() });
  return html`<div class="bar filters" role="search">
    <input type="search" aria-label="Node" placeholder="Node" spellcheck="false" value=${wanted.node} onChange=${field('node')} />
    <input type="search" aria-label="Code" placeholder="Code, such as GPU-XID-79" spellcheck="false" value=${wanted.code} onChange=${field('code')} />
    <div class="chips" role="group" aria-label="Severity">${SEVERITIES.map((word) => html`<button type="button" key=${word} class=${`chip sev-${word}`} aria-pressed=${severities.has(word)} onClick=${() => toggle(word)}>${word}</button>`)}</div>
    <div class="switch push" role="group" aria-label="State"><button type="button" aria-pressed=${!wanted.all} onClick=${() => setParams({ state: null })}>Open</button>
      <button type="button" aria-pressed=${wanted.all} onClick=${() => setParams({ state: 'all' })}>All</button></div></div>`;
}

/** @param {{fold: import('../core/findings.mjs').Fold, time: any, chosen: string}} props */
function Row({ fold, time, chosen }) {
  const { head, parts } = fold;
  const f = head.finding;
  const open = chosen === f.id;
  const toggle = () => setParams({ sel: open ? null : f.id });
  return html`<tr class=${`${open ? 'chosen' : ''}${head.open ? '' : ' closed'}`}>
    <td><${SeverityWord} word=${head.severity} /></td>
    <td><button type="button" class="link mono" aria-expanded=${open} onClick=${toggle}>${f.code}</button></td>
    <td><a href=${nodePath(f.cluster, f.node)}>${f.node}</a></td>
    <td class="dim">${f.component.kind}${f.component.id ? ` ${f.component.id}` : ''}</td>
    <td>${f.summary}${head.count > 1 && html` <button type="button" class="tag" onClick=${toggle} title="Findings folded into this one">+${head.count - 1}</button>`}</td>
    <td><${When} at=${f.at} ...${time} /></td><td>${head.open ? 'open' : 'closed'}</td></tr>
    ${open && html`<tr class="detail"><td colspan="7"><${Detail} view=${head} parts=${parts} time=${time} /></td></tr>`}`;
}

/** @param {{view: any, parts: any[], time: any}} props */
function Detail({ view, parts, time }) {
  const f = view.finding;
  return html`<div class="detail-body"><div><h3>Evidence</h3><${Evidence} finding=${f} ...${time} />
    ${parts.length > 0 && html`<h3>Same cause</h3><ul class="parts">${parts.map((part) => html`<li key=${part.finding.id}><${SeverityWord} word=${part.severity} /> <span class="mono">${part.finding.code}</span> ${part.finding.summary} <${When} at=${part.finding.at} ...${time} /></li>`)}</ul>`}</div>
    <${Facts} rows=${[
      ['NVIDIA advises', f.vendor_action ?? 'nothing'],
      ['Driver says', f.driver_action === null ? 'nothing' : `action ${f.driver_action}`],
      ['Our class', f.fault_class],
      ['Graded by', f.catalogue],
      ['Received', html`<${When} at=${view.received} ...${time} />`],
      ...(view.open ? [] : [/** @type {[string, any]} */ (['Closed by', view.released_by])]),
      ['Id', html`<span class="mono small">${f.id}</span>`],
    ]} /></div>`;
}
