"""Slurm, through scontrol and squeue: the one way to drain that every release from 22.05 on has.

Each call is one short-lived process with a deadline; `node` and `drain` are exactly one, since they
stand between a fault and its quarantine. A refusal may have been carried out in part (a drain of
`n1,nosuch` drains n1 and exits 1), and rc 0 is not proof: callers read the state again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from komainu.clients import slurm_text
from komainu.core.errors import InputError, SchedulerError
from komainu.core.names import ClusterName, JobId, NodeName, node_name
from komainu.core.node import SchedulerJob, SchedulerNode
from komainu.core.nodeset import fold

_REASON_MAX = 250
_FIX = (
    "Check that slurmctld answers (`scontrol ping`) and that `slurm_conf` and `slurm_bin` of this "
    "cluster in komainu.toml are right."
)
_REFUSED_FIX = (
    "Check that Slurm knows that name (`scontrol show node`, `squeue`) and that the user Komainu "
    "runs as is SlurmUser or has AdminLevel=Administrator."
)


class Slurm:
    """One Slurm cluster, as `ports.Scheduler`."""

    def __init__(
        self,
        cluster: ClusterName,
        *,
        slurm_conf: str = "",
        slurm_bin: str = "",
        timeout_s: float = 10.0,
    ) -> None:
        """`slurm_conf`, `slurm_bin`: empty means the system's. `timeout_s`: deadline per call."""
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._bin = Path(slurm_bin) if slurm_bin else None
        self._env = _environment(slurm_conf)

    async def nodes(self) -> Sequence[SchedulerNode]:
        """All nodes, each with the jobs on it."""
        shown, jobs = await asyncio.gather(self._run("scontrol", "-o", "show", "node"), self.jobs())
        return self._read(shown, slurm_text.by_node(jobs))

    async def node(self, node: NodeName) -> SchedulerNode | None:
        """One node without its jobs: the queue would be a second process. None: Slurm has none."""
        name = node_name(node)
        try:
            shown = await self._run("scontrol", "-o", "show", "node", name)
        except _Refused as refused:
            if f"{name} not found" in refused.said:
                return None
            raise
        found = self._read(shown, {})
        return next((one for one in found if one.node == name), None)

    async def drain(self, nodes: Collection[NodeName], reason: str) -> None:
        if nodes:
            await self._update(nodes, "State=DRAIN", f"Reason={plain_reason(reason)}")

    async def resume(self, nodes: Collection[NodeName]) -> None:
        """Slurm refuses to resume a node that is neither drained nor down; that is no error here.

        Then only what is still ours is asked for again: the caller looked before the first try, and
        somebody may have drained a node since.
        """
        if not nodes:
            return
        try:
            await self._update(nodes, "State=RESUME")
        except _Refused:
            shown = await self._run("scontrol", "-o", "show", "node", _folded(nodes))
            seen = self._read(shown, {})
            out = [one.node for one in seen if one.out and (one.ours or one.gate_made)]
            if out:
                await self._update(out, "State=RESUME")

    async def jobs(self) -> Sequence[SchedulerJob]:
        output = await self._run(
            "squeue", "--noheader", "--all", "--states=all", f"--Format={slurm_text.JOB_FORMAT}"
        )
        return slurm_text.read_jobs(output, self._cluster)

    async def release_job(self, job: JobId) -> None:
        if not job.replace("_", "").replace("+", "").isdecimal():
            raise InputError(f"job id {job[:40]!r} is not usable: expected digits, `_` or `+`")
        told = await self._run(
            "squeue",
            "--noheader",
            "--all",
            "--states=all",
            "--array",
            f"--jobs={job}",
            f"--Format={slurm_text.TASK_FORMAT}",
        )
        try:
            await self._run("scontrol", "release", slurm_text.read_task(told, job))
        except _Refused as refused:
            # It has started or ended since: then nothing holds it.
            if "already" not in refused.said and "no longer pending" not in refused.said:
                raise

    async def started(self) -> datetime | None:
        return slurm_text.read_start(_text(await self._run("scontrol", "show", "config")))

    def _read(
        self, shown: bytes, jobs: Mapping[NodeName, Sequence[JobId]]
    ) -> Sequence[SchedulerNode]:
        """Nodes as scontrol shows them. None at all is no answer: a cluster has nodes."""
        found = slurm_text.read_nodes(_text(shown), self._cluster, jobs)
        if not found:
            raise SchedulerError(
                f"slurm: `scontrol show node` of cluster {self._cluster} said nothing and exited "
                f"0, expected nodes. {_FIX}"
            )
        return found

    async def _update(self, nodes: Collection[NodeName], *what: str) -> None:
        await self._run("scontrol", "update", f"NodeName={_folded(nodes)}", *what)

    async def _run(self, program: str, *arguments: str) -> bytes:
        """Standard output of one of Slurm's commands; it is killed at the deadline."""
        path = str(self._bin / program) if self._bin else program
        what = f"slurm: `{program} {' '.join(arguments)[:120]}` on cluster {self._cluster}"
        try:
            child = await asyncio.create_subprocess_exec(
                path,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._env,
            )
        except OSError as error:
            raise SchedulerError(f"{what} cannot be started: {error}. {_FIX}") from error
        try:
            async with asyncio.timeout(self._timeout_s):
                out, err = await child.communicate()
        except TimeoutError:
            raise SchedulerError(
                f"{what} did not end within {self._timeout_s:g} s (scheduler_timeout_s). {_FIX}"
            ) from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode:
            raise _Refused(what, child.returncode, _text(err) + _text(out))
        return out


class _Refused(SchedulerError):
    """Slurm's command ended with an error; `said` is what it printed."""

    def __init__(self, what: str, status: int, said: str) -> None:
        self.said = said
        words = " ".join(said.split())[-300:]
        fix = _FIX if "contact" in said or "configuration" in said else _REFUSED_FIX
        super().__init__(f"{what} exited {status}, expected 0: {words!r}. {fix}")


def plain_reason(reason: str) -> str:
    """A reason as Slurm gives it back unchanged: one line, printable, at most 250 characters,
    without double quotes (scontrol eats them at the ends) and without what looks like Slurm's own
    stamp of owner and time.
    """
    shown = "".join(c if c.isprintable() else " " for c in reason.replace('"', "'"))
    plain = slurm_text.STAMP.sub(r" (\1 \2)", " ".join(shown.split()))
    return plain[:_REASON_MAX].strip() or "-"


def _folded(nodes: Collection[NodeName]) -> str:
    return fold(node_name(name) for name in nodes)


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace")


def _environment(slurm_conf: str) -> dict[str, str]:
    """Ours, less what changes how Slurm's commands print."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "SQUEUE_", "SCONTROL_", "LC_", "LANG"))
    }
    conf = slurm_conf or os.environ.get("SLURM_CONF", "")
    return kept | {"LC_ALL": "C", "TZ": "UTC"} | ({"SLURM_CONF": conf} if conf else {})
