// What every screen gets from the frame around it.

/**
 * @typedef {object} Shell
 * @property {any} me Me of core/views.py
 * @property {string} cluster the one on screen
 * @property {any} clusterView ClusterView, or null while it is not read
 * @property {URLSearchParams} params of the address
 * @property {'dark'|'light'} theme
 * @property {{zone: import('../core/format.mjs').Zone, now: number}} time
 * @property {number} tick changes when something in the cluster did
 * @property {(node: string) => number} tickOf changes when something about this node did
 * @property {(at: number, old: boolean) => void} sayFresh tells the top bar how old the screen's data is
 */

export {};
