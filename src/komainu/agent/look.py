"""Looking at the node: at start, now and then, and at once after every job.

The check after a job first lets everything the kernel said during the job be judged, then looks at
the rest. It is bounded by policy (`check_s`); when the bound runs out, the verdict says what was not
seen.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from komainu.agent import checks
from komainu.agent.checks import Look
from komainu.agent.follow import Follower
from komainu.agent.node import Node
from komainu.agent.waiting import woken
from komainu.core.errors import OutsideError
from komainu.core.verdict import Verdict
from komainu.core.wire import Hardware
from komainu.ports import Clock, KernelLog, NodeProbe

EVERY_S = 15.0
"""A look costs well under a millisecond; a GPU that vanished is seen within this time."""
PROBE_S = 5.0
POST_JOB = "post-job"


class Looker:
    """Runs one node's checks."""

    def __init__(
        self,
        node: Node,
        follower: Follower,
        *,
        kernel: KernelLog,
        probe: NodeProbe,
        clock: Clock,
        state_dir: Path,
        off: frozenset[str],
        gpus_expected: int = 0,
    ) -> None:
        self._node, self._follower, self._kernel = node, follower, kernel
        self._probe, self._clock, self._state_dir, self._off = probe, clock, state_dir, off
        self._gpus_expected = gpus_expected
        self._job_ended = False
        self._probing: asyncio.Task[Hardware | None] | None = None

    def job_ended(self) -> None:
        """A job's epilog ran: from this moment the verdict says that the check has not ended."""
        self._node.checking = True
        self._node.publish()
        self._job_ended = True
        self._node.to_look.set()

    async def run(self) -> None:
        await self.look_around()
        while True:
            await woken(self._node.to_look, self._clock, EVERY_S)
            self._node.to_look.clear()
            if self._job_ended:
                self._job_ended = False
                await self._after_job()
            else:
                await self.look_around()

    async def _after_job(self) -> None:
        node, bound = self._node, self._node.policy.check_s
        look: Look | None = None
        try:
            async with asyncio.timeout(bound):
                await self._follower.until(await self._kernel.drained())
                await self.look_around()
        except TimeoutError:
            look = Look(Verdict.UNKNOWN, f"not finished after {bound} s")
        except OutsideError as error:
            look = Look(Verdict.UNKNOWN, str(error))
        node.checking = self._job_ended
        node.see({POST_JOB: look})

    async def look_around(self) -> None:
        """Every check but the kernel log's own, which the follower keeps."""
        node, now = self._node, self._clock.now()
        hardware = await self._hardware()
        found = checks.gpus(
            node.key, hardware, node.baseline, now,
            policy=node.policy, released=node.orders.released, expected=self._gpus_expected,
        )  # fmt: skip
        known = hardware and checks.with_the_gone(hardware, found.baseline)
        if known is not None and known != node.hardware:
            node.hardware = known
            node.to_ship.set()
        if found.baseline != node.baseline and checks.GPUS not in self._off:
            node.learn(found.observations, findings=found.findings, baseline=found.baseline)
        looks: dict[str, Look | None] = {
            checks.GPUS: found.look,
            checks.STATE_DIR: state_dir_now(self._state_dir),
            checks.CLOCK: checks.clock(now, node.server_ahead),
        }
        node.see(looks | {name: skipped() for name in self._off})

    async def _hardware(self) -> Hardware | None:
        """A probe may hang on a dead device: it is left behind, and not started twice."""
        if self._probing is None:
            self._probing = asyncio.create_task(_asked(self._probe))
        done, _ = await asyncio.wait({self._probing}, timeout=PROBE_S)
        if not done:
            return None
        task, self._probing = self._probing, None
        return task.result()


async def _asked(probe: NodeProbe) -> Hardware | None:
    return await probe.hardware()


def skipped() -> Look:
    return Look(Verdict.SKIPPED, "switched off by agent.checks_off")


def state_dir_now(path: Path) -> Look:
    """Whether the state directory could be written now."""
    try:
        free = shutil.disk_usage(path).free
    except OSError as error:
        return Look(Verdict.UNKNOWN, f"{path}: {error.strerror}")
    return checks.state_dir(
        str(path), writable=os.access(path, os.W_OK), free_bytes=free, trouble=""
    )
