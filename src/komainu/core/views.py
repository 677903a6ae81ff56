"""What the server shows: the JSON of the API, the same for console, command line and scripts.

    GET  /api/v1/me                               Me
    GET  /api/v1/clusters                         [ClusterView]
    GET  /api/v1/clusters/{c}/map                 columnar (console/static/core) or [NodeRow] as JSON
    GET  /api/v1/nodes?cluster=                   [NodeRow]
    GET  /api/v1/nodes/{c}/{n}                    NodeView
    GET  /api/v1/findings?cluster=&node=&code=&open=&before=&limit=    FindingPage
    GET  /api/v1/findings/{id}                    FindingView
    GET  /api/v1/decisions?cluster=&node=&before=&limit=               DecisionPage
    POST /api/v1/nodes/{c}/{n}/hold     Ask    →  Answer
    POST /api/v1/nodes/{c}/{n}/release  Ask    →  Answer
    GET  /api/v1/events?cluster=&after=           server-sent events: Changed (ports.py)
    GET  /healthz                                 no login

Errors are `{"error": {"code": "...", "message": "...", "status": 4xx}}`. A page that was cut says so
with `more`; nothing is silently truncated.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from komainu.core.decision import Decision, Outcome
from komainu.core.names import NodeName
from komainu.core.node import NodeVerdict, SchedulerJob, SchedulerNode
from komainu.core.observation import Finding
from komainu.core.policy import GuardPolicy
from komainu.core.record import DecisionRecord, FindingRecord
from komainu.core.situation import ClusterSituation
from komainu.core.verdict import Severity, Verdict


class Standing(enum.StrEnum):
    """One word for a node, as the map colours it. UNSEEN is never drawn as healthy."""

    HEALTHY = "healthy"
    WATCHED = "watched"
    """Open findings, none of which condemns."""
    FAULTY = "faulty"
    """Condemned and (still) in service: being decided, held back by the guard, or advise-only."""
    QUARANTINED = "quarantined"
    """Out by our doing."""
    FOREIGN = "foreign"
    """Out by someone else's doing; left alone."""
    UNSEEN = "unseen"
    """No agent, a silent one, or a verdict of UNKNOWN or SKIPPED."""


