"""The make-believe cluster: nodes in racks, a scheduler with Slurm's semantics, and who acts in it.

Users submit jobs as they did on a real cluster, faults strike as they did on another, a technician
repairs what broke and asks for its release, and a colleague drains a node by hand for reasons of
their own. Agents and server are not here: whoever wires them (`demo.py`, tests) takes the ports from
here, and runs them for real.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from komainu.core.errors import KomainuError, SchedulerError
from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.lab.clock import LabClock
from komainu.lab.faults import TOLD, Fault, Strike, schedule
from komainu.lab.gate import LabGate
from komainu.lab.machines import JobSpec
from komainu.lab.node import LabNode
from komainu.lab.scheduler import LabScheduler
from komainu.lab.workload import arrivals

Tell = Callable[[str], None]
Release = Callable[[NodeName, str], Awaitable[None]]
"""Asks Komainu, as a person would, to release a node for a reason."""

DEADLY = frozenset(
    {Fault.GPU_LOST, Fault.DOUBLE_BIT, Fault.UNCONTAINED, Fault.GSP_TIMEOUT, Fault.USER_CRASH}
)
"""Faults that end the job on the GPU they strike."""


class LabShape(msgspec.Struct, frozen=True, kw_only=True):
    """How large the lab is, and how fast it lives."""

    cluster: ClusterName = ClusterName("lab")
    nodes: int = 100
    gpus: int = 8
    """Per node."""
    per_rack: int = 8
    speed: float = 60.0
    """Lab seconds per real second, for jobs."""
    seed: int = 40
    faults: bool = True
    """Whether faults strike by themselves (they can always be injected)."""
    first_fault_s: float = 12.0
    fault_every_s: float = 30.0
    """Real seconds, on average: a visitor has minutes, where the trace has months."""
    repair_s: tuple[float, float] = (75.0, 150.0)
    """Shortest and longest repair, real seconds."""
    bench_test_s: float = 20.0
    """Between repair and release, real seconds: longer than the agent takes to look again (15 s)."""
    crash_every_s: float = 90.0
    """How often a user's program crashes on a GPU, real seconds."""


