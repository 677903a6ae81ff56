"""What a person asks for: hold a node, or give it back.

The same thought is made for the dry run and for the act. A hold is a removal like any other: it
asks the guard for room, and waits while the guard is tripped, unless an admin forces it (the caller
checks who may). A release always passes.
"""

from __future__ import annotations

from datetime import datetime

from komainu.core.decision import Action, Decision, OrderKind
from komainu.core.errors import InputError
from komainu.core.names import JobId
from komainu.core.policy import GuardPolicy, Policy
from komainu.core.situation import (
    ClusterSituation,
    Held,
    NodeOrder,
    NodeSituation,
    Thought,
)
from komainu.quarantine.decide.adopt import behind_the_drain, jobs_to_release
from komainu.quarantine.decide.guard import latched, tally
from komainu.quarantine.decide.nodes import next_id
from komainu.quarantine.decide.orders import order_of, orders_for
from komainu.quarantine.decide.words import plain


def hold(  # noqa: PLR0917  a fixed seam between rooms
    situation: NodeSituation,
    whole: ClusterSituation,
    policy: Policy,
    who: str,
    reason: str,
    now: datetime,
    *,
    force: bool = False,
) -> Thought:
    """Keep the next job off the node because a person says so.

    An empty thought: our own decision already keeps it out. A thought with `held`: the guard has no
    room or is tripped; tell the person, remember nothing, and let an admin force it.
    """
    if situation.standing is not None:
        return Thought()
    said = _said(situation, "hold", reason)
    decision = Decision(
        id=next_id(situation, "hold", who, said),
        cluster=situation.cluster,
        node=situation.node,
        action=Action.DRAIN,
        reason=f"{said} ({who})",
        by=f"person:{who}",
        at=now,
        policy_version=policy.version,
        findings=tuple(f.id for f in situation.findings),
        expires=now + policy.expires_after,
        undo=Action.RESUME,
    )
    limit = None if force else _shut(whole, policy.guard, now)
    if limit is not None and situation.node not in whole.out:
        return Thought(held=(Held(decision=decision, limit=limit),))
    return Thought(
        decisions=(decision,),
        orders=tuple(orders_for(situation, (decision,), policy, now, tripped=False)),
        dropped=held_back_ids(situation),
    )


def release(
    situation: NodeSituation, policy: Policy, who: str, reason: str, now: datetime
) -> Thought:
    """Give the node back: every finding open now is closed, and the node is told so by their ids.

    The scheduler is only touched where the drain is ours (act.py looks before it acts).
    """
    said = _said(situation, "release", reason)
    closed = tuple(sorted(f.id for f in situation.findings))
    decision = Decision(
        id=next_id(situation, "release", who, said, *closed),
        cluster=situation.cluster,
        node=situation.node,
        action=Action.RESUME,
        reason=f"{said} ({who})",
        by=f"person:{who}",
        at=now,
        policy_version=policy.version,
        findings=closed,
        job=_refused_job(situation),
    )
    jobs, settled = jobs_to_release(situation, policy, now, decided=True)
    told = order_of(decision, OrderKind.RELEASE, now)
    return Thought(
        decisions=(decision, *jobs),
        orders=(NodeOrder(key=situation.key, order=told),),
        settled=tuple(settled),
        released=closed,
        dropped=held_back_ids(situation),
    )


def _shut(whole: ClusterSituation, guard: GuardPolicy, now: datetime) -> str | None:
    """What stands against one more removal; None when nothing does."""
    return latched(whole, guard, now) or tally(whole, guard, now).met(guard)


def held_back_ids(situation: NodeSituation) -> tuple[str, ...]:
    return () if situation.held_back is None else (situation.held_back.id,)


def _refused_job(situation: NodeSituation) -> JobId | None:
    """The job whose refusal made Slurm drain the node, where that drain may still bear Slurm's own
    reason: it lets acting clear a "Prolog error" of ours.
    """
    refusal = behind_the_drain(situation)
    if refusal is not None:
        return JobId(refusal.record.job)
    standing = situation.standing
    return standing.job if standing is not None and standing.action is Action.ADOPT else None


def _said(situation: NodeSituation, what: str, reason: str) -> str:
    said = plain(reason)
    if not said:
        raise InputError(
            f"{what} {situation.key}: found no reason, expected why in a few words. "
            f"Say it with --because."
        )
    return said
