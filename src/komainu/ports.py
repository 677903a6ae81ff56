"""Everything the product needs from outside, as Protocols.

Rooms receive these as arguments; `clients/` and `store/` hold the real ones, `lab/` the make-believe
ones, and only `agent/`, `server/` and `demo.py` connect them. A Protocol is named for its role.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Mapping,
    Sequence,
)
from datetime import datetime
from typing import Any, Protocol

import msgspec

from komainu.core.decision import Decision, Order, Outcome
from komainu.core.errors import InputError
from komainu.core.names import ClusterName, JobId, NodeKey, NodeName, cluster_name, node_name
from komainu.core.node import NodePolicy, SchedulerJob, SchedulerNode
from komainu.core.observation import Finding
from komainu.core.policy import Policy
from komainu.core.record import (
    ClusterRecord,
    DecisionRecord,
    FindingRecord,
    GateSeen,
    History,
    NodeRecord,
    Person,
    Standing,
)
from komainu.core.situation import ClusterSituation, NodeSituation, Thought
from komainu.core.wire import Batch, Hardware, Reply


class Clock(Protocol):
    """The only source of time. Thinking files never see it: they get `now`."""

    def now(self) -> datetime:
        """Aware UTC."""
        ...

    def uptime_s(self) -> float:
        """Seconds since boot, counting suspend, as /proc/uptime says."""
        ...

    async def sleep(self, seconds: float) -> None: ...


# ── on a node ────────────────────────────────────────────────────────────────────────────────────


class KernelRecord(msgspec.Struct, frozen=True):
    """One kernel log record, as the kernel numbered it."""

    seq: int
    mono_us: int
    facility: int
    """Only 0 was written by the kernel; user space can never choose 0."""
    level: int
    text: str


class KernelGap(msgspec.Struct, frozen=True):
    """Records that were overwritten before we read them: `lost` of them before `next_seq`."""

    lost: int
    next_seq: int


class KernelLog(Protocol):
    """A node's kernel log."""

    def boot_id(self) -> str:
        """This boot's id: part of every cursor, since sequence numbers restart with each boot."""
        ...

    def follow(self, after_seq: int | None) -> AsyncIterator[KernelRecord | KernelGap]:
        """Records after `after_seq` (None: from the oldest kept), then each as it appears.

        Raises OutsideError when the log cannot be read.
        """
        ...

    async def drained(self) -> int | None:
        """The newest sequence number at this moment (None: empty): what a check must have read."""
        ...

    async def previous_boot(self) -> Sequence[str]:
        """The last kernel lines of the boot before this one, oldest first (journald or pstore);
        empty when neither kept any. Raises OutsideError when what they keep cannot be read.
        """
        ...


class NodeProbe(Protocol):
    """What can be read of a node besides its kernel log."""

    async def hardware(self) -> Hardware | None:
        """GPUs as the driver lists them now; None when it cannot be told."""
        ...


class ServerLink(Protocol):
    """The agent's way to the server."""

    async def send(self, batch: Batch) -> Reply:
        """Raises ServerError when no durable acceptance came back; the batch is then sent again."""
        ...


# ── in the centre ────────────────────────────────────────────────────────────────────────────────


