// The findings list: folded by cause, and steady while new ones arrive.

/** @typedef {any} FindingView see core/views.py */
/** @typedef {{head: FindingView, parts: FindingView[]}} Fold a cause and the findings that are part of it */

/**
 * @param {FindingView[]} list in the server's order
 * @returns {Fold[]} each cause once; a part whose cause is not in the list stands for itself
 */
export function foldByCause(list) {
  const ids = new Set(list.map((view) => view.finding.id));
  /** @type {Map<string, Fold>} */
  const folds = new Map();
  for (const view of list) {
    if (!ids.has(view.finding.cause)) folds.set(view.finding.id, { head: view, parts: [] });
  }
  for (const view of list) {
    if (folds.has(view.finding.id)) continue;
    const root = rootOf(view, list);
    const fold = folds.get(root);
    if (fold) fold.parts.push(view);
    else folds.set(view.finding.id, { head: view, parts: [] });
  }
  return [...folds.values()];
}

/** @param {Fold[]} folds @returns {Fold[]} the worst first, and as they came within a severity */
export function worstFirst(folds) {
  return [...folds].sort((a, b) => b.head.finding.severity - a.head.finding.severity);
}

/** @param {FindingView} view @param {FindingView[]} list @returns {string} follows causes, but never in a ring */
function rootOf(view, list) {
  const byId = new Map(list.map((v) => [v.finding.id, v]));
  const passed = new Set();
  let at = view;
  while (byId.has(at.finding.cause) && !passed.has(at.finding.id)) {
    passed.add(at.finding.id);
    at = byId.get(at.finding.cause);
  }
  return at.finding.id;
}

/**
 * Merges a fresh page into what a person is reading: rows stay where they are and are brought up to
 * date in place; new ones wait until they are asked for.
 * @param {FindingView[]} shown @param {FindingView[]} fresh newest first
 * @returns {{shown: FindingView[], waiting: FindingView[]}}
 */
export function steady(shown, fresh) {
  const byId = new Map(fresh.map((view) => [view.finding.id, view]));
  const known = new Set(shown.map((view) => view.finding.id));
  return {
    shown: shown.map((view) => byId.get(view.finding.id) ?? view),
    waiting: fresh.filter((view) => !known.has(view.finding.id)),
  };
}

export const SEVERITIES = ['fatal', 'degraded', 'watch', 'info'];
