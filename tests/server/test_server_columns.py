from __future__ import annotations

import json
import struct

from hypothesis import given
from hypothesis import strategies as st

from komainu.core.views import Column, Columns
from komainu.server.columns import encode

CODES = {"u8": "B", "u16": "H", "u32": "I", "f32": "f"}


def _decode(body: bytes) -> tuple[dict[str, object], dict[str, list[object]]]:
    """As a browser does it: header, then each column where the header says it is."""
    assert body[:4] == b"KCL1"
    (length,) = struct.unpack("<I", body[4:8])
    header = json.loads(body[8 : 8 + length])
    start = -(-(8 + length) // 8) * 8
    columns: dict[str, list[object]] = {}
    for column in header["cols"]:
        assert (start + column["offset"]) % 8 == 0
        at = start + column["offset"]
        if column["type"] == "json":
            columns[column["name"]] = json.loads(body[at : at + column["count"]])
        else:
            form = f"<{column['count']}{CODES[column['type']]}"
            columns[column["name"]] = list(struct.unpack_from(form, body, at))
    return header["meta"], columns


@given(
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=20),
    small=st.lists(st.integers(0, 255), max_size=30),
    large=st.lists(st.integers(0, 2**32 - 1), max_size=30),
    floats=st.lists(st.floats(width=32, allow_nan=False), max_size=9),
)
def test_what_is_encoded_is_decoded(
    names: list[str], small: list[int], large: list[int], floats: list[float]
) -> None:
    view = Columns(
        meta={"cluster": "c"},
        columns=(
            Column(name="n", type="json", values=names),
            Column(name="s", type="u8", values=small),
            Column(name="l", type="u32", values=large),
            Column(name="f", type="f32", values=floats),
        ),
    )
    meta, columns = _decode(encode(view))
    assert meta == {"cluster": "c"}
    assert columns == {"n": names, "s": small, "l": large, "f": floats}
