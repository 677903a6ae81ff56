"""What should happen: findings, refusals and the scheduler's view become decisions, guarded.

    nodes.py    what one node needs            guard.py    whether there is room for it
    adopt.py    our gate's refusals            orders.py   what the nodes are told
    persons.py  what a person asks for         verdict.py  what a node says of itself (agent)

Pure: the same situations give the same thought. `think` re-decides everything from the present
state each time; nothing that was held back is ever replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from komainu.core.decision import Action, Decision, Result
from komainu.core.observation import Finding
from komainu.core.policy import Policy
from komainu.core.situation import (
    ClusterSituation,
    Held,
    NodeSituation,
    Refusal,
    Thought,
)
from komainu.quarantine.decide.adopt import (
    adoption,
    behind_the_drain,
    jobs_to_release,
    refuses_again,
    undoing,
)
from komainu.quarantine.decide.guard import guard
from komainu.quarantine.decide.nodes import (
    Proposal,
    condemning,
    lost_by_the_scheduler,
    out_by_others,
    removal,
    resumed_by_hand,
)
from komainu.quarantine.decide.orders import orders_for
from komainu.quarantine.decide.persons import held_back_ids, hold, release

__all__ = ["guard", "hold", "release", "think"]

_BY_OTHERS = "someone else has the node out; left alone until they give it back"
_ADVISED = "policy says advise only"


class _Weighed(msgspec.Struct, frozen=True, kw_only=True):
    """One node, thought about before the guard is asked."""

    situation: NodeSituation
    bad: tuple[Finding, ...] = ()
    refusal: Refusal | None = None
    """Ours, behind the drain the scheduler shows."""
    wanted: Proposal | None = None
    resumed: Decision | None = None
    aside: Held | None = None
    """Not for the guard to judge: advised only, or someone else has the node out."""


def think(
    situations: Sequence[NodeSituation], whole: ClusterSituation, policy: Policy, now: datetime
) -> Thought:
    """Decide about `situations`, let the guard hold back what is too much, and order accordingly."""
    unique = {situation.key: situation for situation in situations}
    lost = lost_by_the_scheduler(unique.values(), whole, now)
    weighed = [
        _weigh(unique[key], policy, now, lost=key.node in lost, looked=whole.looked)
        for key in sorted(unique)
    ]
    asked = [w.wanted for w in weighed if w.wanted is not None and w.aside is None]
    guarded = guard(asked, whole, policy.guard, now)
    allowed = {decision.key: decision for decision in guarded.allowed}
    held = {one.decision.key: one for one in guarded.held}
    shares = [
        _settle(
            w,
            allowed.get(w.situation.key),
            held.get(w.situation.key),
            policy,
            now,
            tripped=guarded.tripped,
        )
        for w in weighed
    ]
    was_tripped = whole.tripped_at is not None
    tripped = None if guarded.tripped == was_tripped else guarded.tripped
    return msgspec.structs.replace(_together(shares), tripped=tripped)


def _together(shares: Sequence[Thought]) -> Thought:
    """The nodes' shares as one thought."""
    return Thought(
        decisions=tuple(d for one in shares for d in one.decisions),
        held=tuple(h for one in shares for h in one.held),
        orders=tuple(o for one in shares for o in one.orders),
        settled=tuple(s for one in shares for s in one.settled),
        released=tuple(f for one in shares for f in one.released),
        dropped=tuple(d for one in shares for d in one.dropped),
    )


def _weigh(
    situation: NodeSituation, policy: Policy, now: datetime, *, lost: bool, looked: bool
) -> _Weighed:
    bad = condemning(situation, policy.for_node())
    resumed = resumed_by_hand(situation, policy, now) if looked and not lost else None
    if resumed is not None:
        return _Weighed(situation=situation, bad=bad, resumed=resumed)
    refusal = behind_the_drain(situation)
    drain = removal(situation, bad, policy, now, lost=lost)
    wanted = told = drain
    if refusal is not None:
        adopt = adoption(situation, refusal, bad, policy, now)
        standing = situation.standing
        taken = adopt is not None and standing is not None and standing.id == adopt.decision.id
        wanted = drain if taken else adopt
        told = drain or (adopt if refuses_again(situation, refusal, policy) else None)
    if policy.advise_only and situation.standing is None:
        wanted = None
    return _Weighed(
        situation=situation,
        bad=bad,
        refusal=refusal,
        wanted=wanted,
        aside=_aside(situation, told, refusal, policy),
    )


def _aside(
    situation: NodeSituation, wanted: Proposal | None, refusal: Refusal | None, policy: Policy
) -> Held | None:
    """What is recorded and not done, and not for want of room. A standing decision is not undone by
    it: it was allowed when it was made.
    """
    if wanted is None or situation.standing is not None:
        return None
    if policy.advise_only:
        return Held(decision=wanted.decision, limit=_ADVISED, result=Result.ADVISED)
    if refusal is None and out_by_others(situation):
        return Held(decision=wanted.decision, limit=_BY_OTHERS, result=Result.FOREIGN)
    return None


def _settle(
    weighed: _Weighed,
    allowed: Decision | None,
    held: Held | None,
    policy: Policy,
    now: datetime,
    *,
    tripped: bool,
) -> Thought:
    """One node's share of the thought."""
    situation = weighed.situation
    decision = weighed.resumed or allowed or _undone(weighed, held, policy, now)
    decisions = () if decision is None else (decision,)
    jobs, settled = jobs_to_release(situation, policy, now, decided=decision is not None)
    kept = weighed.aside or _as_drain(weighed, held, policy, now)
    known = {d.id for d in decisions} | ({kept.decision.id} if kept else set())
    return Thought(
        decisions=(*decisions, *jobs),
        held=(kept,) if kept else (),
        orders=tuple(orders_for(situation, decisions, policy, now, tripped=tripped)),
        settled=tuple(settled),
        released=weighed.resumed.findings if weighed.resumed else (),
        dropped=tuple(i for i in held_back_ids(situation) if i not in known),
    )


def _undone(weighed: _Weighed, held: Held | None, policy: Policy, now: datetime) -> Decision | None:
    """The RESUME of a drain Slurm made of our refusal, when it cannot or need not become ours, and
    the gate lets the next job in.
    """
    situation, refusal = weighed.situation, weighed.refusal
    if refusal is None or situation.standing is not None or situation.returning:
        return None
    if refuses_again(situation, refusal, policy):
        return None
    if policy.advise_only:
        why = _ADVISED
    elif held is not None:
        why = held.limit
    else:
        why = "nothing speaks against the node any more"
    return undoing(situation, refusal, why, policy, now)


def _as_drain(weighed: _Weighed, held: Held | None, policy: Policy, now: datetime) -> Held | None:
    """What the guard held back, as it would be done later: an adoption as the drain it stands for,
    since the drain Slurm made is being undone. Where no finding asks for one, it stays an adoption.
    """
    if held is None or held.decision.action is not Action.ADOPT:
        return held
    drain = removal(weighed.situation, weighed.bad, policy, now)
    return held if drain is None else msgspec.structs.replace(held, decision=drain.decision)
