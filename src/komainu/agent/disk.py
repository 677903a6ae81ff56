"""The spool, whatever the disk does.

While the disk is full, read-only or gone, a copy in memory takes the spool's place: the node goes on
judging, refusing and shipping, and `trouble` says what failed. What the copy holds is lost with the
process, and found again from the kernel log under the same ids. When the disk is well again
everything moves back to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from komainu.agent.spool import Active, Spool
from komainu.core.errors import StorageError
from komainu.core.observation import Finding, Observation


class Disk:
    """A spool that can always be written."""

    def __init__(self, path: Path, max_bytes: int, log: Any) -> None:
        self._path, self._max_bytes, self._log = path, max_bytes, log
        self.trouble = ""
        """What failed; empty while the spool is on the disk."""
        self.sync_due = asyncio.Event()
        try:
            self.spool = Spool(path, max_bytes)
        except StorageError as error:
            self._failed(error)
            self.spool = Spool.in_memory(path, max_bytes)

    def keep(
        self,
        *,
        observations: Sequence[Observation] = (),
        findings: Sequence[Finding] = (),
        active: Sequence[Active] = (),
        closed: Collection[str] = (),
        put: Mapping[str, msgspec.Struct] = {},
    ) -> int:
        """Spool.keep, here or in memory; then `sync_due`."""

        def keep() -> int:
            return self.spool.keep(
                observations=observations, findings=findings, active=active, closed=closed, put=put
            )

        try:
            dropped = keep()
        except StorageError as error:
            self._fall_back(error)
            return keep()
        self.sync_due.set()
        return dropped

    def shipped(self, ids: Sequence[str], dropped_told: int) -> None:
        """Spool.shipped, here or in memory."""
        try:
            self.spool.shipped(ids, dropped_told)
        except StorageError as error:
            self._fall_back(error)
            self.spool.shipped(ids, dropped_told)

    def set_aside(self, ident: str) -> None:
        """Spool.set_aside, here or in memory."""
        try:
            self.spool.set_aside(ident)
        except StorageError as error:
            self._fall_back(error)
            self.spool.set_aside(ident)

    def begin_empty(self, error: StorageError) -> None:
        """What the file holds cannot be used: leave it as it is and begin with nothing."""
        self._failed(error)
        self.spool.close()
        self.spool = Spool.in_memory(self._path.with_name("none"), self._max_bytes)

    async def sync(self) -> None:
        """Bring what was kept to the disk itself."""
        self.sync_due.clear()
        if self.trouble:
            return
        try:
            await asyncio.to_thread(self.spool.sync)
        except StorageError as error:
            self._fall_back(error)

    def recover(self, move: Callable[[Spool, Spool], None]) -> bool:
        """Try the disk again: `move(from, to)` brings everything over. Whether it worked."""
        try:
            disk = Spool(self._path, self._max_bytes)
        except StorageError as error:
            self._failed(error)
            return False
        try:
            move(self.spool, disk)
        except StorageError as error:
            disk.close()
            self._failed(error)
            return False
        self.spool.close()
        self.spool = disk
        self.trouble = ""
        self.sync_due.set()
        self._log.info("spool_recovered", path=str(self._path))
        return True

    def close(self) -> None:
        self.spool.close()

    def _fall_back(self, error: StorageError) -> None:
        self._failed(error)
        self.spool.close()
        self.spool = Spool.in_memory(self._path, self._max_bytes)

    def _failed(self, error: StorageError) -> None:
        if not self.trouble:
            self._log.error("spool_failed", error=str(error))
        self.trouble = str(error)
