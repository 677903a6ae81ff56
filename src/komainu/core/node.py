"""A node as the rooms speak of it: its verdict, its part of the policy, what the scheduler says."""

from __future__ import annotations

import enum
from datetime import datetime

import msgspec

from komainu.core.decision import REASON_PREFIX
from komainu.core.instant import Instant
from komainu.core.names import ClusterName, JobId, NodeName
from komainu.core.observation import Finding
from komainu.core.verdict import Severity, Verdict


class Phase(enum.StrEnum):
    """How settled a verdict is."""

    SETTLED = "settled"
    CONFIRMING = "confirming"
    """A local fault waits (bounded) for the server's guard, so that the gate never refuses on more
    nodes than the guard allows. If the server stays silent the node decides alone: FAULT."""
    CHECKING = "checking"
    """The check after a job is still running (bounded)."""


class NodeVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A node's own verdict: local findings plus orders."""

    verdict: Verdict
    phase: Phase = Phase.SETTLED
    message: str = ""
    """One line for the operator; made from codes and reasons, printable ASCII in the verdict file."""
    codes: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    since: Instant | None = None
    advise_only: bool = False
    checks: dict[str, Verdict] = {}
    """What was looked at, each with its own verdict, so that what was not seen stays visible."""
    details: dict[str, str] = {}
    """Why, for each of `checks` that is not OK."""


class NodePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The node's part of the site policy. The server sends it; these defaults hold until then."""

    version: str = "default"
    severity: dict[str, Severity] = {}
    """Finding code → severity, overriding the catalogue (`GPU-XID-63` → WATCH, say)."""
    stale: str = "open"
    """Gate on a stale, missing or UNKNOWN verdict: `open` admits and alerts, `closed` refuses."""
    checking: str = "open"
    """Gate while the post-job check runs: `open` admits, `wait` waits at most `check_s`."""
    check_s: int = 10
    """Bound on the post-job check."""
    confirm_s: int = 3
    """How long a local fault waits for the server before the node decides alone."""
    ttl_s: int = 5
    """Age in seconds after which a verdict is stale; it is renewed every second."""


def graded(finding: Finding, policy: NodePolicy) -> Finding:
    """`finding` with the severity this site's policy gives its code."""
    severity = policy.severity.get(finding.code)
    if severity is None or severity == finding.severity:
        return finding
    return msgspec.structs.replace(finding, severity=severity)


def weighs(code: str, severity: Severity, verdict: Verdict, policy: NodePolicy) -> bool:
    """Whether an open finding may ask for something: as this site grades its code it keeps jobs off,
    or it says that something could not be looked at.
    """
    if verdict is Verdict.UNKNOWN:
        return True
    return verdict is Verdict.FAULT and policy.severity.get(code, severity) >= Severity.DEGRADED


class SchedulerNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the scheduler reports it, from the full state (never the compact one, which lags)."""

    cluster: ClusterName
    node: NodeName
    state: str
    """Base state in upper case: IDLE, ALLOCATED, MIXED, DOWN, UNKNOWN …"""
    flags: frozenset[str] = frozenset()
    """DRAIN, NOT_RESPONDING, MAINT, RESERVED …"""
    reason: str = ""
    reason_by: str = ""
    reason_at: datetime | None = None
    jobs: tuple[JobId, ...] = ()
    gpus: int = 0

    @property
    def out(self) -> bool:
        """Whether the scheduler gives it no new job."""
        return "DRAIN" in self.flags or self.state in {"DOWN", "FAIL"} or "FAIL" in self.flags

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.flags

    @property
    def ours(self) -> bool:
        """Whether the reason is one we wrote."""
        return self.reason.startswith(REASON_PREFIX)

    @property
    def gate_made(self) -> bool:
        """Whether Slurm itself set it because a prolog failed, as ours does to refuse a job. A failed
        epilog is never ours, which always succeeds: it is the site's own, and left alone.
        """
        return self.drained and self.reason.strip().lower() == "prolog error"


class SchedulerJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the queue shows it. `name` is tenant-controlled text; nothing decides on it."""

    id: JobId
    state: str
    """PENDING, RUNNING, COMPLETING, COMPLETED, FAILED, REQUEUED …"""
    user: str = ""
    name: str = ""
    nodes: tuple[NodeName, ...] = ()
    gpus: int = 0
    held: bool = False
    reason: str = ""
    """The scheduler's reason word, such as `launch_failed_requeued_held`."""
    submitted: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None


HELD_BY_PROLOG = "launch_failed_requeued_held"
"""Slurm's reason on a job that was requeued and held because a prolog failed."""