class Scheduler(Protocol):
    """Slurm (or another) as far as quarantine needs it. Every call raises SchedulerError when the
    scheduler refuses or does not answer; state is always the full one.
    """

    async def nodes(self) -> Sequence[SchedulerNode]: ...

    async def node(self, node: NodeName) -> SchedulerNode | None: ...

    async def drain(self, nodes: Collection[NodeName], reason: str) -> None:
        """Set DRAIN with `reason`, in one call. The caller has checked who owns the node."""
        ...

    async def resume(self, nodes: Collection[NodeName]) -> None:
        """Clear DRAIN (and DOWN set by us). The caller has checked who owns the node."""
        ...

    async def jobs(self) -> Sequence[SchedulerJob]:
        """Jobs the scheduler still remembers: pending, running, held, recently ended."""
        ...

    async def release_job(self, job: JobId) -> None:
        """Release a held job. Releasing one that is not held is not an error."""
        ...

    async def started(self) -> datetime | None:
        """Since when the scheduler runs, to the second; None when it cannot be told. A drain that
        vanished across a start may have been lost with the scheduler's saved state.
        """
        ...


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the change feed: something about `node` changed. Gap-free sequence."""

    seq: int
    at: datetime
    cluster: ClusterName
    node: NodeName
    what: str
    """`finding`, `decision`, `outcome`, `order`, `verdict`, `scheduler`, `guard`, `job`."""
    ref: str
    """Id of the thing."""


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """What was new in a batch; the rest had been received before."""

    observations: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    verdict_changed: bool = False
    stranger: bool = False
    """The verdict rests on findings that are not known here, nor still on their way."""


class Store(Protocol):
    """What the server remembers, as far as the flow and quarantine need it. Each method is one
    transaction, durable when it returns; each raises StorageError. Blocking: call it off the loop.
    """

    def receive(self, batch: Batch, now: datetime) -> Received:
        """Keep a batch's observations, findings, gate records and verdict; repeats change nothing."""
        ...

    def situation(self, key: NodeKey, now: datetime) -> NodeSituation: ...

    def cluster_situation(
        self, cluster: ClusterName, now: datetime, window_s: int
    ) -> ClusterSituation: ...

    def unsettled(
        self, cluster: ClusterName, now: datetime, grades: NodePolicy
    ) -> Sequence[NodeKey]:
        """Nodes with refusals, held-back decisions, or open findings that weigh as `grades` says
        (core.node.weighs): what a full turn looks at.
        """
        ...

    def remember(self, thought: Thought, now: datetime) -> None:
        """Keep decisions, held decisions, orders (numbering them), settled refusals, closed findings
        and the guard's state together. A decision whose id is already known is ignored, and so are
        the orders that carry its id; except that a decision known as held which comes among
        `decisions` is allowed from then on, in the words in which it comes.
        """
        ...

    def to_do(
        self, cluster: ClusterName, now: datetime, told_within_s: float = 0
    ) -> Sequence[Decision]:
        """Allowed decisions without a final outcome that have not expired, oldest first. A node's
        return waits until its agent has taken the release, but no longer than `told_within_s`.
        """
        ...

    def note(self, outcomes: Sequence[Outcome]) -> None: ...

    def orders_after(self, key: NodeKey, number: int) -> Sequence[Order]: ...

    def mirror(
        self,
        cluster: ClusterName,
        nodes: Sequence[SchedulerNode],
        jobs: Sequence[SchedulerJob],
        now: datetime,
    ) -> None:
        """Keep the scheduler's view; marks refusals whose job is held; feeds changes."""
        ...

    def findings(
        self, cluster: ClusterName, node: NodeName | None = None, *, open_only: bool = True
    ) -> Sequence[Finding]: ...


# ── for the pages ────────────────────────────────────────────────────────────────────────────────


