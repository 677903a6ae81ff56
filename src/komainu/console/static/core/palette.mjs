// Colours of cells, chosen by simulating three colour-vision deficiencies (tests/console/palette.test.mjs
// keeps the worst distance at or above 25). Hue is never the only channel: each kind has its own mark.
// style.css repeats these values as custom properties; a test holds the two together.

/**
 * @typedef {Record<import('./standing.mjs').Kind, string> &
 *   {bg: string, panel: string, line: string, text: string, dim: string, edge: string}} Palette
 *   edge: outline of what is watched, whose light amber has only 2.7:1 on white
 */

/** @type {Palette} */
const dark = {
  bg: '#10151c', panel: '#161d27', line: '#2a3441', text: '#dfe6ee', dim: '#8e9bab',
  idle: '#3b4654', alloc: '#3a6fe1', watched: '#fef205', faulty: '#f56148',
  quarantined: '#f78bda', foreign: '#9a938a', unseen: '#10151c', edge: '#fef205',
};

/** @type {Palette} */
const light = {
  bg: '#ffffff', panel: '#f5f7fa', line: '#ccd4de', text: '#17212c', dim: '#566474',
  idle: '#cfd7e0', alloc: '#2875e2', watched: '#cb930a', faulty: '#8b1611',
  quarantined: '#5d1059', foreign: '#857e79', unseen: '#ffffff', edge: '#7d5800',
};

export const PALETTES = { dark, light };
