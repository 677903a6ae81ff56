"""What should happen to one node, before anyone asks whether there is room for it.

Findings, graded by policy, condemn a node; one incident is one decision: while a standing or held
decision covers the node, further findings add none. Decisions' ids are made from what caused them
and from the decision before, so that thinking twice is one decision and a second attempt is another.
The story goes on in guard.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from komainu.core.decision import Action, Decision, Result
from komainu.core.names import NodeName, stable_id
from komainu.core.node import NodePolicy, graded
from komainu.core.observation import Finding
from komainu.core.policy import Policy
from komainu.core.situation import ClusterSituation, NodeSituation
from komainu.core.verdict import Severity
from komainu.quarantine.decide.words import reason_of

LOOK_AGAIN = timedelta(seconds=60)
"""How much newer than an outcome the scheduler's view must be to speak against it. An outcome bears
the time at which acting began, which may last three calls of `scheduler_timeout_s` (10 s), and a
view may be two calls old."""
_IN_FORCE = frozenset({Result.DONE, Result.ALREADY})
BY_HAND = "person:scheduler"
"""Who resumed a node of ours outside Komainu: someone with the scheduler's own tools."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A decision the guard has still to see."""

    decision: Decision
    urgency: Severity = Severity.DEGRADED
    exempt: bool = False
    """Passes however many nodes are out: policy names its code, or an admin forces it."""
    trips: bool = True
    """Whether the guard trips for want of room for it. Not for a node whose own gate has taken it
    out already, for something that condemns no other: gates need no word for that."""


def condemning(situation: NodeSituation, grades: NodePolicy) -> tuple[Finding, ...]:
    """The open findings that, as this site grades them, keep the next job off the node."""
    seen = {f.id: graded(f, grades) for f in situation.findings}
    return tuple(sorted((f for f in seen.values() if f.condemns), key=lambda f: (f.at, f.id)))


def out_by_others(situation: NodeSituation) -> bool:
    """Whether the scheduler gives it no job, by someone else's doing."""
    node = situation.scheduler
    return node is not None and node.out and not node.ours


def lost_by_the_scheduler(
    situations: Iterable[NodeSituation], whole: ClusterSituation, now: datetime
) -> frozenset[NodeName]:
    """Nodes whose drain by us is gone, where it must be taken that the scheduler lost its state
    (`slurmctld -c`, an empty or restored StateSaveLocation) and that nobody gave them back: several
    are gone in the same look, or the scheduler has started since the drain was done.
    """
    gone = [s for s in situations if whole.looked and _gone(s, now)]
    if len(gone) > 1:
        return frozenset(s.node for s in gone)
    return frozenset(s.node for s in gone if _started_since(s, whole.scheduler_started, now))


def _gone(situation: NodeSituation, now: datetime) -> bool:
    """Whether our drain was in force and the scheduler no longer shows it."""
    return _result(situation) in _IN_FORCE and _vanished(situation, now)


def _started_since(situation: NodeSituation, started: datetime | None, now: datetime) -> bool:
    """Whether the scheduler may have started since our drain was done, by two clocks that may differ.
    An outcome in the future says that ours was set back, and nothing can be told: then it may have.
    """
    outcome = situation.standing_outcome
    if outcome is None or started is None:
        return False
    return started + LOOK_AGAIN > outcome.at or outcome.at > now


def resumed_by_hand(situation: NodeSituation, policy: Policy, now: datetime) -> Decision | None:
    """The RESUME that records what a person did with the scheduler's own tools: our drain was in
    force, and the node is in service. It is respected: what the drain was for, and what was known a
    minute before the view, no longer counts. The caller has ruled out that the scheduler lost it.
    """
    standing, node, seen = situation.standing, situation.scheduler, situation.scheduler_at
    if standing is None or node is None or seen is None or not _lifted(situation, now):
        return None
    if _result(situation) not in _IN_FORCE:
        return None
    known = (f.id for f in situation.findings if f.at <= seen - LOOK_AGAIN)
    covered = (f.id for f in situation.findings if f.id in standing.findings)
    return Decision(
        id=stable_id(standing.id, "resumed-by-hand", prefix="D-"),
        cluster=situation.cluster,
        node=situation.node,
        action=Action.RESUME,
        reason=f"resumed in the scheduler by hand; {standing.id} ends",
        by=BY_HAND,
        at=now,
        policy_version=policy.version,
        findings=tuple(sorted({*known, *covered})),
    )


