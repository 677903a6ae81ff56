"""The kernel log, followed: every record judged once, in order, and the cursor kept with it.

Records that have piled up are judged together, so that a flood costs one transaction per few hundred
lines and a single line none of the wait. Losses the kernel reports become observations of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

from komainu.agent.checks import KERNEL_LOG, Look, kernel_log
from komainu.agent.node import Node
from komainu.agent.place import Cursor
from komainu.core.errors import OutsideError
from komainu.core.names import stable_id
from komainu.core.observation import Observation, ObservationKind
from komainu.core.verdict import Verdict
from komainu.health.collect import observations_of
from komainu.ports import Clock, KernelGap, KernelLog, KernelRecord

AT_ONCE = 256
"""Records judged in one transaction."""
WAITING_MAX = 1024
RETRY_S = 5.0
FIRST = KernelRecord(0, 0, 0, 6, "NVRM: Xid (PCI:0000:00:00): 79, none")


class Follower:
    """Feeds one node from its kernel log."""

    def __init__(self, node: Node, kernel: KernelLog, clock: Clock) -> None:
        self._node, self._kernel, self._clock = node, kernel, clock
        # The catalogue is read and its patterns compiled here, not at the first fault (50 ms).
        now = clock.now()
        observations_of([FIRST], key=node.key, boot_id=node.boot_id, booted=now, now=now)
        self._wanted: int | None = None
        self._caught_up = False
        self._until: list[tuple[int | None, asyncio.Future[None]]] = []

    async def run(self) -> None:
        """Follow for ever; a log that cannot be read makes the node UNKNOWN and is tried again."""
        while True:
            try:
                await self._follow()
            except OutsideError as error:
                self._cannot_read(str(error))
            await self._clock.sleep(RETRY_S)

    async def until(self, seq: int | None) -> None:
        """Wait until the record `seq`, and all before it, have been judged."""
        if self._caught_up and self._read_to(seq):
            return
        passed = asyncio.get_running_loop().create_future()
        self._until.append((seq, passed))
        await passed

    async def _follow(self) -> None:
        self._caught_up = False
        self._wanted = await self._kernel.drained()
        inbox: deque[KernelRecord | KernelGap] = deque()
        filled, room = asyncio.Event(), asyncio.Event()
        records = self._kernel.follow(self._node.cursor.seq)
        feeding = asyncio.create_task(_feed(records, inbox, filled, room))
        feeding.add_done_callback(lambda _: filled.set())
        try:
            self._check_caught_up()
            while True:
                await filled.wait()
                if not inbox and feeding.done():
                    await feeding
                    raise OutsideError(
                        "kernel log ended; expected it to go on. It is opened again."
                    )
                filled.clear()
                while inbox:
                    await self._room_in_spool()
                    self._judge([inbox.popleft() for _ in range(min(AT_ONCE, len(inbox)))])
                    room.set()
                    await asyncio.sleep(0)
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    def _judge(self, items: Sequence[KernelRecord | KernelGap]) -> None:
        node, now = self._node, self._clock.now()
        records = [item for item in items if isinstance(item, KernelRecord)]
        seen = [self._gap(item, now) for item in items if isinstance(item, KernelGap)]
        seen += observations_of(
            records,
            key=node.key,
            boot_id=node.boot_id,
            booted=now - timedelta(seconds=self._clock.uptime_s()),
            now=now,
        )
        cursor = node.cursor
        if records:
            last = records[-1]
            cursor = Cursor(boot_id=node.boot_id, seq=last.seq, mono_us=last.mono_us)
        if seen:
            node.learn(seen, cursor=cursor)
        else:
            node.cursor = cursor
        self._check_caught_up()

    def _gap(self, gap: KernelGap, now: datetime) -> Observation:
        node = self._node
        node.log.warning("kernel_records_lost", lost=gap.lost, next_seq=gap.next_seq)
        return Observation(
            id=stable_id(
                node.key.cluster, node.key.node, node.boot_id, "gap", str(gap.next_seq), prefix="O-"
            ),
            cluster=node.key.cluster,
            node=node.key.node,
            kind=ObservationKind.KERNEL_GAP,
            at=now,
            data={
                "lost": gap.lost,
                "boot_id": node.boot_id,
                "first_seq": gap.next_seq - gap.lost,
                "last_seq": gap.next_seq - 1,
            },
        )

    def _check_caught_up(self) -> None:
        seq = self._node.cursor.seq
        if not self._caught_up and self._read_to(self._wanted):
            self._caught_up = True
            if self._node.looks.get(KERNEL_LOG, Look(Verdict.OK)).verdict is not Verdict.OK:
                self._node.learn([self._source(readable=True, why="")])
            self._node.see({KERNEL_LOG: kernel_log(seq, self._wanted, "")})
        passed = [wait for wait in self._until if self._caught_up and self._read_to(wait[0])]
        for wait in passed:
            self._until.remove(wait)
            if not wait[1].done():
                wait[1].set_result(None)

    def _read_to(self, wanted: int | None) -> bool:
        seq = self._node.cursor.seq
        return wanted is None or (seq is not None and seq >= wanted)

    def _cannot_read(self, why: str) -> None:
        self._caught_up = False
        before = self._node.looks.get(KERNEL_LOG)
        self._node.see({KERNEL_LOG: kernel_log(None, None, why)})
        if before is None or before.verdict is Verdict.OK:
            self._node.log.error("kernel_log_unreadable", why=why)
            self._node.learn([self._source(readable=False, why=why)])

    def _source(self, *, readable: bool, why: str) -> Observation:
        node, now = self._node, self._clock.now()
        return Observation(
            id=stable_id(node.key.cluster, node.key.node, "source", now.isoformat(), prefix="O-"),
            cluster=node.key.cluster,
            node=node.key.node,
            kind=ObservationKind.KERNEL_SOURCE,
            at=now,
            data={"readable": readable, "why": why},
        )

    async def _room_in_spool(self) -> None:
        """Back-pressure: what cannot be kept is not read; the kernel's ring holds it meanwhile."""
        while self._node.full:
            why = "not read on: the spool is full of data the server has not taken"
            self._node.see({KERNEL_LOG: Look(Verdict.UNKNOWN, why)})
            self._caught_up = False
            await self._clock.sleep(0.5)


async def _feed(
    records: AsyncIterator[KernelRecord | KernelGap],
    inbox: deque[KernelRecord | KernelGap],
    filled: asyncio.Event,
    room: asyncio.Event,
) -> None:
    async for item in records:
        inbox.append(item)
        filled.set()
        while len(inbox) >= WAITING_MAX:
            room.clear()
            await room.wait()
