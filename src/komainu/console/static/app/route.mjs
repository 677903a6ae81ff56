// Everything a person sees is in the address: screen, cluster, node, filters, selection.
import { useCallback, useEffect, useState } from 'preact/hooks';

/** @typedef {'map'|'node'|'findings'|'none'} Screen */
/** @typedef {{screen: Screen, cluster: string, node: string, params: URLSearchParams}} Route */

/** @param {string} path @param {string} search @returns {Route} */
export function parseRoute(path, search) {
  const params = new URLSearchParams(search);
  const [first, cluster = '', node = ''] = path.split('/').filter(Boolean).map(decodeURIComponent);
  if (!first || first === 'c') return { screen: 'map', cluster, node: '', params };
  if (first === 'n' && node) return { screen: 'node', cluster, node, params };
  if (first === 'findings') return { screen: 'findings', cluster: params.get('cluster') ?? '', node: '', params };
  return { screen: 'none', cluster: '', node: '', params };
}

/** @param {string} cluster */
export const mapPath = (cluster) => `/c/${encodeURIComponent(cluster)}`;
/** @param {string} cluster @param {string} node */
export const nodePath = (cluster, node) => `/n/${encodeURIComponent(cluster)}/${encodeURIComponent(node)}`;
/** @param {Record<string, string>} filters */
export function findingsPath(filters) {
  const params = new URLSearchParams(Object.entries(filters).filter(([, value]) => value));
  return params.size ? `/findings?${params}` : '/findings';
}

/** @param {string} path @param {boolean} [replace] */
export function go(path, replace = false) {
  history[replace ? 'replaceState' : 'pushState'](null, '', path);
  dispatchEvent(new Event('komainu:route'));
}

/** @param {Record<string, string | null>} changes to the query; null or '' takes a key away */
export function setParams(changes) {
  const params = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value) params.set(key, value);
    else params.delete(key);
  }
  go(params.size ? `${location.pathname}?${params}` : location.pathname, true);
}

/** @returns {Route} */
export function useRoute() {
  const read = useCallback(() => parseRoute(location.pathname, location.search), []);
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const changed = () => setRoute(read());
    addEventListener('popstate', changed);
    addEventListener('komainu:route', changed);
    return () => {
      removeEventListener('popstate', changed);
      removeEventListener('komainu:route', changed);
    };
  }, []);
  return route;
}

/** Plain links work as links (middle click, copy); a plain click stays on the page. @param {MouseEvent} event */
export function followLink(event) {
  const link = event.target instanceof Element ? event.target.closest('a') : null;
  if (!link || event.defaultPrevented || event.button !== 0 || link.target || link.origin !== location.origin) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.hasAttribute('data-leave')) return;
  event.preventDefault();
  go(link.pathname + link.search);
}