class Ledger(Store, Protocol):
    """The store as the pages read it. Blocking, like the rest of it."""

    def clusters(self) -> Sequence[ClusterRecord]: ...

    def node_records(self, cluster: ClusterName) -> Sequence[NodeRecord]:
        """Every node an agent or the scheduler has named, in the order of names."""
        ...

    def node_record(self, key: NodeKey) -> NodeRecord | None: ...

    def standings(self, cluster: ClusterName, now: datetime) -> Mapping[NodeName, Standing]:
        """The standing decision of each node that is out by our doing."""
        ...

    def kept_in_service(self, cluster: ClusterName, now: datetime) -> Sequence[NodeName]:
        """Condemned nodes whose removal the guard holds back."""
        ...

    def finding_records(
        self,
        cluster: ClusterName | None = None,
        node: NodeName | None = None,
        *,
        code: str | None = None,
        open_only: bool | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[FindingRecord]:
        """Newest first."""
        ...

    def count_findings(
        self,
        cluster: ClusterName | None = None,
        node: NodeName | None = None,
        *,
        code: str | None = None,
        open_only: bool | None = None,
    ) -> int: ...

    def finding_record(self, finding: str) -> FindingRecord | None: ...

    def decision_records(
        self,
        cluster: ClusterName | None = None,
        node: NodeName | None = None,
        *,
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[DecisionRecord]:
        """Newest first."""
        ...

    def decision_record(self, decision: str) -> DecisionRecord | None: ...

    def history(self, key: NodeKey, limit: int) -> History: ...

    def admitted(
        self, cluster: ClusterName, node: NodeName | None = None
    ) -> Mapping[NodeName, Sequence[GateSeen]]:
        """Jobs the gates let in and whose end they have not yet seen."""
        ...

    def scheduler_jobs(self, cluster: ClusterName) -> Sequence[SchedulerJob]: ...

    def changes(
        self, after: int, *, cluster: ClusterName | None = None, limit: int = 500
    ) -> Sequence[Changed]:
        """The change feed after `after`, oldest first."""
        ...

    def last_seq(self) -> int: ...


class Desk(Protocol):
    """What a page gets of the server it is served by."""

    @property
    def ledger(self) -> Ledger: ...

    def policy_of(self, cluster: ClusterName) -> Policy:
        """What decides in that cluster: the site's policy, advise-only where it is watched only."""
        ...

    @property
    def node_policy(self) -> NodePolicy:
        """How the site's policy grades findings, made once: the same in every cluster."""
        ...

    @property
    def watched_only(self) -> Collection[ClusterName]:
        """The clusters without a scheduler we may act on."""
        ...

    @property
    def lab(self) -> bool:
        """Whether faults can be injected here."""
        ...

    @property
    def clusters(self) -> Sequence[ClusterName]:
        """The clusters this server watches."""
        ...

    def now(self) -> datetime: ...

    def shared(self, name: str, version: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` returns, made once for all who ask for `name` in the same `version`."""
        ...

    async def aside(self, cluster: ClusterName, work: Callable[[], Any]) -> Any:
        """Blocking work in a thread, one piece at a time per cluster: for whoever decides."""
        ...

    async def carry_out(self, cluster: ClusterName) -> None:
        """Do what is decided and not yet done; returns when it was tried."""
        ...

    async def scheduler_node(self, key: NodeKey) -> SchedulerNode | None:
        """The node as the scheduler shows it now, or as it was last seen if it does not answer."""
        ...

    def told(self, keys: Collection[NodeKey]) -> None:
        """New orders wait for these nodes: answer those that are listening."""
        ...


_ALL = 1 << 62


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of a page, by whom."""

    person: Person
    path: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    body: bytes = b""
    accept: str = ""

    def number(self, name: str, *, default: int, most: int) -> int:
        """A positive number out of the query, at most `most`; raises InputError for anything else."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) < 1:
            raise InputError(f"{name}={text[:40]!r} cannot be used: expected a positive number")
        return min(int(text), most)

    def cluster(self) -> ClusterName | None:
        """The cluster the query asks for, if it names one."""
        return cluster_name(self.query["cluster"]) if self.query.get("cluster") else None

    def node(self) -> NodeName | None:
        """The node the query asks for, if it names one."""
        return node_name(self.query["node"]) if self.query.get("node") else None

    def before(self) -> int | None:
        """Where the page before ended."""
        return self.number("before", default=1, most=_ALL) if self.query.get("before") else None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One route of a room: the server adds login, roles, limits and HTTP around it.

    GET asks for the role viewer, POST for operator. `answer` returns a Struct (sent as JSON); a
    plain function runs in a thread. It raises InputError (400), NotAllowed (403), KeyError (404).
    """

    method: str
    path: str
    """Starlette's spelling, under /api/v1: `/nodes/{cluster}/{node}`."""
    answer: Callable[[Desk, Asked], object | Awaitable[object]]
