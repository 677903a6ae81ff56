"""The node's verdict: examples, and laws that hold whatever comes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.fakes import KEY

from komainu.core.decision import Order, OrderKind
from komainu.core.node import NodePolicy, NodeVerdict, Phase
from komainu.core.observation import Component, Finding
from komainu.core.verdict import FaultClass, Severity, Verdict, combine
from komainu.quarantine.decide.verdict import NAMED_MAX, OrdersState, apply_order, node_verdict

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
POLICY = NodePolicy()
NO_ORDERS = OrdersState()
SEEN = {"kernel-log": Verdict.OK, "gpus": Verdict.OK}
_RANK = [Verdict.OK, Verdict.SKIPPED, Verdict.UNKNOWN, Verdict.FAULT]


def _finding(
    id_: str = "F-1",
    severity: Severity = Severity.FATAL,
    verdict: Verdict = Verdict.FAULT,
    code: str = "GPU-XID-79",
    age_s: float = 0,
) -> Finding:
    return Finding(
        id=id_, cluster=KEY.cluster, node=KEY.node, code=code,
        component=Component("gpu", "0000:41:00"), severity=severity,
        fault_class=FaultClass.QUARANTINE_NOW, verdict=verdict, summary="fell off the bus",
        at=NOW - timedelta(seconds=age_s),
    )  # fmt: skip


def _order(number: int, kind: OrderKind, **rest: object) -> Order:
    rest = {"previous": number - 1} | rest
    return Order(number=number, kind=kind, at=NOW, **rest)  # type: ignore[arg-type]  # fields by name


def _state(*orders: Order) -> OrdersState:
    state = OrdersState()
    for order in orders:
        state = apply_order(state, order)
    return state


def _judge(
    *findings: Finding,
    state: OrdersState = NO_ORDERS,
    checks: Mapping[str, Verdict] = SEEN,
    known_since: Mapping[str, datetime] | None = None,
    details: Mapping[str, str] | None = None,
) -> NodeVerdict:
    return node_verdict(
        findings, state, state.policy, checks, False, NOW, known_since=known_since, details=details
    )


HOLD = _order(1, OrderKind.HOLD, reason="two in a week", decision="D-1")


def test_all_looked_at_and_nothing_found_is_ok() -> None:
    assert _judge().verdict is Verdict.OK
    assert _judge().message == ""


def test_nothing_looked_at_is_unknown() -> None:
    assert _judge(checks={}).verdict is Verdict.UNKNOWN
    assert _judge(checks={}).message == "nothing has been looked at yet"


def test_one_check_that_could_not_look_is_unknown_and_named() -> None:
    checks = SEEN | {"gpus": Verdict.UNKNOWN}
    found = _judge(checks=checks, details={"gpus": "driver not loaded"})
    assert found.verdict is Verdict.UNKNOWN
    assert found.message == "gpus UNKNOWN: driver not loaded"
    assert found.details == {"gpus": "driver not loaded"}
    assert _judge(checks=checks).details == {"gpus": "no detail"}


def test_a_check_switched_off_is_never_ok() -> None:
    assert _judge(checks=SEEN | {"gpus": Verdict.SKIPPED}).verdict is Verdict.SKIPPED


def test_a_finding_that_condemns_is_fault_and_confirming() -> None:
    found = _judge(_finding())
    assert (found.verdict, found.phase) == (Verdict.FAULT, Phase.CONFIRMING)
    assert found.message == "GPU-XID-79 on gpu 0000:41:00: fell off the bus"


def test_after_the_bound_the_node_decides_alone() -> None:
    assert _judge(_finding(age_s=3)).phase is Phase.SETTLED
    assert _judge(_finding(age_s=2.9)).phase is Phase.CONFIRMING


def test_old_evidence_learnt_just_now_still_asks_the_guard() -> None:
    assert _judge(_finding(age_s=9000), known_since={"F-1": NOW}).phase is Phase.CONFIRMING


def test_a_clock_set_back_does_not_keep_a_fault_waiting() -> None:
    assert _judge(_finding(age_s=-500)).phase is Phase.SETTLED


def test_under_a_hold_nothing_needs_confirming() -> None:
    found = _judge(_finding(), state=_state(HOLD))
    assert found.phase is Phase.SETTLED
    assert found.message.startswith("held (D-1): two in a week; GPU-XID-79")


def test_a_hold_alone_is_fault() -> None:
    found = _judge(state=_state(HOLD))
    assert (found.verdict, found.phase, found.since) == (Verdict.FAULT, Phase.SETTLED, NOW)


def test_a_watched_finding_leaves_the_node_ok() -> None:
    assert _judge(_finding(severity=Severity.WATCH)).verdict is Verdict.OK


def test_policy_grades_a_code_up_and_down() -> None:
    up = NodePolicy(severity={"GPU-XID-13": Severity.FATAL})
    watch = _finding(severity=Severity.WATCH, code="GPU-XID-13")
    assert node_verdict([watch], OrdersState(), up, SEEN, False, NOW).verdict is Verdict.FAULT
    down = NodePolicy(severity={"GPU-XID-79": Severity.WATCH})
    assert node_verdict([_finding()], OrdersState(), down, SEEN, False, NOW).verdict is Verdict.OK


def test_a_finding_that_something_was_not_seen_is_unknown() -> None:
    blind = _finding(severity=Severity.WATCH, verdict=Verdict.UNKNOWN, code="HOST-KMSG-GAP")
    found = _judge(blind)
    assert found.verdict is Verdict.UNKNOWN
    assert found.codes == ("HOST-KMSG-GAP",)


def test_a_released_finding_no_longer_counts_and_others_do() -> None:
    state = _state(HOLD, _order(2, OrderKind.RELEASE, findings=("F-1",)))
    assert _judge(_finding(), state=state).verdict is Verdict.OK
    assert _judge(_finding("F-2"), state=state).phase is Phase.CONFIRMING


def test_advise_only_tells_and_does_not_refuse() -> None:
    state = _state(_order(1, OrderKind.ADVISE_ONLY, value="on"))
    found = _judge(_finding(), state=state)
    assert found.verdict is Verdict.OK
    assert found.advise_only
    assert found.codes == ("GPU-XID-79",)
    assert found.message.startswith("advise-only, would refuse; GPU-XID-79")


def test_advise_only_refuses_the_codes_that_stay_fatal_without_waiting() -> None:
    state = _state(_order(1, OrderKind.ADVISE_ONLY, value="on", codes=("GPU-XID-79",)))
    found = _judge(_finding(), state=state)
    assert (found.verdict, found.phase) == (Verdict.FAULT, Phase.SETTLED)


def test_advise_only_never_makes_the_unseen_ok() -> None:
    state = _state(_order(1, OrderKind.ADVISE_ONLY, value="on"))
    checks = SEEN | {"gpus": Verdict.UNKNOWN, "disk": Verdict.FAULT}
    assert _judge(_finding(), state=state, checks=checks).verdict is Verdict.UNKNOWN


def test_a_hold_stands_under_advise_only() -> None:
    state = _state(_order(1, OrderKind.ADVISE_ONLY, value="on"), _order(2, OrderKind.HOLD))
    assert _judge(state=state).verdict is Verdict.FAULT


def test_checking_shows_only_while_nothing_condemns() -> None:
    clean = node_verdict([], OrdersState(), POLICY, SEEN, True, NOW)
    bad = node_verdict([_finding()], OrdersState(), POLICY, SEEN, True, NOW)
    assert (clean.phase, bad.phase) == (Phase.CHECKING, Phase.CONFIRMING)


def test_a_storm_names_a_bounded_number_worst_first() -> None:
    storm = [_finding(f"F-{i}", Severity.DEGRADED) for i in range(500)]
    found = _judge(*storm, _finding("F-worst"))
    assert len(found.findings) == NAMED_MAX
    assert found.findings[0] == "F-worst"
    assert "(+500 more)" in found.message


def test_orders_are_applied_once_and_in_their_order() -> None:
    state = _state(HOLD)
    assert apply_order(state, HOLD) is state
    assert apply_order(state, _order(3, OrderKind.RELEASE)) is state
    assert apply_order(state, _order(9, OrderKind.RELEASE, previous=1)).hold is None
    assert apply_order(state, _order(2, OrderKind.RELEASE)).hold is None


def test_a_policy_that_cannot_be_read_is_passed_over() -> None:
    state = _state(_order(1, OrderKind.POLICY, value='{"ttl_s": "soon"}'))
    assert (state.seen, state.policy) == (1, NodePolicy())


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────

FINDINGS = st.lists(
    st.builds(
        _finding,
        st.sampled_from([f"F-{i}" for i in range(6)]),
        st.sampled_from(Severity),
        st.sampled_from([Verdict.FAULT, Verdict.UNKNOWN]),
        st.sampled_from(["GPU-XID-79", "GPU-XID-13"]),
        st.floats(0, 10),
    ),
    max_size=8,
    unique_by=lambda finding: finding.id,
)
CHECKS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(Verdict), max_size=4)
ORDERS = st.lists(
    st.builds(
        _order,
        st.just(0),
        st.sampled_from(OrderKind),
        value=st.sampled_from(["on", "off", "{}"]),
        codes=st.sampled_from([(), ("GPU-XID-79",)]),
        findings=st.sampled_from([(), ("F-1",), ("F-1", "F-2")]),
    ),
    max_size=6,
).map(
    lambda orders: [
        msgspec.structs.replace(order, number=2 * n, previous=2 * (n - 1))
        for n, order in enumerate(orders, 1)
    ]
)


@given(FINDINGS, ORDERS, CHECKS, st.randoms())
def test_the_order_of_findings_means_nothing(
    findings: list[Finding], orders: list[Order], checks: dict[str, Verdict], random: Random
) -> None:
    state = _state(*orders)
    mixed = list(findings)
    random.shuffle(mixed)
    assert _judge(*findings, state=state, checks=checks) == _judge(
        *mixed, state=state, checks=checks
    )


@given(FINDINGS, ORDERS, CHECKS)
def test_a_finding_told_twice_is_one(
    findings: list[Finding], orders: list[Order], checks: dict[str, Verdict]
) -> None:
    state = _state(*orders)
    assert _judge(*findings, *findings, state=state, checks=checks) == _judge(
        *findings, state=state, checks=checks
    )


@given(FINDINGS, ORDERS, CHECKS)
def test_one_more_fault_never_improves(
    findings: list[Finding], orders: list[Order], checks: dict[str, Verdict]
) -> None:
    state = _state(*orders)
    before = _judge(*findings, state=state, checks=checks)
    after = _judge(*findings, _finding("F-new"), state=state, checks=checks)
    assert _RANK.index(after.verdict) >= _RANK.index(before.verdict)


@given(FINDINGS, ORDERS, CHECKS)
def test_one_more_unseen_thing_never_improves_and_is_never_ok(
    findings: list[Finding], orders: list[Order], checks: dict[str, Verdict]
) -> None:
    state = _state(*orders)
    before = _judge(*findings, state=state, checks=checks)
    after = _judge(*findings, state=state, checks=checks | {"new": Verdict.UNKNOWN})
    assert _RANK.index(after.verdict) >= _RANK.index(before.verdict)
    assert after.verdict in {Verdict.UNKNOWN, Verdict.FAULT}


@given(FINDINGS, CHECKS)
def test_without_orders_ok_means_every_check_is_ok_and_nothing_condemns(
    findings: list[Finding], checks: dict[str, Verdict]
) -> None:
    found = _judge(*findings, checks=checks)
    clean = combine(checks.values()) is Verdict.OK
    quiet = not any(f.condemns or f.verdict is Verdict.UNKNOWN for f in findings)
    assert (found.verdict is Verdict.OK) == (clean and quiet)


@given(ORDERS, st.lists(st.integers(0, 5), max_size=20))
def test_repeated_and_late_orders_change_nothing(orders: list[Order], repeats: list[int]) -> None:
    state = _state(*orders)
    for index in repeats:
        if index < len(orders):
            assert apply_order(state, orders[index]) == state


@given(ORDERS, st.integers(0, 6))
def test_a_reply_may_begin_anywhere_before_what_is_new(orders: list[Order], start: int) -> None:
    assert _state(*orders[:start], *orders) == _state(*orders)


@given(ORDERS, st.integers(0, 5))
def test_nothing_after_a_missing_order_is_applied(orders: list[Order], gap: int) -> None:
    assert _state(*orders[:gap], *orders[gap + 1 :]) == _state(*orders[:gap])


@given(FINDINGS, ORDERS, CHECKS, st.integers(0, 30))
def test_confirming_ends_within_the_bound(
    findings: list[Finding], orders: list[Order], checks: dict[str, Verdict], later: int
) -> None:
    state = _state(*orders)
    at = NOW + timedelta(seconds=state.policy.confirm_s + later)
    found = node_verdict(findings, state, state.policy, checks, False, at)
    assert found.phase is not Phase.CONFIRMING
