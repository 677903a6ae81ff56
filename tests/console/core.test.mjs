// The framework-free core, without a browser: node --test tests/console/
import assert from 'node:assert/strict';
import test from 'node:test';

import { decode, encode } from '../../src/komainu/console/static/core/columns.mjs';
import { backoff, caughtUp, feedFrom, fold, gatherFor } from '../../src/komainu/console/static/core/feed.mjs';
import { foldByCause, steady, worstFirst } from '../../src/komainu/console/static/core/findings.mjs';
import { ago, clock, count, moment, pieces, span } from '../../src/komainu/console/static/core/format.mjs';
import { CELL, GAP, fit, hit, layout, lookAt, nearest, neighbour, nodeAt, zoomAt } from '../../src/komainu/console/static/core/layout.mjs';
import { alarm, heldBack } from '../../src/komainu/console/static/core/guard.mjs';
import { compareNatural } from '../../src/komainu/console/static/core/natural.mjs';
import { busy, gpuWords, listed, countByStanding, matches, needs, pictureOf, pictureOfRows, sorted } from '../../src/komainu/console/static/core/picture.mjs';
import { KINDS, STANDINGS, kindOf, standingOf } from '../../src/komainu/console/static/core/standing.mjs';
import { tell } from '../../src/komainu/console/static/core/story.mjs';
import { draw, MARKS } from '../../src/komainu/console/static/core/draw.mjs';
import { PALETTES } from '../../src/komainu/console/static/core/palette.mjs';

const WORDS = ['healthy', 'watched', 'faulty', 'quarantined', 'foreign', 'unseen'];

function mapBuffer(nodes, gpus) {
  const n = nodes * gpus;
  const of = (f) => Array.from({ length: n }, (_, i) => f(i));
  return encode({ standings: WORDS }, [
    ['node', 'json', Array.from({ length: nodes }, (_, i) => `gpu${i}`)],
    ['rack', 'json', Array.from({ length: nodes }, (_, i) => `r${Math.floor(i / 8)}`)],
    ['node_standing', 'u8', Array.from({ length: nodes }, (_, i) => i % 6)],
    ['node_since', 'u32', Array.from({ length: nodes }, (_, i) => 1_700_000_000 + i)],
    ['node_open', 'u16', Array.from({ length: nodes }, (_, i) => i % 3)],
    ['gpu_node', 'u32', of((i) => Math.floor(i / gpus))],
    ['gpu_index', 'u8', of((i) => i % gpus)],
    ['gpu_standing', 'u8', of((i) => i % 6)],
    ['gpu_busy', 'u8', of((i) => i % 2)],
  ]);
}
const picture = (nodes = 1250, gpus = 8) => pictureOf(decode(mapBuffer(nodes, gpus)), 1);

test('what is encoded comes back the same, for every type and odd lengths', () => {
  const columns = [['a', 'u8', [1, 2, 255]], ['b', 'u16', [65535]], ['c', 'u32', [4294967295, 0]], ['d', 'f32', [0.5]], ['e', 'json', ['ü', '']]];
  const back = decode(encode({ x: 'é' }, columns));
  assert.equal(back.meta.x, 'é');
  for (const [name, , values] of columns) assert.deepEqual([...back.columns[name]], values);
});

test('a buffer of another format, or one cut short, is refused by name', () => {
  assert.throws(() => decode(new TextEncoder().encode('PK\x03\x04....').buffer), /expected KCL1/);
  assert.throws(() => decode(mapBuffer(10, 8).slice(0, -8)), /gpu_busy ends after the buffer/);
});

test('names order as a person reads them', () => {
  const names = ['gpu10', 'gpu2', 'gpu1', 'GPU3', 'a', 'gpu2-1', 'gpu02'];
  assert.deepEqual(names.sort(compareNatural), ['a', 'gpu1', 'gpu02', 'gpu2', 'gpu2-1', 'GPU3', 'gpu10']);
});

test('natural order is an order: reversed arguments give the reversed sign, and only equals are equal', () => {
  const names = ['', 'a', 'a1', 'a01', 'a1b', '1', '01', '10', 'b2c10', 'b2c9'];
  for (const x of names) for (const y of names) {
    assert.equal(Math.sign(compareNatural(x, y)), -Math.sign(compareNatural(y, x)) + 0);
    assert.equal(compareNatural(x, y) === 0, x === y);
  }
});

