"""What a node says of itself: its own findings plus the server's orders.

The node decides alone and at once; the server's word comes on top. A finding that condemns shows as
FAULT from the first moment, `confirming` while the server's guard may still answer, so that the
gate never refuses on more nodes than the guard allows. An answer is a standing HOLD (the guard
agreed, for everything the server knew and whatever follows) or ADVISE_ONLY (the guard has tripped).
Without an answer the node settles on FAULT by itself after `confirm_s`.

The agent keeps `OrdersState`; the gate reads what becomes of it (core/gate.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from komainu.core.decision import Order, OrderKind
from komainu.core.node import NodePolicy, NodeVerdict, Phase, graded
from komainu.core.observation import Finding
from komainu.core.verdict import Verdict, combine

NAMED_MAX = 100
"""Finding ids a verdict names, worst first; a storm makes thousands, and each heartbeat carries them."""


class OrdersState(msgspec.Struct, frozen=True, kw_only=True):
    """What the server has told this node so far, folded. Kept durably by the agent."""

    seen: int = 0
    """Highest order number applied: acknowledged to the server, so it is kept first."""
    at: datetime | None = None
    """When that order was given."""
    hold: Order | None = None
    advise: Order | None = None
    """The standing ADVISE_ONLY (on); None when off."""
    released: frozenset[str] = frozenset()
    """Ids of findings that no longer count."""
    policy: NodePolicy = NodePolicy()


def apply_order(state: OrdersState, order: Order) -> OrdersState:
    """Fold one order in. Repeats, and orders before which another is missing, change nothing: the
    server sends everything after `seen` again, so what was skipped comes first next time.
    """
    if not order.previous <= state.seen < order.number:
        return state
    return msgspec.structs.replace(_changed(state, order), seen=order.number, at=order.at)


def _changed(state: OrdersState, order: Order) -> OrdersState:
    replace = msgspec.structs.replace
    match order.kind:
        case OrderKind.HOLD:
            return replace(state, hold=order)
        case OrderKind.RELEASE:
            return replace(state, hold=None, released=state.released | frozenset(order.findings))
        case OrderKind.ADVISE_ONLY:
            return replace(state, advise=None if order.value == "off" else order)
        case OrderKind.POLICY:
            return replace(state, policy=policy_of(order) or state.policy)


def policy_of(order: Order) -> NodePolicy | None:
    """The policy a POLICY order carries; None when it cannot be read, and the old one then stands."""
    try:
        return msgspec.json.decode(order.value, type=NodePolicy)
    except msgspec.DecodeError:
        return None


class _Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict rests on, sorted out once."""

    condemning: list[Finding]
    refused: list[Finding]
    """Those of `condemning` for which the gate refuses: under advise-only, the still-fatal codes."""
    blind: list[Finding]
    """Findings that something could not be looked at."""
    standing: OrdersState
    checks: Mapping[str, Verdict]

    @property
    def seen(self) -> Verdict:
        """What was looked at besides condemning findings; of nothing at all, UNKNOWN."""
        return combine([*self.checks.values(), *(f.verdict for f in self.blind)])

    @property
    def tolerated(self) -> Verdict:
        """`seen` when a failed check is told and not refused. What nobody could see stays unknown."""
        rest = (v for v in self.checks.values() if v is not Verdict.FAULT)
        return combine([Verdict.OK, *rest, *(f.verdict for f in self.blind)])

    @property
    def verdict(self) -> Verdict:
        if self.standing.hold or self.refused:
            return Verdict.FAULT
        if self.standing.advise and self.seen is Verdict.FAULT:
            return self.tolerated
        return self.seen


def node_verdict(  # noqa: PLR0917  a fixed seam between rooms
    findings: Iterable[Finding],
    standing: OrdersState,
    policy: NodePolicy,
    checks: Mapping[str, Verdict],
    checking: bool,  # noqa: FBT001  a fixed seam between rooms
    now: datetime,
    *,
    known_since: Mapping[str, datetime] | None = None,
    details: Mapping[str, str] | None = None,
) -> NodeVerdict:
    """The node's verdict at `now`.

    `known_since`: when this node first concluded each finding, by its own clock (default: the
    finding's `at`). Evidence may be hours old when the agent was down, and the server must be asked
    all the same. `details` says for each check what was found, for the message.
    """
    ground = _ground(findings, standing, policy, checks)
    verdict = ground.verdict
    if verdict is Verdict.FAULT:
        waits = _waits_for_the_server(ground, policy, now, known_since or {})
        phase = Phase.CONFIRMING if waits else Phase.SETTLED
    else:
        phase = Phase.CHECKING if checking else Phase.SETTLED
    named = [*ground.condemning, *ground.blind]
    times = [f.at for f in ground.condemning] + ([standing.hold.at] if standing.hold else [])
    return NodeVerdict(
        verdict=verdict,
        phase=phase,
        message=_message(ground, verdict, details or {}),
        codes=tuple(dict.fromkeys(f.code for f in named)),
        findings=tuple(f.id for f in named[:NAMED_MAX]),
        since=min(times, default=None),
        advise_only=standing.advise is not None,
        checks=dict(checks),
        details={
            name: _why(name, details or {}) for name in checks if checks[name] is not Verdict.OK
        },
    )


def _ground(
    findings: Iterable[Finding],
    standing: OrdersState,
    policy: NodePolicy,
    checks: Mapping[str, Verdict],
) -> _Ground:
    unique = {f.id: graded(f, policy) for f in findings if f.id not in standing.released}
    open_ = sorted(unique.values(), key=lambda f: (-f.severity, f.at, f.id))
    condemning = [f for f in open_ if f.condemns]
    fatal_anyway = None if standing.advise is None else standing.advise.codes
    return _Ground(
        condemning=condemning,
        refused=[f for f in condemning if fatal_anyway is None or f.code in fatal_anyway],
        blind=[f for f in open_ if f.verdict is Verdict.UNKNOWN],
        standing=standing,
        checks=checks,
    )


def _waits_for_the_server(
    ground: _Ground, policy: NodePolicy, now: datetime, known_since: Mapping[str, datetime]
) -> bool:
    """Whether every refusing finding is still within its bounded wait for the guard's answer."""
    if ground.standing.hold or ground.standing.advise or not ground.refused:
        return False
    bound = timedelta(seconds=policy.confirm_s)
    ages = (now - known_since.get(f.id, f.at) for f in ground.refused)
    # A clock set back makes an age negative; such a finding waits no longer.
    return all(timedelta(0) <= age < bound for age in ages)


def _why(check: str, details: Mapping[str, str]) -> str:
    return details.get(check) or "no detail"


def _message(ground: _Ground, verdict: Verdict, details: Mapping[str, str]) -> str:
    """One line for the operator, made from codes, reasons and our own words only."""
    hold, checks = ground.standing.hold, ground.checks
    parts = [f"held ({hold.decision or 'by order'}): {hold.reason}"] if hold else []
    told_only = ground.condemning or Verdict.FAULT in checks.values()
    if ground.standing.advise and verdict is not Verdict.FAULT and told_only:
        parts.append("advise-only, would refuse")
    named = ground.condemning or ground.blind
    if named:
        more = f" (+{len(named) - 1} more)" if len(named) > 1 else ""
        parts.append(f"{named[0].code} on {named[0].component}: {named[0].summary}{more}")
    parts.extend(
        f"{name} {checks[name]}: {_why(name, details)}"
        for name in sorted(checks)
        if checks[name] is not Verdict.OK
    )
    if not parts and verdict is not Verdict.OK:
        return "nothing has been looked at yet"
    return "; ".join(parts)
