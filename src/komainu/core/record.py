"""What the store holds, as the pages read it: one Struct per kind of row, plain values only."""

from __future__ import annotations

import enum
from datetime import datetime

import msgspec

from komainu.core.decision import Decision, Order, Outcome
from komainu.core.gate import GateRecord
from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.core.node import NodeVerdict, SchedulerNode
from komainu.core.observation import Finding, Observation
from komainu.core.wire import Hardware


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, and when its scheduler was last read."""

    cluster: ClusterName
    scheduler_seen: datetime | None = None
    scheduler_error: str = ""
    """Why the last reading failed; empty when it did not."""
    tripped_at: datetime | None = None


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A node as last heard from its agent and last seen in the scheduler."""

    cluster: ClusterName
    node: NodeName
    rack: str = ""
    hardware: Hardware | None = None
    verdict: NodeVerdict | None = None
    verdict_since: datetime | None = None
    """Since when the verdict's word has been what it is, by our clock."""
    seen: datetime | None = None
    """When its agent was last heard; None: never."""
    scheduler: SchedulerNode | None = None
    agent_version: str = ""
    boot_id: str = ""
    policy_seen: str = ""
    advise_only: bool = False
    dropped_debug: int = 0

    @property
    def key(self) -> NodeKey:
        return NodeKey(self.cluster, self.node)


class FindingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with what became of it."""

    number: int
    """Order of arrival, the cursor of a page."""
    finding: Finding
    open: bool
    received: datetime
    released_by: str | None = None
    count: int = 1


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A decision with what became of it."""

    number: int
    decision: Decision
    allowed: bool
    allowed_at: datetime | None = None
    """When the guard let it pass."""
    limit: str = ""
    outcomes: tuple[Outcome, ...] = ()


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The decision that keeps a node out by our doing, and whether it is done yet."""

    decision: Decision
    done: bool


class GateSeen(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of a node's gate."""

    node: NodeName
    observation: str
    at: datetime
    record: GateRecord
    settled_by: str | None = None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What a node's story is told from, newest first and each bounded."""

    findings: tuple[FindingRecord, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()
    orders: tuple[Order, ...] = ()
    gate: tuple[GateSeen, ...] = ()
    spoken: tuple[Observation, ...] = ()
    """Observations about the agent, its kernel log and the scheduler's view."""


class Joined(enum.StrEnum):
    """What an enrolment did."""

    NEW = "new"
    AGAIN = "again"
    """The node had a token, which is void from now on."""
    TAKEN = "taken"
    """Nothing: the node speaks with a token of its own, and the join token was not made for it."""


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """Someone who is logged in."""

    name: str
    role: str
    """`viewer`, `operator` or `admin`."""
    csrf: str = ""
    """Empty when the person came with an API token, which no other site can make a browser send."""
