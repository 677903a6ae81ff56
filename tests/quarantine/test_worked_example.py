"""The guard's worked example in docs/guides/policy.md, minute by minute, through the flow."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from tests.quarantine.cases import BOOT, CLUSTER, NOW, Clock, finding
from tests.quarantine.memory_store import MemoryStore
from tests.quarantine.model_slurm import ModelSlurm

from komainu import flow
from komainu.core.decision import OrderKind
from komainu.core.names import NodeKey, NodeName
from komainu.core.policy import Policy
from komainu.core.wire import Batch
from komainu.quarantine import decide
from komainu.quarantine.act import act

NAMES = [NodeName(f"n{i:03d}") for i in range(100)]
FIRST, ROLLOUT = NAMES[:3], NAMES[10:30]


class Site:
    """100 nodes and the default policy."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(CLUSTER, NAMES)
        self.slurm = ModelSlurm(CLUSTER, NAMES)
        self.policy = Policy()
        rooms = flow.Rooms(think=decide.think, act=act)
        self.centre = flow.Centre(
            cluster=CLUSTER,
            policy=self.policy,
            rooms=rooms,
            store=self.store,
            scheduler=self.slurm,
            clock=self.clock,
        )

    async def at(self, minute: int) -> None:
        self.clock.time = NOW + timedelta(minutes=minute)
        await flow.turn(self.centre)

    async def report(self, names: list[NodeName]) -> None:
        for name in names:
            batch = Batch(
                id="B",
                cluster=CLUSTER,
                node=name,
                boot_id=BOOT,
                agent_version="1",
                sent_at=self.clock.time,
                findings=[finding(1, name, at=self.clock.time)],
            )
            self.store.receive(batch, self.clock.time)
            flow.consider(self.centre, [NodeKey(CLUSTER, name)], self.clock.time)
        await flow.carry_out(self.centre)

    async def release(self, name: NodeName) -> None:
        now = self.clock.time
        seen = self.store.situation(NodeKey(CLUSTER, name), now)
        thought = decide.release(seen, self.policy, "ann", "fine", now)
        self.store.remember(msgspec.structs.replace(thought, cluster=CLUSTER), now)
        await flow.carry_out(self.centre)

    def advised(self, name: NodeName) -> bool:
        return self.store.situation(NodeKey(CLUSTER, name), self.clock.time).advise_only

    def told(self, name: NodeName) -> list[OrderKind]:
        return [order.kind for order in self.store.orders_after(NodeKey(CLUSTER, name), 0)]


@pytest.fixture
async def site() -> Site:
    site = Site()
    await site.at(0)
    return site


async def test_the_worked_example_is_true(site: Site) -> None:
    await site.report(FIRST)
    assert site.slurm.owned("komainu") == set(FIRST)

    await site.at(2)
    await site.report(ROLLOUT)
    assert len(site.slurm.owned("komainu")) == 5
    assert site.store.tripped_at == site.clock.time
    held = [name for name in ROLLOUT if name not in site.slurm.owner]
    assert len(held) == 18
    assert all(site.advised(name) for name in held)
    assert OrderKind.HOLD not in {kind for name in held for kind in site.told(name)}

    await site.at(5)
    await site.release(FIRST[0])
    assert len(site.slurm.owned("komainu")) == 4

    await site.at(9)
    for name in held[:15]:
        await site.release(name)
    await site.at(10)
    assert len(site.slurm.owned("komainu")) == 4

    await site.at(12)
    await site.at(12)
    assert len(site.slurm.owned("komainu")) == 7
    assert set(held[15:]) <= site.slurm.owned("komainu")
    assert site.store.tripped_at is None
    assert not any(site.advised(name) for name in NAMES)
    assert len(site.slurm.drains) == 8
