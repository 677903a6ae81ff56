"""Reads the fault catalogue that ships with Komainu: three TOML files beside this one.

It is data, so that an operator can read what is known about a code without reading Python, and so that a
change of grade shows as one line in a diff.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec

from komainu.core.verdict import FaultClass
from komainu.health.model import Catalogue, KernelLine, Sxid, Xid


class _XidFile(msgspec.Struct, frozen=True):
    version: str
    release: str
    driver: str
    sources: dict[str, dict[str, object]]
    xid: list[Xid]


class _Unit(msgspec.Struct, frozen=True):
    name: str
    what: str
    first: int
    last: int
    codes: dict[str, str]


class _Renumbered(msgspec.Struct, frozen=True):
    first: int
    last: int
    was: str


class _SxidFile(msgspec.Struct, frozen=True):
    version: str
    release: str
    prefix: str
    renumbered_at: str
    renumbered: list[_Renumbered]
    alone: dict[str, FaultClass]
    unit: list[_Unit]


class _LineFile(msgspec.Struct, frozen=True):
    version: str
    release: str
    line: list[KernelLine]


def _text(name: str) -> bytes:
    return (files(__package__) / name).read_bytes()


@cache
def catalogue() -> Catalogue:
    """The catalogue, read once per process (about 30 ms). Raises msgspec.ValidationError if it is broken."""
    xid = msgspec.toml.decode(_text("xid.toml"), type=_XidFile)
    sxid = msgspec.toml.decode(_text("sxid.toml"), type=_SxidFile)
    line = msgspec.toml.decode(_text("lines.toml"), type=_LineFile)
    return Catalogue(
        version=f"xid {xid.version} ({xid.release}), sxid {sxid.version}, lines {line.version}",
        renumbered_at=sxid.renumbered_at,
        xids={entry.code: entry for entry in xid.xid},
        sxids=_old_sxids(sxid)
        | {code: entry for unit in sxid.unit for code, entry in _sxids(unit, sxid).items()},
        lines={entry.finding or f"{entry.component}/{entry.code}": entry for entry in line.line},
    )


def _sxids(unit: _Unit, file: _SxidFile) -> dict[int, Sxid]:
    return {
        int(number): Sxid(
            code=int(number),
            name=file.prefix + name,
            unit=unit.name,
            what=unit.what,
            was=_was(int(number), file.renumbered),
            alone=file.alone.get(number),
        )
        for number, name in unit.codes.items()
    }


def _old_sxids(file: _SxidFile) -> dict[int, Sxid]:
    """Numbers only older drivers use (28006) are known too: their lines still appear."""
    return {
        code: Sxid(code=code, name="", unit="", what="", was=r.was)
        for r in file.renumbered
        for code in range(r.first, r.last + 1)
    }


def _was(code: int, renumbered: list[_Renumbered]) -> str:
    return next((r.was for r in renumbered if r.first <= code <= r.last), "")
