"""How a large view travels: column by column, so that a browser decodes it without copying.

    b"KCL1"                                   magic
    u32, little-endian                        length of the header in bytes
    header                                    JSON, UTF-8:
        {"meta": {…}, "cols": [{"name", "type", "offset", "count"}, …]}
    zeros up to a multiple of 8               (counted from the first byte of the magic)
    data section: the columns' values, little-endian, each column at a multiple of 8

`offset` counts from the start of the data section. `type` is `u8`, `u16`, `u32` or `f32`, and
`count` the number of values; or `json`, a JSON list of strings, and `count` its length in bytes.
The decoder is console/static/core/columns.mjs.
"""

from __future__ import annotations

import sys
from array import array

import msgspec

from komainu.core.views import Column, Columns

MAGIC = b"KCL1"
MEDIA_TYPE = "application/vnd.komainu.columns"
_ALIGN = 8
_CODES = {"u8": "B", "u16": "H", "u32": "I", "f32": "f"}
_json = msgspec.json.Encoder().encode


def encode(view: Columns) -> bytes:
    """The bytes of `view`."""
    parts: list[bytes] = []
    heads: list[dict[str, object]] = []
    offset = 0
    for column in view.columns:
        body, count = _body(column)
        heads.append({"name": column.name, "type": column.type, "offset": offset, "count": count})
        parts.append(_padded(body))
        offset += len(parts[-1])
    header = _json({"meta": view.meta, "cols": heads})
    front = MAGIC + len(header).to_bytes(4, "little") + header
    return _padded(front) + b"".join(parts)


def _body(column: Column) -> tuple[bytes, int]:
    if column.type == "json":
        body = _json(column.values)
        return body, len(body)
    values = array(_CODES[column.type], column.values)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes(), len(values)


def _padded(body: bytes) -> bytes:
    return body + bytes(-len(body) % _ALIGN)
