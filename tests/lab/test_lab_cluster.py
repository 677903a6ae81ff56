"""Who acts in the lab, without anybody watching over it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from komainu.core.errors import ServerError
from komainu.core.names import NodeName
from komainu.lab.cluster import LabCluster, LabShape, Release
from komainu.lab.faults import Fault
from komainu.lab.machines import JobSpec

NODE = NodeName("gpu-002")
HASTY = LabShape(
    nodes=4,
    faults=False,
    repair_s=(0.05, 0.05),
    bench_test_s=0.05,
    first_fault_s=0.01,
    fault_every_s=0.05,
    crash_every_s=1000,
)


@asynccontextmanager
async def living(lab: LabCluster, release: Release) -> AsyncIterator[None]:
    life = asyncio.create_task(lab.run(release))
    await asyncio.sleep(0)  # it begins
    try:
        yield
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 (what is waited for is another's state)
            await asyncio.sleep(0.01)


class Asked:
    """Komainu, as the technician meets it."""

    def __init__(self, *, away: bool = False) -> None:
        self.releases: list[tuple[NodeName, str]] = []
        self._away = away

    async def release(self, node: NodeName, reason: str) -> None:
        self.releases.append((node, reason))
        if self._away:
            raise ServerError("the server does not answer. Wait.")


async def test_a_technician_repairs_what_broke_and_asks_for_its_release(tmp_path: Path) -> None:
    lab, asked = LabCluster(HASTY, tmp_path), Asked()
    async with living(lab, asked.release):
        await lab.inject(NODE, Fault.GPU_LOST, 3)
        hardware = await lab.nodes[NODE].hardware()
        assert hardware is not None
        assert [gpu.index for gpu in hardware.gpus] == [0, 1, 2, 4, 5, 6, 7]
        await until(lambda: bool(asked.releases))
    [(node, reason)] = asked.releases
    assert node == NODE
    assert "gpu-lost on GPU 3" in reason
    mended = await lab.nodes[NODE].hardware()
    assert mended is not None
    assert len(mended.gpus) == 8


async def test_a_release_that_is_not_taken_is_told_and_ends_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    lab, asked = LabCluster(HASTY, tmp_path, told.append), Asked(away=True)
    async with living(lab, asked.release):
        await lab.inject(NODE, Fault.NVLINK, 0)
        await until(lambda: any("was not taken" in line for line in told))
        await lab.inject(NODE, Fault.NVLINK, 0)
        await until(lambda: len(asked.releases) == 2)


async def test_a_deadly_fault_ends_the_job_on_that_gpu_and_no_other(tmp_path: Path) -> None:
    lab = LabCluster(HASTY, tmp_path)
    running = asyncio.create_task(lab.scheduler.run())
    jobs = [
        lab.scheduler.submit(
            JobSpec(user="hana", name="train", gpus_per_node=4, duration_s=60, on=(NODE,))
        )
        for _ in range(2)
    ]
    await until(lambda: {lab.scheduler.job_on(NODE, gpu) for gpu in (0, 4)} == set(jobs))
    await lab.inject(NODE, Fault.DOUBLE_BIT, 5)
    struck, spared = lab.scheduler.job_on(NODE, 5), lab.scheduler.job_on(NODE, 0)
    await until(lambda: lab.scheduler.job_on(NODE, 5) is None)
    states = {job.id: job.state for job in await lab.scheduler.jobs()}
    assert struck is not None
    assert spared is not None
    assert states[struck] in {"COMPLETING", "FAILED"}
    assert states[spared] in {"CONFIGURING", "RUNNING"}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_faults_wait_until_somebody_watches_and_jobs_do_not(tmp_path: Path) -> None:

    told: list[str] = []
    lab = LabCluster(msgspec.structs.replace(HASTY, faults=True), tmp_path, told.append)
    async with living(lab, Asked().release):
        await until(lambda: any(lab.scheduler.job_on(node, 0) for node in lab.nodes))
        assert not any(node.broken for node in lab.nodes.values())
        lab.watched.set()
        await until(lambda: any(node.broken for node in lab.nodes.values()))
    assert told
