"""From the text of a record to its meaning: parse, grade, and remember both for repeated texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

from komainu.health.catalogue import catalogue
from komainu.health.detect.lines import ERROR_WORD, HEADS, grade_line, parse, parse_networkd
from komainu.health.detect.pasted import Writer, unwrap
from komainu.health.detect.sxid import grade_sxid, parse_fabric_manager
from komainu.health.detect.xid import grade_xid
from komainu.health.model import Catalogue, Line, Reading

Read = Callable[[str], Reading | None]

REMEMBERED = 1024
"""Texts whose reading is kept: a flood repeats itself, and the agent reads each record twice (to see
whether it means anything, then to conclude). At about 1.5 KB each this is bounded at 2 MB."""


MAX_PASTED = 4096
"""Characters of a pasted line that are looked at: four times what a kernel record can hold."""


def grade(line: Line, known: Catalogue) -> Reading:
    """What a line means by the catalogue, taken alone."""
    if line.entry:
        return grade_line(line, known)
    return grade_sxid(line, known) if line.code.startswith("SXid ") else grade_xid(line, known)


def reader(known: Catalogue) -> Read:
    """A function from a kernel record's text to its meaning under this catalogue."""

    @lru_cache(REMEMBERED)
    def read(text: str) -> Reading | None:
        line = parse(text)
        return None if line is None else grade(line, known)

    def read_if_it_may(text: str) -> Reading | None:
        # Nine of ten records mean nothing. These two tests cost 0.1 µs and keep them out of the cache.
        if text[:4] in HEADS or ERROR_WORD in text:
            return read(text)
        return None

    return read_if_it_may


@cache
def shipped() -> Read:
    """The reader for the catalogue that ships with this release."""
    return reader(catalogue())


def read_pasted(line: str) -> Reading | None:
    """What a pasted line means; also lines of systemd-networkd and Fabric Manager, which never are kernel's."""
    pasted = unwrap(line[:MAX_PASTED])
    if pasted is None:
        return None
    found = _PARSERS[pasted.writer](pasted.text)
    return None if found is None else grade(found, catalogue())


_PARSERS: dict[Writer, Callable[[str], Line | None]] = {
    Writer.KERNEL: parse,
    Writer.NETWORKD: parse_networkd,
    Writer.FABRIC_MANAGER: parse_fabric_manager,
}


class Transcript:
    """Pasted lines, read in their order.

    dmesg and journalctl print a record that holds newlines as several lines, indented from the second on.
    Such a line is a part of its record and never one of its own: text that a program managed to break
    over lines cannot pose as a kernel record. An indentation common to the whole paste is taken off.
    """

    def __init__(self) -> None:
        self._margin: str | None = None
        self._record = ""
        self._meant = False

    def read(self, line: str) -> Reading | None:
        """What the next line means, together with the lines of its record before it."""
        line = line[:MAX_PASTED]
        if self._margin is None and line.strip():
            self._margin = line[: len(line) - len(line.lstrip())]
        line = line.removeprefix(self._margin or "")
        if line[:1].isspace() and self._record:
            if self._meant or len(self._record) > MAX_PASTED:
                return None
            self._record = f"{self._record}\n{line.strip()}"
        else:
            self._record = line
        reading = read_pasted(self._record)
        self._meant = reading is not None
        return reading
