// Hold and release: a reason, then the dry run's own words, then the deed and what came of it. Changing
// the reason takes the preview away, so that nobody confirms what they have not read.
import { useState } from 'preact/hooks';
import { count } from '../core/format.mjs';
import { roomOf } from '../core/guard.mjs';
import { post, nodeApi } from './api.mjs';
import { html } from './dom.mjs';
import { Icon } from './glyph.mjs';
import { GuardRoom } from './parts.mjs';
import { setParams } from './route.mjs';

const WORDS = {
  hold: { title: 'Hold', verb: 'Hold', does: 'No new job starts there; running jobs finish.' },
  release: { title: 'Release', verb: 'Release', does: 'The node returns to service, and the findings you see here no longer count against it.' },
};

/** @param {{role: string, standing: string, onAsk: (what: 'hold'|'release') => void}} props */
export function ActionButtons({ role, standing, onAsk }) {
  const may = role === 'operator' || role === 'admin';
  const out = standing === 'quarantined' || standing === 'faulty';
  const why = may ? '' : `You are signed in as ${role}; holding and releasing need an operator.`;
  return html`<div class="actions" title=${why}>
    <button type="button" class=${out ? '' : 'primary'} disabled=${!may} onClick=${() => onAsk('hold')}>Hold…</button>
    <button type="button" class=${out ? 'primary' : ''} disabled=${!may} onClick=${() => onAsk('release')}>Release…</button>
    ${why && html`<p class="dim small">${why}</p>`}
  </div>`;
}

/** @param {{cluster: string, node: string, what: 'hold'|'release', role: string, onDone: () => void}} props */
export function ActionPanel({ cluster, node, what, role, onDone }) {
  const [reason, setReason] = useState('');
  const [plan, setPlan] = useState(/** @type {any} */ (null));
  const [done, setDone] = useState(/** @type {any} */ (null));
  const [typed, setTyped] = useState('');
  const [error, setError] = useState('');
  const [busy, setBusy] = useState(false);
  const words = WORDS[what];
  const full = plan && what === 'hold' && roomOf(plan.guard) === 0;
  const force = Boolean(full && role === 'admin');
  const close = () => setParams({ act: null });

  /** @param {boolean} dry */
  const ask = async (dry) => {
    setBusy(true);
    setError('');
    try {
      const path = `${nodeApi(cluster, node)}/${what}`;
      const asked = { reason: reason.trim(), dry_run: dry, force };
      const answer = await post(path, asked);
      const beyond = dry && what === 'hold' && role === 'admin' && roomOf(answer.guard) === 0;
      if (dry) setPlan(beyond ? await post(path, { ...asked, force: true }) : answer);
      else {
        setDone(answer);
        onDone();
      }
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
    setBusy(false);
  };

  if (done) return html`<${Panel} title=${`${words.title} ${node}`} close=${close}><${Result} answer=${done} />
    <button type="button" class="primary wide" onClick=${close}>Close</button></${Panel}>`;
  return html`<${Panel} title=${`${words.title} ${node}`} close=${close}>
    <form onSubmit=${(/** @type {Event} */ e) => { e.preventDefault(); if (!plan) ask(true); else if (!full || (force && typed === node)) ask(false); }}>
      <p class="dim">${words.does}</p>
      <label for="reason">Reason <span class="dim">(required; kept in the record)</span></label>
      <textarea id="reason" rows="3" required maxlength="200" autofocus value=${reason}
        onInput=${(/** @type {any} */ e) => { setReason(e.currentTarget.value); setPlan(null); setTyped(''); }}></textarea>
      ${error && html`<div class="banner banner-bad" role="alert"><span>${error}</span></div>`}
      ${!plan && html`<button class="primary wide" disabled=${busy || !reason.trim()}>${busy ? 'Asking…' : 'Preview (nothing is done yet)'}</button>`}
      ${plan && html`<section class="plan" aria-label="What would happen">
        <h4>What would happen</h4><pre class="plan-text">${plan.text}</pre>
        <${Jobs} jobs=${plan.jobs} />
        ${what === 'hold' ? html`<${GuardRoom} guard=${plan.guard} />` : html`<p class="dim small">A release never counts against the guard and is never held back by it.</p>`}
        ${full && html`<div class="banner banner-warn"><span>${force
          ? `The guard has no room. As an admin you may go beyond it; that is recorded. Type ${node} to confirm.`
          : 'The guard has no room. Release a node, wait for its window to pass, or ask an admin to go beyond it.'}</span></div>`}
        ${force && html`<label for="typed">Name of the node</label>
          <input id="typed" autocomplete="off" spellcheck="false" value=${typed} onInput=${(/** @type {any} */ e) => setTyped(e.currentTarget.value)} />`}
        ${(!full || force) && html`<button class=${`primary wide${what === 'hold' ? ' danger' : ''}`} disabled=${busy || (full && typed !== node)}>
          ${busy ? 'Working…' : `${words.verb} ${node}${force ? ' beyond the guard' : ''}`}</button>`}
      </section>`}
    </form></${Panel}>`;
}

/** @param {{title: string, close: () => void, children?: any}} props */
export function Panel({ title, close, children = null }) {
  return html`<section class="panel inspector" aria-label=${title}
    onKeyDown=${(/** @type {KeyboardEvent} */ e) => e.key === 'Escape' && close()}>
    <header><h3>${title}</h3><button type="button" class="bare" aria-label="Close" onClick=${close}><${Icon} name="close" /></button></header>
    ${children}</section>`;
}

/** @param {{jobs: string[]}} props */
function Jobs({ jobs }) {
  if (!jobs.length) return html`<p class="small"><strong>No job</strong> runs there now.</p>`;
  return html`<p class="small"><strong>${count(jobs.length, 'job')}</strong> running there now: <span class="mono">${jobs.slice(0, 12).join(', ')}</span>${jobs.length > 12 ? ` and ${jobs.length - 12} more` : ''}.</p>`;
}

/** @param {{answer: any}} props */
function Result({ answer }) {
  const result = answer.outcome?.result ?? (answer.decision ? 'not done' : 'nothing to do');
  const fine = result === 'done' || result === 'already' || result === 'nothing to do';
  return html`<div class=${`banner ${fine ? 'banner-good' : 'banner-warn'}`} role="status"><span><strong>${result}</strong>${answer.outcome?.detail ? `: ${answer.outcome.detail}` : ''}</span></div>
    <pre class="plan-text">${answer.text}</pre>
    ${answer.decision && html`<p class="dim small">Decision ${answer.decision.id}</p>`}`;
}