test('a map of 10,000 GPUs decodes into racks in natural order', () => {
  const map = picture();
  assert.equal(map.gpus, 10_000);
  assert.equal(map.nodes[9].name, 'gpu9');
  assert.equal(map.nodes[16].rack, 'r2');
});

test('the point in the middle of each of 10,000 cells hits that cell', () => {
  const map = picture();
  const l = layout(map, 1600, 900);
  const view = zoomAt(fit(l, 1600, 900), 300, 200, 1.7);
  let hits = 0;
  map.nodes.forEach((node, n) => node.gpus.forEach((_, g) => {
    const [x, y] = nodeAt(l, n);
    const px = (x + (g % 4) * (CELL + GAP) + CELL / 2) * view.k + view.x;
    const py = (y + Math.floor(g / 4) * (CELL + GAP) + CELL / 2) * view.k + view.y;
    assert.deepEqual(hit(l, map, view, px, py), { node: n, gpu: g });
    hits += 1;
  }));
  assert.equal(hits, 10_000);
});

test('a point between the racks, or outside, hits nothing', () => {
  const map = picture(100);
  const l = layout(map, 1000, 600);
  const view = fit(l, 1000, 600);
  const [x, y] = nodeAt(l, 0);
  assert.equal(hit(l, map, view, -5, 5), null);
  assert.equal(hit(l, map, view, (x + l.nodeWidth + 3) * view.k + view.x, (y + 2) * view.k + view.y), null);
});

test('no two nodes overlap, whatever the racks hold', () => {
  const rows = [...Array(40).keys()].map((i) => row(`n${i}`, i < 37 ? 'big' : `r${i}`, 'healthy', i % 3 ? 8 : 2));
  const map = pictureOfRows(rows, 1);
  const l = layout(map, 900, 500);
  const boxes = map.nodes.map((_, n) => nodeAt(l, n));
  for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) {
    const apart = Math.abs(boxes[i][0] - boxes[j][0]) >= l.nodeWidth || Math.abs(boxes[i][1] - boxes[j][1]) >= l.nodeHeight;
    assert.ok(apart, `${map.nodes[i].name} lies on ${map.nodes[j].name}`);
  }
});

test('everything fits in the window it was laid out for', () => {
  for (const [w, h] of [[1600, 900], [836, 430], [400, 900]]) {
    const l = layout(picture(100), w, h);
    const v = fit(l, w, h);
    assert.ok(l.width * v.k + v.x <= w && l.height * v.k + v.y <= h + 1, `${w}x${h}`);
  }
});

test('a node that is looked at is the nearest to the middle, at the same size', () => {
  const l = layout(picture(100), 1000, 600);
  for (const node of [0, 37, 99]) {
    const view = lookAt(l, node, 3.5, 1000, 600);
    assert.equal(nearest(l, view, 500, 300), node);
    assert.equal(view.k, 3.5);
  }
});

test('the arrow keys reach every node', () => {
  const map = picture(100);
  const l = layout(map, 1000, 600);
  const reached = new Set([0]);
  const next = [0];
  while (next.length) {
    const at = next.pop();
    for (const where of ['left', 'right', 'up', 'down']) {
      const to = neighbour(l, at, where);
      if (!reached.has(to)) next.push(to);
      reached.add(to);
    }
  }
  assert.equal(reached.size, 100);
});

test('zooming keeps the point under the pointer where it is', () => {
  const before = { k: 2, x: 10, y: -30 };
  const after = zoomAt(before, 400, 300, 1.5);
  assert.ok(Math.abs((400 - before.x) / before.k - (400 - after.x) / after.k) < 1e-9);
});

function row(node, rack, standing, gpus = 8, since = '2026-11-30T10:00:00Z') {
  const list = Array.from({ length: gpus }, (_, index) => ({ index, standing, job: '' }));
  return { node, rack, standing, since, open_findings: 0, gpus: list };
}

test('a standing that this page does not know is drawn as unseen, never as healthy', () => {
  assert.equal(standingOf('excellent'), 'unseen');
  assert.equal(kindOf('excellent', true), 'unseen');
  assert.equal(pictureOfRows([row('a', 'r', 'excellent')], 1).nodes[0].standing, 'unseen');
});

test('each kind but busy and idle and unseen has a mark of its own, besides its colour', () => {
  const marks = KINDS.filter((kind) => !['idle', 'alloc', 'unseen'].includes(kind)).map((kind) => String(MARKS[kind]));
  assert.equal(new Set(marks).size, 4);
  assert.ok(!marks.includes('undefined'));
});

