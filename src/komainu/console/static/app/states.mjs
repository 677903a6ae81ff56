// Loading, empty, failed and old data look the same everywhere, and each says why.
import { clock } from '../core/format.mjs';
import { html } from './dom.mjs';

/** @param {{lines?: number}} props */
export function Skeleton({ lines = 4 }) {
  return html`<div class="skeleton" role="status" aria-label="Loading">
    ${Array.from({ length: lines }, (_, i) => html`<span key=${i}></span>`)}
  </div>`;
}

/** @param {{title: string, text?: string, action?: any}} props */
export function Empty({ title, text = '', action = null }) {
  return html`<div class="empty"><strong>${title}</strong>${text && html`<p>${text}</p>`}${action}</div>`;
}

/** A read that failed; what was read before stays on the page below. @param {{load: import('./load.mjs').Load, zone: any}} props */
export function Failed({ load, zone }) {
  if (!load.error) return null;
  const id = /** @type {any} */ (load.error).id;
  return html`<div class="banner banner-bad" role="alert">
    <span><strong>${load.data ? `Old data, from ${clock(load.at, zone)}.` : 'Could not be read.'}</strong> ${load.error.message}
      ${id && html` <code>request ${id}</code>`}</span>
    <button type="button" onClick=${load.retry}>Try again</button>
  </div>`;
}

/** @param {{tone?: string, children?: any}} props */
export function Banner({ tone = 'warn', children = null }) {
  return html`<div class=${`banner banner-${tone}`} role="status"><span>${children}</span></div>`;
}
