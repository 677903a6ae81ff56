"""The agent's reader of the gate's records: what prolog and epilog wrote becomes GateRecords.

Prolog and epilog are shell and know nothing of spools: they append one line by one write. Here the
lines become records with ids that are the same whenever the same line is read again, so that an
agent killed anywhere loses none and counts none twice. The story continues in agent/, which ships
them, and in quarantine/decide, which matches each refusal with the drain Slurm made of it.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from pathlib import Path

import msgspec

from komainu.core.errors import InputError, StorageError
from komainu.core.gate import RECORD_MAGIC, GateRecord, read_record
from komainu.core.names import stable_id

ROTATE_BYTES = 1024 * 1024
"""Beyond this the file is renamed to `records.1`: about 8,000 records, little of a tmpfs."""
READ_BYTES = 256 * 1024
"""Most that one call reads of one file; the next call goes on from there."""
SETTLE_S = 30.0
"""A renamed file is replaced only after so long without a write: a gate that opened it just before
it was renamed, and was then kept waiting, writes its line into it."""
LINE_BYTES = 4096
"""Longest line worth keeping: the gate bounds every word, its lines stay below 1,500 bytes."""

Found = list[tuple[str, GateRecord]]


class GateOffset(msgspec.Struct, frozen=True, kw_only=True):
    """How far the records are read. The agent keeps it durably, never before the records."""

    inode: int = 0
    offset: int = 0
    head: str = ""
    """Hash of the first line: tells the file from a later one with the same inode number."""
    old_inode: int = 0
    """The renamed file, read on: a gate may have opened it before it was renamed."""
    old_offset: int = 0
    old_head: str = ""
    generation: int = 0
    """How often the file was renamed, or began anew with a boot."""
    garbled: int = 0
    """Lines that were no record, since the beginning: never fatal, to be reported."""


class _Place(msgspec.Struct, frozen=True):
    """How far one file is read."""

    inode: int = 0
    offset: int = 0
    head: str = ""


class _Step(msgspec.Struct, frozen=True):
    """What one file gave."""

    place: _Place = _Place()
    found: Found = []
    garbled: int = 0


class GateRecords:
    """The gate's records of one node. Only its agent may read them so: reading renames the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._old = path.with_name(path.name + ".1")

    def read_new(self, state: GateOffset) -> tuple[Found, GateOffset]:
        """Records that appeared since `state`, each with its id, and the state to go on from.

        A last line without its newline stays for the next call; a large backlog takes several
        calls. Keep the returned state only after the records are safe: reading again from an older
        state gives the same ids. Raises StorageError when the file is there and cannot be read.
        """
        try:
            return self._read_new(state)
        except OSError as error:
            raise StorageError(
                f"gate records {self._path} cannot be read: {error}. The gate's answers stand. "
                f"Check that its directory belongs to root, mode 0700, and holds regular files."
            ) from error

    def _read_new(self, state: GateOffset) -> tuple[Found, GateOffset]:
        current = _Place(state.inode, state.offset, state.head)
        old = _Place(state.old_inode, state.old_offset, state.old_head)
        generation = state.generation
        if current.inode and not _is_at(self._path, current):
            # We renamed it and were killed before the state was kept, or a boot began it anew.
            old, current, generation = current, _Place(), generation + 1
        steps = []
        if old.inode or state == GateOffset():
            steps.append(_read(self._old, old))
            old = steps[-1].place
        steps.append(_read(self._path, current))
        current = steps[-1].place
        if current.offset > ROTATE_BYTES and self._is_read_out(old):
            steps.append(self._rename(old))
            old, current, generation = current, _Place(), generation + 1
        return [one for step in steps for one in step.found], GateOffset(
            inode=current.inode,
            offset=current.offset,
            head=current.head,
            old_inode=old.inode,
            old_offset=old.offset,
            old_head=old.head,
            generation=generation,
            garbled=state.garbled + sum(step.garbled for step in steps),
        )

    def _is_read_out(self, old: _Place) -> bool:
        try:
            touched = self._old.stat().st_ctime
        except FileNotFoundError:
            return True
        settled = abs(time.time() - touched) > SETTLE_S
        return settled and (not old.inode or _read(self._old, old).place == old)

    def _rename(self, old: _Place) -> _Step:
        """Put the grown file in the old one's place; the old one's very last lines, if any."""
        held = _open(self._old) if old.inode else None
        try:
            self._path.rename(self._old)
            return _Step() if held is None else _read_from(held, old)
        finally:
            if held is not None:
                os.close(held)


def _read(path: Path, place: _Place) -> _Step:
    """What is new in the file at `path`; nothing when it is not there, or not that of `place`."""
    file = _open(path)
    if file is None:
        return _Step()
    try:
        if place.inode and not _same(file, place):
            return _Step()
        return _read_from(file, place)
    finally:
        os.close(file)


def _read_from(file: int, place: _Place) -> _Step:
    text = os.pread(file, READ_BYTES, place.offset)
    end = text.rfind(b"\n") + 1
    if end == 0 and len(text) < LINE_BYTES:  # nothing yet, or a line still being written
        return _Step(_Place(os.fstat(file).st_ino, place.offset, place.head))
    end = end or len(text)  # nothing of ours is so long: passed over as one garbled line
    found: Found = []
    garbled, offset = 0, place.offset
    for line in text[:end].removesuffix(b"\n").split(b"\n"):
        record, whole = _record(line)
        garbled += not whole
        if record is not None:
            found.append((_id_of(line, offset), record))
        offset += len(line) + 1
    head = place.head or _head(file)
    return _Step(_Place(os.fstat(file).st_ino, place.offset + end, head), found, garbled)


def _record(line: bytes) -> tuple[GateRecord | None, bool]:
    """The record in one line, and whether the line held nothing else.

    A write cut short by a full disk leaves a beginning that the next record is appended to: the
    whole record behind it is still good.
    """
    text = line.decode("ascii", "replace")
    start = max(text.rfind(f"{RECORD_MAGIC} "), 0)
    try:
        return read_record(text[start:]), start == 0
    except InputError:
        return None, False


def _id_of(line: bytes, offset: int) -> str:
    # The line holds boot id and uptime; the offset tells apart two equal lines of one second.
    return stable_id(str(offset), line.decode("latin-1"), prefix="G-")


def _head(file: int) -> str:
    first = os.pread(file, LINE_BYTES, 0).partition(b"\n")[0]
    return hashlib.blake2b(first, digest_size=8).hexdigest()


def _same(file: int, place: _Place) -> bool:
    """Whether the open file is the one `place` speaks of."""
    found = os.fstat(file)
    if found.st_ino != place.inode or found.st_size < place.offset:
        return False
    return not place.head or _head(file) == place.head


def _is_at(path: Path, place: _Place) -> bool:
    file = _open(path)
    if file is None:
        return False
    try:
        return _same(file, place)
    finally:
        os.close(file)


def _open(path: Path) -> int | None:
    """Open for reading without following a link or waiting on a pipe; None when there is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is not a regular file")
    return file