test('needs lists the worst first, the longest first, and counts what it leaves out', () => {
  const rows = [row('w', 'r', 'watched'), row('q', 'r', 'quarantined'), row('f', 'r', 'faulty'), row('h', 'r', 'healthy'), row('x', 'r', 'foreign'), row('u', 'r', 'unseen')];
  const { shown, more } = needs(pictureOfRows(rows, 1), 3);
  assert.deepEqual(shown.map((node) => node.name), ['f', 'q', 'u']);
  assert.equal(more, 1);
});

test('a GPU that is no longer listed leaves an empty place, and the others keep theirs', () => {
  const gpus = [1, 2, 3].map((index) => ({ index, standing: 'healthy', job: '' }));
  const map = pictureOfRows([{ ...row('a', 'r', 'faulty'), gpus }], 1);
  assert.deepEqual(map.nodes[0].gpus.map((gpu) => [gpu.index, gpu.standing]), [[0, 'unseen'], [1, 'healthy'], [2, 'healthy'], [3, 'healthy']]);
  assert.equal(map.gpus, 3);
});

test('a GPU that the server says is gone keeps its place and is counted neither as there nor as busy', () => {
  const gpus = [0, 1, 2].map((index) => ({ index, standing: index ? 'healthy' : 'faulty', job: '7', here: index !== 0 }));
  const map = pictureOfRows([{ ...row('a', 'r', 'faulty'), gpus }], 1);
  assert.deepEqual(map.nodes[0].gpus.map((gpu) => [gpu.index, gpu.missing]), [[0, true], [1, false], [2, false]]);
  assert.deepEqual([map.gpus, listed(map.nodes[0]), busy(map.nodes[0])], [2, 2, 2]);
  assert.deepEqual(map.nodes[0].gpus.map(gpuWords), ['faulty: not listed now', 'busy', 'busy']);
  assert.equal(gpuWords({ standing: 'unseen', busy: false, missing: true }), 'not listed now');
});

test('both forms of the map say the same of a GPU that is gone', () => {
  const columns = [
    ['node', 'json', ['a']], ['rack', 'json', ['r']], ['node_standing', 'u8', [0]], ['node_since', 'u32', [1]], ['node_open', 'u16', [0]],
    ['gpu_node', 'u32', [0, 0]], ['gpu_index', 'u8', [0, 1]], ['gpu_standing', 'u8', [1, 0]], ['gpu_busy', 'u8', [0, 0]], ['gpu_here', 'u8', [0, 1]],
  ];
  const fromColumns = pictureOf(decode(encode({ standings: ['faulty', 'unseen'] }, columns)), 1);
  const gpus = [{ index: 0, standing: 'unseen', job: '', here: false }, { index: 1, standing: 'faulty', job: '', here: true }];
  const fromRows = pictureOfRows([{ ...row('a', 'r', 'faulty'), since: '1970-01-01T00:00:01Z', gpus }], 1);
  assert.deepEqual(fromColumns.nodes, fromRows.nodes);
});

test('filters keep by standing and by part of node or rack, and counts add up', () => {
  const map = picture(60);
  const filter = { standings: new Set(['faulty', 'unseen']), text: '' };
  assert.equal(map.nodes.filter((node) => matches(node, filter)).length, 20);
  assert.equal(map.nodes.filter((node) => matches(node, { standings: new Set(), text: 'R1' })).length, 8);
  assert.equal(Object.values(countByStanding(map)).reduce((a, b) => a + b), 60);
});

test('every column sorts, both ways, without losing a row', () => {
  const map = picture(60);
  for (const key of ['node', 'rack', 'standing', 'since', 'open', 'gpus', 'busy', 'nonsense']) {
    const there = sorted(map.nodes, key, false).map((node) => node.name);
    assert.equal(new Set(there).size, 60);
    assert.deepEqual(sorted(map.nodes, key, true).map((node) => node.name), there.reverse());
  }
  assert.equal(sorted(map.nodes, 'standing', false)[0].standing, STANDINGS[0]);
});

test('the feed counts each change once and remembers where to go on', () => {
  const change = (seq) => ({ seq, at: '', cluster: 'c', node: `n${seq}`, what: 'finding', ref: '' });
  let feed = feedFrom(10);
  for (const seq of [11, 12, 12, 9, 13]) feed = fold(feed, change(seq));
  assert.deepEqual([feed.after, feed.changes, [...feed.nodes]], [13, 3, ['c/n11', 'c/n12', 'c/n13']]);
  assert.deepEqual([caughtUp(feed).after, caughtUp(feed).changes], [13, 0]);
});

