"""Where the contract is tried: the lab's scheduler, and a real Slurm. Same behaviours, same words.

Lab time is pushed forward by the test itself, so the lab's share takes no time; on Slurm the test
waits.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from tests.beds.slurm import SlurmBed

from komainu.clients.slurm import Slurm
from komainu.core.names import ClusterName, JobId, NodeName
from komainu.core.node import SchedulerJob, SchedulerNode
from komainu.lab.machines import JobSpec
from komainu.lab.scheduler import LabScheduler
from komainu.ports import Scheduler

CLUSTER = ClusterName("bed")
NODES = tuple(NodeName(f"n{number}") for number in range(1, 9))


class Ground(Protocol):
    """A scheduler, and what users, persons and misfortune do to it."""

    @property
    def scheduler(self) -> Scheduler: ...

    def submit(
        self, name: str, *, nodes: int = 1, seconds: float = 60, on: Sequence[NodeName] = ()
    ) -> JobId:
        """A batch job that takes all eight GPUs of each node."""
        ...

    def cancel(self, job: JobId) -> None: ...

    def person_drain(self, node: NodeName, reason: str) -> None: ...

    def fail_hook(self, kind: str, node: NodeName, *, failing: bool = True) -> None:
        """Make `prolog` or `epilog` fail on a node."""
        ...

    def kill_node(self, node: NodeName) -> None: ...

    def return_node(self, node: NodeName) -> None: ...

    async def until(
        self, holds: Callable[[], Awaitable[bool]], what: str, *, within_s: float
    ) -> float:
        """Wait (or let lab time pass) until `holds`; how long it took, in the ground's seconds."""
        ...


async def job_of(ground: Ground, job: JobId) -> SchedulerJob:
    return next(one for one in await ground.scheduler.jobs() if one.id == job)


async def node_of(ground: Ground, node: NodeName) -> SchedulerNode:
    found = await ground.scheduler.node(node)
    assert found is not None, f"the scheduler does not know {node}"
    return found


async def until_state(ground: Ground, job: JobId, state: str, *, within_s: float = 20) -> float:
    async def holds() -> bool:
        return (await job_of(ground, job)).state == state

    return await ground.until(holds, f"job {job} {state}", within_s=within_s)


async def until_drained(ground: Ground, node: NodeName, *, within_s: float = 20) -> float:
    async def holds() -> bool:
        return (await node_of(ground, node)).drained

    return await ground.until(holds, f"{node} drained", within_s=within_s)


async def until_held(ground: Ground, job: JobId, *, within_s: float = 20) -> float:
    async def holds() -> bool:
        return (await job_of(ground, job)).held

    return await ground.until(holds, f"job {job} held", within_s=within_s)


# ── the lab ──────────────────────────────────────────────────────────────────────────────────────


class PushedClock:
    """Time stands still until the test pushes it."""

    def __init__(self) -> None:
        self._now = datetime(2026, 11, 30, 12, tzinfo=UTC)
        self._sleepers: list[tuple[datetime, int, asyncio.Event]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return self._now

    def uptime_s(self) -> float:
        return self._now.timestamp()

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        at = self._now + timedelta(seconds=seconds)
        heapq.heappush(self._sleepers, (at, next(self._order), woken))
        await woken.wait()

    async def push(self, seconds: float) -> None:
        """Let time pass, waking sleepers in order, each at its own moment."""
        end = self._now + timedelta(seconds=seconds)
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, at)
            woken.set()
            await _settle()
        self._now = end


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class LabGround:
    """The lab's scheduler with eight nodes."""

    def __init__(self) -> None:
        self.clock = PushedClock()
        self._failing: set[tuple[str, NodeName]] = set()
        self.scheduler = LabScheduler(
            CLUSTER,
            dict.fromkeys(NODES, 8),
            clock=self.clock,
            prolog=self._prolog,
            epilog=self._epilog,
        )

    async def _prolog(self, _job: JobId, node: NodeName, _user: str, _gpus: Sequence[int]) -> int:
        return int(("prolog", node) in self._failing)

    async def _epilog(self, _job: JobId, node: NodeName, _user: str, _gpus: Sequence[int]) -> int:
        return int(("epilog", node) in self._failing)

    def submit(
        self, name: str, *, nodes: int = 1, seconds: float = 60, on: Sequence[NodeName] = ()
    ) -> JobId:
        spec = JobSpec(user="root", name=name, nodes=nodes, duration_s=seconds, on=tuple(on))
        return self.scheduler.submit(spec)

    def cancel(self, job: JobId) -> None:
        self.scheduler.cancel(job)

    def person_drain(self, node: NodeName, reason: str) -> None:
        self.scheduler.person_drain(node, "root", reason)

    def fail_hook(self, kind: str, node: NodeName, *, failing: bool = True) -> None:
        if failing:
            self._failing.add((kind, node))
        else:
            self._failing.discard((kind, node))

    def kill_node(self, node: NodeName) -> None:
        self.scheduler.kill_node(node)

    def return_node(self, node: NodeName) -> None:
        self.scheduler.return_node(node)

    async def until(
        self, holds: Callable[[], Awaitable[bool]], what: str, *, within_s: float
    ) -> float:
        passed = 0.0
        await self.clock.push(0)
        while not await holds():
            assert passed < within_s, f"waited {within_s} lab seconds in vain for {what}"
            await self.clock.push(0.1)
            passed += 0.1
        return passed


