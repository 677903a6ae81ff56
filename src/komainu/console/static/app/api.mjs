// The API of core/views.py, asked from the page. Errors carry what the server said.
import { decode } from '../core/columns.mjs';
import { pictureOf, pictureOfRows } from '../core/picture.mjs';

export class ApiError extends Error {
  /** @param {number} status @param {string} message @param {string} id of the request, when the server gave one */
  constructor(status, message, id) {
    super(message);
    this.status = status;
    this.id = id;
  }
}

/** No answer within this is a failure that is said, not waited out. */
const PATIENCE_MS = 30_000;
let csrf = '';
/** @param {string} token of Me */
export function rememberCsrf(token) {
  csrf = token;
}

/** @param {string} path @param {RequestInit} [init] @returns {Promise<Response>} an answer that is fine */
async function ask(path, init) {
  let response;
  try {
    const limit = AbortSignal.timeout(PATIENCE_MS);
    const signal = init?.signal ? AbortSignal.any([init.signal, limit]) : limit;
    response = await fetch(path, { credentials: 'same-origin', ...init, signal });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'TimeoutError') throw new ApiError(0, 'The server did not answer within 30 s.', '');
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, 'The server does not answer. Is it running, and can this browser reach it?', '');
  }
  if (response.ok) return response;
  if (response.status === 401 && location.pathname !== '/login') {
    location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
  const said = await response.json().catch(() => null);
  const text = said?.error?.message ?? `The server answered ${response.status}.`;
  throw new ApiError(response.status, text, response.headers.get('x-request-id') ?? '');
}

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function get(path, signal) {
  const response = await ask(path, { signal, headers: { accept: 'application/json' } });
  return response.json();
}

/** @param {string} path @param {unknown} body @returns {Promise<any>} */
export async function post(path, body) {
  const headers = { 'content-type': 'application/json', 'x-komainu-csrf': csrf };
  const response = await ask(path, { method: 'POST', headers, body: JSON.stringify(body) });
  return response.status === 204 ? null : response.json();
}

const COLUMNS = 'application/vnd.komainu.columns';

/** @param {string} cluster @param {AbortSignal} [signal] */
export async function getPicture(cluster, signal) {
  const response = await ask(`/api/v1/clusters/${encodeURIComponent(cluster)}/map`, { signal, headers: { accept: `${COLUMNS}, application/json;q=0.5` } });
  const at = Date.now();
  if (response.headers.get('content-type')?.includes('json')) return pictureOfRows(await response.json(), at);
  return pictureOf(decode(await response.arrayBuffer()), at);
}

/** @param {string} cluster @param {string} node */
export const nodeApi = (cluster, node) =>
  `/api/v1/nodes/${encodeURIComponent(cluster)}/${encodeURIComponent(node)}`;

/** @param {string} path @param {Record<string, string | number | undefined>} query */
export function withQuery(path, query) {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value !== undefined && value !== '') params.set(key, String(value));
  return params.size ? `${path}?${params}` : path;
}
