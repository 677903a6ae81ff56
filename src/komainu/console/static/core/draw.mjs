// The cluster on a canvas: cells grouped by kind and filled group by group, marks in one path per group,
// nothing outside the window drawn. Needs no DOM but the 2D context it is given.
import { BAY_LABEL, CELL, GAP, PER_LINE, bayAt, nodeAt } from './layout.mjs';
import { KINDS, kindOf } from './standing.mjs';

/** @typedef {import('./layout.mjs').Layout} Layout */
/** @typedef {import('./picture.mjs').Picture} Picture */
/** @typedef {import('./palette.mjs').Palette} Palette */
/** @typedef {import('./standing.mjs').Kind} Kind */
/**
 * @typedef {object} Scene
 * @property {Picture} picture @property {Layout} layout @property {import('./layout.mjs').View} view
 * @property {number} width @property {number} height pixels @property {number} ratio device pixels each
 * @property {Palette} palette
 * @property {boolean} outlined whether idle cells, quiet on purpose, need an outline (high contrast)
 * @property {(node: number) => boolean} lit whether the filters keep it
 * @property {number} active node under the keyboard or pointer, -1: none
 * @property {number} chosen node in the inspector, -1: none
 */

const FONT = '"Inter", "Segoe UI", system-ui, "DejaVu Sans", sans-serif';
/** Below this many pixels a mark would be a smudge. */
const MARK_FROM = 4;
/** Room a name needs above its node. */
const NAME_PX = 13;

/** @param {CanvasRenderingContext2D} g @param {Scene} scene @returns {number} cells drawn */
export function draw(g, scene) {
  const { width, height, ratio, palette } = scene;
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.globalAlpha = 1;
  g.fillStyle = palette.bg;
  g.fillRect(0, 0, width, height);
  const seen = inSight(scene);
  /** @type {Seen[]} */
  const lit = [];
  /** @type {Seen[]} */
  const dimmed = [];
  for (const one of seen) (scene.lit(one.node) ? lit : dimmed).push(one);
  g.globalAlpha = 0.16;
  let drawn = cells(g, scene, dimmed);
  g.globalAlpha = 1;
  drawn += cells(g, scene, lit);
  frames(g, scene, lit);
  names(g, scene, seen);
  cursor(g, scene);
  return drawn;
}

/** A job on a GPU that is out only finishes there. @param {string} kind */
export const finishing = (kind) => kind === 'quarantined' || kind === 'foreign';

/** @typedef {{node: number, x: number, y: number}} Seen a node and where its cells start, pixels */

/** @param {Scene} scene @returns {Seen[]} */
function inSight({ picture, layout: l, view: v, width, height }) {
  const seen = [];
  for (let node = 0; node < picture.nodes.length; node++) {
    const [ux, uy] = nodeAt(l, node);
    const x = ux * v.k + v.x;
    const y = uy * v.k + v.y;
    const hidden = x > width || y > height || x + l.nodeWidth * v.k < 0 || y + l.nodeHeight * v.k < 0;
    if (!hidden) seen.push({ node, x, y });
  }
  return seen;
}

