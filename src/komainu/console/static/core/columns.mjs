// The columnar buffer in which large views travel: magic "KCL1", u32 header length (little-endian),
// JSON header {meta, cols: [{name, type, offset, count}]}, padding to 8 bytes, then the columns, each
// 8-byte aligned so that a typed array can look straight into the buffer without copying.

/** @typedef {Uint8Array | Uint16Array | Uint32Array | Float32Array} Numbers */
/** @typedef {{name: string, type: string, offset: number, count: number}} ColumnHead */
/** @typedef {{meta: Record<string, any>, columns: Record<string, any>}} Columns */

const MAGIC = 'KCL1';
const ALIGN = 8;
/** @type {Record<string, {new (b: ArrayBuffer, o: number, n: number): Numbers, BYTES_PER_ELEMENT: number}>} */
const TYPES = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f32: Float32Array };

/** @param {number} n */
const aligned = (n) => Math.ceil(n / ALIGN) * ALIGN;

/**
 * @param {ArrayBuffer} buffer
 * @returns {Columns} numbers as views on `buffer`, `json` columns parsed
 * @throws {Error} when the buffer is not of this format, or is cut short
 */
export function decode(buffer) {
  const bytes = new Uint8Array(buffer);
  const magic = String.fromCharCode(...bytes.subarray(0, 4));
  if (magic !== MAGIC) throw new Error(`columns: expected ${MAGIC}, found ${JSON.stringify(magic)}`);
  const headerLength = new DataView(buffer).getUint32(4, true);
  const utf8 = new TextDecoder();
  const header = JSON.parse(utf8.decode(bytes.subarray(8, 8 + headerLength)));
  const start = aligned(8 + headerLength);
  /** @type {Record<string, any>} */
  const columns = {};
  for (const { name, type, offset, count } of /** @type {ColumnHead[]} */ (header.cols)) {
    const size = type === 'json' ? 1 : TYPES[type]?.BYTES_PER_ELEMENT;
    if (!size) throw new Error(`columns: column ${name} has unknown type ${type}`);
    if (start + offset + size * count > buffer.byteLength) {
      throw new Error(`columns: column ${name} ends after the buffer (${buffer.byteLength} bytes)`);
    }
    columns[name] =
      type === 'json'
        ? JSON.parse(utf8.decode(bytes.subarray(start + offset, start + offset + count)))
        : new TYPES[type](buffer, start + offset, count);
  }
  return { meta: header.meta, columns };
}

/**
 * The inverse of `decode`, for tests and for the fixture's sake.
 * @param {Record<string, any>} meta
 * @param {[string, string, any][]} columns name, type, values
 * @returns {ArrayBuffer}
 */
export function encode(meta, columns) {
  const utf8 = new TextEncoder();
  let end = 0;
  const placed = columns.map(([name, type, values]) => {
    const bytes =
      type === 'json' ? utf8.encode(JSON.stringify(values)) : bytesOf(type, /** @type {number[]} */ (values));
    const head = { name, type, offset: end, count: type === 'json' ? bytes.length : values.length };
    end = aligned(end + bytes.length);
    return { head, bytes };
  });
  const header = utf8.encode(JSON.stringify({ meta, cols: placed.map((p) => p.head) }));
  const start = aligned(8 + header.length);
  const out = new Uint8Array(start + end);
  out.set(utf8.encode(MAGIC), 0);
  new DataView(out.buffer).setUint32(4, header.length, true);
  out.set(header, 8);
  for (const { head, bytes } of placed) out.set(bytes, start + head.offset);
  return out.buffer;
}

/** @param {string} type @param {number[]} values */
function bytesOf(type, values) {
  const array = new TYPES[type](new ArrayBuffer(values.length * TYPES[type].BYTES_PER_ELEMENT), 0, values.length);
  array.set(values);
  return new Uint8Array(array.buffer);
}
