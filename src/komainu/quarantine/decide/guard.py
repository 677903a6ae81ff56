"""The guard: not too much at once.

It counts what is out by our doing and what was taken out within the window, and holds back what
would go beyond. Recoveries always pass and never count. Once it has held something back it stays
tripped until its window has passed and there is room again, and resets itself; what it held is then
decided anew from the present state, never replayed (NVSentinel 450: a breaker that blocked healthy
events too, had to be reset by hand, and then replayed days-old ones).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from komainu.core.decision import Action, Decision
from komainu.core.names import NodeName
from komainu.core.policy import GuardPolicy
from komainu.core.situation import ClusterSituation, Guarded, Held
from komainu.quarantine.decide.nodes import Proposal

REMOVALS = frozenset({Action.DRAIN, Action.ADOPT})


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What the guard has counted so far."""

    out: frozenset[NodeName]
    removed: int
    limit: int
    nodes_total: int

    def met(self, policy: GuardPolicy) -> str | None:
        """The limit that one more removal would break, in words; None while there is room."""
        if len(self.out) >= self.limit:
            return (
                f"{len(self.out)} of {self.limit} nodes are out (max_nodes {policy.max_nodes}, "
                f"max_share {policy.max_share:g} of {self.nodes_total} nodes)"
            )
        if self.removed >= policy.max_in_window:
            return (
                f"{self.removed} of {policy.max_in_window} removals within {policy.window_s} s "
                f"(max_in_window)"
            )
        return None

    def plus(self, node: NodeName) -> Tally:
        return msgspec.structs.replace(self, out=self.out | {node}, removed=self.removed + 1)


def tally(whole: ClusterSituation, policy: GuardPolicy, now: datetime) -> Tally:
    """Count. A removal that seems to lie in the future (a clock was set back) counts too."""
    begin = now - timedelta(seconds=policy.window_s)
    return Tally(
        out=whole.out,
        removed=sum(at > begin for at in whole.removed_at),
        limit=policy.room(whole.nodes_total),
        nodes_total=whole.nodes_total,
    )


def latched(whole: ClusterSituation, policy: GuardPolicy, now: datetime) -> str | None:
    """Why the guard, tripped before, holds every removal back still; None when it has reset."""
    if whole.tripped_at is None:
        return None
    since = now - whole.tripped_at
    # A clock set back must not keep it tripped for long: the counts still hold.
    if timedelta(0) <= since < timedelta(seconds=policy.window_s):
        return (
            f"the guard tripped at {whole.tripped_at:%Y-%m-%d %H:%M:%S} UTC and resets itself "
            f"after {policy.window_s} s, when there is room"
        )
    return tally(whole, policy, now).met(policy)


def guard(
    proposals: Iterable[Proposal], whole: ClusterSituation, policy: GuardPolicy, now: datetime
) -> Guarded:
    """Let pass what there is room for, the worst first; hold the rest, naming the limit.

    The order in which proposals come makes no difference.
    """
    shut = latched(whole, policy, now)
    count = tally(whole, policy, now)
    allowed: list[Decision] = []
    held: list[Held] = []
    trips = shut is not None
    for proposal in _worst_first(proposals):
        decision = proposal.decision
        if decision.action not in REMOVALS or decision.node in count.out:
            allowed.append(decision)
            continue
        limit = None if proposal.exempt else shut or count.met(policy)
        if limit is not None:
            held.append(Held(decision=decision, limit=limit))
            trips = trips or proposal.trips
            continue
        allowed.append(decision)
        count = count.plus(decision.node)
    return Guarded(allowed=tuple(allowed), held=tuple(held), tripped=trips)


def _worst_first(proposals: Iterable[Proposal]) -> Sequence[Proposal]:
    return sorted(proposals, key=lambda p: (-p.urgency, p.decision.at, p.decision.id))