/** @param {CanvasRenderingContext2D} g @param {Scene} scene @param {Seen[]} seen */
function cells(g, { picture, layout: l, view: v, palette, outlined }, seen) {
  /** @type {Record<string, number[]>} */
  const groups = Object.fromEntries(KINDS.map((kind) => [kind, []]));
  /** @type {number[]} */
  const busy = [];
  /** @type {[number[], number[]]} not listed now: condemned for it, and not */
  const missing = [[], []];
  const step = (CELL + GAP) * v.k;
  const px = CELL * v.k;
  let drawn = 0;
  for (const { node, x, y } of seen) {
    const gpus = picture.nodes[node].gpus;
    for (let i = 0; i < gpus.length; i++) {
      const cx = x + (i % PER_LINE) * step;
      const cy = y + Math.floor(i / PER_LINE) * step;
      const kind = kindOf(gpus[i].standing, gpus[i].busy);
      if (gpus[i].missing) missing[kind === 'faulty' ? 0 : 1].push(cx, cy);
      else groups[kind].push(cx, cy);
      if (gpus[i].busy && finishing(kind)) busy.push(cx, cy);
      drawn++;
    }
    // A node whose GPUs nobody has seen is still there: an empty frame, never a gap.
    if (!gpus.length) hollow(g, palette.dim, [x, y], l.nodeWidth * v.k, l.nodeHeight * v.k);
  }
  for (const kind of KINDS) {
    if (kind === 'unseen') hollow(g, palette.dim, groups[kind], px, px);
    else fill(g, palette[kind], groups[kind], px);
    if (px >= MARK_FROM) mark(g, MARKS[kind], palette.bg, groups[kind], px);
  }
  if (px >= MARK_FROM && palette.edge !== palette.watched) hollow(g, palette.edge, groups.watched, px, px);
  if (px >= MARK_FROM && outlined) hollow(g, palette.dim, groups.idle, px, px);
  gone(g, palette.dim, MARKS.missing, missing[1], px);
  gone(g, palette.faulty, MARKS.faulty, missing[0], px);
  if (px >= 8) stillRunning(g, palette, busy, px);
  return drawn;
}

/** @param {CanvasRenderingContext2D} g @param {string} colour @param {number[]} at @param {number} px */
function fill(g, colour, at, px) {
  if (!at.length) return;
  g.fillStyle = colour;
  for (let i = 0; i < at.length; i += 2) g.fillRect(at[i], at[i + 1], px, px);
}

/** A place whose GPU is gone: nothing in it, and a stroke through it. @param {CanvasRenderingContext2D} g @param {string} colour @param {number[]} lines @param {number[]} at @param {number} px */
function gone(g, colour, lines, at, px) {
  hollow(g, colour, at, px, px);
  if (px >= MARK_FROM) mark(g, lines, colour, at, px);
}

/** @param {CanvasRenderingContext2D} g @param {string} colour @param {number[]} at @param {number} w @param {number} h */
function hollow(g, colour, at, w, h) {
  if (!at.length) return;
  g.strokeStyle = colour;
  g.lineWidth = 1;
  g.beginPath();
  for (let i = 0; i < at.length; i += 2) g.rect(at[i] + 0.5, at[i + 1] + 0.5, w - 1, h - 1);
  g.stroke();
}

/**
 * The second channel besides hue. The page's legend and badges draw the same shapes (app/glyph.mjs).
 * Lines of a mark in a unit square: x1, y1, x2, y2 in turn.
 * `missing` is a GPU that was there before and is not listed now.
 * @type {Partial<Record<Kind, number[]>> & {faulty: number[], missing: number[]}}
 */
export const MARKS = {
  watched: [0.5, 0.2, 0.5, 0.8],
  faulty: [0.24, 0.24, 0.76, 0.76, 0.76, 0.24, 0.24, 0.76],
  quarantined: [0, 0.55, 0.55, 0, 0.1, 1, 1, 0.1, 0.6, 1, 1, 0.6],
  foreign: [0, 0.25, 1, 0.25, 0, 0.5, 1, 0.5, 0, 0.75, 1, 0.75],
  missing: [0.2, 0.8, 0.8, 0.2],
};

/** @param {CanvasRenderingContext2D} g @param {number[] | undefined} lines @param {string} colour @param {number[]} at @param {number} px */
function mark(g, lines, colour, at, px) {
  if (!lines || !at.length) return;
  g.strokeStyle = colour;
  g.lineWidth = Math.max(1, px / 8);
  g.beginPath();
  for (let i = 0; i < at.length; i += 2) {
    for (let m = 0; m < lines.length; m += 4) {
      g.moveTo(at[i] + lines[m] * px, at[i + 1] + lines[m + 1] * px);
      g.lineTo(at[i] + lines[m + 2] * px, at[i + 1] + lines[m + 3] * px);
    }
  }
  g.stroke();
}

/** @param {CanvasRenderingContext2D} g @param {Palette} p @param {number[]} at @param {number} px */
function stillRunning(g, p, at, px) {
  const size = Math.round(px * 0.42);
  g.strokeStyle = p.bg;
  g.lineWidth = 1.5;
  g.fillStyle = p.alloc;
  for (let i = 0; i < at.length; i += 2) {
    g.fillRect(at[i] + px - size, at[i + 1] + px - size, size, size);
    g.strokeRect(at[i] + px - size, at[i + 1] + px - size, size, size);
  }
}

