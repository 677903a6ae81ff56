// The canvas and what one does on it: wheel zoom, drag, hover, click, keys. The canvas itself is hidden
// from assistive technology; the grid laid over it has the focus and speaks the active cell.
import { useEffect, useRef, useState } from 'preact/hooks';
import { draw } from '../core/draw.mjs';
import { fit, hit, layout, lookAt, middleOf, nearest, neighbour, zoomAt } from '../core/layout.mjs';
import { PALETTES } from '../core/palette.mjs';
import { busy, listed } from '../core/picture.mjs';
import { html } from './dom.mjs';

/** @typedef {import('../core/picture.mjs').Picture} Picture */

const DRAG_FROM_PX = 4;
const PAN_STEP_PX = 80;
/** @type {Record<string, 'left'|'right'|'up'|'down'>} */
const ARROWS = { ArrowLeft: 'left', ArrowRight: 'right', ArrowUp: 'up', ArrowDown: 'down' };
const SPEAK_AFTER_MS = 150;
/** The address follows the view once it stands still. */
const NOTE_AFTER_MS = 400;

/** What the canvas shows, kept outside of rendering: drawing must not wait for the page. */
class Stage {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d', { alpha: false }));
    this.view = { k: 1, x: 0, y: 0 };
    this.moved = false;
    this.frame = 0;
    this.active = -1;
    this.chosen = -1;
    /** @type {Picture} */
    this.picture = { nodes: [], gpus: 0, at: 0 };
    this.layout = layout(this.picture, 1, 1);
    this.palette = PALETTES.dark;
    this.outlined = matchMedia('(prefers-contrast: more), (forced-colors: active)').matches;
    /** @type {(node: number) => boolean} */
    this.lit = () => true;
    this.width = 0;
    this.height = 0;
    this.drawMs = 0;
    this.timer = 0;
    /** @type {(at: string) => void} */
    this.note = () => {};
  }

  /** After a person moved the view: what is in the middle and how large, as `gpu-012,2.5`. */
  movedByHand() {
    this.moved = true;
    this.ask();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const node = this.moved ? nearest(this.layout, this.view, this.width / 2, this.height / 2) : -1;
      this.note(node < 0 ? '' : `${this.picture.nodes[node].name},${this.view.k.toFixed(2)}`);
    }, NOTE_AFTER_MS);
  }

  /** @param {string} at what `movedByHand` noted */
  lookAt(at) {
    const cut = at.lastIndexOf(',');
    const node = this.picture.nodes.findIndex((one) => one.name === at.slice(0, cut));
    const k = Number(at.slice(cut + 1));
    if (node < 0 || !(k > 0)) return;
    this.moved = true;
    this.view = lookAt(this.layout, node, k, this.width, this.height);
    this.ask();
  }

  measure() {
    const box = this.canvas.getBoundingClientRect();
    this.width = box.width;
    this.height = box.height;
    this.ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(box.width * this.ratio);
    this.canvas.height = Math.round(box.height * this.ratio);
    this.arrange();
  }

  arrange() {
    this.layout = layout(this.picture, Math.max(1, this.width), Math.max(1, this.height));
    if (!this.moved) this.view = fit(this.layout, this.width, this.height);
    this.ask();
  }

  ask() {
    this.frame ||= requestAnimationFrame(() => this.paint());
  }

  paint() {
    this.frame = 0;
    const begun = performance.now();
    const { picture, view, width, height, palette, outlined, lit, active, chosen } = this;
    draw(this.context, { picture, layout: this.layout, view, width, height, ratio: this.ratio ?? 1, palette, outlined, lit, active, chosen });
    this.drawMs = performance.now() - begun;
  }

  /** @param {number} dx @param {number} dy */
  pan(dx, dy) {
    this.view = { k: this.view.k, x: this.view.x + dx, y: this.view.y + dy };
    this.movedByHand();
  }

  /** @param {number} x @param {number} y @param {number} factor */
  zoom(x, y, factor) {
    this.view = zoomAt(this.view, x, y, factor);
    this.movedByHand();
  }

  reset() {
    this.movedByHand();
    this.moved = false;
    this.arrange();
  }

  /** @param {number} node @returns {[number, number]} middle of it, pixels */
  middle(node) {
    return middleOf(this.layout, this.view, node);
  }

  /** Brings a node into sight when the keyboard has left it. @param {number} node */
  reveal(node) {
    const [x, y] = this.middle(node);
    const dx = x < 40 ? 40 - x : x > this.width - 40 ? this.width - 40 - x : 0;
    const dy = y < 40 ? 40 - y : y > this.height - 40 ? this.height - 40 - y : 0;
    if (dx || dy) this.pan(dx, dy);
  }
}

