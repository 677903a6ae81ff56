"""Make-believe outside for the agent: a kernel log, a server, a clock moved by hand, GPUs."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta

from komainu.core.decision import Order, OrderKind
from komainu.core.errors import OutsideError, ServerError, ServerRefused
from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.core.node import NodeVerdict
from komainu.core.observation import Finding, Observation
from komainu.core.wire import Batch, GpuSeen, Hardware, Reply
from komainu.ports import KernelGap, KernelRecord

BOOT = "11111111-2222-3333-4444-555555555555"
NEXT_BOOT = "66666666-2222-3333-4444-555555555555"
KEY = NodeKey(ClusterName("c1"), NodeName("n1"))
XID_79 = (
    "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)


class HandClock:
    """Time stands until `forward` moves it."""

    def __init__(self) -> None:
        self._now, self._uptime = datetime(2026, 11, 30, 12, tzinfo=UTC), 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return self._now

    def uptime_s(self) -> float:
        return self._uptime

    async def sleep(self, seconds: float) -> None:
        event = asyncio.Event()
        heapq.heappush(self._sleepers, (self._uptime + seconds, next(self._order), event))
        await event.wait()

    async def forward(self, seconds: float) -> None:
        """Let `seconds` pass, waking each sleeper at its time."""
        end = self._uptime + seconds
        while True:
            await settle()
            if not self._sleepers or self._sleepers[0][0] > end:
                break
            at, _, event = heapq.heappop(self._sleepers)
            self._move(at)
            event.set()
        self._move(end)
        await settle()

    def _move(self, uptime: float) -> None:
        self._now += timedelta(seconds=uptime - self._uptime)
        self._uptime = uptime


async def settle() -> None:
    """Let everything that can run now, run."""
    for _ in range(30):
        await asyncio.sleep(0)


async def until(true: Callable[[], object], what: str = "it", timeout_s: float = 5.0) -> None:
    """Wait in real time until `true()`: for what threads, files and inotify do."""
    for _ in range(int(timeout_s / 0.002)):
        if true():
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"{what} did not happen within {timeout_s} s")


class FakeKernel:
    """A kernel log in a list."""

    def __init__(self, clock: HandClock, boot_id: str = BOOT) -> None:
        self._clock, self._boot_id = clock, boot_id
        self.records: list[KernelRecord] = []
        self.previous: list[str] = []
        self.previous_unreadable = ""
        self.next_seq = 0
        self.unreadable = ""
        self.promised: int | None = None
        """Number of a record that the log holds and has not handed out."""
        self._grown = asyncio.Event()

    def boot_id(self) -> str:
        return self._boot_id

    def write(self, text: str, *, facility: int = 0, after_us: int = 0) -> int:
        """Append a record; returns its number."""
        mono_us = int(self._clock.uptime_s() * 1e6) + after_us
        self.records.append(KernelRecord(self.next_seq, mono_us, facility, 3, text))
        self.next_seq += 1
        self._grown.set()
        return self.next_seq - 1

    def overwrite(self, count: int) -> None:
        """Lose `count` numbers, as a ring that ran over does."""
        self.next_seq += count

    async def follow(self, after_seq: int | None) -> AsyncIterator[KernelRecord | KernelGap]:
        last = after_seq
        while True:
            if self.unreadable:
                raise OutsideError(self.unreadable)
            for record in list(self.records):
                if last is not None and record.seq <= last:
                    continue
                if last is not None and record.seq > last + 1:
                    yield KernelGap(record.seq - last - 1, record.seq)
                last = record.seq
                yield record
            self._grown.clear()
            await self._grown.wait()

    async def drained(self) -> int | None:
        if self.unreadable:
            raise OutsideError(self.unreadable)
        newest = self.records[-1].seq if self.records else None
        return newest if self.promised is None else self.promised

    async def previous_boot(self) -> Sequence[str]:
        if self.previous_unreadable:
            raise OutsideError(self.previous_unreadable)
        return self.previous


class FakeLink:
    """A server that keeps what it got, once each, and answers with the orders it was given."""

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self.down = False
        self.deaf = False
        """Takes findings and knows nothing of them afterwards."""
        self.refuses: Callable[[set[str]], bool] = lambda _: False
        """Whether it will not take a batch with these in it."""
        self.refuses_all = False
        self.refused = 0
        self.batches: list[Batch] = []
        self.observations: dict[str, Observation] = {}
        self.findings: dict[str, Finding] = {}
        self.sendings: list[str] = []
        """Ids of findings in order of arrival, repeats included."""
        self.orders: list[Order] = []
        self._ordered = asyncio.Event()

    def order(self, kind: OrderKind, **rest: object) -> Order:
        order = Order(
            number=len(self.orders) + 1,
            previous=len(self.orders),
            kind=kind,
            at=self._clock.now(),
            **rest,  # type: ignore[arg-type]  # fields by name
        )
        self.orders.append(order)
        self._ordered.set()
        return order

    async def send(self, batch: Batch) -> Reply:
        if self.down:
            raise ServerError("server is away")
        held = {f.id for f in batch.findings} | {o.id for o in batch.observations}
        if self.refuses_all or self.refuses(held):
            self.refused += 1
            raise ServerRefused("status 400, expected 200: out of bounds")
        self.batches.append(batch)
        self.observations |= {one.id: one for one in batch.observations}
        self.findings |= {one.id: one for one in batch.findings}
        if self.deaf:
            self.findings.clear()
        self.sendings += [one.id for one in batch.findings]
        if batch.wait_s and not self.orders[batch.orders_seen :]:
            self._ordered.clear()
            await self._ordered.wait()
        if self.down:
            raise ServerError("server went away")
        named = () if batch.verdict is None else batch.verdict.findings
        return Reply(
            batch=batch.id,
            orders=self.orders[batch.orders_seen :],
            resend=not set(named) <= self.findings.keys(),
            server_time=self._clock.now(),
        )

    @property
    def verdicts(self) -> list[NodeVerdict]:
        return [batch.verdict for batch in self.batches if batch.verdict is not None]

    @property
    def codes(self) -> list[str]:
        return sorted(finding.code for finding in self.findings.values())


class FakeProbe:
    """Eight GPUs, until told otherwise."""

    def __init__(self, gpus: int = 8) -> None:
        self.seen: Hardware | None = Hardware(
            rack="r1",
            gpus=tuple(
                GpuSeen(index=i, pci=f"0000:{0x41 + i:02x}:00", uuid=f"GPU-{i}")
                for i in range(gpus)
            ),
        )

    def lose(self, index: int) -> GpuSeen:
        assert self.seen is not None
        gone = self.seen.gpus[index]
        self.seen = Hardware(rack="r1", gpus=tuple(g for g in self.seen.gpus if g != gone))
        return gone

    def find(self, gone: GpuSeen) -> None:
        assert self.seen is not None
        gpus = sorted([*self.seen.gpus, gone], key=lambda gpu: gpu.index)
        self.seen = Hardware(rack="r1", gpus=tuple(gpus))

    async def hardware(self) -> Hardware | None:
        return self.seen
