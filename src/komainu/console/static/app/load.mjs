// Loading that never lies: data of another subject is taken away at once, an old answer cannot
// overwrite a newer one, and a failed read keeps the old data and says that it is old.
import { useEffect, useRef, useState } from 'preact/hooks';

/** @typedef {{data: any, error: Error | null, loading: boolean, at: number, retry: () => void}} Load */

/** @param {string} subject */
const nothingYet = (subject) => ({ subject, data: /** @type {any} */ (null), error: /** @type {Error | null} */ (null), loading: true, at: 0 });

/**
 * One subject is read by one request at a time. When it changes meanwhile it is read once more
 * afterwards: a slow server under a storm of changes still gets its answers through.
 * @param {string} subject what is loaded; '' loads nothing
 * @param {(signal: AbortSignal) => Promise<any>} load
 * @param {unknown} tick changes when the same subject should be read anew
 * @returns {Load}
 */
export function useLoad(subject, load, tick) {
  const [state, setState] = useState(() => nothingYet(subject));
  const [again, setAgain] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const read = useRef(() => {});

  useEffect(() => {
    const stop = new AbortController();
    let busy = false;
    let changed = false;
    read.current = () => {
      if (!subject) return;
      if (busy) {
        changed = true;
        return;
      }
      busy = true;
      setState((old) => (old.subject === subject ? { ...old, loading: true } : nothingYet(subject)));
      /** @param {(old: ReturnType<typeof nothingYet>) => ReturnType<typeof nothingYet>} next */
      const end = (next) => {
        if (stop.signal.aborted) return;
        busy = false;
        setState(next);
        if (!changed) return;
        changed = false;
        read.current();
      };
      latest.current(stop.signal).then(
        (data) => end(() => ({ subject, data, error: null, loading: false, at: Date.now() })),
        (error) => end((old) => ({ ...old, error, loading: false })),
      );
    };
    return () => stop.abort();
  }, [subject]);
  useEffect(() => read.current(), [subject, tick, again]);

  const own = state.subject === subject ? state : nothingYet(subject);
  return { ...own, retry: () => setAgain(again + 1) };
}
