"""The lab scheduler's own records: nodes and jobs, as slurmctld would keep them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from komainu.core.names import ClusterName, JobId, NodeName
from komainu.core.node import SchedulerJob, SchedulerNode

Hook = Callable[[JobId, NodeName, str, Sequence[int]], Awaitable[int]]
"""A prolog or epilog: job, node, user, GPU indices → exit code."""

RUNNING = frozenset({"CONFIGURING", "RUNNING", "COMPLETING"})


class LabRules(msgspec.Struct, frozen=True, kw_only=True):
    """slurm.conf, so to say. Times in seconds of the scheduler's clock, measured on 22.05.8 with
    SlurmdTimeout=10 and cred_expire=5 (docs/guides/slurm.md).
    """

    requeue_wait_s: float = 7.0
    """How long a requeued job waits: cred_expire + 2."""
    not_responding_s: float = 15.0
    down_s: float = 28.0
    """From the death of slurmd until the node is DOWN and its jobs have failed."""
    nohold_on_prolog_fail: bool = False
    min_job_age_s: float = 300.0
    """How long an ended job is remembered."""
    history: int = 2000
    """At most so many ended jobs are remembered."""
    backfill_depth: int = 200
    """At most so many waiting jobs are looked at in one pass."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a user submits."""

    user: str
    name: str
    nodes: int = 1
    gpus_per_node: int = 8
    duration_s: float = 3600.0
    """How long it runs, in seconds of the scheduler's clock."""
    requeue: bool = True
    """Whether it is queued again when its node fails."""
    on: tuple[NodeName, ...] = ()
    """These nodes exactly; empty: any."""


class Job:
    """One job. `life` counts its starts, so that what belonged to an earlier one is told apart."""

    def __init__(self, number: JobId, spec: JobSpec, now: datetime) -> None:
        self.id, self.spec = number, spec
        self.state = "PENDING"
        self.submitted = self.eligible = now
        self.started: datetime | None = None
        self.ended: datetime | None = None
        self.ends: datetime | None = None
        """When it will end, while it runs."""
        self.held = ""
        """Slurm's word for why it is held; empty: it is not."""
        self.where: dict[NodeName, tuple[int, ...]] = {}
        """Its GPUs, node by node."""
        self.life = 0
        self._seen: SchedulerJob | None = None

    @property
    def running(self) -> bool:
        return self.state in RUNNING

    def changed(self) -> None:
        self._seen = None

    def view(self, now: datetime) -> SchedulerJob:
        """As squeue shows it; kept until it changes, since thousands are asked for at once."""
        if self._seen is None or (self.state == "PENDING" and self._seen.reason == "BeginTime"):
            self._seen = SchedulerJob(
                id=self.id,
                state=self.state,
                user=self.spec.user,
                name=self.spec.name,
                nodes=tuple(self.where),
                gpus=self.spec.nodes * self.spec.gpus_per_node,
                held=bool(self.held),
                reason=self._reason(now),
                submitted=self.submitted,
                started=self.started,
                ended=self.ended,
            )
        return self._seen

    def _reason(self, now: datetime) -> str:
        if self.state == "NODE_FAIL":
            return "NodeDown"
        if self.state != "PENDING":
            return ""
        return self.held or ("BeginTime" if now < self.eligible else "Resources")


class Node:
    """One node."""

    def __init__(self, cluster: ClusterName, name: NodeName, gpus: int) -> None:
        self.cluster, self.name, self.gpus = cluster, name, gpus
        self.free = list(range(gpus))
        self.jobs: dict[JobId, tuple[int, ...]] = {}
        self.drain = self.down = False
        self.alive = True
        """Whether its slurmd is; slurmctld learns of it later."""
        self.responding = True
        self.lost = False
        """Whether it is down because its slurmd was dead for too long."""
        self.life = 0
        """Counts deaths and returns, so that a time-out of an earlier one is told apart."""
        self.reason = self.reason_by = ""
        self.reason_at: datetime | None = None

    @property
    def usable(self) -> bool:
        return not self.drain and not self.down and self.responding

    def take(self, job: JobId, count: int) -> tuple[int, ...]:
        """Give `job` the `count` lowest free GPUs."""
        self.free.sort()
        gpus, self.free = tuple(self.free[:count]), self.free[count:]
        self.jobs[job] = gpus
        return gpus

    def give_back(self, job: JobId) -> None:
        self.free.extend(self.jobs.pop(job, ()))

    def say(self, reason: str, by: str, at: datetime) -> None:
        self.reason, self.reason_by, self.reason_at = reason, by, at

    def clear(self) -> None:
        self.drain = self.down = self.lost = False
        self.reason, self.reason_by, self.reason_at = "", "", None

    def view(self) -> SchedulerNode:
        """As `scontrol show node` shows it, with its jobs."""
        flags = {"DRAIN"} if self.drain else set()
        if not self.responding:
            flags.add("NOT_RESPONDING")
        return SchedulerNode(
            cluster=self.cluster,
            node=self.name,
            state=self._state(),
            flags=frozenset(flags),
            reason=self.reason,
            reason_by=self.reason_by,
            reason_at=self.reason_at,
            jobs=tuple(self.jobs),
            gpus=self.gpus,
        )

    def _state(self) -> str:
        if self.down:
            return "DOWN"
        if not self.jobs:
            return "IDLE"
        return "MIXED" if self.free else "ALLOCATED"
