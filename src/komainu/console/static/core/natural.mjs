// Natural order: gpu2 before gpu10, rack-9 before rack-10, as a person reads names.

/** @param {string} name @returns {(string|number)[]} text and numbers in turn, text first */
function parts(name) {
  return name.split(/(\d+)/).map((part, i) => (i % 2 === 1 ? Number(part) : part.toLowerCase()));
}

/**
 * Orders `a` and `b` as a person would; equal only when the names are identical.
 * @param {string} a @param {string} b @returns {number}
 */
export function compareNatural(a, b) {
  const left = parts(a);
  const right = parts(b);
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    const x = left[i];
    const y = right[i];
    if (x === y) continue;
    return x < y ? -1 : 1;
  }
  return left.length - right.length || (a < b ? -1 : a > b ? 1 : 0);
}