class GpuView(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    pci: str = ""
    uuid: str = ""
    model: str = ""
    standing: Standing = Standing.UNSEEN
    job: str = ""
    """The job that holds it, as the gate recorded."""
    here: bool = True
    """False: seen on this node before, and not listed now. It keeps its place and is never healthy."""


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node on the map and in lists."""

    cluster: str
    node: str
    rack: str
    standing: Standing
    verdict: Verdict
    why: str
    """One line; empty when healthy."""
    since: datetime | None
    seen: datetime | None
    """When its agent was last heard."""
    scheduler: str
    """`IDLE+DRAIN`; empty when the scheduler does not know it."""
    jobs: int
    gpus: tuple[GpuView, ...]
    open_findings: int


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    finding: Finding
    severity: str
    """The word for `finding.severity`."""
    open: bool
    received: datetime
    released_by: str | None = None
    """Id of the decision that closed it."""
    count: int = 1
    """Findings folded into it (its own plus those whose cause it is)."""


class FindingPage(msgspec.Struct, frozen=True, kw_only=True):
    findings: list[FindingView]
    total: int
    more: bool
    """Whether older ones exist than those shown."""
    before: str | None = None
    """Pass as `before` for the next page."""


class DecisionView(msgspec.Struct, frozen=True, kw_only=True):
    decision: Decision
    state: str
    """`to do`, `held`, or the last outcome's word."""
    outcomes: list[Outcome]
    limit: str = ""
    """The guard's limit that holds it back."""


class DecisionPage(msgspec.Struct, frozen=True, kw_only=True):
    decisions: list[DecisionView]
    more: bool
    before: str | None = None


class GuardView(msgspec.Struct, frozen=True, kw_only=True):
    """How much the guard has left, and why it would hold the next removal back."""

    out: int
    limit: int
    removed_in_window: int
    max_in_window: int
    window_s: int
    tripped_at: datetime | None

    @property
    def room(self) -> int:
        """None while tripped: every removal is held back until the guard resets itself."""
        if self.tripped_at is not None:
            return 0
        return max(0, min(self.limit - self.out, self.max_in_window - self.removed_in_window))


class StoryLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a node's history."""

    at: datetime
    what: str
    """`finding`, `decision`, `outcome`, `order`, `gate`, `agent`, `scheduler`."""
    text: str
    ref: str = ""


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    state: str
    user: str
    name: str
    """Tenant-controlled text: show it escaped, decide nothing on it."""
    gpus: int
    nodes: int
    started: datetime | None


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    row: NodeRow
    verdict: NodeVerdict | None
    scheduler: SchedulerNode | None
    standing_decision: DecisionView | None
    findings: list[FindingView]
    """Open first, newest first; at most 100."""
    decisions: list[DecisionView]
    story: list[StoryLine]
    """Newest first; at most 200."""
    jobs: list[JobRow]
    guard: GuardView
    agent_version: str = ""
    boot_id: str = ""
    policy_version: str = ""


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str
    nodes: int
    counts: dict[str, int]
    """Standing → number of nodes."""
    guard: GuardView
    jobs_running: int
    jobs_pending: int
    policy_version: str
    advise_only: bool
    lab: bool = False
    """A make-believe cluster: the console offers fault injection."""
    scheduler_seen: datetime | None = None
    """When the scheduler was last read; None: never. Missing shows as missing."""
    scheduler_error: str = ""
    """Why the last reading failed; empty when it did not."""
    last_seq: int = 0
    """Newest change in the feed: start `events?after=` from here."""
    held_back: tuple[str, ...] = ()
    """Condemned nodes that the guard keeps in service."""


class Me(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    role: str
    """`viewer`, `operator` or `admin`."""
    csrf: str
    """Send as X-Komainu-Csrf with every POST that rides on the session cookie."""
    version: str


class Ask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person asks for a hold or a release."""

    reason: str
    dry_run: bool = False
    force: bool = False
    """Beyond the guard's room: admins only, and recorded."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What was (or, in a dry run, would be) decided and done. The text is the same in both cases."""

    text: str
    decision: Decision | None
    outcome: Outcome | None
    jobs: list[str]
    """Jobs running there now; a drain lets them finish."""
    guard: GuardView
    dry_run: bool
    limit: str = ""
    """The guard's limit that stands in the way; empty when none does."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column of a columnar view. `type`: u8, u16, u32, f32, or json (a list of strings)."""

    name: str
    type: Literal["u8", "u16", "u32", "f32", "json"]
    values: Sequence[int] | Sequence[float] | Sequence[str]


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """A large view, column by column; server/columns.py says how it travels."""

    meta: dict[str, list[str] | str | int]
    columns: tuple[Column, ...]


ON_NODE = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING"})
"""States in which a job occupies its nodes."""

SEVERITY_WORDS = {
    Severity.INFO: "info",
    Severity.WATCH: "watch",
    Severity.DEGRADED: "degraded",
    Severity.FATAL: "fatal",
}


def guard_view(whole: ClusterSituation, guard: GuardPolicy) -> GuardView:
    """What the guard has counted in one cluster, against what it allows."""
    return GuardView(
        out=len(whole.out),
        limit=guard.room(whole.nodes_total),
        removed_in_window=len(whole.removed_at),
        max_in_window=guard.max_in_window,
        window_s=guard.window_s,
        tripped_at=whole.tripped_at,
    )


def finding_view(record: FindingRecord) -> FindingView:
    return FindingView(
        finding=record.finding,
        severity=SEVERITY_WORDS[record.finding.severity],
        open=record.open,
        received=record.received,
        released_by=record.released_by,
        count=record.count,
    )


def decision_view(record: DecisionRecord) -> DecisionView:
    state = record.outcomes[-1].result.value if record.outcomes else "to do"
    if record.allowed and state in {"held", "advised", "foreign"} and not _done_since(record):
        state = "to do"
    return DecisionView(
        decision=record.decision,
        state=state,
        outcomes=list(record.outcomes),
        limit=record.limit,
    )


def _done_since(record: DecisionRecord) -> bool:
    """Whether the newest outcome is of doing it, and not of its having been held back before."""
    allowed_at = record.allowed_at
    return allowed_at is not None and record.outcomes[-1].at >= allowed_at


def job_rows(jobs: Iterable[SchedulerJob], node: NodeName | None = None) -> list[JobRow]:
    """The jobs the scheduler shows, or those that are on `node` now."""
    return [
        JobRow(
            id=job.id,
            state=job.state,
            user=job.user,
            name=job.name,
            gpus=job.gpus,
            nodes=len(job.nodes),
            started=job.started,
        )
        for job in jobs
        if node is None or (node in job.nodes and job.state in ON_NODE)
    ]
