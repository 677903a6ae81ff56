"""The server with a database that knows less than its nodes: restored from a backup, or new."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.testclient import TestClient
from tests.server.site import C, bearer, node_token, sent

from komainu.core.node import NodeVerdict
from komainu.core.observation import Component, Finding
from komainu.core.verdict import FaultClass, Severity, Verdict
from komainu.core.wire import Batch, Reply
from komainu.quarantine.decide.verdict import OrdersState, apply_order, node_verdict
from komainu.store import SqlStore

FOUND = Finding(
    id="F-1",
    cluster=C,
    node="n0",  # type: ignore[arg-type]  # a name
    code="GPU-XID-79",
    component=Component("gpu", "0000:41:00"),
    severity=Severity.FATAL,
    fault_class=FaultClass.QUARANTINE_NOW,
    summary="GPU has fallen off the bus",
    at=datetime(2026, 11, 30, tzinfo=UTC),
)


class _Node:
    """A node that kept its state while the server lost its own."""

    def __init__(self, client: TestClient, store: SqlStore, *found: Finding) -> None:
        self._client, self._token = client, node_token(client, store)
        self.found = list(found)
        self.orders = OrdersState(seen=9, at=FOUND.at)

    @property
    def verdict(self) -> NodeVerdict:
        now, checks = datetime.now(UTC), {"gpus": Verdict.OK}
        return node_verdict(self.found, self.orders, self.orders.policy, checks, False, now)

    def speaks(self, *told: Finding) -> Reply:
        batch = Batch(
            id="B-1",
            cluster=C,
            node="n0",
            boot_id="b",
            agent_version="0",
            sent_at=datetime.now(UTC),
            findings=list(told),
            verdict=self.verdict,
            orders_seen=self.orders.seen,
            orders_at=self.orders.at,
        )
        reply = msgspec.convert(sent(self._client, batch, self._token), Reply)
        for order in reply.orders:
            self.orders = apply_order(self.orders, order)
        return reply


def _asked(client: TestClient, what: str) -> Any:
    answer = client.post(
        f"/api/v1/nodes/c/n0/{what}", json={"reason": "seen to"}, headers=bearer("operator")
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_finding_the_server_has_lost_is_asked_for_held_and_can_be_released(
    client: TestClient, store: SqlStore
) -> None:
    node = _Node(client, store, FOUND)
    assert node.speaks().resend
    assert not node.speaks(FOUND).resend
    assert node.orders.hold is not None
    _asked(client, "release")
    assert not node.speaks().resend
    assert node.orders.released == {"F-1"}
    assert node.verdict.verdict is Verdict.OK


def test_a_hold_given_before_the_node_is_heard_again_reaches_it(
    client: TestClient, store: SqlStore
) -> None:
    node = _Node(client, store)
    _asked(client, "hold")
    node.speaks()
    held = node.verdict.verdict
    _asked(client, "release")
    node.speaks()
    assert (held, node.verdict.verdict) == (Verdict.FAULT, Verdict.OK)


def test_a_node_that_then_loses_its_own_state_still_obeys(
    client: TestClient, store: SqlStore
) -> None:
    node = _Node(client, store)
    _asked(client, "hold")
    node.speaks()
    node.orders = OrdersState()
    node.speaks()
    assert node.verdict.verdict is Verdict.FAULT
    assert node.orders.seen > 9
