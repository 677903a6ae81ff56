"""The whole spine in one process: lab, real agents, store, flow and a scheduler, without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from komainu import flow
from komainu.agent.agent import Agent, AgentPorts
from komainu.config import AgentConfig
from komainu.core.decision import Result
from komainu.core.errors import ServerError
from komainu.core.gate import read_verdict
from komainu.core.names import JobId, NodeKey, NodeName
from komainu.core.node import SchedulerJob, SchedulerNode
from komainu.core.policy import Policy
from komainu.core.wire import Batch, Reply
from komainu.lab.cluster import LabCluster, LabShape
from komainu.lab.machines import JobSpec
from komainu.quarantine.act import act
from komainu.quarantine.decide import release, think
from komainu.store import SqlStore, open_store

LOOK_S = 0.1


class Spine:
    """A small cluster, watched. Nothing happens in it by itself."""

    def __init__(self, home: Path, policy: Policy, *, nodes: int) -> None:
        shape = LabShape(nodes=nodes, faults=False)
        self.lab = LabCluster(shape, home / "nodes")
        self.store: SqlStore = open_store(f"sqlite:///{home}/komainu.db")
        self.policy = policy
        self.reachable = True
        self.lost: list[SqlStore] = []
        self.centre = flow.Centre(
            cluster=shape.cluster,
            policy=policy,
            rooms=flow.Rooms(think=think, act=act),
            store=self.store,
            scheduler=self.lab.scheduler,
            clock=self.lab.clock,
        )
        self._acting = asyncio.Lock()

    def key(self, number: int) -> NodeKey:
        return self.lab.nodes[NodeName(f"gpu-{number:03d}")].key

    # ── ports.ServerLink ─────────────────────────────────────────────────────────────────────────

    async def send(self, batch: Batch) -> Reply:
        """Receive, think, answer; act beside it: what the server does with a batch."""
        if not self.reachable:
            raise ServerError("the server does not answer: the test has switched it off. Wait.")
        now, key = self.lab.clock.now(), NodeKey(self.lab.shape.cluster, NodeName(batch.node))
        got = self.store.receive(batch, now)
        flow.consider(self.centre, [key], now)
        carrying = asyncio.create_task(self._carry_out())
        orders = self.store.orders_after(key, batch.orders_seen)
        if batch.wait_s and not orders:
            await asyncio.sleep(0.05)
            orders = self.store.orders_after(key, batch.orders_seen)
        await carrying
        return Reply(batch=batch.id, orders=list(orders), resend=got.stranger, server_time=now)

    async def _carry_out(self) -> None:
        async with self._acting:
            await flow.carry_out(self.centre)

    async def turns(self) -> None:
        while True:
            async with self._acting:
                await flow.turn(self.centre)
            await asyncio.sleep(LOOK_S)

    # ── what a test asks ─────────────────────────────────────────────────────────────────────────

    async def node(self, number: int) -> SchedulerNode:
        found = await self.lab.scheduler.node(self.key(number).node)
        assert found is not None
        return found

    async def job(self, number: JobId) -> SchedulerJob:
        return next(job for job in await self.lab.scheduler.jobs() if job.id == number)

    def word(self, number: int) -> str:
        """The verdict and phase the node's gate reads."""
        folder = self.lab.nodes[self.key(number).node].run_dir
        found = read_verdict((folder / "verdict").read_text("ascii"))
        return f"{found.verdict}/{found.phase}"

    def now(self) -> datetime:
        return self.lab.clock.now()

    def submit(self, *on: int, nodes: int = 1, duration_s: float = 60) -> JobId:
        names = tuple(self.key(number).node for number in on)
        return self.lab.scheduler.submit(
            JobSpec(user="hana", name="train", nodes=nodes, duration_s=duration_s, on=names)
        )

    def release(self, number: int) -> None:
        now = datetime.now(UTC)
        situation = self.store.situation(self.key(number), now)
        self.store.remember(release(situation, self.policy, "amari", "GPU replaced", now), now)

    def lose_database(self, home: Path) -> None:
        """Go on with an empty one. What was kept in the old one is gone; the nodes go on as they are."""
        self.lost.append(self.store)
        self.store = open_store(f"sqlite:///{home}/second.db")
        self.centre = msgspec.structs.replace(self.centre, store=self.store)

    def results(self, number: int) -> list[Result]:
        key = self.key(number)
        records = self.store.decision_records(key.cluster, key.node)
        return [outcome.result for record in records for outcome in record.outcomes]


@asynccontextmanager
async def watched(home: Path, policy: Policy, *, nodes: int = 4) -> AsyncIterator[Spine]:
    """A cluster with its agents running, each heard once."""
    spine, stop = Spine(home, policy, nodes=nodes), asyncio.Event()
    agents = [
        Agent(
            AgentConfig(
                cluster=spine.lab.shape.cluster,
                node=node.key.node,
                state_dir=node.state_dir,
                run_dir=node.run_dir,
                heartbeat_s=1,
            ),
            AgentPorts(clock=spine.lab.clock, kernel=node.kernel, probe=node, link=spine),
        )
        for node in spine.lab.nodes.values()
    ]
    running = [asyncio.create_task(agent.run(stop)) for agent in agents]
    running.append(asyncio.create_task(spine.lab.scheduler.run()))
    running.append(asyncio.create_task(spine.turns()))
    try:
        everyone = spine.store.node_records
        await until(lambda: sum(r.seen is not None for r in everyone("lab")) == nodes)  # type: ignore[arg-type]
        await until(lambda: all(agent.verdict is not None for agent in agents))
        yield spine
    finally:
        stop.set()
        await asyncio.gather(*running[: len(agents)])
        for task in running[len(agents) :]:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for store in (spine.store, *spine.lost):
            store.close()


async def until(true: Callable[[], bool], within_s: float = 30) -> None:
    """Wait for something that a test expects to happen."""
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110 (what is waited for is another's state)
            await asyncio.sleep(0.02)
