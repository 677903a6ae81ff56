// The words of core/views.py Standing, and how a cell on the map is told apart by them.

/** @typedef {'healthy'|'watched'|'faulty'|'quarantined'|'foreign'|'unseen'} Standing */
/** @typedef {'idle'|'alloc'|'watched'|'faulty'|'quarantined'|'foreign'|'unseen'} Kind */

/** Worst first: the order of lists, counts and needs. @type {Standing[]} */
export const STANDINGS = ['faulty', 'quarantined', 'unseen', 'foreign', 'watched', 'healthy'];

/** What is drawn; a healthy GPU is either idle or allocated. @type {Kind[]} */
export const KINDS = ['idle', 'alloc', 'watched', 'faulty', 'quarantined', 'foreign', 'unseen'];

/** @type {Record<Standing, string>} */
export const MEANING = {
  healthy: 'Looked at, nothing wrong.',
  watched: 'Open findings, none of which takes it out of service.',
  faulty: 'Condemned and still in service: being decided, held back by the guard, or advise-only.',
  quarantined: 'Out of service by Komainu.',
  foreign: 'Out of service by someone else; Komainu leaves it alone.',
  unseen: 'No agent, a silent agent, or it could not be looked at. Not known to be healthy.',
};

/** What a person should look at before anything else, worst first. */
const NEEDS = new Set(['faulty', 'quarantined', 'unseen', 'watched']);

/** @param {string} word @returns {Standing} a word of a newer server reads as unseen, never as healthy */
export function standingOf(word) {
  return STANDINGS.includes(/** @type {Standing} */ (word)) ? /** @type {Standing} */ (word) : 'unseen';
}

/** @param {string} standing @param {boolean} busy @returns {Kind} */
export function kindOf(standing, busy) {
  const known = standingOf(standing);
  if (known === 'healthy') return busy ? 'alloc' : 'idle';
  return known;
}

/** @param {string} standing @returns {number} 0 is the worst */
export function rank(standing) {
  return STANDINGS.indexOf(standingOf(standing));
}

/** @param {string} standing */
export function needsSomeone(standing) {
  return NEEDS.has(standing);
}