test('the first change is read at once, a storm once a second', () => {
  assert.equal(gatherFor(100_000, 0), 60);
  assert.equal(gatherFor(100_000, 99_900), 900);
  assert.equal(gatherFor(100_000, 100_500), 1000); // a clock set back must not stop the page
});

test('pauses between tries grow and end', () => {
  assert.deepEqual([1, 2, 3, 20].map(backoff), [1000, 2000, 4000, 15000]);
});

test('what nobody needs to be told is not told', () => {
  const info = { finding: { ...view('F').finding, severity: 0 } };
  const [line, none] = tell([info, { finding: { ...view('G').finding, summary: 'C (x): s' } }], [], 9);
  assert.deepEqual([line.text, none], ['C (x): s', undefined]);
});

const view = (id, cause = null, extra = {}) => ({ finding: { id, cause, at: '2026-11-30T10:00:00Z', node: 'n', code: 'C', summary: 's', severity: 3 }, ...extra });

test('findings fold under their first cause, across several steps, and none is lost', () => {
  const folds = foldByCause([view('c', 'b'), view('b', 'a'), view('a'), view('lone'), view('orphan', 'gone')]);
  assert.deepEqual(folds.map((f) => [f.head.finding.id, f.parts.map((p) => p.finding.id)]), [['a', ['c', 'b']], ['lone', []], ['orphan', []]]);
});

test('the worst finding stands first, and none of one severity jumps over another', () => {
  const of = (id, severity) => ({ finding: { ...view(id).finding, severity } });
  const folds = worstFirst(foldByCause([of('info', 0), of('new', 3), of('old', 3), of('watch', 1)]));
  assert.deepEqual(folds.map((f) => f.head.finding.id), ['new', 'old', 'watch', 'info']);
});

test('findings that name each other as cause end in no loop and are all shown', () => {
  const folds = foldByCause([view('a', 'b'), view('b', 'a')]);
  assert.equal(folds.reduce((n, f) => n + 1 + f.parts.length, 0), 2);
});

test('a fresh page moves no row: known ones change in place, new ones wait', () => {
  const { shown, waiting } = steady([view('a', null, { open: true }), view('b')], [view('new'), view('b'), view('a', null, { open: false })]);
  assert.deepEqual(shown.map((v) => [v.finding.id, v.open]), [['a', false], ['b', undefined]]);
  assert.deepEqual(waiting.map((v) => v.finding.id), ['new']);
});

test('a decision that was held back is not told as done', () => {
  const decision = { id: 'D', node: 'n', action: 'drain', by: 'person:ada', at: '2026-11-30T10:00:01Z', reason: 'r', job: null };
  const [held] = tell([], [{ decision, state: 'held', limit: '5 in 600 s' }], 9);
  assert.equal(held.text, 'ada wants it out of service [held: 5 in 600 s]: r');
  const lines = tell([view('F')], [{ decision, state: 'done', limit: '' }], 9);
  assert.deepEqual(lines.map((line) => line.text), ['taken out of service by ada: r', 'C: s']);
});

test('what waits for the guard is the newest decision about the node, unless it has expired', () => {
  const one = (state, extra = {}) => ({ decision: { action: 'drain', expires: null, ...extra }, state });
  const now = Date.parse('2026-11-30T11:00:00Z');
  const held = one('held', { expires: '2026-11-30T11:00:01Z' });
  assert.equal(heldBack([held, one('done')], now), held);
  assert.equal(heldBack([one('done', { action: 'release-job' }), held], now), held);
  for (const none of [[], [one('done'), held], [one('to do'), held], [one('held', { expires: '2026-11-30T11:00:00Z' })]]) assert.equal(heldBack(none, now), null);
});

test('the alarm says when, how many, which limit and until when', () => {
  const guard = { tripped_at: '2026-11-30T10:00:00Z', window_s: 600, out: 3, limit: 8, removed_in_window: 5, max_in_window: 5 };
  const { lead, rest } = alarm(guard, 1, 'utc');
  assert.equal(lead, 'The guard has tripped at 10:00:00: 1 decision is held back (limit: 3 of 8 nodes out, 5 of 5 removals in 10 min).');
  assert.equal(rest, 'Nodes are told to advise only. It resets itself at 10:10:00 at the earliest, when there is room.');
  assert.match(alarm(guard, 0, 'utc').lead, /: 0 decisions are held back/);
});

