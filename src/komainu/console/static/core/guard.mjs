// What the guard holds back, and in what words a page says so.
import { clock, count, span } from './format.mjs';

/**
 * The removal of one node that waits for the guard: its newest decision, when that is held and has not
 * expired (an expired one is not carried out any more, whatever its last outcome says).
 * @param {any[]} decisions DecisionView of core/views.py, newest first @param {number} now epoch ms
 * @returns {any} DecisionView, or null
 */
export function heldBack(decisions, now) {
  const newest = decisions.find((view) => view.decision.action !== 'release-job');
  if (newest?.state !== 'held') return null;
  const { expires } = newest.decision;
  return expires && Date.parse(expires) <= now ? null : newest;
}

/**
 * How many more nodes may be taken out; none while tripped, when every removal is held back.
 * @param {any} guard GuardView
 */
export function roomOf(guard) {
  if (guard.tripped_at) return 0;
  return Math.max(0, Math.min(guard.limit - guard.out, guard.max_in_window - guard.removed_in_window));
}

/**
 * @param {any} guard GuardView, tripped @param {number} held nodes it holds back
 * @param {import('./format.mjs').Zone} zone
 * @returns {{lead: string, rest: string}} the alarm, and when it ends
 */
export function alarm(guard, held, zone) {
  const resets = Date.parse(guard.tripped_at) + guard.window_s * 1000;
  const limits = `${guard.out} of ${count(guard.limit, 'node')} out, ${guard.removed_in_window} of ${count(guard.max_in_window, 'removal')} in ${span(guard.window_s)}`;
  return {
    lead: `The guard has tripped at ${clock(guard.tripped_at, zone)}: ${count(held, 'decision')} ${held === 1 ? 'is' : 'are'} held back (limit: ${limits}).`,
    rest: `Nodes are told to advise only. It resets itself at ${clock(resets, zone)} at the earliest, when there is room.`,
  };
}
