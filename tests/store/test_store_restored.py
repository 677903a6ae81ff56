"""A database restored from a backup meets nodes that have seen more than it tells of."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pytest
from tests.store.samples import KEY, NOW, C, batch, drained, finding, later, order

from komainu.core.decision import Order, OrderKind
from komainu.core.node import NodeVerdict
from komainu.core.situation import Thought
from komainu.core.verdict import Verdict
from komainu.core.wire import Batch
from komainu.quarantine.decide.verdict import OrdersState, apply_order
from komainu.store import SqlStore
from komainu.store.queries import health


def _told(store: SqlStore, after: int) -> list[tuple[int, int, str]]:
    return [(o.number, o.previous, str(o.kind)) for o in store.orders_after(KEY, after)]


def _say(store: SqlStore, now: datetime, *kinds: tuple[OrderKind, str]) -> None:
    said = tuple(order(None, kind, value=value) for kind, value in kinds)
    store.remember(Thought(cluster=C, orders=said), now)


def _obeys(store: SqlStore, state: OrdersState, now: datetime) -> OrdersState:
    """What a node in `state` makes of the reply to its batch."""
    store.receive(batch(orders_seen=state.seen, orders_at=state.at), now)
    for one in store.orders_after(KEY, state.seen):
        state = apply_order(state, one)
    return state


def _seen(number: int, **known: Order | None) -> OrdersState:
    return OrdersState(seen=number, at=later(-60), **known)  # type: ignore[arg-type]  # by name


def test_orders_are_chained_to_the_one_before(store: SqlStore) -> None:
    _say(store, NOW, (OrderKind.POLICY, "{}"), (OrderKind.HOLD, ""), (OrderKind.RELEASE, ""))
    assert _told(store, 0) == [(1, 0, "policy"), (2, 1, "hold"), (3, 2, "release")]


def test_a_hold_given_under_a_number_the_node_has_seen_reaches_it_all_the_same(
    store: SqlStore,
) -> None:
    store.remember(drained(), NOW)
    state = _obeys(store, _seen(10), later(1))
    assert state.hold is not None
    assert state.hold.decision == "D-1"
    assert state.seen == 12


def test_a_hold_is_not_hidden_by_as_many_orders_as_were_lost(store: SqlStore) -> None:
    """The numbers have caught up with the node's before it is heard again."""
    _say(store, NOW, *[(OrderKind.HOLD, "")] + [(OrderKind.ADVISE_ONLY, "off")] * 3)
    state = _obeys(store, _seen(2), later(1))
    assert state.hold is not None


def test_what_was_given_again_is_not_given_a_third_time(store: SqlStore) -> None:
    store.remember(drained(), NOW)
    for state in (_seen(10), _seen(1)):
        _obeys(store, state, later(1))
        count = len(store.orders_after(KEY, 0))
        _obeys(store, state, later(2))
        assert len(store.orders_after(KEY, 0)) == count


def test_a_node_that_follows_our_orders_is_told_nothing_again(store: SqlStore) -> None:
    _say(store, NOW, (OrderKind.POLICY, "{}"), (OrderKind.HOLD, ""))
    state = _obeys(store, OrdersState(), later(1))
    assert _obeys(store, state, later(2)) == state
    assert len(store.orders_after(KEY, 0)) == 2


def test_a_node_that_lost_its_state_obeys_across_the_gap(store: SqlStore) -> None:
    _say(store, NOW, (OrderKind.POLICY, "{}"))
    _obeys(store, _seen(10), later(1))
    store.remember(drained(), later(2))
    anew = _obeys(store, OrdersState(), later(3))
    assert anew.hold is not None
    assert anew.seen == 13


def test_a_release_the_node_had_not_taken_is_given_again_and_one_it_had_taken_is_not(
    store: SqlStore,
) -> None:
    """A hold of the lost days is a person's to lift: nobody here knows what it was for."""
    held = Order(number=9, kind=OrderKind.HOLD, at=NOW, decision="D-lost")
    store.remember(drained(), NOW)
    _say(store, later(1), (OrderKind.RELEASE, ""))
    store.receive(batch(orders_seen=2, orders_at=NOW), later(1))
    state = _obeys(store, _seen(10, hold=held), later(2))
    assert state.hold == held
    _say(store, later(3), (OrderKind.RELEASE, ""))
    assert _obeys(store, _seen(20, hold=held), later(4)).hold is None


def test_advice_of_the_lost_days_ends_where_the_guard_is_ready(store: SqlStore) -> None:
    advised = Order(number=9, kind=OrderKind.ADVISE_ONLY, at=NOW, value="on")
    assert _obeys(store, _seen(10, advise=advised), later(1)).advise is None
    _say(store, later(2), (OrderKind.ADVISE_ONLY, "on"))
    assert _obeys(store, _seen(30), later(3)).advise is not None


def _standing_on(*named: str, sent: Batch | None = None) -> Batch:
    verdict = NodeVerdict(verdict=Verdict.FAULT, findings=named)
    return msgspec.structs.replace(sent or batch(), verdict=verdict)


def test_a_verdict_that_rests_on_findings_never_received_makes_the_node_a_stranger(
    store: SqlStore,
) -> None:
    assert store.receive(_standing_on("F-1"), NOW).stranger
    assert not store.receive(_standing_on("F-1", sent=batch(finding())), later(1)).stranger
    assert not store.receive(_standing_on("F-1"), later(2)).stranger
    assert store.receive(_standing_on("F-1", "F-2"), later(3)).stranger
    assert store.receive(_standing_on("F\x00"), later(4)).stranger
    assert not store.receive(batch(verdict=Verdict.OK), later(5)).stranger


def test_a_node_of_which_no_more_is_kept_is_not_asked_for_more(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "MOST_OPEN", 2)
    store.receive(batch(*[finding(f"F-{number}") for number in range(4)]), NOW)
    assert store.count_findings() == 2
    assert not store.receive(_standing_on("F-0", "F-3"), later(1)).stranger
