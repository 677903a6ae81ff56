"""What the nodes are told, so that gate and guard agree.

A removal is a HOLD, a release by a person a RELEASE that names the findings that no longer count.
While the guard is tripped, or where policy says advise only, every node that is heard of and is not
held is told to advise only: the one whose fault was held back in the reply to that very batch,
before its bounded wait for our word is over, and the healthy ones with their next heartbeat, so
that even without a server no more nodes refuse jobs than the guard allows. The codes policy names
are refused all the same.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from komainu.core.decision import Action, Decision, Order, OrderKind
from komainu.core.policy import Policy
from komainu.core.situation import NodeOrder, NodeSituation


def orders_for(
    situation: NodeSituation,
    allowed: tuple[Decision, ...],
    policy: Policy,
    now: datetime,
    *,
    tripped: bool,
) -> list[NodeOrder]:
    """Everything this node is to be told now; `allowed` are its own decisions of this thought."""
    orders = [] if situation.policy_ordered == policy.version else [_policy(policy, now)]
    stands = situation.standing is not None
    for decision in allowed:
        if decision.action in {Action.DRAIN, Action.ADOPT}:
            orders.append(order_of(decision, OrderKind.HOLD, now))
            stands = True
        elif decision.action is Action.RESUME and decision.by != "policy":
            orders.append(order_of(decision, OrderKind.RELEASE, now))
            stands = False
    advise = (tripped or policy.advise_only) and not stands
    if advise != situation.advise_only:
        orders.append(_advise(policy, now, value="on" if advise else "off"))
    return [NodeOrder(key=situation.key, order=order) for order in orders]


def order_of(decision: Decision, kind: OrderKind, now: datetime) -> Order:
    """What the node is told of a decision about it."""
    return Order(
        number=0,
        kind=kind,
        at=now,
        reason=decision.reason,
        decision=decision.id,
        findings=decision.findings,
        policy_version=decision.policy_version,
    )


def _advise(policy: Policy, now: datetime, *, value: str) -> Order:
    codes = () if policy.advise_only or value == "off" else policy.guard.fatal_when_tripped
    return Order(
        number=0,
        kind=OrderKind.ADVISE_ONLY,
        at=now,
        reason="policy says advise only" if policy.advise_only else f"guard: advise only {value}",
        value=value,
        codes=codes,
        policy_version=policy.version,
    )


def _policy(policy: Policy, now: datetime) -> Order:
    return Order(
        number=0,
        kind=OrderKind.POLICY,
        at=now,
        reason="site policy",
        value=msgspec.json.encode(policy.for_node(), order="deterministic").decode(),
        policy_version=policy.version,
    )
