// Where every node and GPU stands: racks as bays, servers stacked in a bay, GPUs four to a row.
// Arithmetic only, so that finding what is under the pointer needs no search.

/** @typedef {import('./picture.mjs').Picture} Picture */
/** @typedef {{k: number, x: number, y: number}} View scale (pixels per unit) and offset in pixels */
/** @typedef {{label: string, nodes: number[]}} Bay indices of the picture's nodes, top to bottom */
/**
 * @typedef {object} Layout
 * @property {Bay[]} bays
 * @property {number} columns bays per line
 * @property {number} gpuRows lines of GPUs in a node
 * @property {number} nodeWidth @property {number} nodeHeight
 * @property {number} nodeGap above each node
 * @property {number} bayWidth @property {number} bayHeight
 * @property {number} width @property {number} height all in units
 * @property {number[]} place node index → bay * MOST_IN_BAY + position in it
 */

export const CELL = 6;
export const GAP = 1;
export const PER_LINE = 4;
/** Above each node; grows where there is room, so that names fit without lying on another's cells. */
const NODE_GAP_LEAST = 5;
const NODE_GAP_MOST = 11;
const BAY_GAP = 8;
/** Kept free for the rack's name. */
export const BAY_LABEL = 9;
/** A rack with more nodes takes several bays side by side. */
const MOST_IN_BAY = 16;

/** @param {Picture} picture @returns {Bay[]} */
function baysOf(picture) {
  /** @type {Bay[]} */
  const bays = [];
  let rack = null;
  for (let i = 0; i < picture.nodes.length; i++) {
    const last = bays[bays.length - 1];
    if (picture.nodes[i].rack === rack && last.nodes.length < MOST_IN_BAY) {
      last.nodes.push(i);
      continue;
    }
    const name = picture.nodes[i].rack || 'no rack';
    bays.push({ label: picture.nodes[i].rack === rack ? `${name} …` : name, nodes: [i] });
    rack = picture.nodes[i].rack;
  }
  return bays;
}

/**
 * Chooses how many bays stand side by side so that everything is as large as the window allows.
 * @param {Picture} picture @param {number} width @param {number} height of the window, pixels
 * @returns {Layout}
 */
export function layout(picture, width, height) {
  const bays = baysOf(picture);
  const most = picture.nodes.reduce((m, node) => Math.max(m, node.gpus.length), 1);
  const tallest = bays.reduce((m, bay) => Math.max(m, bay.nodes.length), 1);
  const gpuRows = Math.ceil(most / PER_LINE);
  const nodeWidth = PER_LINE * (CELL + GAP) - GAP;
  const nodeHeight = gpuRows * (CELL + GAP) - GAP;
  const least = BAY_LABEL + tallest * (NODE_GAP_LEAST + nodeHeight);
  let columns = 1;
  let best = 0;
  for (let c = 1; c <= Math.max(1, bays.length); c++) {
    const rows = Math.ceil(bays.length / c);
    const k = Math.min(width / (c * (nodeWidth + BAY_GAP) - BAY_GAP), height / (rows * (least + BAY_GAP)));
    if (k > best) [best, columns] = [k, c];
  }
  const rows = Math.max(1, Math.ceil(bays.length / columns));
  const spare = best > 0 ? (height / best / rows - least - BAY_GAP) / tallest : 0;
  const nodeGap = Math.min(NODE_GAP_MOST, NODE_GAP_LEAST + Math.max(0, spare));
  const bayHeight = BAY_LABEL + tallest * (nodeGap + nodeHeight);
  /** @type {number[]} */
  const place = [];
  bays.forEach((bay, b) => bay.nodes.forEach((node, i) => (place[node] = b * MOST_IN_BAY + i)));
  return {
    bays, columns, gpuRows, nodeWidth, nodeHeight, nodeGap, bayHeight, place,
    bayWidth: nodeWidth,
    width: columns * (nodeWidth + BAY_GAP) - BAY_GAP,
    height: rows * (bayHeight + BAY_GAP) - BAY_GAP,
  };
}

/** @param {Layout} l @param {number} bay @returns {[number, number]} its top left corner, units */
export function bayAt(l, bay) {
  return [(bay % l.columns) * (l.bayWidth + BAY_GAP), Math.floor(bay / l.columns) * (l.bayHeight + BAY_GAP)];
}