/** @param {PointerEvent | WheelEvent | MouseEvent} event @returns {[number, number]} */
const within = (event) => {
  const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};

/**
 * @param {{picture: Picture, theme: 'dark'|'light', lit: (node: number) => boolean, filterKey: string,
 *   chosen: string, at: string, onMove: (at: string) => void, onChoose: (node: string) => void, onOpen: (node: string) => void,
 *   card: (node: import('../core/picture.mjs').Node, gpu: number) => any}} props
 */
export function MapStage({ picture, theme, lit, filterKey, chosen, at: place, onMove, onChoose, onOpen, card }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const stage = useRef(/** @type {Stage | null} */ (null));
  const drag = useRef(/** @type {{x: number, y: number, far: boolean} | null} */ (null));
  const [hover, setHover] = useState(/** @type {{node: number, gpu: number, x: number, y: number} | null} */ (null));
  const [active, setActive] = useState(-1);
  const [spoken, setSpoken] = useState('');

  useEffect(() => {
    const made = new Stage(/** @type {HTMLCanvasElement} */ (canvas.current));
    stage.current = made;
    const watch = new ResizeObserver(() => made.measure());
    watch.observe(made.canvas);
    made.measure();
    Object.assign(window, { komainuStage: made });
    return () => {
      watch.disconnect();
      clearTimeout(made.timer);
    };
  }, []);

  useEffect(() => {
    const s = /** @type {Stage} */ (stage.current);
    const shape = s.picture.nodes.length !== picture.nodes.length || s.picture.gpus !== picture.gpus;
    s.picture = picture;
    if (shape) s.arrange();
    if (shape && place && !s.moved) s.lookAt(place);
    s.note = onMove;
    Object.assign(s, { lit, palette: PALETTES[theme], active: hover ? hover.node : active });
    s.chosen = chosen ? picture.nodes.findIndex((node) => node.name === chosen) : -1;
    s.ask();
  }, [picture, theme, filterKey, chosen, hover?.node, active]);

  useEffect(() => {
    if (active < 0 || !picture.nodes[active]) return undefined;
    const node = picture.nodes[active];
    const timer = setTimeout(() => setSpoken(sentence(node)), SPEAK_AFTER_MS);
    return () => clearTimeout(timer);
  }, [active, picture]);

  /** @param {PointerEvent} event */
  const moved = (event) => {
    const s = /** @type {Stage} */ (stage.current);
    const [x, y] = within(event);
    if (drag.current) {
      const far = drag.current.far || Math.hypot(x - drag.current.x, y - drag.current.y) > DRAG_FROM_PX;
      if (!far) return;
      if (!drag.current.far) /** @type {Element} */ (event.currentTarget).setPointerCapture(event.pointerId);
      s.pan(x - drag.current.x, y - drag.current.y);
      drag.current = { x, y, far };
      setHover(null);
      return;
    }
    const found = hit(s.layout, picture, s.view, x, y);
    if (!found) return void (hover && setHover(null));
    if (found.node !== hover?.node || found.gpu !== hover?.gpu) setHover({ ...found, x, y });
  };
  /** @param {PointerEvent} event */
  const released = (event) => {
    const far = drag.current?.far;
    drag.current = null;
    if (far) return;
    const s = /** @type {Stage} */ (stage.current);
    const [x, y] = within(event);
    const found = hit(s.layout, picture, s.view, x, y);
    if (found) setActive(found.node);
    onChoose(found ? picture.nodes[found.node].name : '');
  };
  /** @param {WheelEvent} event */
  const wheeled = (event) => {
    event.preventDefault();
    const [x, y] = within(event);
    setHover(null);
    stage.current?.zoom(x, y, Math.exp(-event.deltaY * 0.0015));
  };
  /** @param {KeyboardEvent} event */
  const pressed = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const s = /** @type {Stage} */ (stage.current);
    const { key } = event;
    const [cx, cy] = [s.width / 2, s.height / 2];
    if (key in ARROWS && event.shiftKey) {
      const [dx, dy] = { left: [1, 0], right: [-1, 0], up: [0, 1], down: [0, -1] }[ARROWS[key]];
      s.pan(dx * PAN_STEP_PX, dy * PAN_STEP_PX);
    } else if (key in ARROWS && picture.nodes.length) {
      const next = active < 0 ? 0 : neighbour(s.layout, active, ARROWS[key]);
      setHover(null);
      setActive(next);
      s.reveal(next);
    } else if (key === 'Enter' && active >= 0) onOpen(picture.nodes[active].name);
    else if (key === ' ' && active >= 0) onChoose(picture.nodes[active].name);
    else if (key === 'w' || key === '+') s.zoom(cx, cy, 1.25);
    else if (key === 's' || key === '-') s.zoom(cx, cy, 0.8);
    else if (key === '0') s.reset();
    else return;
    event.preventDefault();
  };

  const at = hover ? picture.nodes[hover.node] : null;
  return html`<div class="stage">
    <canvas ref=${canvas} aria-hidden="true"></canvas>
    <div class="stage-grid" role="grid" tabindex="0" aria-label="Cluster map. Arrow keys move, Enter opens a node, Space selects it, plus and minus zoom, 0 shows everything, T shows a table."
      aria-activedescendant=${active >= 0 ? 'active-cell' : undefined} data-active=${picture.nodes[active]?.name ?? ''}
      onFocus=${() => active < 0 && picture.nodes.length && setActive(0)}
      onPointerDown=${(/** @type {PointerEvent} */ e) => { const [x, y] = within(e); drag.current = { x, y, far: false }; }}
      onPointerMove=${moved} onPointerUp=${released} onPointerLeave=${() => { drag.current = null; setHover(null); }}
      onDblClick=${() => active >= 0 && onOpen(picture.nodes[active].name)}
      onWheel=${wheeled} onKeyDown=${pressed}>
      <div role="row" class="visually-hidden"><div role="gridcell" id="active-cell">${active >= 0 && picture.nodes[active] ? sentence(picture.nodes[active]) : ''}</div></div>
    </div>
    <div class="visually-hidden" aria-live="polite">${spoken}</div>
    <div class="stage-tools">
      <button type="button" title="Zoom in (w)" aria-label="Zoom in" onClick=${() => stage.current?.zoom(stage.current.width / 2, stage.current.height / 2, 1.4)}>+</button>
      <button type="button" title="Zoom out (s)" aria-label="Zoom out" onClick=${() => stage.current?.zoom(stage.current.width / 2, stage.current.height / 2, 0.7)}>−</button>
      <button type="button" title="Show everything (0)" onClick=${() => stage.current?.reset()}>Fit</button>
    </div>
    ${hover && at && html`<div class="card" ref=${(/** @type {HTMLElement | null} */ el) => el && placed(el, hover, stage.current)}>${card(at, hover.gpu)}</div>`}
  </div>`;
}

/** @param {HTMLElement} el @param {{x: number, y: number}} at @param {Stage | null} stage */
function placed(el, at, stage) {
  const right = Math.min(at.x + 18, (stage?.width ?? 0) - el.offsetWidth - 8);
  const below = at.y + 18 + el.offsetHeight > (stage?.height ?? 0) ? at.y - el.offsetHeight - 12 : at.y + 18;
  el.style.left = `${Math.max(8, right)}px`;
  el.style.top = `${Math.max(8, below)}px`;
}

/** @param {import('../core/picture.mjs').Node} node */
function sentence(node) {
  const gone = node.gpus.length - listed(node);
  const open = node.open ? `, ${node.open} open findings` : '';
  return `${node.name}, rack ${node.rack || 'not known'}, ${node.standing}${open}, ${busy(node)} of ${listed(node)} GPUs busy${gone ? `, ${gone} not listed now` : ''}`;
}
