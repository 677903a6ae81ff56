// The top bar: where, how fresh, find, and whose eyes these are.
import { useEffect, useRef, useState } from 'preact/hooks';
import { clock } from '../core/format.mjs';
import { compareNatural } from '../core/natural.mjs';
import { get, post, withQuery } from './api.mjs';
import { html } from './dom.mjs';
import { Help } from './help.mjs';
import { Icon, Mark } from './glyph.mjs';
import { findingsPath, go, mapPath, nodePath } from './route.mjs';

const NEXT_THEME = /** @type {Record<string, string>} */ ({ auto: 'dark', dark: 'light', light: 'auto' });
const LINE_WORDS = { live: 'Live', connecting: 'Connecting', broken: 'Reconnecting', off: 'Off' };
const MOST_FOUND = 8;

/** @param {any} props */
export function TopBar({ route, me, clusters, cluster, fresh, line, waiting, paused, setPaused, zone, setZone, themeWish, setThemeWish, clusterView }) {
  /** @param {any} event */
  const pick = (event) => go(route.screen === 'findings' ? findingsPath({ cluster: event.currentTarget.value }) : mapPath(event.currentTarget.value));
  const leave = async () => {
    await post('/api/v1/logout', {}).catch(() => null);
    location.assign('/login');
  };
  const state = paused ? 'paused' : line;
  return html`<header class="top">
    <a class="brand" href=${cluster ? mapPath(cluster) : '/'}><${Mark} /><span>Komainu</span></a>
    <select class="cluster-pick" aria-label="Cluster" value=${cluster} onChange=${pick}>
      ${clusters.map((/** @type {any} */ c) => html`<option key=${c.cluster} value=${c.cluster}>${c.cluster}</option>`)}</select>
    <${Search} cluster=${cluster} />
    <span class=${`freshness${fresh.old || line === 'broken' ? ' old' : ''}`} role="status">
      <span>Data as of <b>${fresh.at ? clock(fresh.at, zone) : '–'}</b>${fresh.old || line === 'broken' ? ' · old' : ''}</span>
      <span class=${clusterView?.scheduler_error ? 'warn-text' : 'dim'} title=${clusterView?.scheduler_error ?? ''}>scheduler ${clusterView?.scheduler_error ? 'fails, last ' : ''}${clusterView?.scheduler_seen ? clock(clusterView.scheduler_seen, zone) : 'never read'}</span></span>
    <button type="button" class=${`live live-${state}`} aria-pressed=${paused} title=${paused ? 'Go on' : 'Pause: the picture stands still'}
      onClick=${() => setPaused(!paused)}><i aria-hidden="true"></i>${paused ? `Paused${waiting ? ` · ${waiting} waiting` : ''}` : LINE_WORDS[/** @type {keyof typeof LINE_WORDS} */ (line)]}</button>
    <button type="button" class="bare" title="Clock: UTC or this browser's" onClick=${() => setZone(zone === 'utc' ? 'local' : 'utc')}><${Icon} name="clock" />${zone === 'utc' ? 'UTC' : 'Local'}</button>
    <button type="button" class="bare" title="Theme" onClick=${() => setThemeWish(NEXT_THEME[themeWish] ?? 'auto')}><${Icon} name="theme" />${themeWish === 'auto' ? 'Auto' : themeWish === 'dark' ? 'Dark' : 'Light'}</button>
    <${Help} />
    <span class="who"><b>${me.user}</b><span class="dim">${me.role}</span></span>
    <button type="button" class="bare" title="Sign out" aria-label="Sign out" onClick=${leave}><${Icon} name="out" /></button>
  </header>`;
}

/** Finds a node by a part of its name. @param {{cluster: string}} props */
function Search({ cluster }) {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [text, setText] = useState('');
  const [names, setNames] = useState(/** @type {string[] | null} */ (null));
  const [at, setAt] = useState(0);
  useEffect(() => setNames(null), [cluster]);
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const pressed = (event) => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== 'k') return;
      event.preventDefault();
      field.current?.focus();
      field.current?.select();
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, []);
  const load = () => {
    if (names || !cluster) return;
    get(withQuery('/api/v1/nodes', { cluster })).then(
      (rows) => setNames(rows.map((/** @type {any} */ row) => row.node).sort(compareNatural)),
      () => setNames([]),
    );
  };
  const found = text && names ? names.filter((name) => name.toLowerCase().includes(text.toLowerCase())).slice(0, MOST_FOUND) : [];
  /** @param {string | undefined} name */
  const open = (name) => {
    if (!name) return;
    setText('');
    field.current?.blur();
    go(nodePath(cluster, name));
  };
  /** @param {KeyboardEvent} event */
  const pressed = (event) => {
    if (event.key === 'Enter') open(found[at] ?? found[0]);
    else if (event.key === 'ArrowDown') setAt(Math.min(found.length - 1, at + 1));
    else if (event.key === 'ArrowUp') setAt(Math.max(0, at - 1));
    else if (event.key === 'Escape') { setText(''); field.current?.blur(); } else return;
    event.preventDefault();
  };
  return html`<div class="search"><${Icon} name="search" />
    <input ref=${field} type="search" role="combobox" aria-label="Find a node" aria-expanded=${found.length > 0} aria-controls="search-found" placeholder="Find a node" spellcheck="false"
      value=${text} onFocus=${load} onKeyDown=${pressed} onBlur=${() => setTimeout(() => setText(''), 150)}
      onInput=${(/** @type {any} */ e) => { setText(e.currentTarget.value); setAt(0); }} /><kbd>Ctrl K</kbd>
    ${text && names && html`<ul id="search-found" role="listbox">${found.map((name, i) => html`<li key=${name} role="option" aria-selected=${i === at}
      onMouseDown=${() => open(name)}>${name}</li>`)}${found.length === 0 && html`<li class="dim">No node of ${cluster} is called so.</li>`}</ul>`}
  </div>`;
}

/** @param {{route: any, cluster: string}} props */
export function Rail({ route, cluster }) {
  /** @type {[string, 'map'|'findings', string, string][]} */
  const items = [['map', 'map', 'Cluster', mapPath(cluster)], ['findings', 'findings', 'Findings', findingsPath({ cluster })]];
  return html`<nav class="rail" aria-label="Screens">${items.map(([screen, icon, word, path]) => html`<a key=${screen} href=${path}
    aria-current=${route.screen === screen || (screen === 'map' && route.screen === 'node') ? 'page' : undefined}><${Icon} name=${icon} /><span>${word}</span></a>`)}</nav>`;
}
