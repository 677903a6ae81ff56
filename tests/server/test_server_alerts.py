"""What the log says at once: gates that were unsure, codes nobody grades, and the guard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs
from tests.server.site import C, MemoryScheduler, bearer, node_token, sent

from komainu.core.gate import GateRecord, Why, record_data
from komainu.core.names import NodeName
from komainu.core.observation import Component, Finding, Observation, ObservationKind
from komainu.core.verdict import FaultClass, Severity, Verdict
from komainu.core.views import ClusterView
from komainu.core.wire import Batch
from komainu.store import SqlStore

BOOT = "01234567-89ab-cdef-0123-456789abcdef"
Log = Callable[[str], list[Mapping[str, Any]]]


def _gate(number: int, why: Why, answer: str = "admit") -> Observation:
    record = GateRecord(
        where="prolog",
        answer=answer,
        why=why,
        uptime_s=1,
        boot_id=BOOT,
        job=str(number),
        user="u",
        uid=1000,
        gpus=(),
        waited_s=0,
    )
    return Observation(
        id=f"O-{number}",
        cluster=C,
        node=NodeName("n0"),
        kind=ObservationKind.GATE,
        at=datetime.now(UTC),
        data=record_data(record),
    )


def _finding(
    node: str, fault_class: FaultClass = FaultClass.QUARANTINE_NOW, **more: Any
) -> Finding:
    given: dict[str, Any] = {"code": "GPU-XID-79", "severity": Severity.FATAL} | more
    return Finding(
        id=f"F-{node}-{given['code']}",
        cluster=C,
        node=NodeName(node),
        component=Component("gpu", "0000:41:00"),
        fault_class=fault_class,
        summary="what it means",
        at=datetime.now(UTC),
        **given,
    )


def _batch(
    node: str = "n0", findings: list[Finding] | None = None, *observations: Observation
) -> Batch:
    return Batch(
        id="B",
        cluster="c",
        node=node,
        boot_id=BOOT,
        agent_version="1",
        sent_at=datetime.now(UTC),
        findings=findings or [],
        observations=list(observations),
    )


def _events(logs: list[Any], name: str) -> list[Mapping[str, Any]]:
    return [one for one in logs if one["event"] == name]


@pytest.mark.parametrize(
    ("why", "answer", "alerts"),
    [
        *((why, "admit", 1) for why in (Why.STALE, Why.MISSING, Why.GARBLED)),
        *((why, "admit", 1) for why in (Why.UNKNOWN, Why.SKIPPED)),
        *((why, "admit", 0) for why in (Why.OK, Why.CHECKING)),
        (Why.STALE, "refuse", 0),
        (Why.FAULT, "refuse", 0),
    ],
)
def test_a_gate_that_lets_jobs_in_unsure_is_an_alert_said_once(
    client: TestClient, store: SqlStore, why: Why, answer: str, alerts: int
) -> None:
    token = node_token(client, store)
    batch = _batch("n0", None, _gate(7, why, answer), _gate(8, why, answer))
    with capture_logs() as logs:
        sent(client, batch, token)
        sent(client, batch, token)
    said = _events(logs, "alert_raised")
    assert [(one["node"], one["code"], one["why"]) for one in said] == [
        ("n0", f"gate-{why}", "jobs let in unsure: 7, 8")
    ] * alerts
    assert all(one["log_level"] == "warning" and one["cluster"] == "c" for one in said)


def test_a_code_that_nobody_grades_and_a_thing_not_seen_are_alerts(
    client: TestClient, store: SqlStore
) -> None:
    odd = _finding("n0", FaultClass.UNKNOWN, code="GPU-XID-999", severity=Severity.WATCH)
    blind = msgspec.structs.replace(
        _finding("n0", code="HOST-KMSG", severity=Severity.WATCH), verdict=Verdict.UNKNOWN
    )
    known = _finding("n0", FaultClass.WATCH, code="GPU-XID-63", severity=Severity.WATCH)
    token = node_token(client, store)
    with capture_logs() as logs:
        sent(client, _batch("n0", [odd, blind, known]), token)
        sent(client, _batch("n0", [odd, blind, known]), token)
    said = _events(logs, "alert_raised")
    assert [one["code"] for one in said] == ["GPU-XID-999", "HOST-KMSG"]


def test_a_guard_that_trips_says_so_loudly_and_names_what_it_keeps_in_service(
    client: TestClient, store: SqlStore, scheduler: MemoryScheduler
) -> None:
    tokens = {node: node_token(client, store, node) for node in scheduler.known}
    with capture_logs() as logs:
        for node, token in tokens.items():
            sent(client, _batch(node, [_finding(node)]), token)
            sent(client, _batch(node, [_finding(node)]), token)
    (tripped,) = _events(logs, "guard_tripped")
    assert tripped["log_level"] == "error"
    assert (tripped["cluster"], tripped["held"], tripped["held_count"]) == ("c", ["n2"], 1)
    assert tripped["limit"].startswith("2 of 2 nodes are out")
    held = _events(logs, "decision_held")
    assert [one["node"] for one in held] == ["n2", "n3"]
    (alert,) = _events(logs, "alert_raised")
    assert (alert["code"], alert["why"]) == ("guard-tripped", tripped["limit"])
    shown = client.get("/api/v1/clusters", headers=bearer("viewer"))
    (cluster, _) = msgspec.json.decode(shown.content, type=list[ClusterView])
    assert cluster.held_back == ("n2", "n3")
    assert cluster.guard.tripped_at is not None
