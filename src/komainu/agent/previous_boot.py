"""The last lines of the boot before: judged once, when this is a new boot.

Runs beside following. Until they have been read the verdict says so. A site that keeps no kernel log
over a reboot has nothing to be read, which is no fault of the node; a journal that cannot be read is
another thing, since a fault may stand in it: it is tried again for a while, and then a finding says
that nobody looked.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta

from komainu.agent.checks import Look
from komainu.agent.node import Node
from komainu.agent.place import Cursor
from komainu.core.errors import OutsideError
from komainu.core.names import stable_id
from komainu.core.observation import Observation, ObservationKind
from komainu.core.verdict import Verdict
from komainu.health.collect import observation_of_previous
from komainu.ports import Clock, KernelLog

PREVIOUS_BOOT = "previous-boot"
TIMEOUT_S = 30.0
AGAIN_S = 60.0
TRIES = 10
"""A disk that is checked or rebuilt after a crash takes minutes; after ten a person should know."""
_NO_STAMP = 1 << 62
_STAMP = re.compile(r"\[ *(\d{1,10})\.(\d{6})\]")


class PreviousBoot:
    """Feeds one node the lines that the cursor of the boot before had not passed."""

    def __init__(self, node: Node, kernel: KernelLog, clock: Clock) -> None:
        self._node, self._kernel, self._clock = node, kernel, clock
        self._reading: asyncio.Task[Sequence[str]] | None = None

    async def run(self) -> None:
        """Read them, or give up after TRIES; a restart of the agent in between begins anew."""
        if not self._node.previous.boot_id:
            return
        self._see("its last lines are being read")
        for tried in range(1, TRIES + 1):
            try:
                lines = await self._read()
            except OutsideError as error:
                why = str(error)
                self._node.log.warning("previous_boot_unread", tried=tried, why=why)
                self._see(f"try {tried} of {TRIES}: {why}")
            else:
                self._judge(lines)
                break
            if tried < TRIES:
                await self._clock.sleep(AGAIN_S)
        else:
            self._node.learn([self._unread(why)], previous=Cursor())
        self._node.see({PREVIOUS_BOOT: None})

    async def _read(self) -> Sequence[str]:
        """One that hangs is left behind, and the next try waits for the same one."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(_asked(self._kernel))
        done, _ = await asyncio.wait({self._reading}, timeout=TIMEOUT_S)
        if not done:
            raise OutsideError(
                f"log of the boot before was not read within {TIMEOUT_S:.0f} s; expected a moment. "
                f"See whether `journalctl -b -1 -k` and `ls /sys/fs/pstore` answer."
            )
        task, self._reading = self._reading, None
        return task.result()

    def _judge(self, lines: Sequence[str]) -> None:
        node, old = self._node, self._node.previous
        missed = [line for line in lines if _stamp_us(line) > old.mono_us]
        # When that boot ended is not known; how far apart its lines were is, and rules go by that.
        now = self._clock.now()
        last = max((at for at in map(_stamp_us, missed) if at < _NO_STAMP), default=0)
        found = (
            observation_of_previous(
                line,
                key=node.key,
                boot_id_hint=old.boot_id,
                at=now - timedelta(microseconds=max(0, last - _stamp_us(line))),
            )
            for line in missed
        )
        node.learn([one for one in found if one is not None], previous=Cursor())
        node.log.info("previous_boot_read", lines=len(lines), missed=len(missed))

    def _see(self, detail: str) -> None:
        self._node.see({PREVIOUS_BOOT: Look(Verdict.UNKNOWN, detail)})

    def _unread(self, why: str) -> Observation:
        key, boot_id = self._node.key, self._node.previous.boot_id
        return Observation(
            id=stable_id(key.cluster, key.node, boot_id, "previous-unread", prefix="O-"),
            cluster=key.cluster,
            node=key.node,
            kind=ObservationKind.KERNEL_SOURCE,
            at=self._clock.now(),
            data={"readable": False, "boot": "previous", "boot_id": boot_id, "why": why},
        )


async def _asked(kernel: KernelLog) -> Sequence[str]:
    return await kernel.previous_boot()


def _stamp_us(line: str) -> int:
    """The kernel's own stamp at the front of a line; a line without one counts as missed."""
    stamp = _STAMP.match(line)
    return int(stamp[1]) * 1_000_000 + int(stamp[2]) if stamp else _NO_STAMP