def removal(
    situation: NodeSituation,
    bad: tuple[Finding, ...],
    policy: Policy,
    now: datetime,
    *,
    lost: bool = False,
) -> Proposal | None:
    """The DRAIN this node needs now, if any; anew from the present state, whatever was held back.
    `lost`: the scheduler has lost the drain that stands.
    """
    if situation.standing is not None:
        again = _again(situation, situation.standing, policy, now, lost=lost)
        # Allowed when it was made, and counted since: it needs no room of its own.
        return None if again is None else Proposal(decision=again, exempt=True)
    if not bad:
        return None
    return Proposal(
        decision=_drain(situation, bad, policy, now),
        urgency=max(f.severity for f in bad),
        exempt=not policy.advise_only and fatal_anyway(bad, policy),
    )


def fatal_anyway(bad: tuple[Finding, ...], policy: Policy) -> bool:
    """Whether policy names one of these codes as refused even while the guard has tripped."""
    return any(f.code in policy.guard.fatal_when_tripped for f in bad)


def next_id(situation: NodeSituation, *parts: str) -> str:
    """An id for the decision that follows the node's last one, because of `parts`."""
    return stable_id(
        situation.cluster, situation.node, situation.last_decision, *parts, prefix="D-"
    )


def _drain(
    situation: NodeSituation, bad: tuple[Finding, ...], policy: Policy, now: datetime
) -> Decision:
    ids = tuple(f.id for f in bad)
    held = situation.held_back
    return Decision(
        id=next_id(situation, "drain", *sorted(ids)) if held is None else held.id,
        cluster=situation.cluster,
        node=situation.node,
        action=Action.DRAIN,
        reason=reason_of(bad),
        by="policy",
        at=now,
        policy_version=policy.version,
        findings=ids,
        expires=now + policy.expires_after,
        undo=Action.RESUME,
    )


def _again(
    situation: NodeSituation, standing: Decision, policy: Policy, now: datetime, *, lost: bool
) -> Decision | None:
    """A second attempt at a standing decision: someone else's drain was in the way and is lifted,
    the scheduler could not be reached until the decision expired, or it has lost our drain.
    """
    result = _result(situation)
    foreign_lifted = result is Result.FOREIGN and _lifted(situation, now)
    late = standing.expires is not None and now >= standing.expires
    never_done = late and result in {None, Result.FAILED, Result.EXPIRED}
    if not (lost or foreign_lifted or never_done):
        return None
    node = situation.scheduler
    gate_made = standing.action is Action.ADOPT and node is not None and node.gate_made
    return msgspec.structs.replace(
        standing,
        id=next_id(situation, "again", standing.id),
        action=Action.ADOPT if gate_made else Action.DRAIN,
        at=now,
        expires=now + policy.expires_after,
        policy_version=policy.version,
    )


def _result(situation: NodeSituation) -> Result | None:
    outcome = situation.standing_outcome
    return None if outcome is None else outcome.result


def _lifted(situation: NodeSituation, now: datetime) -> bool:
    """Whether the scheduler, seen surely after the standing decision's outcome, shows it in service.
    Of a node whose slurmd has not reported (again) the scheduler shows nothing that it knows.
    """
    node = situation.scheduler
    blind = node is None or node.state == "UNKNOWN" or "NOT_RESPONDING" in node.flags
    return not blind and _vanished(situation, now)


def _vanished(situation: NodeSituation, now: datetime) -> bool:
    """Whether the scheduler, seen surely after the standing decision's outcome, shows no drain.
    An outcome in the future says that the clock was set back: then a view since that is enough.
    """
    node, seen, outcome = situation.scheduler, situation.scheduler_at, situation.standing_outcome
    if node is None or seen is None or outcome is None or node.out:
        return False
    return seen >= outcome.at + LOOK_AGAIN or seen <= now < outcome.at
