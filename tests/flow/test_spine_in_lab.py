"""End to end in the lab: a fault in a kernel log, to the job that did not start, and back again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flow.spine import Spine, until, watched

from komainu.core.decision import REASON_PREFIX, Result
from komainu.core.names import JobId
from komainu.core.node import SchedulerNode
from komainu.core.policy import GuardPolicy, Policy
from komainu.lab.faults import Fault
from komainu.lab.kernel_log import USER

WIDE = Policy(guard=GuardPolicy(max_share=1.0))


async def drained(spine: Spine, number: int) -> SchedulerNode:
    key = spine.key(number)
    seen = spine.lab.scheduler._nodes[key.node]
    await until(lambda: seen.drain)
    return await spine.node(number)


async def started_on(spine: Spine, job: JobId) -> tuple[str, ...]:
    await until(lambda: spine.lab.scheduler._jobs[job].state == "RUNNING")
    return tuple((await spine.job(job)).nodes)


async def test_a_dead_gpu_takes_its_node_out_and_a_release_brings_it_back(tmp_path: Path) -> None:
    async with watched(tmp_path, WIDE) as spine:
        running = spine.submit(1, 2, nodes=2)
        await started_on(spine, running)
        waiting = [spine.submit(1) for _ in range(3)]
        await spine.lab.inject(spine.key(1).node, Fault.UNCONTAINED, 3)
        node = await drained(spine, 1)
        assert node.reason.startswith(REASON_PREFIX)
        assert "GPU-XID-95" in node.reason
        assert {(await spine.job(job)).state for job in waiting} == {"PENDING"}

        key = spine.key(1)
        await until(lambda: len(spine.store.findings(key.cluster, key.node)) == 2)  # 95 and 154
        spine.release(1)
        jobs = [spine.lab.scheduler._jobs[job] for job in waiting]
        await until(lambda: any(job.state == "RUNNING" for job in jobs))
        assert all(tuple(job.where) in {(), (key.node,)} for job in jobs)


async def test_the_record_says_what_why_when_and_by_whom(tmp_path: Path) -> None:
    async with watched(tmp_path, WIDE) as spine:
        await spine.lab.inject(spine.key(2).node, Fault.DOUBLE_BIT, 5)
        await drained(spine, 2)
        await until(lambda: Result.DONE in spine.results(2))
        key = spine.key(2)
        [record] = spine.store.decision_records(key.cluster, key.node)
        findings = {f.id: f for f in spine.store.findings(key.cluster, key.node)}
        assert record.decision.by == "policy"
        assert record.decision.policy_version == WIDE.version
        causes = [findings[one] for one in record.decision.findings if one in findings]
        gpu = spine.lab.nodes[key.node].gpus[5]
        assert any("48" in finding.code for finding in causes)
        assert any(gpu.pci in finding.component.id for finding in causes)
        assert any(gpu.pci in piece.text for finding in causes for piece in finding.evidence)


@pytest.mark.parametrize(
    "harmless", [Fault.USER_CRASH, Fault.SPOOF, Fault.UNKNOWN_CODE, Fault.SINGLE_BIT]
)
async def test_what_is_not_the_machine_s_fault_drains_nothing(
    tmp_path: Path, harmless: Fault
) -> None:
    async with watched(tmp_path, WIDE, nodes=2) as spine:
        await spine.lab.inject(spine.key(1).node, harmless, 0)
        await until(lambda: bool(spine.store.findings(spine.key(1).cluster, spine.key(1).node)))
        job = spine.submit(1)
        assert await started_on(spine, job) == (spine.key(1).node,)
        assert not (await spine.node(1)).drained


async def test_a_line_written_by_a_user_changes_nothing(tmp_path: Path) -> None:
    async with watched(tmp_path, WIDE, nodes=2) as spine:
        log = spine.lab.nodes[spine.key(1).node].kernel
        log.write("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.", facility=USER)
        await spine.lab.inject(spine.key(1).node, Fault.USER_CRASH, 0)
        await until(lambda: bool(spine.store.findings(spine.key(1).cluster, spine.key(1).node)))
        codes = {f.code for f in spine.store.findings(spine.key(1).cluster, spine.key(1).node)}
        assert not any("79" in code for code in codes)


async def test_the_gate_refuses_while_the_server_is_away_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path, WIDE, nodes=2) as spine:
        spine.reachable = False
        await spine.lab.inject(spine.key(1).node, Fault.GPU_LOST, 0)
        refused = spine.submit(1)
        node = await drained(spine, 1)  # by Slurm itself, because the gate refused
        assert node.gate_made
        assert (await spine.job(refused)).held
        spine.reachable = True
        await until(lambda: spine.lab.scheduler._jobs[refused].held == "")
        node = await spine.node(1)
        assert node.drained
        assert spine.store.findings(spine.key(1).cluster, spine.key(1).node)


async def test_a_server_that_lost_its_database_learns_the_fault_and_can_end_it(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path, WIDE) as spine:
        key = spine.key(1)
        await spine.lab.inject(key.node, Fault.DOUBLE_BIT, 5)
        await drained(spine, 1)
        await until(lambda: spine.word(1) == "FAULT/settled")
        spine.lose_database(tmp_path)
        await until(lambda: len(spine.store.findings(key.cluster, key.node)) > 0)
        assert spine.word(1) == "FAULT/settled"
        await until(lambda: spine.store.situation(key, spine.now()).scheduler is not None)
        spine.release(1)
        await until(lambda: spine.word(1) == "OK/settled")


async def test_a_person_s_drain_is_left_alone(tmp_path: Path) -> None:
    async with watched(tmp_path, WIDE, nodes=2) as spine:
        spine.lab.scheduler.person_drain(spine.key(1).node, "hiro", "swapping a fan")
        await spine.lab.inject(spine.key(1).node, Fault.GPU_LOST, 0)
        await until(lambda: bool(spine.store.findings(spine.key(1).cluster, spine.key(1).node)))
        spine.release(1)
        await until(lambda: not spine.store.findings(spine.key(1).cluster, spine.key(1).node))
        await until(lambda: not spine.store.to_do(spine.key(1).cluster, spine.lab.clock.now()))
        node = await spine.node(1)
        assert (node.drained, node.reason, node.reason_by) == (True, "swapping a fan", "hiro")


@pytest.mark.timeout(120)
async def test_a_storm_of_faults_stops_at_the_guard_s_number(tmp_path: Path) -> None:
    """20 nodes condemned together: the guard's number leaves, no job stays held, the rest works on."""
    policy = Policy(guard=GuardPolicy(max_nodes=3, max_share=1.0, max_in_window=3))
    async with watched(tmp_path, policy, nodes=20) as spine:
        for number in range(1, 21):
            await spine.lab.inject(spine.key(number).node, Fault.NVLINK, 0)
        jobs = [spine.submit(number) for number in range(1, 21)]
        whole = spine.lab.scheduler._jobs
        await until(lambda: sum(whole[job].state == "RUNNING" for job in jobs) >= 17, 40)
        views = await spine.lab.scheduler.nodes()
        assert sum(node.drained for node in views) == 3
        assert all(node.ours for node in views if node.drained)
        await until(lambda: not any(whole[job].held for job in jobs))
        assert spine.store.clusters()[0].tripped_at is not None
