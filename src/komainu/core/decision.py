"""Decision: what should happen. Outcome: what happened. Order: what a node is told. Lesson: a number."""

from __future__ import annotations

import enum
from datetime import datetime

import msgspec

from komainu.core.instant import Instant
from komainu.core.names import ClusterName, JobId, NodeKey, NodeName

REASON_PREFIX = "komainu:"
"""Every scheduler reason we set starts so; nothing without it is ever overwritten or cleared."""


class Action(enum.StrEnum):
    """What can be done. Each is safe to repeat."""

    DRAIN = "drain"
    """No new job; running jobs finish."""
    RESUME = "resume"
    """Back to service. Always passes the guard."""
    ADOPT = "adopt"
    """Take over the drain Slurm made of our own gate's refusal."""
    RELEASE_JOB = "release-job"
    """Release a job that Slurm requeued and held because our gate refused it."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What should happen to one node (or one job because of one node)."""

    id: str
    """`D-` + stable_id of what caused it: deciding twice is one decision."""
    cluster: ClusterName
    node: NodeName
    action: Action
    reason: str
    """Why, for a person. Never contains text a tenant controls."""
    by: str
    """`policy` or `person:NAME`."""
    at: datetime
    policy_version: str = ""
    findings: tuple[str, ...] = ()
    job: JobId | None = None
    expires: datetime | None = None
    """After this the decision is not carried out any more (never replay the stale)."""
    undo: Action | None = None

    @property
    def key(self) -> NodeKey:
        return NodeKey(self.cluster, self.node)

    @property
    def scheduler_reason(self) -> str:
        """The text written into the scheduler: `komainu:D-…: why`."""
        return f"{REASON_PREFIX}{self.id}: {self.reason}"[:250]


class Result(enum.StrEnum):
    """How a decision ended."""

    DONE = "done"
    ALREADY = "already"
    """The world was already so, by our own earlier doing."""
    FOREIGN = "foreign"
    """Someone else owns the node's state (a person's drain): left alone."""
    HELD = "held"
    """The guard held it back: too many nodes are out."""
    ADVISED = "advised"
    """Advise-only mode: said, not done."""
    FAILED = "failed"
    """Tried, failed; will be tried again while it has not expired."""
    EXPIRED = "expired"
    """Not carried out in time, and no longer valid."""


FINAL = frozenset({Result.DONE, Result.ALREADY, Result.FOREIGN, Result.EXPIRED})
"""Results after which a decision is not attempted again."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a decision. `detail` names what was found against what was expected."""

    decision: str
    cluster: ClusterName
    node: NodeName
    result: Result
    at: datetime
    detail: str = ""


class OrderKind(enum.StrEnum):
    """What the server can tell a node."""

    HOLD = "hold"
    """Condemned from the centre: refuse jobs until a release."""
    RELEASE = "release"
    """Holds are lifted, and the findings listed in `findings` no longer count. By id, not by time:
    a person releases what they saw, and the node's clock may differ from ours."""
    ADVISE_ONLY = "advise-only"
    """The guard has tripped: say, do not refuse, except for `codes`. `value` is "on" or "off"."""
    POLICY = "policy"
    """The node's part of the policy: `value` is the JSON of core.node.NodePolicy."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One instruction to one node, numbered per node from 1, persisted by the agent. The numbers have
    a gap where the server's database was restored and the node had seen more than it tells of.
    """

    number: int
    previous: int = 0
    """Number of the order before it for this node, 0 for the first: whoever has seen that one, and
    not this one, has missed none."""
    again: bool = False
    """Said once more, to a node that follows orders of a database that was lost."""
    kind: OrderKind
    at: Instant
    reason: str = ""
    decision: str | None = None
    value: str = ""
    codes: tuple[str, ...] = ()
    """ADVISE_ONLY on: finding codes that are refused all the same."""
    findings: tuple[str, ...] = ()
    """RELEASE: ids of the findings that no longer count."""
    policy_version: str = ""


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """A number over history, with how it was made."""

    name: str
    value: float
    unit: str
    formula: str
    n: int
