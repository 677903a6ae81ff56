// Server-sent events of one cluster, folded; a broken line is mended with growing pauses, and goes on
// from the last change that was seen.
import { useEffect, useRef, useState } from 'preact/hooks';
import { backoff, caughtUp, feedFrom, fold, gatherFor } from '../core/feed.mjs';
import { withQuery } from './api.mjs';

/** Everything is read anew this often even when nothing seems to change: ages and missed events. */
const ANYWAY_MS = 15000;

/** @typedef {'connecting'|'live'|'broken'|'off'} Line */

/**
 * @param {string} cluster '' for none
 * @param {number | null} from sequence number to start after; null: not known yet
 * @param {boolean} paused
 * @returns {{line: Line, tick: number, waiting: number, nodes: Set<string>}} `tick` counts what the page
 *   should read anew; `waiting` counts changes held back by the pause
 */
export function useLive(cluster, from, paused) {
  const [line, setLine] = useState(/** @type {Line} */ ('connecting'));
  const [beat, setBeat] = useState({ tick: 0, nodes: /** @type {Set<string>} */ (new Set()) });
  const [waiting, setWaiting] = useState(0);
  const held = useRef({ feed: feedFrom(0), paused, timer: 0, read: 0 });
  const ready = from !== null;

  const flush = () => {
    const { feed } = held.current;
    held.current.timer = 0;
    if (held.current.paused) return setWaiting(feed.changes);
    held.current.read = Date.now();
    held.current.feed = caughtUp(feed);
    setWaiting(0);
    return setBeat((old) => ({ tick: old.tick + 1, nodes: feed.nodes }));
  };

  useEffect(() => {
    held.current.paused = paused;
    if (!paused && held.current.feed.changes) flush();
  }, [paused]);

  useEffect(() => {
    if (!cluster || !ready) return undefined;
    held.current.feed = feedFrom(/** @type {number} */ (from));
    let failures = 0;
    let retry = 0;
    /** @type {EventSource} */
    let source;
    const heard = (/** @type {MessageEvent} */ event) => {
      if (!event.data) return;
      held.current.feed = fold(held.current.feed, JSON.parse(event.data));
      if (held.current.feed.changes && !held.current.timer) held.current.timer = setTimeout(flush, gatherFor(Date.now(), held.current.read));
    };
    const open = () => {
      source = new EventSource(withQuery('/api/v1/events', { cluster, after: held.current.feed.after }));
      source.onopen = () => {
        if (failures) flush();
        failures = 0;
        setLine('live');
      };
      source.onmessage = heard;
      // Too far behind to be told one by one: go on from the newest and read everything anew.
      source.addEventListener('reset', (event) => {
        held.current.feed = feedFrom(Number(event.data));
        flush();
      });
      source.onerror = () => {
        source.close();
        failures += 1;
        setLine('broken');
        retry = setTimeout(open, backoff(failures));
      };
    };
    setLine('connecting');
    open();
    return () => {
      clearTimeout(retry);
      clearTimeout(held.current.timer);
      held.current.timer = 0;
      source.close();
    };
  }, [cluster, ready]);

  useEffect(() => {
    const timer = setInterval(() => !held.current.paused && !document.hidden && setBeat((old) => ({ tick: old.tick + 1, nodes: new Set() })), ANYWAY_MS);
    return () => clearInterval(timer);
  }, []);

  return { line: cluster ? line : 'off', tick: beat.tick, waiting, nodes: beat.nodes };
}
