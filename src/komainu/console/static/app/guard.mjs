// The guard's alarm: loud on every screen, because from then on nodes known to be bad keep taking jobs.
import { alarm } from '../core/guard.mjs';
import { html } from './dom.mjs';
import { mapPath, nodePath } from './route.mjs';

const MOST_NAMED = 8;

/** @param {{shell: import('./shell.mjs').Shell, node?: string}} props node: whose page it is */
export function GuardAlarm({ shell, node = '' }) {
  const { cluster, clusterView, time } = shell;
  if (!clusterView?.guard.tripped_at) return null;
  const held = /** @type {string[]} */ (clusterView.held_back);
  const words = alarm(clusterView.guard, held.length, time.zone);
  const named = held.slice(0, MOST_NAMED);
  const left = held.length - named.length;
  return html`<div class="banner banner-alarm" role="alert"><div>
    <p><strong>${words.lead}</strong> ${words.rest}</p>
    ${named.length > 0 && html`<p>Held back: ${named.map((one, i) => html`${i > 0 && ', '}<a key=${one} href=${nodePath(cluster, one)}>${one}</a>${one === node ? ' (this node)' : ''}`)}${left > 0 && html` and <a href=${`${mapPath(cluster)}?standing=faulty&view=table`}>${left.toLocaleString('en-US')} more</a>`}.
      Release a node that is well, or let an admin hold one beyond the guard.</p>`}
  </div></div>`;
}
