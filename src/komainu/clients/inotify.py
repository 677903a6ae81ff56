"""Wake up when something in a folder changes, without polling while nothing does.

The standard library has no inotify, so the three calls go through ctypes. The kernel grants few
instances per user (128 by default), so when there is none left `Watch` polls instead: slower, and
otherwise the same. Used for the gate's records and for kernel logs that are files.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
from pathlib import Path

_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE = 0x002, 0x080, 0x100
_EVENT = struct.Struct("iIII")
POLL_S = 0.2
"""Interval without inotify: 100 agents in one process then cost 500 stat calls a second."""


class Watch:
    """Changes of one file (it need not exist yet; its folder must)."""

    def __init__(self, path: Path) -> None:
        self._name = os.fsencode(path.name)
        self._changed = asyncio.Event()
        self._fd = _open(path.parent)
        if self._fd is not None:
            asyncio.get_running_loop().add_reader(self._fd, self._read)

    def _read(self) -> None:
        if self._fd is None:
            return
        with contextlib.suppress(BlockingIOError):
            events = os.read(self._fd, 65536)
            at = 0
            while at < len(events):
                length = _EVENT.unpack_from(events, at)[3]
                at += _EVENT.size
                # An overflow event carries no name: something was missed, so look.
                if events[at : at + length].rstrip(b"\0") in {self._name, b""}:
                    self._changed.set()
                at += length

    async def changed(self, timeout_s: float | None = None) -> None:
        """Return at the first change since the last call, or after `timeout_s`."""
        if self._fd is None:
            await asyncio.sleep(POLL_S if timeout_s is None else min(POLL_S, timeout_s))
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        self._changed.clear()

    def close(self) -> None:
        if self._fd is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None


def _open(folder: Path) -> int | None:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if fd < 0:
        return None
    mask = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE
    if int(libc.inotify_add_watch(fd, os.fsencode(folder), mask)) < 0:
        os.close(fd)
        return None
    return fd