# ── Slurm ────────────────────────────────────────────────────────────────────────────────────────


class SlurmGround:
    """A real Slurm bed, through our client."""

    def __init__(self, bed: SlurmBed) -> None:
        self.bed = bed
        self.scheduler = Slurm(CLUSTER, slurm_conf=str(bed.at.conf))

    def submit(
        self, name: str, *, nodes: int = 1, seconds: float = 60, on: Sequence[NodeName] = ()
    ) -> JobId:
        where = [f"--nodelist={','.join(on)}"] if on else []
        said = self.bed.run(
            "sbatch",
            "--parsable",
            f"--job-name={name}",
            f"--nodes={len(on) or nodes}",
            "--gres=gpu:8",
            *where,
            f"--wrap=exec sleep {seconds}",
        )
        return JobId(said.strip().partition(";")[0])

    def submit_array(self, tasks: int, *, on: NodeName, also: NodeName | None = None) -> JobId:
        """An array whose tasks take a whole node each; the number of the array."""
        others = ",".join(node for node in NODES if node not in {on, also})
        return JobId(
            self.bed.run(
                "sbatch",
                "--parsable",
                "--requeue",
                f"--array=1-{tasks}",
                "--gres=gpu:8",
                f"--exclude={others}",
                "--wrap=exec sleep 60",
            ).strip()
        )

    def cancel(self, job: JobId) -> None:
        self.bed.run("scancel", job)

    def person_drain(self, node: NodeName, reason: str) -> None:
        self.bed.run("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def fail_hook(self, kind: str, node: NodeName, *, failing: bool = True) -> None:
        self.bed.set_failing(kind, node, failing=failing)

    def kill_node(self, node: NodeName) -> None:
        self.bed.kill_node(node)

    def return_node(self, node: NodeName) -> None:
        self.bed.start_node(node)

    async def until(
        self, holds: Callable[[], Awaitable[bool]], what: str, *, within_s: float
    ) -> float:
        began = time.monotonic()
        while not await holds():
            assert time.monotonic() - began < within_s, f"waited {within_s} s in vain for {what}"
            await asyncio.sleep(0.02)
        return time.monotonic() - began

    async def clean(self) -> None:
        """Everything as it was: no job, no failing hook, every node alive and in service."""
        for kind in ("prolog", "epilog"):
            for node in NODES:
                self.bed.set_failing(kind, node, failing=False)
        self.bed.run("scancel", "--user=root", check=False)
        for node in NODES:
            if not self.bed.node_alive(node):
                self.bed.start_node(node)

        async def idle() -> bool:
            nodes = await self.scheduler.nodes()
            await self.scheduler.resume([one.node for one in nodes if one.out])
            return all(one.state == "IDLE" and not one.flags and not one.jobs for one in nodes)

        await self.until(idle, "an idle bed", within_s=60)
