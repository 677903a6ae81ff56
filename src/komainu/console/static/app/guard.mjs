// The guard's alarm: loud on every screen, because from then on nodes known to be bad keep taking jobs.
import { alarm, heldBack } from '../core/guard.mjs';
import { get, withQuery } from './api.mjs';
import { html } from './dom.mjs';
import { useLoad } from './load.mjs';
import { mapPath, nodePath } from './route.mjs';

/** What the server gives in one page of decisions. */
const MOST_READ = 500;
const MOST_NAMED = 8;

/**
 * @param {string} cluster @param {any} clusterView @param {number} tick @param {number} now
 * @returns {import('../core/guard.mjs').Held[] & {more?: boolean} | null} null: the guard has not tripped, or it is not known yet
 */
export function useHeld(cluster, clusterView, tick, now) {
  const tripped = clusterView?.guard.tripped_at;
  const load = useLoad(tripped ? `held ${cluster}` : '', (signal) =>
    get(withQuery('/api/v1/decisions', { cluster, limit: MOST_READ }), signal), tick);
  if (!tripped || !load.data) return null;
  return Object.assign(heldBack(load.data.decisions, now), { more: load.data.more });
}

/** @param {{shell: import('./shell.mjs').Shell, node?: string}} props node: whose page it is */
export function GuardAlarm({ shell, node = '' }) {
  const { cluster, clusterView, held, time } = shell;
  if (!clusterView?.guard.tripped_at) return null;
  const words = alarm(clusterView.guard, held && { held, more: Boolean(held.more) }, time.zone);
  const named = (held ?? []).slice(0, MOST_NAMED);
  const left = (held ?? []).length - named.length;
  return html`<div class="banner banner-alarm" role="alert"><div>
    <p><strong>${words.lead}</strong> ${words.rest}</p>
    ${named.length > 0 && html`<p>Held back: ${named.map((one, i) => html`${i > 0 && ', '}<a key=${one.node} href=${nodePath(cluster, one.node)} title=${one.limit}>${one.node}</a>${one.node === node ? ' (this node)' : ''}`)}${left > 0 && html` and <a href=${`${mapPath(cluster)}?standing=faulty&view=table`}>${left.toLocaleString('en-US')} more</a>`}.
      Release a node that is well, or let an admin hold one beyond the guard.</p>`}
  </div></div>`;
}
