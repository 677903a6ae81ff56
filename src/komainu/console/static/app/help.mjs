// The keys, on `?`.
import { useEffect, useRef } from 'preact/hooks';
import { html } from './dom.mjs';
import { Icon } from './glyph.mjs';

/** @type {[string, string][]} */
const KEYS = [
  ['Ctrl K', 'find a node by a part of its name'],
  ['g c · g f', 'cluster map · findings'],
  ['arrows', 'next node on the map'],
  ['Enter · Space', 'open the node · show it beside the map'],
  ['Shift arrows', 'move the map'],
  ['w · s · 0', 'zoom in · zoom out · show everything'],
  ['h', 'only what is not healthy'],
  ['t', 'the same rows as a table'],
  ['/', 'filter by node or rack'],
  ['Esc', 'close'],
  ['?', 'this help'],
];

export function Help() {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const pressed = (event) => {
      const typing = event.target instanceof Element && event.target.closest('input, textarea, select');
      if (event.key === '?' && !typing && !dialog.current?.open) dialog.current?.showModal();
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, []);
  return html`<button type="button" class="bare" title="Keys (?)" aria-label="Keys" onClick=${() => dialog.current?.showModal()}>?</button>
    <dialog ref=${dialog} class="help" aria-label="Keys"><header><h2>Keys</h2>
      <button type="button" class="bare" aria-label="Close" onClick=${() => dialog.current?.close()}><${Icon} name="close" /></button></header>
      ${KEYS.map(([key, does]) => html`<div key=${key}><kbd>${key}</kbd><span>${does}</span></div>`)}</dialog>`;
}
