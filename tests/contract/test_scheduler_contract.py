"""What quarantine relies on of a scheduler, tried on the lab's and on a real Slurm alike."""

from __future__ import annotations

import time

import pytest
from tests.contract.grounds import (
    NODES,
    Ground,
    job_of,
    node_of,
    until_drained,
    until_held,
    until_state,
)

from komainu.core.errors import InputError, SchedulerError
from komainu.core.names import JobId, NodeName
from komainu.core.node import HELD_BY_PROLOG

pytestmark = pytest.mark.timeout(150)

N1, N2, N3, N4 = NODES[:4]
REASON = "komainu:D-0123456789: GPU-XID-79 on gpu 0000:41:00"


async def test_every_node_is_listed_idle_with_its_gpus(ground: Ground) -> None:
    nodes = await ground.scheduler.nodes()
    assert sorted(one.node for one in nodes) == list(NODES)
    assert {(one.state, one.gpus, one.cluster, one.out) for one in nodes} == {
        ("IDLE", 8, "bed", False)
    }


async def test_an_idle_node_is_drained_within_100_ms_under_our_reason(ground: Ground) -> None:
    took = []
    for attempt in range(5):
        began = time.monotonic()
        await ground.scheduler.drain([N1], f"{REASON} {attempt}")
        took.append(time.monotonic() - began)
        node = await node_of(ground, N1)
        assert (node.state, node.drained, node.reason) == ("IDLE", True, f"{REASON} {attempt}")
        assert node.ours
        assert not node.gate_made
    assert sorted(took)[2] < 0.1


async def test_the_time_and_owner_of_a_drain_are_shown(ground: Ground) -> None:
    await ground.scheduler.drain([N1], REASON)
    node = await node_of(ground, N1)
    assert node.reason_by == "root"
    assert node.reason_at is not None
    assert node.reason_at.tzinfo is not None


async def test_many_nodes_are_drained_in_one_call(ground: Ground) -> None:
    await ground.scheduler.drain(NODES[:6], REASON)
    out = [one.node for one in await ground.scheduler.nodes() if one.out]
    assert sorted(out) == list(NODES[:6])


async def test_draining_no_node_is_nothing(ground: Ground) -> None:
    await ground.scheduler.drain([], REASON)
    await ground.scheduler.resume([])
    assert not any(one.out for one in await ground.scheduler.nodes())


async def test_a_drain_lets_the_running_job_finish(ground: Ground) -> None:
    job = ground.submit("long", nodes=2, seconds=4, on=(N1, N2))
    await until_state(ground, job, "RUNNING")
    await ground.scheduler.drain([N1], REASON)
    node = next(one for one in await ground.scheduler.nodes() if one.node == N1)
    assert node.state in {"MIXED", "ALLOCATED"}
    assert node.drained
    assert node.jobs == (job,)
    assert (await job_of(ground, job)).state == "RUNNING"
    await until_state(ground, job, "COMPLETED")
    assert (await node_of(ground, N1)).drained


async def test_no_job_starts_on_a_drained_node(ground: Ground) -> None:
    await ground.scheduler.drain(NODES[1:], REASON)
    first, second = ground.submit("first", seconds=2), ground.submit("second", seconds=1)
    await until_state(ground, first, "RUNNING")
    assert (await job_of(ground, first)).nodes == (N1,)
    assert (await job_of(ground, second)).state == "PENDING"
    await until_state(ground, second, "COMPLETED")


async def test_a_resumed_node_takes_jobs_again(ground: Ground) -> None:
    await ground.scheduler.drain([N1], REASON)
    job = ground.submit("waits for n1", on=(N1,))
    await ground.scheduler.resume([N1])
    assert not (await node_of(ground, N1)).drained
    await until_state(ground, job, "RUNNING")


async def test_resuming_a_node_in_service_changes_nothing(ground: Ground) -> None:
    await ground.scheduler.drain([N2], REASON)
    await ground.scheduler.resume([N1, N2])
    await ground.scheduler.resume([N1, N2])
    assert not any(one.out for one in await ground.scheduler.nodes())


async def test_a_persons_drain_is_seen_with_its_reason_and_owner(ground: Ground) -> None:
    ground.person_drain(N3, "swapping a fan, ask Hiro")
    node = await node_of(ground, N3)
    assert (node.reason, node.reason_by, node.ours) == ("swapping a fan, ask Hiro", "root", False)
    assert node.drained
    assert not node.gate_made


async def test_a_failed_prolog_drains_its_node_and_holds_the_innocent_job(ground: Ground) -> None:
    ground.fail_hook("prolog", N1)
    job = ground.submit("innocent", on=(N1,))
    assert await until_drained(ground, N1, within_s=3) <= 1.5
    node = await node_of(ground, N1)
    assert node.gate_made
    assert (node.reason, node.reason_by) == ("Prolog error", "root")
    await until_held(ground, job)
    found = await job_of(ground, job)
    assert (found.state, found.reason, found.nodes) == ("PENDING", HELD_BY_PROLOG, ())


async def test_a_held_job_runs_elsewhere_once_released(ground: Ground) -> None:
    ground.fail_hook("prolog", N1)
    await ground.scheduler.drain(NODES[1:], REASON)
    job = ground.submit("innocent", seconds=1)
    await until_held(ground, job)
    await ground.scheduler.resume(NODES[1:])
    assert (await job_of(ground, job)).state == "PENDING"
    await ground.scheduler.release_job(job)
    assert not (await job_of(ground, job)).held
    await until_state(ground, job, "RUNNING", within_s=30)
    assert N1 not in (await job_of(ground, job)).nodes


