// A make-believe cluster lets a visitor break something and watch.
import { useEffect, useState } from 'preact/hooks';
import { get, post } from './api.mjs';
import { html } from './dom.mjs';
import { useLoad } from './load.mjs';
import { Failed } from './states.mjs';

/**
 * @param {{cluster: string, node: string, gpus: number, anyNode: () => string, zone: any, live: boolean}} props
 */
export function LabPanel({ cluster, node, gpus, anyNode, zone }) {
  const load = useLoad('/api/v1/lab/faults', (signal) => get('/api/v1/lab/faults', signal), 0);
  const [fault, setFault] = useState('');
  const [gpu, setGpu] = useState(0);
  const [wanted, setWanted] = useState('');
  const [said, setSaid] = useState({ text: '', bad: false });
  useEffect(() => setWanted(node), [node]);
  const faults = load.data ?? [];
  const chosen = faults.find((/** @type {any} */ f) => f.id === fault) ?? faults[0];

  /** @param {string} path @param {any} body @param {string} done */
  const send = async (path, body, done) => {
    try {
      await post(path, body);
      setSaid({ text: done, bad: false });
    } catch (error) {
      setSaid({ text: error instanceof Error ? error.message : String(error), bad: true });
    }
  };
  /** @param {Event} event */
  const inject = (event) => {
    event.preventDefault();
    const target = wanted.trim() || anyNode();
    setWanted(target);
    return send('/api/v1/lab/inject', { cluster, node: target, gpu, fault: chosen.id }, `${chosen.title} struck ${target}, GPU ${gpu}. Watch the map.`);
  };
  const repair = () => send('/api/v1/lab/repair', { cluster, node: wanted.trim() }, `${wanted.trim()} is repaired; it returns once it is released.`);

  return html`<section class="panel lab"><header><h3>Inject a fault</h3><span class="tag">lab</span></header>
    <${Failed} load=${load} zone=${zone} />
    <form onSubmit=${inject}>
      <label for="lab-fault">Fault</label>
      <select id="lab-fault" value=${chosen?.id ?? ''} onChange=${(/** @type {any} */ e) => setFault(e.currentTarget.value)}>
        ${faults.map((/** @type {any} */ f) => html`<option key=${f.id} value=${f.id}>${f.title}</option>`)}</select>
      ${chosen && html`<p class="dim small">${chosen.text}</p>`}
      <div class="pair">
        <div><label for="lab-node">Node</label><input id="lab-node" placeholder="any healthy one" spellcheck="false" value=${wanted} onInput=${(/** @type {any} */ e) => setWanted(e.currentTarget.value)} /></div>
        <div class="narrow"><label for="lab-gpu">GPU</label><select id="lab-gpu" value=${String(gpu)} onChange=${(/** @type {any} */ e) => setGpu(Number(e.currentTarget.value))}>
          ${Array.from({ length: Math.max(1, gpus) }, (_, i) => html`<option key=${i} value=${String(i)}>${i}</option>`)}</select></div>
      </div>
      <div class="actions"><button class="primary" disabled=${!chosen}>Strike</button>
        <button type="button" disabled=${!wanted.trim()} onClick=${repair}>Repair</button></div>
      ${said.text && html`<p class=${said.bad ? 'warn-text small' : 'small'} role="status">${said.text}</p>`}
    </form></section>`;
}