/** @param {Layout} l @param {number} node @returns {[number, number]} top left of its cells, units */
export function nodeAt(l, node) {
  const bay = Math.floor(l.place[node] / MOST_IN_BAY);
  const i = l.place[node] % MOST_IN_BAY;
  const [x, y] = bayAt(l, bay);
  return [x, y + BAY_LABEL + i * (l.nodeGap + l.nodeHeight) + l.nodeGap];
}

/** @param {Layout} l @param {number} width @param {number} height @returns {View} everything in sight */
export function fit(l, width, height) {
  const margin = 16;
  const k = Math.min((width - 2 * margin) / l.width, (height - 2 * margin) / l.height, 5);
  return { k, x: (width - l.width * k) / 2, y: Math.max(margin - BAY_LABEL * k * 0.3, 4) };
}

/** @param {Layout} l @param {View} v @param {number} node @returns {[number, number]} middle of it, pixels */
export function middleOf(l, v, node) {
  const [x, y] = nodeAt(l, node);
  return [(x + l.nodeWidth / 2) * v.k + v.x, (y + l.nodeHeight / 2) * v.k + v.y];
}

/** @param {Layout} l @param {View} v @param {number} px @param {number} py @returns {number} the node nearest to a point, -1 without nodes */
export function nearest(l, v, px, py) {
  let best = -1;
  let least = Infinity;
  for (let node = 0; node < l.place.length; node++) {
    const [x, y] = middleOf(l, v, node);
    const distance = (x - px) ** 2 + (y - py) ** 2;
    if (distance < least) [least, best] = [distance, node];
  }
  return best;
}

/** @param {Layout} l @param {number} node @param {number} k @param {number} width @param {number} height @returns {View} that node in the middle */
export function lookAt(l, node, k, width, height) {
  const [x, y] = middleOf(l, { k, x: 0, y: 0 }, node);
  return { k, x: width / 2 - x, y: height / 2 - y };
}

/** @param {View} v @param {number} px @param {number} py @param {number} factor @returns {View} */
export function zoomAt(v, px, py, factor) {
  const k = Math.min(14, Math.max(0.15, v.k * factor));
  const f = k / v.k;
  return { k, x: px - (px - v.x) * f, y: py - (py - v.y) * f };
}

/**
 * What lies under a point: node index and position among its GPUs (-1: the node, but no GPU).
 * @param {Layout} l @param {Picture} picture @param {View} v @param {number} px @param {number} py
 * @returns {{node: number, gpu: number} | null}
 */
export function hit(l, picture, v, px, py) {
  const x = (px - v.x) / v.k;
  const y = (py - v.y) / v.k;
  if (x < 0 || y < 0) return null;
  const column = Math.floor(x / (l.bayWidth + BAY_GAP));
  const line = Math.floor(y / (l.bayHeight + BAY_GAP));
  const bay = l.bays[line * l.columns + column];
  const inX = x - column * (l.bayWidth + BAY_GAP);
  const inY = y - line * (l.bayHeight + BAY_GAP) - BAY_LABEL;
  if (column >= l.columns || !bay || inX > l.bayWidth || inY < 0) return null;
  const i = Math.floor(inY / (l.nodeGap + l.nodeHeight));
  const node = bay.nodes[i];
  if (node === undefined) return null;
  const cellY = inY - i * (l.nodeGap + l.nodeHeight) - l.nodeGap;
  if (cellY < 0) return { node, gpu: -1 };
  const across = Math.min(PER_LINE - 1, Math.floor(inX / (CELL + GAP)));
  const gpu = Math.floor(cellY / (CELL + GAP)) * PER_LINE + across;
  return { node, gpu: gpu < picture.nodes[node].gpus.length ? gpu : -1 };
}

/**
 * The node that a key leads to: left and right go along the line, up and down within and between bays.
 * @param {Layout} l @param {number} node @param {'left'|'right'|'up'|'down'} where @returns {number}
 */
export function neighbour(l, node, where) {
  const bay = Math.floor(l.place[node] / MOST_IN_BAY);
  const i = l.place[node] % MOST_IN_BAY;
  if (where === 'up' && i > 0) return l.bays[bay].nodes[i - 1];
  if (where === 'down' && i + 1 < l.bays[bay].nodes.length) return l.bays[bay].nodes[i + 1];
  const step = { left: -1, right: 1, up: -l.columns, down: l.columns }[where];
  const next = l.bays[bay + step];
  if (!next) return node;
  const wanted = where === 'up' ? next.nodes.length - 1 : where === 'down' ? 0 : i;
  return next.nodes[Math.min(wanted, next.nodes.length - 1)];
}
