// The change feed, folded: what must be read anew, and from where to go on after a broken line.

/** @typedef {{seq: number, at: string, cluster: string, node: string, what: string, ref: string}} Change */
/**
 * @typedef {object} Feed
 * @property {number} after newest sequence number seen: where to continue
 * @property {number} changes how many came since the page last caught up
 * @property {Set<string>} nodes `cluster/node` changed since then
 * @property {Set<string>} kinds of changes since then
 */

/** @param {number} after @returns {Feed} */
export function feedFrom(after) {
  return { after, changes: 0, nodes: new Set(), kinds: new Set() };
}

/** @param {Feed} feed @param {Change} change @returns {Feed} a repeat changes nothing */
export function fold(feed, change) {
  if (change.seq <= feed.after) return feed;
  return {
    after: change.seq,
    changes: feed.changes + 1,
    nodes: new Set(feed.nodes).add(`${change.cluster}/${change.node}`),
    kinds: new Set(feed.kinds).add(change.what),
  };
}

/** The page has read everything anew. @param {Feed} feed @returns {Feed} */
export function caughtUp(feed) {
  return feedFrom(feed.after);
}

const FEWEST_MS = 60;
const APART_MS = 1000;

/**
 * Changes that come together are read together: the first at once, a storm once a second.
 * @param {number} now @param {number} last when the page last read, ms @returns {number} ms to wait
 */
export function gatherFor(now, last) {
  return Math.max(FEWEST_MS, Math.min(APART_MS, APART_MS - (now - last)));
}

const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 15000;

/** @param {number} failures in a row @returns {number} ms to wait before the next try */
export function backoff(failures) {
  return Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.max(0, failures - 1));
}
