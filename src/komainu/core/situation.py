"""Where things stand: what deciding needs to know, as plain values taken from the store.

`NodeSituation` is one node, `ClusterSituation` the numbers the guard counts. Thinking files receive
these; nothing here can look anything up.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from komainu.core.decision import Decision, Order
from komainu.core.gate import GateRecord
from komainu.core.names import ClusterName, JobId, NodeKey, NodeName
from komainu.core.node import SchedulerNode
from komainu.core.observation import Finding


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A gate's refusal the server has received and not yet settled."""

    observation: str
    """Id of the gate observation: settling it is keyed by this, so it happens once."""
    at: datetime
    record: GateRecord
    held: bool = False
    """Whether the scheduler now holds that job because of a failed prolog."""


class NodeSituation(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as far as the server knows."""

    cluster: ClusterName
    node: NodeName
    findings: tuple[Finding, ...] = ()
    """Open: reported and not released."""
    standing: Decision | None = None
    """Our decision that keeps the node out now: the newest DRAIN or ADOPT allowed and not undone."""
    held_back: Decision | None = None
    """A DRAIN the guard has held back and that has not expired."""
    scheduler: SchedulerNode | None = None
    """None: the scheduler does not know the node, or has not been read yet."""
    refusals: tuple[Refusal, ...] = ()
    """Not yet settled, oldest first."""
    advise_only: bool = False
    """Whether the node's last ADVISE_ONLY order says on."""

    @property
    def key(self) -> NodeKey:
        return NodeKey(self.cluster, self.node)


class ClusterSituation(msgspec.Struct, frozen=True, kw_only=True):
    """What the guard counts in one cluster."""

    cluster: ClusterName
    nodes_total: int
    out: frozenset[NodeName] = frozenset()
    """Nodes out now by our doing (standing decisions)."""
    removed_at: tuple[datetime, ...] = ()
    """Times of our removals within the guard's window, oldest first; releases do not erase them."""
    tripped_at: datetime | None = None
    """Since when the guard has been tripped; None when it is not."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A decision the guard holds back, and which limit it met."""

    decision: Decision
    limit: str
    """For a person: `8 of 8 nodes out (max_nodes)`."""


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
    """Ids of findings a RESUME closes."""
    tripped: bool | None = None
    """The guard's new state; None leaves it."""
