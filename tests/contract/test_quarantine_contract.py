"""Gate and guard agree, on the lab's scheduler and on a real Slurm: think and act with nothing
between them and the scheduler but a store in memory.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from tests.beds.slurm import SlurmBed
from tests.contract.grounds import (
    CLUSTER,
    NODES,
    Ground,
    SlurmGround,
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


async def test_the_scheduler_says_since_when_it_runs(ground: Ground) -> None:
    started = await ground.scheduler.started()
    assert started is not None
    ground.person_drain(N1, "swapping a DIMM")
    drained_at = (await node_of(ground, N1)).reason_at
    assert drained_at is not None
    assert drained_at - timedelta(hours=1) < started <= drained_at


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


def _reasons(ground: SlurmGround, array: JobId) -> dict[str, str]:
    """Task → why it waits."""
    shown = ground.bed.run("squeue", "-h", "--array", "-j", array, "-O", "ArrayTaskID:|,Reason:40")
    return dict(line.strip().split("|") for line in shown.splitlines())


@pytest.mark.slurm
async def test_a_refused_task_of_an_array_is_released_and_the_task_a_person_holds_is_not(
    slurm_bed: SlurmBed,
) -> None:
    """The prolog knows a task by a number of its own. The task started last has the array's number,
    which means all of them where a person would type it.
    """
    ground = SlurmGround(slurm_bed)
    await ground.clean()
    array = ground.submit_array(2, on=N1)

    async def first_runs() -> bool:
        return "RUNNING" in {one.state for one in await ground.scheduler.jobs()}

    await ground.until(first_runs, "the first task", within_s=20)
    ground.fail_hook("prolog", N1)
    ground.bed.run("scontrol", "requeuehold", f"{array}_1")
    await until_drained(ground, N1)
    await until_held(ground, array)
    ground.fail_hook("prolog", N1, failing=False)
    assert _reasons(ground, array)["2"] == "launch failed requeued held"
    by_person = _reasons(ground, array)["1"]
    assert "held" in by_person
    centre = Centre(ground)
    centre.hear(N1, array)
    came = await centre.turn()  # the drain that was decided first is overtaken by the adoption
    assert came == [Result.DONE, Result.DONE]  # the adoption has overtaken the drain
    assert centre.actions(N1)[-2:] == [Action.ADOPT, Action.RELEASE_JOB]
    assert "held" not in _reasons(ground, array)["2"]
    assert _reasons(ground, array)["1"] == by_person
    await ground.clean()


@pytest.mark.slurm
async def test_tasks_refused_on_two_nodes_are_each_released_by_their_own_number(
    slurm_bed: SlurmBed,
) -> None:
    ground = SlurmGround(slurm_bed)
    await ground.clean()
    for node in (N1, N2):
        ground.fail_hook("prolog", node)
    array = ground.submit_array(3, on=N1, also=N2)
    tasks = [JobId(str(int(array) + 1)), JobId(str(int(array) + 2))]
    for node in (N1, N2):
        await until_drained(ground, node)

    async def all_held() -> bool:
        return {one.id for one in await ground.scheduler.jobs() if one.held} >= set(tasks)

    await ground.until(all_held, "both tasks held", within_s=20)
    for node in (N1, N2):
        ground.fail_hook("prolog", node, failing=False)
    centre = Centre(ground)
    for node, task in zip((N1, N2), tasks, strict=True):
        centre.hear(node, task)
    assert Result.FAILED not in await centre.turn()
    assert not [one for one in await ground.scheduler.jobs() if one.held and one.id in tasks]
    await ground.clean()
