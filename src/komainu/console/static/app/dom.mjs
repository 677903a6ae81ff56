// Preact with htm: markup as tagged templates, so that no compiler and no eval is needed.
import { h } from 'preact';
import htm from 'htm';

export const html = htm.bind(h);
