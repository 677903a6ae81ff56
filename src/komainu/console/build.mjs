// Bundles the console: node src/komainu/console/build.mjs [--watch]. hatch_build.py runs it for every wheel.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const source = join(here, 'static');
const bundle = join(source, 'bundle');
const modules = join(here, '..', '..', '..', 'node_modules');

const options = {
  entryPoints: {
    app: join(source, 'app', 'main.mjs'),
    login: join(source, 'app', 'login.mjs'),
    theme: join(source, 'app', 'theme.js'),
    style: join(source, 'style.css'),
  },
  outdir: bundle,
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['es2022'],
  legalComments: 'none',
  logLevel: 'warning',
};

rmSync(bundle, { recursive: true, force: true });
mkdirSync(bundle, { recursive: true });
const licences = ['preact', 'htm'].map((name) => {
  const { version, license } = JSON.parse(readFileSync(join(modules, name, 'package.json'), 'utf8'));
  return `${name} ${version} (${license})\n\n${readFileSync(join(modules, name, 'LICENSE'), 'utf8').trim()}\n`;
});
writeFileSync(join(bundle, 'LICENSES.txt'), `The console's bundle contains:\n\n${licences.join('\n----\n\n')}`);
if (process.argv.includes('--watch')) await (await esbuild.context(options)).watch();
else await esbuild.build(options);
