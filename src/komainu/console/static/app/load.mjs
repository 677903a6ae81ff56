// Loading that never lies: an old answer cannot overwrite a newer one, a failed one keeps the old data
// and says that it is old, and data of another subject is taken away at once.
import { useEffect, useRef, useState } from 'preact/hooks';
import { generations } from '../core/feed.mjs';

/** @typedef {{data: any, error: Error | null, loading: boolean, at: number, retry: () => void}} Load */

/**
 * @param {string} subject what is loaded; '' loads nothing
 * @param {(signal: AbortSignal) => Promise<any>} load
 * @param {unknown} tick changes when the same subject should be read anew
 * @returns {Load}
 */
export function useLoad(subject, load, tick) {
  const [state, setState] = useState(/** @type {any} */ ({ subject, data: null, error: null, loading: true, at: 0 }));
  const [again, setAgain] = useState(0);
  const begin = useRef(/** @type {ReturnType<typeof generations> | null} */ (null));
  begin.current ??= generations();
  useEffect(() => {
    if (!subject) return undefined;
    const current = /** @type {ReturnType<typeof generations>} */ (begin.current)();
    const stop = new AbortController();
    setState((/** @type {any} */ old) =>
      old.subject === subject ? { ...old, loading: true } : { subject, data: null, error: null, loading: true, at: 0 });
    load(stop.signal).then(
      (data) => current() && setState({ subject, data, error: null, loading: false, at: Date.now() }),
      (error) => current() && error.name !== 'AbortError' &&
        setState((/** @type {any} */ old) => ({ ...old, subject, error, loading: false })),
    );
    return () => stop.abort();
  }, [subject, tick, again]);
  const own = state.subject === subject ? state : { data: null, error: null, loading: true, at: 0 };
  return { data: own.data, error: own.error, loading: own.loading, at: own.at, retry: () => setAgain(again + 1) };
}
