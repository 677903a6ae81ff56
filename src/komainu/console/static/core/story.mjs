// What is happening, in words: the newest findings and decisions of a cluster as one list of sentences.
import { author } from './format.mjs';

/** @typedef {{at: string, key: string, node: string, what: 'finding'|'decision', tone: string, text: string}} Line */

const DOING = {
  drain: 'taken out of service',
  resume: 'returned to service',
  adopt: "Slurm's own drain taken over",
  'release-job': 'held job released',
};

/** @param {any} view DecisionView @returns {Line} */
function decided(view) {
  const d = view.decision;
  const done = DOING[/** @type {keyof typeof DOING} */ (d.action)] ?? d.action;
  const job = d.job ? ` (job ${d.job})` : '';
  const state = view.state === 'done' ? '' : ` [${view.state}${view.limit ? `: ${view.limit}` : ''}]`;
  return {
    at: d.at, key: d.id, node: d.node, what: 'decision',
    tone: { drain: 'quarantined', adopt: 'quarantined' }[/** @type {string} */ (d.action)] ?? 'healthy',
    text: `${done}${job} by ${author(d.by)}${state}: ${d.reason}`,
  };
}

/** @param {any} view FindingView @returns {Line} */
function found(view) {
  const f = view.finding;
  return {
    at: f.at, key: f.id, node: f.node, what: 'finding',
    tone: f.severity >= 2 ? 'faulty' : 'watched',
    text: `${f.code}: ${f.summary}`,
  };
}

/**
 * @param {any[]} findings FindingView @param {any[]} decisions DecisionView @param {number} most
 * @returns {Line[]} newest first
 */
export function tell(findings, decisions, most) {
  return [...findings.filter((v) => !v.finding.cause).map(found), ...decisions.map(decided)]
    .sort((a, b) => Date.parse(b.at) - Date.parse(a.at))
    .slice(0, most);
}
