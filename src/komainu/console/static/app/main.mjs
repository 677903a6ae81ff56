// The frame: who is looking, at which cluster, how fresh it is; and the screen that the address names.
import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { get, rememberCsrf } from './api.mjs';
import { Rail, TopBar } from './bar.mjs';
import { html } from './dom.mjs';
import { FindingsScreen } from './findings.mjs';
import { useLive } from './live.mjs';
import { useLoad } from './load.mjs';
import { MapScreen } from './map.mjs';
import { NodeScreen } from './node.mjs';
import { usePreference, useTheme } from './prefs.mjs';
import { findingsPath, followLink, go, mapPath, useRoute } from './route.mjs';
import { Empty, Failed, Skeleton } from './states.mjs';

const CLOCK_MS = 5000;

function useNow() {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), CLOCK_MS);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/** `g` then `c` or `f` changes the screen. @param {string} cluster */
function useScreenKeys(cluster) {
  useEffect(() => {
    let before = '';
    /** @param {KeyboardEvent} event */
    const pressed = (event) => {
      const typing = event.target instanceof Element && event.target.closest('input, textarea, select, dialog');
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (before === 'g' && event.key === 'c') go(mapPath(cluster));
      if (before === 'g' && event.key === 'f') go(findingsPath({ cluster }));
      before = event.key;
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, [cluster]);
}

/** Ticks per node, so that a page about one node is not read anew for another's sake. @param {{tick: number, nodes: Set<string>}} live @param {string} cluster */
function useNodeTicks(live, cluster) {
  const ticks = useRef(/** @type {Map<string, number>} */ (new Map()));
  const last = useRef(0);
  if (last.current !== live.tick) {
    last.current = live.tick;
    if (live.nodes.size === 0) ticks.current = new Map([['*', live.tick]]);
    for (const key of live.nodes) ticks.current.set(key, live.tick);
  }
  return (/** @type {string} */ node) => Math.max(ticks.current.get(`${cluster}/${node}`) ?? 0, ticks.current.get('*') ?? 0);
}

function App() {
  const route = useRoute();
  const now = useNow();
  const me = useLoad('/api/v1/me', (signal) => get('/api/v1/me', signal), 0);
  const [zone, setZone] = usePreference('zone', 'utc');
  const [themeWish, setThemeWish] = usePreference('theme', 'auto');
  const theme = useTheme(themeWish);
  const [paused, setPaused] = useState(false);
  const [fresh, setFresh] = useState({ at: 0, old: false });
  const [from, setFrom] = useState(/** @type {{cluster: string, seq: number} | null} */ (null));
  const [beat, setBeat] = useState(0);
  if (me.data) rememberCsrf(me.data.csrf);
  const clusters = useLoad(me.data ? '/api/v1/clusters' : '', (signal) => get('/api/v1/clusters', signal), beat);
  const list = clusters.data ?? [];
  const cluster = route.cluster || list[0]?.cluster || '';
  const clusterView = list.find((/** @type {any} */ c) => c.cluster === cluster) ?? null;
  useEffect(() => {
    if (clusterView && from?.cluster !== cluster) setFrom({ cluster, seq: clusterView.last_seq });
  }, [cluster, clusterView, from]);
  const live = useLive(cluster, from && from.cluster === cluster ? from.seq : null, paused);
  const tickOf = useNodeTicks(live, cluster);
  useEffect(() => setBeat(live.tick), [live.tick]);
  useScreenKeys(cluster);
  useEffect(() => {
    document.title = `${route.node || (route.screen === 'findings' ? 'Findings' : cluster || 'Clusters')} · Komainu`;
  }, [route, cluster]);

  if (!me.data) return html`<div class="boot"><${Failed} load=${me} zone=${zone} />${!me.error && html`<${Skeleton} lines=${6} />`}</div>`;
  const shell = {
    me: me.data, cluster, clusterView, params: route.params, theme, time: { zone, now }, tick: live.tick, tickOf,
    sayFresh: (/** @type {number} */ at, /** @type {boolean} */ old) => (at !== fresh.at || old !== fresh.old) && setFresh({ at, old }),
  };
  return html`<div class="frame" onClick=${followLink}>
    <${TopBar} ...${{ route, me: me.data, clusters: list, cluster, fresh, line: live.line, waiting: live.waiting, paused, setPaused, zone, setZone, themeWish, setThemeWish, clusterView }} />
    <${Rail} route=${route} cluster=${cluster} />
    <${Screen} route=${route} shell=${shell} clusters=${clusters} />
  </div>`;
}

/** @param {{route: any, shell: any, clusters: import('./load.mjs').Load}} props */
function Screen({ route, shell, clusters }) {
  if (clusters.error && !clusters.data) return html`<main class="screen"><${Failed} load=${clusters} zone=${shell.time.zone} /></main>`;
  if (clusters.data?.length === 0) return html`<main class="screen"><${Empty} title="No cluster is configured" text="Add a [[clusters]] part to komainu.toml and start the server again." /></main>`;
  if (clusters.data && !shell.clusterView && route.screen !== 'none') {
    return html`<main class="screen"><${Empty} title=${`There is no cluster called ${shell.cluster}`} action=${html`<a class="button" href="/">Show the first one</a>`} /></main>`;
  }
  if (!shell.cluster) return html`<main class="screen"><${Skeleton} lines=${8} /></main>`;
  if (route.screen === 'map') return html`<${MapScreen} key=${shell.cluster} shell=${shell} />`;
  if (route.screen === 'node') return html`<${NodeScreen} key=${route.node} shell=${shell} node=${route.node} />`;
  if (route.screen === 'findings') return html`<${FindingsScreen} shell=${shell} />`;
  return html`<main class="screen"><${Empty} title="There is no such page" action=${html`<a class="button" href="/">Cluster map</a>`} /></main>`;
}

render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById('app')));
