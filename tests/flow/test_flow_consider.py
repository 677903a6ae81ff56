"""The flow where something in it fails."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest
from structlog.testing import capture_logs
from tests.quarantine.cases import BOOT, CLUSTER, N1, N2, NOW, Clock, finding, guarded, key
from tests.quarantine.memory_store import MemoryStore
from tests.quarantine.model_slurm import ModelSlurm

from komainu import flow
from komainu.core.names import NodeName
from komainu.core.policy import Policy
from komainu.core.situation import ClusterSituation, NodeSituation, Thought
from komainu.core.wire import Batch
from komainu.quarantine import decide
from komainu.quarantine.act import act

NODES = [N1, N2, NodeName("n3")]


def centre(bad: str, error: Exception) -> flow.Centre:
    """Three bad nodes, one of which cannot be thought of."""

    def think(
        situations: Sequence[NodeSituation], whole: ClusterSituation, policy: Policy, now: datetime
    ) -> Thought:
        if any(situation.node == bad for situation in situations):
            raise error
        return decide.think(situations, whole, policy, now)

    store = MemoryStore(CLUSTER, NODES)
    for node in NODES:
        batch = Batch(
            id="B",
            cluster=CLUSTER,
            node=node,
            boot_id=BOOT,
            agent_version="1",
            sent_at=NOW,
            findings=[finding(1, node)],
        )
        store.receive(batch, NOW)
    return flow.Centre(
        cluster=CLUSTER,
        policy=guarded(3),
        rooms=flow.Rooms(think=think, act=act),
        store=store,
        scheduler=ModelSlurm(CLUSTER, NODES),
        clock=Clock(),
    )


@pytest.mark.parametrize("error", [TypeError("naive and aware"), ValueError("year 10000")])
async def test_a_node_that_cannot_be_thought_of_keeps_no_other_in_service(error: Exception) -> None:
    seen = centre(N2, error)
    with capture_logs() as logs:
        await flow.turn(seen)
    assert [n.node for n in await seen.scheduler.nodes() if n.ours] == [N1, "n3"]
    said = [
        (one["log_level"], one["node"]) for one in logs if one["event"] == "node_not_considered"
    ]
    assert said == [("error", N2)]


def test_its_own_report_is_answered_all_the_same() -> None:
    assert flow.consider(centre(N2, TypeError()), [key(N2)], NOW).decisions == ()


async def test_an_error_that_is_no_nodes_own_is_not_hidden() -> None:
    with pytest.raises(RuntimeError):
        await flow.turn(centre(N2, RuntimeError("a defect")))