class LabCluster:
    """All of the lab. `home` holds one directory per node."""

    def __init__(self, shape: LabShape, home: Path, tell: Tell = lambda _: None) -> None:
        self.shape, self.home, self.tell = shape, home, tell
        self.clock = LabClock(shape.speed)
        self.chance = random.Random(shape.seed)  # noqa: S311 (a lab is repeatable, not secret)
        self.nodes = {node.key.node: node for node in self._made()}
        self.gate = LabGate(home)
        self.scheduler = LabScheduler(
            shape.cluster,
            dict.fromkeys(self.nodes, shape.gpus),
            clock=self.clock,
            prolog=self.gate.prolog,
            epilog=self.gate.epilog,
        )
        self.watched = asyncio.Event()
        """Faults and colleagues wait until somebody watches; jobs do not."""
        self._release: Release | None = None
        self._repairs: set[asyncio.Task[None]] = set()

    def _made(self) -> Sequence[LabNode]:
        width = max(3, len(str(self.shape.nodes)))
        made = []
        for number in range(1, self.shape.nodes + 1):
            name = NodeName(f"gpu-{number:0{width}d}")
            home = self.home / name
            for folder in (home / "run" / "gate", home / "state"):
                folder.mkdir(parents=True)
            made.append(
                LabNode(
                    NodeKey(self.shape.cluster, name),
                    rack=f"r{(number - 1) // self.shape.per_rack + 1:02d}",
                    gpus=self.shape.gpus,
                    home=home,
                    uptime_s=self.clock.uptime_s,
                )
            )
        return made

    async def run(self, release: Release) -> None:
        """Live, until cancelled. `release`: the technician's way to ask Komainu for a node's release."""
        self._release = release
        async with asyncio.TaskGroup() as players:
            players.create_task(self.scheduler.run())
            players.create_task(self._users())
            players.create_task(self._murmurs())
            players.create_task(self._colleague())
            if self.shape.faults:
                players.create_task(self._fate())
                players.create_task(self._crashes())

    async def inject(self, node: NodeName, fault: Fault, gpu: int | None = None) -> None:
        """Let `fault` strike `node` now; while the lab runs, a technician comes in a while."""
        index = self.chance.randrange(self.shape.gpus) if gpu is None else gpu
        await self._strike(self.nodes[node], fault, index)
        self._call_technician(self.nodes[node], sum(self.shape.repair_s) / 2)

    def mend(self, node: NodeName) -> None:
        """Send the technician to `node` now."""
        self._call_technician(self.nodes[node], 0.0)

    # ── who acts ─────────────────────────────────────────────────────────────────────────────────

    async def _users(self) -> None:
        total = self.shape.nodes * self.shape.gpus
        for job in arrivals(self.shape.seed, gpus_total=total):
            await self.clock.until_lab(job.at_s)
            nodes = math.ceil(job.gpus / self.shape.gpus)
            self.scheduler.submit(
                JobSpec(
                    user=job.user,
                    name=job.name,
                    nodes=nodes,
                    gpus_per_node=math.ceil(job.gpus / nodes),
                    duration_s=job.duration_s / self.shape.speed,
                )
            )

    async def _fate(self) -> None:
        """Faults on the trace's timing; a server of the trace is always the same lab node."""
        plan = schedule(
            self.shape.seed,
            every_s=self.shape.fault_every_s,
            first_s=self.shape.first_fault_s,
            lasts_s=self.shape.repair_s,
        )
        await self.watched.wait()
        began_s = self.clock.real_s()
        for strike in plan:
            await self.clock.until_real(began_s + strike.at_s)
            node = self._whole_node(strike)
            if node is None:
                continue
            await self._strike(node, strike.fault, self.chance.randrange(self.shape.gpus))
            self._call_technician(node, strike.lasts_s)

    def _whole_node(self, strike: Strike) -> LabNode | None:
        """The strike's node, or the next one to it that is not broken already."""
        names = sorted(self.nodes)
        for step in range(len(names)):
            node = self.nodes[names[(strike.server * 7 + step) % len(names)]]
            if not node.broken:
                return node
        return None

    async def _strike(self, node: LabNode, fault: Fault, gpu: int) -> None:
        self.tell(f"{node.key.node}: {TOLD[fault]}")
        job = self.scheduler.job_on(node.key.node, gpu) if fault in DEADLY else None
        await node.strike(fault, gpu, self.chance)
        if job is not None:
            self.scheduler.fail(job)
            self.tell(f"{node.key.node}: job {job} failed with it")

    def _call_technician(self, node: LabNode, lasts_s: float) -> None:
        if self._release is not None:
            repair = asyncio.create_task(self._repair(node, lasts_s, self._release))
            self._repairs.add(repair)
            repair.add_done_callback(self._repairs.discard)

    async def _repair(self, node: LabNode, lasts_s: float, release: Release) -> None:
        await asyncio.sleep(lasts_s)
        what = ", ".join(
            f"{fault} on GPU {gpu.index} (serial {gpu.serial})"
            for fault, gpu in node.broken.items()
        )
        if not what:
            return
        node.repair()
        name = node.key.node
        self.tell(f"{name}: a technician has repaired it, and tests it")
        await asyncio.sleep(self.shape.bench_test_s)
        try:
            await release(name, f"repaired: {what}; bench test passed")
        except KomainuError as error:
            self.tell(f"{name}: the technician's release was not taken: {error}")

    async def _crashes(self) -> None:
        """Users' programs crash on healthy GPUs all the time, and nobody may blame the node."""
        await self.watched.wait()
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / self.shape.crash_every_s))
            busy = [node for node in self.nodes.values() if not node.broken]
            if busy:
                node, gpu = self.chance.choice(busy), self.chance.randrange(self.shape.gpus)
                job = self.scheduler.job_on(node.key.node, gpu)
                if job is not None:
                    await node.strike(Fault.USER_CRASH, gpu, self.chance)
                    node.broken.pop(Fault.USER_CRASH)
                    self.scheduler.fail(job)
                    self.tell(
                        f"{node.key.node}: job {job} crashed by its own doing; the node stays"
                    )

    async def _murmurs(self) -> None:
        while True:
            await asyncio.sleep(self.chance.expovariate(1.0))
            self.chance.choice(list(self.nodes.values())).murmur(self.chance)

    async def _colleague(self) -> None:
        """Somebody drains a node by hand, and nobody but they may bring it back."""
        node = max(self.nodes)
        await self.watched.wait()
        while True:
            await asyncio.sleep(40)
            self.scheduler.person_drain(node, "hiro", "swapping a fan, ask me before touching")
            self.tell(f"{node}: a colleague drained it by hand; Komainu leaves it alone")
            await asyncio.sleep(240)
            with contextlib.suppress(SchedulerError):  # somebody else was faster
                self.scheduler.person_resume(node, "hiro")
            self.tell(f"{node}: the colleague brought it back")
            await asyncio.sleep(300)
