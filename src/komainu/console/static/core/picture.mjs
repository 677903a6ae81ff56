// A cluster as the map and the table both show it: one picture, so that the two cannot disagree.
import { compareNatural } from './natural.mjs';
import { rank, needsSomeone, standingOf } from './standing.mjs';

/** @typedef {import('./standing.mjs').Standing} Standing */
/** @typedef {{index: number, standing: Standing, busy: boolean, missing?: boolean}} Gpu missing: not listed now, its place is kept */
/**
 * @typedef {object} Node
 * @property {string} name
 * @property {string} rack
 * @property {Standing} standing
 * @property {number} since epoch seconds; 0: not known
 * @property {number} open number of open findings
 * @property {Gpu[]} gpus
 */
/** @typedef {{nodes: Node[], gpus: number, at: number}} Picture nodes in rack and natural order */
/** @typedef {{standings: Set<string>, text: string}} Filter */

/** Beyond this an index is a number, not a place. */
const MOST_PLACES = 64;

/**
 * GPUs at their places: a GPU that is no longer listed leaves an empty place, and the others stay put.
 * @param {Gpu[]} gpus @returns {Gpu[]}
 */
export function atPlaces(gpus) {
  gpus.sort((a, b) => a.index - b.index);
  const last = gpus.length ? gpus[gpus.length - 1].index : -1;
  if (last + 1 === gpus.length || last >= MOST_PLACES) return gpus;
  const byIndex = new Map(gpus.map((gpu) => [gpu.index, gpu]));
  if (byIndex.size !== gpus.length) return gpus;
  return Array.from({ length: last + 1 }, (_, index) =>
    byIndex.get(index) ?? { index, standing: /** @type {Standing} */ ('unseen'), busy: false, missing: true });
}

/** @param {Node[]} nodes @param {number} at @returns {Picture} */
function ordered(nodes, at) {
  nodes.sort((a, b) => compareNatural(a.rack, b.rack) || compareNatural(a.name, b.name));
  let gpus = 0;
  for (const node of nodes) {
    gpus += listed(node);
    node.gpus = atPlaces(node.gpus);
  }
  return { nodes, gpus, at };
}

/**
 * From the columnar map of the API.
 * @param {import('./columns.mjs').Columns} map @param {number} at when it was read, epoch ms
 * @returns {Picture}
 */
export function pictureOf({ meta, columns: c }, at) {
  /** @param {number} i */
  const word = (i) => standingOf(meta.standings[i]);
  /** @type {Node[]} */
  const nodes = c.node.map((/** @type {string} */ name, /** @type {number} */ i) => ({
    name,
    rack: c.rack[i],
    standing: word(c.node_standing[i]),
    since: c.node_since[i],
    open: c.node_open[i],
    gpus: [],
  }));
  for (let g = 0; g < c.gpu_node.length; g++) {
    nodes[c.gpu_node[g]].gpus.push({
      index: c.gpu_index[g],
      standing: word(c.gpu_standing[g]),
      busy: c.gpu_busy[g] === 1,
      missing: c.gpu_here?.[g] === 0,
    });
  }
  return ordered(nodes, at);
}

/**
 * From rows as JSON, which a small cluster's map may come as.
 * @param {any[]} rows NodeRow of core/views.py @param {number} at @returns {Picture}
 */
export function pictureOfRows(rows, at) {
  return ordered(
    rows.map((row) => ({
      name: row.node,
      rack: row.rack,
      standing: standingOf(row.standing),
      since: row.since ? Math.floor(Date.parse(row.since) / 1000) : 0,
      open: row.open_findings,
      gpus: row.gpus.map((/** @type {any} */ gpu) => ({
        index: gpu.index,
        standing: standingOf(gpu.standing),
        busy: gpu.job !== '',
        missing: gpu.here === false,
      })),
    })),
    at,
  );
}

/** @param {Node} node @param {Filter} filter */
export function matches(node, filter) {
  if (filter.standings.size && !filter.standings.has(node.standing)) return false;
  const text = filter.text.toLowerCase();
  return !text || node.name.toLowerCase().includes(text) || node.rack.toLowerCase().includes(text);
}

/** @param {Picture} picture @returns {Record<string, number>} nodes by standing */
export function countByStanding(picture) {
  /** @type {Record<string, number>} */
  const counts = {};
  for (const node of picture.nodes) counts[node.standing] = (counts[node.standing] ?? 0) + 1;
  return counts;
}

/**
 * Who needs a person: first what the guard holds back (bad, and still taking jobs), then worst first,
 * longest first within a standing.
 * @param {Picture} picture @param {number} most @param {ReadonlySet<string>} [held] nodes held back
 * @returns {{shown: Node[], more: number}}
 */
export function needs(picture, most, held = new Set()) {
  const all = picture.nodes
    .filter((node) => needsSomeone(node.standing) || held.has(node.name))
    .sort((a, b) => Number(held.has(b.name)) - Number(held.has(a.name)) || rank(a.standing) - rank(b.standing) || b.since - a.since);
  return { shown: all.slice(0, most), more: Math.max(0, all.length - most) };
}

/** @typedef {'node'|'rack'|'standing'|'since'|'open'|'gpus'|'busy'} SortKey */
/** @type {Record<SortKey, (a: Node, b: Node) => number>} */
const ORDERS = {
  node: (a, b) => compareNatural(a.name, b.name),
  rack: (a, b) => compareNatural(a.rack, b.rack) || compareNatural(a.name, b.name),
  standing: (a, b) => rank(a.standing) - rank(b.standing) || compareNatural(a.name, b.name),
  since: (a, b) => b.since - a.since || compareNatural(a.name, b.name),
  open: (a, b) => b.open - a.open || compareNatural(a.name, b.name),
  gpus: (a, b) => listed(b) - listed(a) || compareNatural(a.name, b.name),
  busy: (a, b) => busy(b) - busy(a) || compareNatural(a.name, b.name),
};

/** @param {Node} node @returns {number} GPUs there now that a job holds */
export function busy(node) {
  return node.gpus.reduce((sum, gpu) => sum + Number(gpu.busy && !gpu.missing), 0);
}

/** @param {Node} node @returns {number} GPUs there now */
export function listed(node) {
  return node.gpus.reduce((sum, gpu) => sum + Number(!gpu.missing), 0);
}

/** @param {{standing: string, busy: boolean, missing?: boolean}} gpu @returns {string} its state in words */
export function gpuWords(gpu) {
  const own = gpu.standing === 'healthy' ? (gpu.busy ? 'busy' : 'idle') : gpu.standing;
  if (!gpu.missing) return own;
  return gpu.standing === 'faulty' ? 'faulty: not listed now' : 'not listed now';
}

/** @param {Node[]} nodes @param {string} key @param {boolean} reverse @returns {Node[]} a sorted copy */
export function sorted(nodes, key, reverse) {
  const order = ORDERS[/** @type {SortKey} */ (key)] ?? ORDERS.rack;
  const copy = [...nodes].sort(order);
  return reverse ? copy.reverse() : copy;
}
