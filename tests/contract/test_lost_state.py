"""A real slurmctld that starts without its saved state (`slurmctld -c`)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from tests.beds.fixtures import bed_of
from tests.beds.slurm import BedOptions, SlurmBed
from tests.quarantine.cases import BOOT, finding, guarded
from tests.quarantine.memory_store import MemoryStore

from komainu import flow
from komainu.clients.slurm import Slurm
from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.core.wire import Batch
from komainu.quarantine import decide
from komainu.quarantine.act import act

CLUSTER = ClusterName("bed")
N1 = NodeName("n1")
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]


class Clock:
    """Real time, which the test may push."""

    def __init__(self) -> None:
        self.shift = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.shift

    def uptime_s(self) -> float:
        return self.now().timestamp()

    async def sleep(self, seconds: float) -> None:
        self.shift += timedelta(seconds=seconds)


@pytest.fixture
def bed() -> Iterator[SlurmBed]:
    """Its own: every other test's jobs and drains would be lost with it."""
    with bed_of(BedOptions(nodes=2, accounting=False)) as made:
        yield made


async def test_one_node_that_slurmctld_forgot_is_drained_again(bed: SlurmBed) -> None:
    slurm, clock = Slurm(CLUSTER, slurm_conf=str(bed.at.conf)), Clock()
    store = MemoryStore(CLUSTER, [N1, NodeName("n2")])
    centre = flow.Centre(
        cluster=CLUSTER,
        policy=guarded(1),
        rooms=flow.Rooms(think=decide.think, act=act),
        store=store,
        scheduler=slurm,
        clock=clock,
    )
    bad = msgspec.structs.replace(finding(1, N1, at=clock.now()), cluster=CLUSTER)
    batch = Batch(
        id="B",
        cluster=CLUSTER,
        node=N1,
        boot_id=BOOT,
        agent_version="1",
        sent_at=clock.now(),
        findings=[bad],
    )
    store.receive(batch, clock.now())
    await flow.turn(centre)
    first = await slurm.node(N1)
    assert first is not None
    assert first.ours
    bed.lose_state()
    forgot = await slurm.node(N1)
    assert forgot is not None
    assert (forgot.state, forgot.flags) == ("IDLE", frozenset())
    await clock.sleep(90)
    await flow.turn(centre)
    again = await slurm.node(N1)
    assert again is not None
    assert again.ours
    assert again.reason != first.reason
    assert store.situation(NodeKey(CLUSTER, N1), clock.now()).findings == (bad,)