async def test_of_several_nodes_only_the_bad_one_is_drained(ground: Ground) -> None:
    ground.fail_hook("prolog", N2)
    job = ground.submit("wide", on=(N1, N2, N3, N4))
    await until_drained(ground, N2)
    await until_held(ground, job)
    assert [one.node for one in await ground.scheduler.nodes() if one.out] == [N2]


async def test_a_failed_prolog_does_not_overwrite_our_reason(ground: Ground) -> None:
    job = ground.submit("first", seconds=2, on=(N1,))
    await until_state(ground, job, "RUNNING")
    await ground.scheduler.drain([N1], REASON)
    ground.fail_hook("epilog", N1)
    await until_state(ground, job, "COMPLETED")
    assert (await node_of(ground, N1)).reason == REASON


async def test_a_failed_epilog_drains_the_node_and_lets_the_job_stand(ground: Ground) -> None:
    ground.fail_hook("epilog", N1)
    job = ground.submit("ends well", seconds=0.5, on=(N1,))
    await until_state(ground, job, "COMPLETED")
    await until_drained(ground, N1)
    node = await node_of(ground, N1)
    assert not node.gate_made
    assert node.reason == "Epilog error"


async def test_releasing_a_job_that_is_not_held_is_no_error(ground: Ground) -> None:
    running = ground.submit("runs", seconds=30)
    await until_state(ground, running, "RUNNING")
    await ground.scheduler.release_job(running)
    ground.cancel(running)
    await until_state(ground, running, "CANCELLED")
    await ground.scheduler.release_job(running)


async def test_a_job_nobody_knows_cannot_be_released(ground: Ground) -> None:
    with pytest.raises(SchedulerError, match="999999"):
        await ground.scheduler.release_job(JobId("999999"))


async def test_an_unknown_node_is_none_and_cannot_be_drained(ground: Ground) -> None:
    assert await ground.scheduler.node(NodeName("nosuch")) is None
    with pytest.raises(SchedulerError, match="nosuch") as caught:
        await ground.scheduler.drain([NodeName("nosuch")], REASON)
    assert "Invalid node name" in str(caught.value)


@pytest.mark.parametrize(
    "reason",
    [
        "komainu:D-1: 100% | of `rm -rf /` $(reboot) 'quoted' State=IDLE",
        "komainu:D-1: switch of n[1-3] Comment=none Reason=other",
        "komainu:D-1: température 95 °C → hot",
        "komainu:D-1: " + "x" * 230,
    ],
)
async def test_any_reason_comes_back_as_it_was_given(ground: Ground, reason: str) -> None:
    await ground.scheduler.drain([N1], reason)
    node = await node_of(ground, N1)
    assert node.reason == reason
    assert node.ours
    assert (node.state, node.flags) == ("IDLE", frozenset({"DRAIN"}))


@pytest.mark.parametrize(
    "name",
    [
        "two\nlines|1|RUNNING|root",
        "%n %j\x1f|\t",
        "--nodes=8",
        "gpu\u0301 狛犬",
        "'; scontrol reboot",
    ],
)
async def test_a_hostile_job_name_hides_nothing(ground: Ground, name: str) -> None:
    before = ground.submit("before", seconds=60, on=(N1,))
    job = ground.submit(name, seconds=60, on=(N2,))
    after = ground.submit("after", seconds=60, on=(N3,))
    for one in (before, job, after):
        await until_state(ground, one, "RUNNING")
    seen = {one.id: one for one in await ground.scheduler.jobs() if one.state == "RUNNING"}
    assert set(seen) == {before, job, after}
    assert seen[job].name == name
    assert (seen[job].nodes, seen[job].gpus, seen[job].user) == ((N2,), 8, "root")


async def test_jobs_are_listed_with_nodes_and_times(ground: Ground) -> None:
    job = ground.submit("two nodes", nodes=2, seconds=1)
    await until_state(ground, job, "RUNNING")
    found = await job_of(ground, job)
    assert len(found.nodes) == 2
    assert found.gpus == 16
    assert found.submitted is not None
    assert found.started is not None
    assert found.ended is None
    await until_state(ground, job, "COMPLETED")
    assert (await job_of(ground, job)).ended is not None


async def test_a_dead_node_is_declared_down_and_its_job_is_queued_again(ground: Ground) -> None:
    job = ground.submit("on a dying node", on=(N4,))
    await until_state(ground, job, "RUNNING")
    ground.kill_node(N4)

    async def down() -> bool:
        node = await node_of(ground, N4)
        return node.state == "DOWN" and "NOT_RESPONDING" in node.flags

    assert await ground.until(down, "n4 down", within_s=60) > 5
    await until_state(ground, job, "PENDING")
    assert not (await job_of(ground, job)).held
    ground.return_node(N4)

    async def back() -> bool:
        return not (await node_of(ground, N4)).out

    await ground.until(back, "n4 back in service", within_s=30)


@pytest.mark.parametrize("name", ["-rf", "n1 n2", "n1;reboot", "", "n[1-2]"])
async def test_a_name_that_is_none_never_reaches_the_scheduler(ground: Ground, name: str) -> None:
    with pytest.raises((InputError, SchedulerError)):
        await ground.scheduler.drain([NodeName(name)], REASON)
    assert not any(one.out for one in await ground.scheduler.nodes())