test('needs lists what the guard holds back before everything else', () => {
  const rows = [row('f', 'r', 'faulty'), row('h', 'r', 'foreign'), row('q', 'r', 'quarantined')];
  assert.deepEqual(needs(pictureOfRows(rows, 1), 3, new Set(['h'])).shown.map((node) => node.name), ['h', 'f', 'q']);
});

test('long ids are shortened for the eye and kept whole behind it; the rest of a text stays as it is', () => {
  const whole = 'D-a4353ceec3e1d199f9df';
  assert.deepEqual(pieces(`komainu:${whole}: why`), [{ text: 'komainu:', id: '' }, { text: 'D-a4353cee…', id: whole }, { text: ': why', id: '' }]);
  assert.deepEqual(pieces(`${whole} F-0123456789abcdef`).filter((piece) => piece.id).map((piece) => piece.text), ['D-a4353cee…', 'F-01234567…']);
  for (const text of ['', 'D-0012', 'GPU-00000012-0003', 'x'.repeat(300)]) assert.equal(pieces(text).map((piece) => piece.text).join(''), text);
});

test('times and counts read as a person says them', () => {
  assert.equal(moment('2026-11-30T09:05:07Z', 'utc'), '2026-11-30 09:05:07 UTC');
  assert.deepEqual([clock(null, 'utc'), clock('rubbish', 'utc')], ['never', 'never']);
  assert.deepEqual([0, 59, 60, 3600, 5400, 90000].map(span), ['0 s', '59 s', '1 min', '1 h', '1 h 30 min', '1 d 1 h']);
  assert.equal(ago('2026-11-30T09:00:10Z', Date.parse('2026-11-30T09:00:00Z')), 'just now');
  assert.deepEqual([count(1, 'node'), count(1250, 'node')], ['1 node', '1,250 nodes']);
});

/** A 2D context that only counts. */
function paper() {
  const calls = {};
  return { calls, context: new Proxy({}, {
    get: (_, name) => (name === 'measureText' ? (text) => ({ width: text.length * 6 }) : (...args) => { (calls[name] ??= []).push(args); }),
    set: () => true,
  }) };
}
function scene(map, width, height, view = null) {
  const l = layout(map, width, height);
  return { picture: map, layout: l, view: view ?? fit(l, width, height), width, height, ratio: 1, palette: PALETTES.dark, outlined: false, lit: () => true, active: -1, chosen: -1 };
}

test('all 10,000 cells are drawn, and only those in sight once zoomed in', () => {
  const map = picture();
  assert.equal(draw(paper().context, scene(map, 1600, 900)), 10_000);
  const near = zoomAt(scene(map, 1600, 900).view, 400, 300, 6);
  const drawn = draw(paper().context, scene(map, 1600, 900, near));
  assert.ok(drawn > 50 && drawn < 1000, String(drawn));
});

test('light amber has an outline, and so has an idle cell where contrast is asked for', () => {
  const map = pictureOfRows([row('a', 'r', 'watched', 2), row('b', 'r', 'healthy', 3)], 1);
  const outlines = (changes) => {
    const { calls, context } = paper();
    draw(context, { ...scene(map, 400, 300), ...changes });
    return (calls.rect ?? []).length - 1; // without the frame around the watched node
  };
  assert.deepEqual([outlines({}), outlines({ palette: PALETTES.light }), outlines({ outlined: true })], [0, 2, 3]);
});

test('the place of a GPU that is gone is hollow: it is framed and never filled', () => {
  const { calls, context } = paper();
  const gpus = ['faulty', 'unseen', 'healthy'].map((standing, index) => ({ index, standing, job: '', here: index === 2 }));
  draw(context, scene(pictureOfRows([{ ...row('a', 'r', 'healthy'), gpus }], 1), 400, 300));
  assert.equal(calls.fillRect.length, 2); // the background, and the one that is there
  assert.equal(calls.rect.length, 2);
});

test('a node whose GPUs nobody saw is drawn as an empty frame, not left out', () => {
  const { calls, context } = paper();
  draw(context, scene(pictureOfRows([row('a', 'r', 'unseen', 0)], 1), 400, 300));
  assert.equal(calls.rect.length, 1);
  assert.equal(calls.fillRect.length, 1); // the background alone
});
