"""What only the lab's scheduler does; what it shares with Slurm is in tests/contract."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.contract.grounds import CLUSTER, NODES, LabGround, PushedClock

from komainu.core.errors import SchedulerError
from komainu.core.names import JobId, NodeName
from komainu.lab.machines import JobSpec, LabRules
from komainu.lab.scheduler import LabScheduler

N1, N2 = NODES[:2]


@contextlib.asynccontextmanager
async def _living(scheduler: LabScheduler) -> AsyncIterator[None]:
    living = asyncio.create_task(scheduler.run())
    yield
    living.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await living


async def test_a_person_cannot_resume_a_node_in_service() -> None:
    ground = LabGround()
    with pytest.raises(SchedulerError, match="Invalid node state"):
        ground.scheduler.person_resume(N1, "ann")
    ground.scheduler.person_drain(N1, "ann", "fan")
    ground.scheduler.person_resume(N1, "ann")
    assert not (await ground.scheduler.nodes())[0].out


async def test_a_person_who_sets_a_node_down_fails_its_jobs_at_once() -> None:
    ground = LabGround()
    async with _living(ground.scheduler):
        job = ground.submit("x", on=(N1,))
        await ground.clock.push(1)
        ground.scheduler.person_down(N1, "ann", "power")
        assert (await ground.scheduler.jobs())[0].state == "PENDING"
        node = await ground.scheduler.node(N1)
        assert node is not None
        assert (node.state, node.reason, node.reason_by, node.jobs) == ("DOWN", "power", "ann", ())
        ground.cancel(job)


async def test_a_short_absence_leaves_no_trace() -> None:
    ground = LabGround()
    async with _living(ground.scheduler):
        job = ground.submit("x", seconds=60, on=(N1,))
        await ground.clock.push(1)
        ground.kill_node(N1)
        await ground.clock.push(20)
        node = await ground.scheduler.node(N1)
        assert node is not None
        assert node.flags == {"NOT_RESPONDING"}
        ground.return_node(N1)
        await ground.clock.push(40)
        assert [(one.id, one.state) for one in await ground.scheduler.jobs()] == [
            (job, "COMPLETED")
        ]


async def test_each_job_on_a_node_has_its_own_gpus() -> None:
    seen: dict[JobId, Sequence[int]] = {}

    async def prolog(job: JobId, _node: NodeName, _user: str, gpus: Sequence[int]) -> int:
        seen[job] = gpus
        return 0

    clock = PushedClock()
    scheduler = LabScheduler(CLUSTER, {N1: 8}, clock=clock, prolog=prolog)
    async with _living(scheduler):
        jobs = [
            scheduler.submit(JobSpec(user="ann", name="x", gpus_per_node=gpus)) for gpus in (3, 5)
        ]
        await clock.push(1)
        assert seen == {jobs[0]: (0, 1, 2), jobs[1]: (3, 4, 5, 6, 7)}
        assert scheduler.job_on(N1, 2) == jobs[0]
        assert scheduler.job_on(N1, 7) == jobs[1]
        scheduler.fail(jobs[0])
        assert scheduler.job_on(N1, 2) is None
        assert (await scheduler.jobs())[0].state == "FAILED"


async def test_without_hold_a_refused_job_runs_elsewhere_by_itself() -> None:
    async def prolog(_job: JobId, node: NodeName, _user: str, _gpus: Sequence[int]) -> int:
        return int(node == N1)

    clock = PushedClock()
    rules = LabRules(nohold_on_prolog_fail=True)
    scheduler = LabScheduler(CLUSTER, {N1: 8, N2: 8}, clock=clock, prolog=prolog, rules=rules)
    async with _living(scheduler):
        scheduler.submit(JobSpec(user="ann", name="x"))
        await clock.push(1)
        job = (await scheduler.jobs())[0]
        assert (job.state, job.held, job.reason) == ("PENDING", False, "BeginTime")
        await clock.push(7)
        job = (await scheduler.jobs())[0]
        assert (job.state, job.nodes) == ("RUNNING", (N2,))


async def test_the_memory_of_ended_jobs_is_bounded() -> None:
    clock = PushedClock()
    scheduler = LabScheduler(CLUSTER, {N1: 8}, clock=clock, rules=LabRules(history=10))
    async with _living(scheduler):
        for _ in range(50):
            scheduler.submit(JobSpec(user="ann", name="x", gpus_per_node=1, duration_s=1))
        await clock.push(20)
        assert len(await scheduler.jobs()) == 10
        await clock.push(400)
        assert await scheduler.jobs() == []


async def test_a_held_job_waits_for_its_release() -> None:
    ground = LabGround()
    async with _living(ground.scheduler):
        await ground.scheduler.drain(NODES, "komainu:D-1: x")
        job = ground.submit("x")
        ground.scheduler.hold(job)
        await ground.scheduler.resume(NODES)
        await ground.clock.push(5)
        assert (await ground.scheduler.jobs())[0].reason == "JobHeldUser"
        await ground.scheduler.release_job(job)
        await ground.clock.push(1)
        assert (await ground.scheduler.jobs())[0].state == "RUNNING"
