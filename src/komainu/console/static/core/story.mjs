// What is happening, in words: the newest findings and decisions of a cluster as one list of sentences.
import { author } from './format.mjs';

/** @typedef {{at: string, key: string, node: string, what: 'finding'|'decision', tone: string, text: string}} Line */

/** @type {Record<string, [string, string]>} what happened, and what was only wanted */
const WORDS = {
  drain: ['taken out of service', 'wants it out of service'],
  resume: ['returned to service', 'wants it back in service'],
  adopt: ["Slurm's own drain taken over", "wants to take Slurm's own drain over"],
  'release-job': ['held job released', 'wants its held job released'],
};

/** @param {any} view DecisionView @returns {Line} */
function decided(view) {
  const d = view.decision;
  const [happened, wanted] = WORDS[d.action] ?? [d.action, d.action];
  const done = view.state === 'done' || view.state === 'already';
  const job = d.job ? ` (job ${d.job})` : '';
  const state = done ? '' : ` [${view.state}${view.limit ? `: ${view.limit}` : ''}]`;
  return {
    at: d.at, key: d.id, node: d.node, what: 'decision',
    tone: d.action === 'drain' || d.action === 'adopt' ? 'quarantined' : 'healthy',
    text: `${done ? `${happened}${job} by ${author(d.by)}` : `${author(d.by)} ${wanted}${job}`}${state}: ${d.reason}`,
  };
}

/** @param {any} view FindingView @returns {Line} */
function found(view) {
  const f = view.finding;
  return {
    at: f.at, key: f.id, node: f.node, what: 'finding',
    tone: f.severity >= 2 ? 'faulty' : 'watched',
    text: f.summary.startsWith(f.code) ? f.summary : `${f.code}: ${f.summary}`,
  };
}

/**
 * Left out is what follows from another finding, and what nobody needs to be told (severity info).
 * @param {any[]} findings FindingView @param {any[]} decisions DecisionView @param {number} most
 * @returns {Line[]} newest first
 */
export function tell(findings, decisions, most) {
  const worth = findings.filter((v) => !v.finding.cause && v.finding.severity > 0);
  return [...worth.map(found), ...decisions.map(decided)]
    .sort((a, b) => Date.parse(b.at) - Date.parse(a.at))
    .slice(0, most);
}