/** @param {import('./layout.mjs').View} v @returns {number} pixels between cells and frame */
const frameOut = (v) => Math.min(4, Math.max(1.5, v.k * 0.9));

/** A node that is not healthy has a frame, also where its GPUs look well. @param {CanvasRenderingContext2D} g @param {Scene} scene @param {Seen[]} seen */
function frames(g, { picture, layout: l, view: v, palette }, seen) {
  if (CELL * v.k < MARK_FROM) return;
  const out = frameOut(v);
  g.lineWidth = Math.min(2, Math.max(1, v.k * 0.5));
  for (const standing of /** @type {const} */ (['watched', 'foreign', 'quarantined', 'faulty'])) {
    g.strokeStyle = standing === 'watched' ? palette.edge : palette[standing];
    g.beginPath();
    for (const { node, x, y } of seen) {
      if (picture.nodes[node].standing !== standing) continue;
      g.rect(x - out, y - out, l.nodeWidth * v.k + 2 * out, l.nodeHeight * v.k + 2 * out);
    }
    g.stroke();
  }
}

/** @param {CanvasRenderingContext2D} g @param {Scene} scene @param {Seen[]} seen */
function names(g, { picture, layout: l, view: v, palette, width, height }, seen) {
  g.textBaseline = 'alphabetic';
  g.fillStyle = palette.dim;
  if (l.nodeGap * v.k >= NAME_PX) {
    const room = l.nodeWidth * v.k + 4;
    g.font = `${nameSize(g, seen.map((s) => picture.nodes[s.node].name), room, l.nodeGap * v.k * 0.62)}px ${FONT}`;
    for (const { node, x, y } of seen) {
      g.fillText(clipped(g, picture.nodes[node].name, room), x, y - frameOut(v) - 4);
    }
  }
  const size = Math.min(13, BAY_LABEL * v.k * 0.75);
  if (size < 7) return;
  g.font = `600 ${size}px ${FONT}`;
  g.fillStyle = palette.text;
  l.bays.forEach((bay, b) => {
    const [ux, uy] = bayAt(l, b);
    const x = ux * v.k + v.x;
    const y = uy * v.k + v.y;
    if (x > width || y > height || x + l.bayWidth * v.k < 0 || y + BAY_LABEL * v.k < 0) return;
    g.fillText(clipped(g, bay.label, l.bayWidth * v.k), x, y + BAY_LABEL * v.k * 0.72);
  });
}

/**
 * The size at which the longest name fits, within reason.
 * @param {CanvasRenderingContext2D} g @param {string[]} names @param {number} width @param {number} most
 */
function nameSize(g, names, width, most) {
  const longest = names.reduce((a, b) => (b.length > a.length ? b : a), '');
  g.font = `10px ${FONT}`;
  const fits = (10 * width) / Math.max(1, g.measureText(longest).width);
  return Math.max(8.5, Math.min(12, most, fits));
}

/** Keeps the end, which tells names apart. @param {CanvasRenderingContext2D} g @param {string} text @param {number} width */
function clipped(g, text, width) {
  if (g.measureText(text).width <= width) return text;
  let kept = text;
  while (kept.length > 1 && g.measureText(`…${kept}`).width > width) kept = kept.slice(1);
  return `…${kept}`;
}

/** @param {CanvasRenderingContext2D} g @param {Scene} scene */
function cursor(g, { layout: l, view: v, palette, active, chosen }) {
  for (const [node, wide] of [[chosen, 3], [active, 2]]) {
    if (node < 0) continue;
    const [ux, uy] = nodeAt(l, node);
    const out = Math.max(3, v.k * 1.6);
    g.strokeStyle = palette.text;
    g.lineWidth = wide;
    g.strokeRect(
      ux * v.k + v.x - out, uy * v.k + v.y - out,
      l.nodeWidth * v.k + 2 * out, l.nodeHeight * v.k + 2 * out,
    );
  }
}
