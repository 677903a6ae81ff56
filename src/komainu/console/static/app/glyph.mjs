// The same marks as on the canvas, as small pictures for badges and the legend.
import { MARKS } from '../core/draw.mjs';
import { html } from './dom.mjs';

const SIDE = 12;

/** @param {{kind: import('../core/standing.mjs').Kind, busy?: boolean, missing?: boolean}} props */
export function Glyph({ kind, busy = false, missing = false }) {
  const lines = (missing && kind !== 'faulty' ? MARKS.missing : MARKS[kind]) ?? [];
  const marks = [];
  for (let i = 0; i < lines.length; i += 4) {
    const [x1, y1, x2, y2] = lines.slice(i, i + 4).map((part) => part * SIDE);
    marks.push(html`<line x1=${x1} y1=${y1} x2=${x2} y2=${y2} />`);
  }
  return html`<svg class=${`glyph glyph-${kind}${missing ? ' glyph-missing' : ''}`} viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
    <rect x="0.5" y="0.5" width="11" height="11" />${marks}
    ${busy && html`<rect class="glyph-busy" x="6.5" y="6.5" width="5" height="5" />`}
  </svg>`;
}

/** A standing in one word, with its mark. @param {{standing: string, large?: boolean}} props */
export function Badge({ standing, large = false }) {
  const kind = standing === 'healthy' ? 'alloc' : /** @type {import('../core/standing.mjs').Kind} */ (standing);
  return html`<span class=${`badge badge-${standing}${large ? ' badge-large' : ''}`}>
    ${standing === 'healthy' ? html`<${Tick} />` : html`<${Glyph} kind=${kind} />`}${standing}
  </span>`;
}

function Tick() {
  return html`<svg class="glyph glyph-tick" viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
    <path d="M1.5 6.5 L4.7 9.5 L10.5 2.5" />
  </svg>`;
}

const PATHS = {
  map: 'M2 2h5v5H2zM9 2h5v5H9zM2 9h5v5H2zM9 9h5v5H9z',
  findings: 'M8 1.8 15 14H1zM8 6v4M8 11.6v.9',
  node: 'M2 2.5h12v4.4H2zM2 9.1h12v4.4H2zM4.2 4.7h1.4M4.2 11.3h1.4',
  search: 'M7 2.2a4.8 4.8 0 1 1 0 9.6 4.8 4.8 0 0 1 0-9.6M10.6 10.6 14 14',
  theme: 'M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12',
  clock: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M8 4.6V8l2.4 1.6',
  close: 'M3.5 3.5l9 9M12.5 3.5l-9 9',
  out: 'M6 2H2.5v12H6M10 4.8 13.4 8 10 11.2M13.4 8H6',
};

/** @param {{name: keyof typeof PATHS}} props */
export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}

/** The pair of guardians at the gate. */
export function Mark() {
  return html`<svg class="brand-mark" viewBox="0 0 24 24" width="22" height="22" aria-hidden="true">
    <path d="M2 22V11l2-5 3 2.2L9.6 7v5.2L8 14v8zM22 22V11l-2-5-3 2.2L14.4 7v5.2L16 14v8z" />
    <path class="brand-gate" d="M1 3.2h22M4 5.4h16" />
  </svg>`;
}
