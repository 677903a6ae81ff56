"""Where things stand: what deciding needs to know, as plain values taken from the store.

`NodeSituation` is one node, `ClusterSituation` the numbers the guard counts. Thinking files receive
these; nothing here can look anything up.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from komainu.core.decision import Decision, Order, Outcome, Result
from komainu.core.gate import GateRecord
from komainu.core.names import ClusterName, JobId, NodeKey, NodeName
from komainu.core.node import NodeVerdict, SchedulerNode
from komainu.core.observation import Finding


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A gate's refusal the server has received and not yet settled."""

    observation: str
    """Id of the gate observation: settling it is keyed by this, so it happens once."""
    at: datetime
    record: GateRecord
    held: bool = False
    """Whether the scheduler now holds that job because of a failed prolog."""
    received: datetime | None = None
    """When the server received it: our clock, where `at` is the node's."""


class NodeSituation(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as far as the server knows."""

    cluster: ClusterName
    node: NodeName
    findings: tuple[Finding, ...] = ()
    """Open: reported and not released."""
    standing: Decision | None = None
    """Our decision that keeps the node out now: the newest DRAIN or ADOPT allowed and not undone."""
    standing_outcome: Outcome | None = None
    """The newest outcome of `standing`; None while nothing has come of it yet."""
    held_back: Decision | None = None
    """A DRAIN the guard has held back and that has not expired."""
    last_decision: str = ""
    """Id of the newest DRAIN, ADOPT or RESUME about this node, held ones included, whatever became
    of it. A new decision's id is made from it, so that a second attempt is not taken for a repeat."""
    scheduler: SchedulerNode | None = None
    """None: the scheduler does not know the node, or has not been read yet."""
    scheduler_at: datetime | None = None
    """When that view was kept (`mirror`'s now). An older view never counts against a newer act."""
    refusals: tuple[Refusal, ...] = ()
    """Not yet settled, oldest first."""
    released_jobs: frozenset[JobId] = frozenset()
    """Jobs whose release was decided because of this node within the last ten minutes."""
    returning: bool = False
    """Whether the node's return is decided and not yet done."""
    verdict: NodeVerdict | None = None
    """What the node last said of itself; None when it never has."""
    advise_only: bool = False
    """Whether the node's last ADVISE_ONLY order says on."""
    policy_ordered: str = ""
    """`policy_version` of the newest POLICY order written for this node: the next policy is ordered
    once, and delivered until it is taken."""

    @property
    def key(self) -> NodeKey:
        return NodeKey(self.cluster, self.node)


class ClusterSituation(msgspec.Struct, frozen=True, kw_only=True):
    """What the guard counts in one cluster."""

    cluster: ClusterName
    nodes_total: int
    out: frozenset[NodeName] = frozenset()
    """Nodes out now by our doing: every node with a standing decision (`NodeSituation.standing`),
    whatever has come of it. Its gate refuses jobs, so it is out even where the scheduler was not
    reached in time or someone else's drain came first; and a second attempt needs no new room. And
    every node whose return is decided and not yet done, since it still takes up its room."""
    removed_at: tuple[datetime, ...] = ()
    """Times of our removals within the guard's window, oldest first; releases do not erase them."""
    tripped_at: datetime | None = None
    """Since when the guard has been tripped; None when it is not."""
    looked: bool = True
    """Whether the scheduler has just been looked at and every unsettled node is thought of together:
    only then can a drain that a person lifted be told from drains that the scheduler lost."""
    scheduler_started: datetime | None = None
    """Since when the scheduler runs, to the second; None when it cannot be told."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A decision the guard holds back, and which limit it met."""

    decision: Decision
    limit: str
    """For a person: `8 of 8 nodes out (max_nodes)`."""
    result: Result = Result.HELD
    """How it is recorded: HELD by the guard, ADVISED when policy says advise only, FOREIGN while
    someone else has the node out. In each case it is in `held_back` until it expires, is dropped, or
    comes again as allowed."""


class Guarded(msgspec.Struct, frozen=True, kw_only=True):
    """The guard's answer."""

    allowed: tuple[Decision, ...] = ()
    held: tuple[Held, ...] = ()
    tripped: bool = False


class NodeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order for one node, before the store has numbered it (`order.number` is 0)."""

    key: NodeKey
    order: Order


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal that has been dealt with, by which decision."""

    key: NodeKey
    """Whose gate refused: nodes make their ids themselves, and two may make the same one."""
    observation: str
    decision: str
    job: JobId


class Thought(msgspec.Struct, frozen=True, kw_only=True):
    """What thinking produced in one turn: remembered in one transaction, before anything is done."""

    decisions: tuple[Decision, ...] = ()
    held: tuple[Held, ...] = ()
    orders: tuple[NodeOrder, ...] = ()
    settled: tuple[Settled, ...] = ()
    released: tuple[str, ...] = ()
    """Ids of findings that a RESUME among `decisions` names and closes, each on its own node."""
    dropped: tuple[str, ...] = ()
    """Ids of held decisions that the present state no longer asks for: they end EXPIRED."""
    tripped: bool | None = None
    """The guard's new state; None leaves it."""
    cluster: ClusterName | None = None
    """Whose thought it is (`flow.consider` fills it in): a recovered guard names no node."""
