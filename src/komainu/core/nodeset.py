"""Node lists as people and schedulers write them: `node[1-30,032]` ⇄ the names one by one.

The syntax is ClusterShell's, as far as lists go: `,` joins, `[…]` holds numbers, ranges `a-b` and
steps `a-b/s`, leading zeros are part of a name (`n1` and `n01` are two nodes), and several brackets
in one name multiply (`r[1-2]n[1-8]`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from komainu.core.errors import InputError, NodeSetError
from komainu.core.names import NodeName, node_name

MAX_NODES = 1_000_000
"""More names than that in one list is a mistake or an attack, not a cluster."""

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?:/([0-9]{1,18}))?)?")
_DIGITS = re.compile(r"([0-9]+)")


def expand(text: str) -> tuple[NodeName, ...]:
    """Every name in `text`, in the order written, each once.

    Raises NodeSetError naming the part that cannot be read.
    """
    names: dict[NodeName, None] = {}
    for part in _parts(text):
        for name in _expand_part(part):
            names[name] = None
            if len(names) > MAX_NODES:
                raise _refused(part, f"it names more than {MAX_NODES} nodes")
    return tuple(names)


def fold(names: Iterable[str]) -> str:
    """The shortest list we know how to write; `expand(fold(names))` is the same set of names."""
    split = sorted({tuple(_DIGITS.split(name)) for name in names})
    deepest = max((len(pieces) for pieces in split), default=1)
    for axis in range(deepest - 2, 0, -2):
        split = _fold_axis(split, axis)
    return ",".join(sorted(("".join(pieces) for pieces in split), key=_natural))


# ── expanding ────────────────────────────────────────────────────────────────────────────────────


def _parts(text: str) -> Iterator[str]:
    """`text` cut at the commas outside brackets."""
    masked = _BRACKETS.sub(lambda found: "x" * len(found.group()), text)
    start = 0
    for piece in masked.split(","):
        part = text[start : start + len(piece)].strip()
        start += len(piece) + 1
        if not part:
            if not text.strip():
                return
            raise _refused(text, "a name is missing beside a comma")
        yield part


def _expand_part(part: str) -> Iterator[NodeName]:
    pieces = _BRACKETS.split(part)  # literal, ranges, literal, ranges, … literal
    axes = [_numbers(piece, part) if index % 2 else (piece,) for index, piece in enumerate(pieces)]
    count = 1
    for axis in axes:
        count *= len(axis)
        if count > MAX_NODES:
            raise _refused(part, f"it names more than {MAX_NODES} nodes")
    for choice in itertools.product(*axes):
        try:
            yield node_name("".join(choice))
        except InputError as error:
            raise _refused(part, "it is not a node name") from error


def _numbers(ranges: str, part: str) -> tuple[str, ...]:
    found: list[str] = []
    for piece in ranges.split(","):
        match = _RANGE.fullmatch(piece.strip())
        if match is None:
            raise _refused(part, f"{piece[:40]!r} is neither a number nor a range a-b or a-b/step")
        first, last, step = match[1], match[2] or match[1], int(match[3] or 1)
        if step < 1 or int(last) < int(first):
            raise _refused(part, f"the range {piece[:40]!r} runs backwards or nowhere")
        if (int(last) - int(first)) // step + len(found) >= MAX_NODES:
            raise _refused(part, f"it names more than {MAX_NODES} nodes")
        width = len(first) if first.startswith("0") else 0
        found += [str(n).zfill(width) for n in range(int(first), int(last) + 1, step)]
    return tuple(found)


def _refused(part: str, why: str) -> NodeSetError:
    return NodeSetError(
        f"node list cannot be read at {part[:80]!r}: {why}. Write it like node[1-3,07],login1."
    )


# ── folding ──────────────────────────────────────────────────────────────────────────────────────

_Pieces = tuple[str, ...]


def _fold_axis(split: list[_Pieces], axis: int) -> list[_Pieces]:
    """Join what differs only in the number at `axis`."""
    groups: dict[tuple[_Pieces, _Pieces], list[str]] = {}
    folded: list[_Pieces] = []
    for pieces in split:
        if axis >= len(pieces):
            folded.append(pieces)
        else:
            groups.setdefault((pieces[:axis], pieces[axis + 1 :]), []).append(pieces[axis])
    return folded + [(*before, _ranges(texts), *after) for (before, after), texts in groups.items()]


def _ranges(texts: list[str]) -> str:
    """`1, 2, 3, 07` → `[1-3,07]`; one number stays bare."""
    left = set(texts)
    runs: list[str] = []
    for first in sorted(texts, key=lambda text: (len(text), text)):
        if first not in left:
            continue
        last = first
        left.remove(first)
        while (after := str(int(last) + 1).zfill(len(last))) in left:
            left.remove(after)
            last = after
        runs.append(first if first == last else f"{first}-{last}")
    return runs[0] if len(texts) == 1 else f"[{','.join(runs)}]"


def _natural(text: str) -> list[tuple[int, str]]:
    """Sorting key under which n2 comes before n10."""
    return [(len(piece) if piece.isdecimal() else 0, piece) for piece in _DIGITS.split(text)]
