// What the guard holds back, and in what words a page says so.
import { clock, count, span } from './format.mjs';

/** @typedef {{node: string, limit: string, at: string}} Held a removal the guard holds back now */

/**
 * Removals that wait for the guard now: the newest decision about a node counts, and one that has
 * expired is not carried out any more, whatever its last outcome says.
 * @param {any[]} decisions DecisionView of core/views.py, newest first @param {number} now epoch ms
 * @returns {Held[]} oldest first
 */
export function heldBack(decisions, now) {
  /** @type {Map<string, Held | null>} */
  const byNode = new Map();
  for (const { decision, state, limit } of decisions) {
    if (decision.action === 'release-job' || byNode.has(decision.node)) continue;
    const expired = Boolean(decision.expires) && Date.parse(decision.expires) <= now;
    const waits = state === 'held' && !expired;
    byNode.set(decision.node, waits ? { node: decision.node, limit, at: decision.at } : null);
  }
  return [...byNode.values()].filter((one) => one !== null).reverse();
}

/**
 * @param {any} guard GuardView, tripped
 * @param {{held: Held[], more: boolean} | null} back null: not read yet; more: older ones were not read
 * @param {import('./format.mjs').Zone} zone
 * @returns {{lead: string, rest: string}} the alarm, and when it ends
 */
export function alarm(guard, back, zone) {
  const resets = Date.parse(guard.tripped_at) + guard.window_s * 1000;
  const limits = `${guard.out} of ${count(guard.limit, 'node')} out, ${guard.removed_in_window} of ${count(guard.max_in_window, 'removal')} in ${span(guard.window_s)}`;
  const many = back ? `${back.more ? 'at least ' : ''}${count(back.held.length, 'decision')} ${back.held.length === 1 ? 'is' : 'are'} held back` : 'decisions are held back';
  return {
    lead: `The guard has tripped at ${clock(guard.tripped_at, zone)}: ${many} (limit: ${limits}).`,
    rest: `Nodes are told to advise only. It resets itself at ${clock(resets, zone)} at the earliest, when there is room.`,
  };
}
