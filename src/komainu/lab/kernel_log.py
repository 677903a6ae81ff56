"""A kernel log that a test or the demo writes: the ring, the numbering and the loss of a real one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from komainu.ports import KernelGap, KernelRecord

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
KERNEL = 0
"""Facility of what the kernel itself writes."""
USER = 1
"""Facility of what a user writes to /dev/kmsg: never 0, whatever the user asks for."""


def host_boot_id() -> str:
    """This machine's boot id. The real gate compares a verdict with it, so lab nodes share it."""
    return BOOT_ID.read_text("ascii").strip()


class LabKernelLog:
    """Satisfies ports.KernelLog. Everything happens on one event loop."""

    def __init__(
        self,
        *,
        boot_id: str | None = None,
        uptime_s: Callable[[], float],
        ring: int = 4096,
        before: Sequence[str] = (),
    ) -> None:
        self._boot_id = boot_id or host_boot_id()
        self._uptime_s = uptime_s
        self._ring: deque[KernelRecord] = deque(maxlen=ring)
        self._next = 1
        self._before = tuple(before)
        self._written = asyncio.Event()

    def write(self, text: str, *, facility: int = KERNEL, level: int = 3) -> KernelRecord:
        """Append one record, as printk would (or a user: facility USER)."""
        record = KernelRecord(self._next, int(self._uptime_s() * 1_000_000), facility, level, text)
        self._next += 1
        self._ring.append(record)
        written, self._written = self._written, asyncio.Event()
        written.set()
        return record

    def boot_id(self) -> str:
        return self._boot_id

    async def follow(self, after_seq: int | None) -> AsyncIterator[KernelRecord | KernelGap]:
        """Records after `after_seq`, then each as it is written; a gap where the ring has turned."""
        expected = (after_seq + 1) if after_seq is not None else None
        while True:
            written = self._written
            for record in [r for r in self._ring if expected is None or r.seq >= expected]:
                if expected is not None and record.seq > expected:
                    yield KernelGap(record.seq - expected, record.seq)
                expected = record.seq + 1
                yield record
            if self._next == (expected or 1):
                await written.wait()

    async def drained(self) -> int | None:
        return self._next - 1 if self._next > 1 else None

    async def previous_boot(self) -> Sequence[str]:
        return self._before
