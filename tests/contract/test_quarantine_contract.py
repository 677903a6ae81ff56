"""Gate and guard agree, on the lab's scheduler and on a real Slurm: think and act with nothing
between them and the scheduler but a store in memory.
"""

from __future__ import annotations

import msgspec
import pytest
from tests.contract.grounds import (
    CLUSTER,
    NODES,
    Ground,
    job_of,
    node_of,
    until_drained,
    until_held,
)
from tests.quarantine.cases import BOOT, NOW, Clock, finding, guarded
from tests.quarantine.memory_store import MemoryStore

from komainu import flow
from komainu.core.decision import Action, Result
from komainu.core.gate import GateRecord, Why, record_data
from komainu.core.names import JobId, NodeKey, NodeName
from komainu.core.observation import Observation, ObservationKind
from komainu.core.wire import Batch
from komainu.quarantine import decide
from komainu.quarantine.act import act

N1, N2, N3, N4 = NODES[:4]
pytestmark = pytest.mark.timeout(180)


class Centre:
    """The server's part, with room for two nodes."""

    def __init__(self, ground: Ground) -> None:
        self.store = MemoryStore(CLUSTER, NODES)
        self.centre = flow.Centre(
            cluster=CLUSTER,
            policy=guarded(2),
            rooms=flow.Rooms(think=decide.think, act=act),
            store=self.store,
            scheduler=ground.scheduler,
            clock=Clock(),
        )

    def hear(self, node: NodeName, job: JobId | None = None) -> None:
        """A batch: a fatal finding, and the gate's refusal of `job`."""
        batch = Batch(
            id="B",
            cluster=CLUSTER,
            node=node,
            boot_id=BOOT,
            agent_version="1",
            sent_at=NOW,
            findings=[msgspec.structs.replace(finding(1, node), cluster=CLUSTER)],
            observations=[] if job is None else [_refused(node, job)],
        )
        self.store.receive(batch, NOW)
        flow.consider(self.centre, [NodeKey(CLUSTER, node)], NOW)

    async def turn(self) -> list[Result]:
        return [outcome.result for outcome in await flow.turn(self.centre)]

    def actions(self, node: NodeName) -> list[Action]:
        rows = self.store.rows.values()
        return [r.decision.action for r in rows if r.allowed and r.decision.node == node]


def _refused(node: NodeName, job: JobId) -> Observation:
    record = GateRecord(
        where="prolog",
        answer="refuse",
        why=Why.FAULT,
        uptime_s=1,
        boot_id=BOOT,
        job=job,
        user="u",
        uid=1000,
        gpus=(),
        waited_s=0,
    )
    return Observation(
        id=f"O-{job}",
        cluster=CLUSTER,
        node=node,
        kind=ObservationKind.GATE,
        at=NOW,
        data=record_data(record),
    )


async def test_a_bad_node_is_drained_under_our_reason_and_given_back(ground: Ground) -> None:
    centre = Centre(ground)
    centre.hear(N1)
    assert await centre.turn() == [Result.DONE]
    assert (await node_of(ground, N1)).ours
    seen = centre.store.situation(NodeKey(CLUSTER, N1), NOW)
    centre.store.remember(decide.release(seen, guarded(2), "ann", "GPU replaced", NOW), NOW)
    assert await centre.turn() == [Result.DONE]
    assert not (await node_of(ground, N1)).out


async def test_a_persons_drain_outlives_our_release(ground: Ground) -> None:
    centre = Centre(ground)
    ground.person_drain(N1, "swapping a DIMM")
    centre.hear(N1)
    assert await centre.turn() == [Result.FOREIGN]
    seen = centre.store.situation(NodeKey(CLUSTER, N1), NOW)
    centre.store.remember(decide.release(seen, guarded(2), "ann", "it is fine", NOW), NOW)
    assert await centre.turn() == [Result.FOREIGN]
    assert (await node_of(ground, N1)).reason == "swapping a DIMM"


async def test_a_failed_epilog_is_the_sites_own_and_stays_whatever_our_gate_refused(
    ground: Ground,
) -> None:
    centre = Centre(ground)
    ground.fail_hook("epilog", N1)
    ground.submit("ends badly", on=(N1,), seconds=1)
    await until_drained(ground, N1)
    assert (await node_of(ground, N1)).reason == "Epilog error"
    centre.hear(N1, JobId("999"))
    await centre.turn()
    assert (await node_of(ground, N1)).reason == "Epilog error"
    seen = centre.store.situation(NodeKey(CLUSTER, N1), NOW)
    centre.store.remember(decide.release(seen, guarded(2), "ann", "it is fine", NOW), NOW)
    assert Result.FOREIGN in await centre.turn()
    assert (await node_of(ground, N1)).reason == "Epilog error"


async def test_of_four_nodes_condemned_at_once_two_go_and_no_job_stays_held(
    ground: Ground,
) -> None:
    """Every gate refuses before a word of it reaches the server: the worst order there is."""
    centre = Centre(ground)
    bad = (N1, N2, N3, N4)
    for node in bad:
        ground.fail_hook("prolog", node)
    jobs = {node: ground.submit(f"on {node}", on=(node,)) for node in bad}
    for node in bad:
        await until_drained(ground, node)
        await until_held(ground, jobs[node])
        ground.fail_hook("prolog", node, failing=False)  # what "advise only" does to a gate
    for node in bad:
        centre.hear(node, jobs[node])
    await centre.turn()
    await centre.turn()
    shown = [await node_of(ground, node) for node in bad]
    assert sorted(node.ours for node in shown) == [False, False, True, True]
    assert all(not node.out for node in shown if not node.ours)
    assert [(await job_of(ground, job)).held for job in jobs.values()] == [False] * 4
    kept = [node.node for node in shown if node.ours]
    gone = [node.node for node in shown if not node.ours]
    assert all(centre.actions(n)[-2:] == [Action.ADOPT, Action.RELEASE_JOB] for n in kept)
    assert all(Action.RESUME in centre.actions(n) for n in gone)
    assert await centre.turn() == []
