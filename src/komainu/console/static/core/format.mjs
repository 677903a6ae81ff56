// How times, counts and names read. The zone is an argument: `utc` or the browser's own.

/** @typedef {'utc'|'local'} Zone */

/** @param {number} n */
const two = (n) => String(n).padStart(2, '0');

/** @param {string|number|null|undefined} at ISO text or epoch ms @returns {Date|null} */
export function instant(at) {
  if (at === null || at === undefined || at === '' || at === 0) return null;
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? null : date;
}

/** @param {Date} d @param {Zone} zone */
function fields(d, zone) {
  return zone === 'utc'
    ? [d.getUTCFullYear(), d.getUTCMonth() + 1, d.getUTCDate(), d.getUTCHours(), d.getUTCMinutes(), d.getUTCSeconds()]
    : [d.getFullYear(), d.getMonth() + 1, d.getDate(), d.getHours(), d.getMinutes(), d.getSeconds()];
}

/** @param {string|number|null|undefined} at @param {Zone} zone @returns {string} `14:03:22`, or `never` */
export function clock(at, zone) {
  const date = instant(at);
  if (!date) return 'never';
  const [, , , h, m, s] = fields(date, zone);
  return `${two(h)}:${two(m)}:${two(s)}`;
}

/** @param {string|number|null|undefined} at @param {Zone} zone @returns {string} `2026-11-30 14:03:22 UTC` */
export function moment(at, zone) {
  const date = instant(at);
  if (!date) return 'never';
  const [y, mo, d] = fields(date, zone);
  return `${y}-${two(mo)}-${two(d)} ${clock(at, zone)}${zone === 'utc' ? ' UTC' : ''}`;
}

/** @param {number} seconds @returns {string} `42 s`, `7 min`, `3 h 20 min`, `12 d 4 h` */
export function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) {
    const rest = Math.floor((s % 3600) / 60);
    return `${Math.floor(s / 3600)} h${rest ? ` ${rest} min` : ''}`;
  }
  const rest = Math.floor((s % 86400) / 3600);
  return `${Math.floor(s / 86400)} d${rest ? ` ${rest} h` : ''}`;
}

/** @param {string|number|null|undefined} at @param {number} now epoch ms @returns {string} `7 min ago` */
export function ago(at, now) {
  const date = instant(at);
  if (!date) return 'never';
  const seconds = (now - date.getTime()) / 1000;
  return seconds < 2 ? 'just now' : `${span(seconds)} ago`;
}

/** @param {number} n @param {string} one @param {string} [many] @returns {string} `1 node`, `1,250 nodes` */
export function count(n, one, many = `${one}s`) {
  return `${n.toLocaleString('en-US')} ${n === 1 ? one : many}`;
}

/** Of an id as long as stable_id makes them, what tells it from the others on a page. */
const ID = /\b([A-Z]-[0-9a-f]{8})[0-9a-f]{6,}\b/g;

/**
 * A text with its long ids shortened for the eye.
 * @param {string} text @returns {{text: string, id: string}[]} pieces in order; `id`: the whole id of a shortened one
 */
export function pieces(text) {
  const found = [];
  let end = 0;
  for (const match of text.matchAll(ID)) {
    found.push({ text: text.slice(end, match.index), id: '' }, { text: `${match[1]}…`, id: match[0] });
    end = match.index + match[0].length;
  }
  return [...found, { text: text.slice(end), id: '' }].filter((piece) => piece.text);
}

/** `person:ada` and `policy` as a person reads them. @param {string} by */
export function author(by) {
  return by.startsWith('person:') ? by.slice('person:'.length) : by;
}
