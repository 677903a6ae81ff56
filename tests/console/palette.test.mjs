// Colours are told apart by people with any of three colour-vision deficiencies: Machado, Oliveira and
// Fernandes (2009), severity 1, in linear RGB; distance is CIE76 in Lab.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';

import { PALETTES } from '../../src/komainu/console/static/core/palette.mjs';
import { KINDS } from '../../src/komainu/console/static/core/standing.mjs';

const LEAST_DISTANCE = 25;
const VISIONS = {
  usual: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protan: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deutan: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritan: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
const rgb = (hex) => [1, 3, 5].map((i) => linear(parseInt(hex.slice(i, i + 2), 16)));
const clip = (x) => Math.min(1, Math.max(0, x));
const seenAs = (hex, m) => m.map((line) => clip(line.reduce((sum, f, i) => sum + f * rgb(hex)[i], 0)));

function lab([r, g, b]) {
  const f = (t) => (t > 0.008856 ? Math.cbrt(t) : 7.787 * t + 16 / 116);
  const x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047);
  const y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
  const z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

function contrast(a, b) {
  const light = (hex) => rgb(hex).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0.05);
  const [x, y] = [light(a), light(b)];
  return Math.max(x, y) / Math.min(x, y);
}

for (const [theme, palette] of Object.entries(PALETTES)) {
  for (const [vision, matrix] of Object.entries(VISIONS)) {
    test(`${theme}: every two kinds differ clearly to ${vision} eyes`, () => {
      const kinds = KINDS.filter((kind) => kind !== 'unseen');
      for (const a of kinds) for (const b of kinds) {
        if (a >= b) continue;
        const [p, q] = [palette[a], palette[b]].map((hex) => lab(seenAs(hex, matrix)));
        const distance = Math.hypot(...p.map((value, i) => value - q[i]));
        assert.ok(distance >= LEAST_DISTANCE, `${a} and ${b}: ${distance.toFixed(1)}`);
      }
    });
  }

  test(`${theme}: text reads at 4.5:1, and cells or their outline at 3:1 on the ground`, () => {
    assert.ok(contrast(palette.text, palette.panel) >= 4.5 && contrast(palette.dim, palette.panel) >= 4.5);
    // The amber of the light theme has 2.7:1 and an outline; idle is quiet on purpose.
    for (const [kind, shown] of [['alloc', 'alloc'], ['watched', 'edge'], ['faulty', 'faulty'], ['quarantined', 'quarantined'], ['foreign', 'foreign']]) {
      assert.ok(contrast(palette[shown], palette.bg) >= 3, `${kind} ${contrast(palette[shown], palette.bg)}`);
      assert.ok(contrast(palette[shown], palette.panel) >= 3, `${kind} on a panel`);
    }
  });

  test(`${theme}: style.css says the same colours`, () => {
    const css = readFileSync(new URL('../../src/komainu/console/static/style.css', import.meta.url), 'utf8');
    const block = css.slice(css.indexOf(`data-theme='${theme}'] {`)).split('}')[0];
    for (const [name, hex] of Object.entries(palette)) assert.ok(block.includes(`--${name}: ${hex};`), `${name} ${hex}`);
  });
}
