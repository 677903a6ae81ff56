"""A scheduler of Slurm's semantics that knows who owns each drain, and does not forgive.

It fails the test the moment Komainu clears or overwrites what is not its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from komainu.core.errors import SchedulerError
from komainu.core.names import ClusterName, JobId, NodeName
from komainu.core.node import HELD_BY_PROLOG, SchedulerJob, SchedulerNode


class ModelSlurm:
    """`owner`: who drained a node: `person`, `site` (its own prolog), `gate` (ours), `komainu`."""

    def __init__(self, cluster: ClusterName, names: Sequence[NodeName]) -> None:
        self.shown = {n: SchedulerNode(cluster=cluster, node=n, state="IDLE") for n in names}
        self.owner: dict[NodeName, str] = {}
        self.queue: dict[JobId, SchedulerJob] = {}
        self.broken = False
        self.drains: list[tuple[NodeName, str]] = []
        self.releases: list[JobId] = []
        self.calls = 0
        self.began: datetime | None = None

    # ── what Komainu asks ────────────────────────────────────────────────────────────────────────

    async def nodes(self) -> Sequence[SchedulerNode]:
        self._answer()
        return list(self.shown.values())

    async def node(self, node: NodeName) -> SchedulerNode | None:
        self._answer()
        return self.shown.get(node)

    async def drain(self, nodes: Collection[NodeName], reason: str) -> None:
        self._answer()
        assert reason.startswith("komainu:D-")
        for node in nodes:
            assert self.owner.get(node) not in {"person", "site"}, f"{node}: overwrote a drain"
            assert (node, reason) not in self.drains or self.shown[node].reason != reason, "twice"
            self._set(node, reason, "komainu")
            self.drains.append((node, reason))

    async def resume(self, nodes: Collection[NodeName]) -> None:
        self._answer()
        for node in nodes:
            assert self.owner.get(node) not in {"person", "site"}, f"{node}: cleared a drain"
            self.undrain(node)

    async def jobs(self) -> Sequence[SchedulerJob]:
        self._answer()
        return list(self.queue.values())

    async def release_job(self, job: JobId) -> None:
        self._answer()
        assert self.queue[job].reason == HELD_BY_PROLOG, f"{job}: released what a person held"
        self.releases.append(job)
        self.queue[job] = msgspec.structs.replace(self.queue[job], held=False, reason="")

    async def started(self) -> datetime | None:
        self._answer()
        return self.began

    def _answer(self) -> None:
        self.calls += 1
        if self.broken:
            raise SchedulerError("slurmctld did not answer within 10 s")

    # ── what the world does ──────────────────────────────────────────────────────────────────────

    def _set(self, node: NodeName, reason: str, owner: str) -> None:
        flags = self.shown[node].flags | {"DRAIN"}
        self.shown[node] = msgspec.structs.replace(self.shown[node], flags=flags, reason=reason)
        self.owner[node] = owner

    def drain_by(self, owner: str, node: NodeName, reason: str) -> None:
        self._set(node, reason, owner)

    def undrain(self, node: NodeName) -> None:
        flags = self.shown[node].flags - {"DRAIN"}
        self.shown[node] = msgspec.structs.replace(self.shown[node], flags=flags, reason="")
        self.owner.pop(node, None)

    def lose_state(self, now: datetime) -> None:
        """`slurmctld -c`: it starts anew, and whoever drained a node, it no longer knows."""
        self.began = now.replace(microsecond=0)
        for node in list(self.owner):
            self.undrain(node)
        self.drains.clear()

    def prolog_failed(self, node: NodeName, job: JobId, *, requeued: bool) -> None:
        """What slurmctld makes of a failed prolog; a job of srun fails, others are held."""
        if not self.shown[node].drained:
            self._set(node, "Prolog error", "gate")
        if requeued:
            self.queue[job] = SchedulerJob(
                id=job, state="PENDING", held=True, reason=HELD_BY_PROLOG
            )

    def owned(self, *owners: str) -> set[NodeName]:
        return {node for node, owner in self.owner.items() if owner in owners}
