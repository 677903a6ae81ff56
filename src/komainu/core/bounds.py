"""What one batch may hold: lengths, counts and dates, checked where it arrives.

A healthy agent stays far below every bound (a kernel record is at most 8 kB, its evidence 1,000
characters), so whatever passes one is a fault of the node's software. The batch is refused whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from komainu.core.errors import InputError
from komainu.core.node import NodeVerdict
from komainu.core.observation import Finding, Observation, Scalar
from komainu.core.wire import Batch, Hardware

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""A clock that was never set says 1970, and what such a node has to say must be heard. Outside these
no clock was read at all, and reckoning with the date may overflow."""
NAME = 128
"""Ids, names, versions, codes, parts of a component."""
LINE = 1000
"""What is made for one line of a page: a summary, a vendor's advice."""
TEXT = 16_384
"""Free text: a kernel record, a verdict's message."""
EVIDENCE, EVIDENCE_TEXT = 32, 2000
ENTRIES = 200
"""Names and values beside a report; codes, findings and checks of a verdict; GPUs of a node."""
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


def holds_nul(raw: bytes) -> bool:
    """Whether a text of this JSON holds the character NUL, which PostgreSQL cannot keep."""
    return b"\\u0000" in raw and _NUL.search(raw) is not None


def without_nul(raw: bytes) -> bytes:
    """This JSON with U+FFFD for each NUL: a kernel line may hold one, and is not lost over it."""
    return _NUL.sub(rb"\1\\ufffd", raw) if b"\\u0000" in raw else raw


def checked(batch: Batch) -> Batch:
    """`batch`, or InputError naming what is out of bounds and where."""
    _names("batch", id=batch.id, boot_id=batch.boot_id)
    _names("batch", agent_version=batch.agent_version, policy_seen=batch.policy_seen)
    _instant("batch sent_at", batch.sent_at)
    for observation in batch.observations:
        _observation(observation)
    for finding in batch.findings:
        _finding(finding)
    if batch.verdict is not None:
        _verdict(batch.verdict)
    if batch.hardware is not None:
        _hardware(batch.hardware)
    return batch


def _observation(one: Observation) -> None:
    what = f"observation {one.id[:NAME]!r}"
    _names(what, id=one.id)
    _instant(f"{what} at", one.at)
    _entries(f"{what} data", one.data)


def _finding(one: Finding) -> None:
    what = f"finding {one.id[:NAME]!r}"
    _names(what, id=one.id, code=one.code, cause=one.cause, job=one.job, catalogue=one.catalogue)
    _names(f"{what} component", kind=one.component.kind, id=one.component.id)
    _text(f"{what} summary", one.summary, LINE)
    _text(f"{what} vendor_action", one.vendor_action or "", LINE)
    _instant(f"{what} at", one.at)
    _entries(f"{what} fields", one.fields)
    _count(f"{what} evidence", one.evidence, EVIDENCE)
    for piece in one.evidence:
        _names(f"{what} evidence", observation=piece.observation)
        _text(f"{what} evidence text", piece.text, EVIDENCE_TEXT)
        _instant(f"{what} evidence at", piece.at)
    if not 0 <= one.confidence <= 1:
        raise _out_of_bounds(f"{what} confidence", str(one.confidence), "a number from 0 to 1")


def _verdict(verdict: NodeVerdict) -> None:
    _text("verdict message", verdict.message, TEXT)
    for what, named in (("codes", verdict.codes), ("findings", verdict.findings)):
        _count(f"verdict {what}", named, ENTRIES)
        for name in named:
            _text(f"verdict {what}", name, NAME)
    _entries("verdict checks", verdict.checks)
    _entries("verdict details", verdict.details)
    if verdict.since is not None:
        _instant("verdict since", verdict.since)


def _hardware(hardware: Hardware) -> None:
    _names("hardware", rack=hardware.rack)
    _count("hardware gpus", hardware.gpus, ENTRIES)
    for gpu in hardware.gpus:
        _names("gpu", pci=gpu.pci, uuid=gpu.uuid, serial=gpu.serial, model=gpu.model)


def _names(where: str, **named: str | None) -> None:
    for what, text in named.items():
        _text(f"{where} {what}", text or "", NAME)


def _entries(what: str, entries: Mapping[str, Scalar]) -> None:
    _count(what, entries, ENTRIES)
    for name, value in entries.items():
        _text(f"{what} name", name, NAME)
        if isinstance(value, str):
            _text(f"{what} {name}", value, TEXT)


def _count(what: str, things: Collection[object], most: int) -> None:
    if len(things) > most:
        raise _out_of_bounds(what, f"{len(things)} entries", f"at most {most}")


def _text(what: str, text: str, most: int) -> None:
    if len(text) > most:
        raise _out_of_bounds(what, f"{len(text)} characters", f"at most {most}")


def _instant(what: str, at: datetime) -> None:
    if not EARLIEST <= at < LATEST:
        raise _out_of_bounds(what, at.isoformat(), "a year from 1970 to 2099")


def _out_of_bounds(what: str, found: str, expected: str) -> InputError:
    return InputError(
        f"{what} is out of bounds: found {found}, expected {expected}. Nothing of the batch was kept."
    )
