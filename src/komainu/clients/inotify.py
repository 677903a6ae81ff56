"""Wake up when something in a folder changes, without polling while nothing does.

The standard library has no inotify, so the three calls go through ctypes. The kernel grants few
instances per user (128 by default), so all watches of one event loop share one; when there is none
left, `Watch` polls instead: slower, and otherwise the same. Used for the gate's records and for kernel
logs that are files.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
from pathlib import Path
from weakref import WeakKeyDictionary

_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE = 0x002, 0x080, 0x100
_EVENT = struct.Struct("iIII")
POLL_S = 0.02
"""Interval without inotify: 50 stat calls a second cost 0.1 % of a core."""


class _Instance:
    """One inotify descriptor, and who waits for what in which folder."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: dict[int, list[tuple[bytes, asyncio.Event]]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._read)

    def add(self, path: Path, changed: asyncio.Event) -> int | None:
        """Watch `path`'s folder; None when there is none."""
        mask = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE
        # The same folder again gives the same number.
        number = int(_LIBC.inotify_add_watch(self._fd, os.fsencode(path.parent), mask))
        if number < 0:
            return None
        self._waiting.setdefault(number, []).append((os.fsencode(path.name), changed))
        return number

    def remove(self, number: int, changed: asyncio.Event) -> None:
        """Forget one watch; with the last one the descriptor goes too."""
        rest = [one for one in self._waiting[number] if one[1] is not changed]
        if rest:
            self._waiting[number] = rest
            return
        del self._waiting[number]
        _LIBC.inotify_rm_watch(self._fd, number)
        self.close_if_unused()

    def close_if_unused(self) -> None:
        if not self._waiting:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            _INSTANCES.pop(self._loop, None)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            events, at = os.read(self._fd, 65536), 0
            while at < len(events):
                number, _, _, length = _EVENT.unpack_from(events, at)
                at += _EVENT.size
                self._tell(number, events[at : at + length].rstrip(b"\0"))
                at += length

    def _tell(self, number: int, name: bytes) -> None:
        # An overflow has number -1 and no name: something was missed, so all look.
        groups = self._waiting.values() if number < 0 else (self._waiting.get(number, ()),)
        for waiting, changed in (one for group in groups for one in group):
            if name in {waiting, b""}:
                changed.set()


_LIBC = ctypes.CDLL(None, use_errno=True)
_INSTANCES: WeakKeyDictionary[asyncio.AbstractEventLoop, _Instance] = WeakKeyDictionary()
"""The one thing here that is shared: the kernel counts instances per user, not per watch."""


def _instance() -> _Instance | None:
    loop = asyncio.get_running_loop()
    found = _INSTANCES.get(loop)
    if found is None:
        fd = int(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if fd < 0:
            return None
        found = _INSTANCES[loop] = _Instance(fd)
    return found


class Watch:
    """Changes of one file (it need not exist yet; its folder must)."""

    def __init__(self, path: Path) -> None:
        self._changed = asyncio.Event()
        self._instance = _instance()
        self._number = self._instance.add(path, self._changed) if self._instance else None
        if self._instance and self._number is None:
            self._instance.close_if_unused()

    async def changed(self, timeout_s: float | None = None) -> None:
        """Return at the first change since the last call, or after `timeout_s`."""
        if self._number is None:
            await asyncio.sleep(POLL_S if timeout_s is None else min(POLL_S, timeout_s))
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        self._changed.clear()

    def close(self) -> None:
        if self._instance is not None and self._number is not None:
            self._instance.remove(self._number, self._changed)
            self._number = None
