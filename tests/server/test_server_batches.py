from __future__ import annotations

import threading
import time
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs
from tests.server.site import C, Clock, MemoryScheduler, application, bearer, node_token, sent

from komainu.core.names import NodeKey, NodeName
from komainu.core.node import NodeVerdict
from komainu.core.observation import Component, Evidence, Finding
from komainu.core.situation import NodeSituation
from komainu.core.verdict import FaultClass, Severity, Verdict
from komainu.core.wire import Batch
from komainu.server import secrets
from komainu.server.agents import MAX_BATCH_BYTES
from komainu.store import SqlStore


def _finding(ident: str = "F-1", node: str = "n0") -> Finding:
    return Finding(
        id=ident,
        cluster=C,
        node=node,  # type: ignore[arg-type]
        code="GPU-XID-79",
        component=Component("gpu", "0000:41:00"),
        severity=Severity.FATAL,
        fault_class=FaultClass.QUARANTINE_NOW,
        summary="GPU has fallen off the bus",
        at=datetime.now(UTC),
    )


def _batch(*findings: Finding, node: str = "n0", wait_s: float = 0, seen: int = 0) -> Batch:
    return Batch(
        id="B-1",
        cluster="c",
        node=node,
        boot_id="b",
        agent_version="0",
        sent_at=datetime.now(UTC),
        findings=list(findings),
        verdict=NodeVerdict(verdict=Verdict.FAULT if findings else Verdict.OK),
        wait_s=wait_s,
        orders_seen=seen,
    )


def _until(what: str, true: object) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if true():  # type: ignore[operator]
            return
        time.sleep(0.01)
    raise AssertionError(f"not within 10 s: {what}")


def test_a_fatal_finding_is_answered_with_a_hold_and_drains_the_node(
    client: TestClient, store: SqlStore, scheduler: MemoryScheduler
) -> None:
    token = node_token(client, store)
    reply = sent(client, _batch(_finding()), token)
    kinds = [order["kind"] for order in reply["orders"]]  # type: ignore[index]
    assert kinds == ["policy", "hold"]
    _until("the node is drained", lambda: scheduler.drains == ["n0"])
    node = scheduler.known["n0"]  # type: ignore[index]
    assert node.reason.startswith("komainu:D-")


def test_the_same_batch_three_times_is_one_finding_one_decision_one_drain(
    client: TestClient, store: SqlStore, scheduler: MemoryScheduler
) -> None:
    token, batch = node_token(client, store), _batch(_finding())
    first = sent(client, batch, token)
    _until("the node is drained", lambda: scheduler.drains == ["n0"])
    for _ in range(2):
        again = sent(client, batch, token)
        assert again["orders"] == first["orders"]  # type: ignore[index]
    assert store.count_findings() == 1
    assert len(store.decision_records()) == 1
    assert scheduler.drains == ["n0"]


def test_orders_the_agent_has_are_not_sent_again(client: TestClient, store: SqlStore) -> None:
    token = node_token(client, store)
    sent(client, _batch(_finding()), token)
    assert sent(client, _batch(seen=2), token)["orders"] == []  # type: ignore[index]


def test_the_token_of_one_node_does_not_speak_for_another(
    client: TestClient, store: SqlStore
) -> None:
    token = node_token(client, store, "n0")
    body = msgspec.json.encode(_batch(_finding(node="n1"), node="n1"))
    head = {"Authorization": f"Bearer {token}"}
    assert client.post("/api/v1/batches", content=body, headers=head).status_code == 403
    body = msgspec.json.encode(_batch(_finding(node="n1"), node="n0"))
    assert client.post("/api/v1/batches", content=body, headers=head).status_code == 400
    assert store.count_findings() == 0


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer x"}, {"Authorization": "Basic x"}, bearer("admin")]
)
def test_only_a_node_sends_batches(client: TestClient, headers: dict[str, str]) -> None:
    body = msgspec.json.encode(_batch())
    answer = client.post("/api/v1/batches", content=body, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "no-node-token"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[1,2",
        b"\xff\xfe\x00garbage",
        b'{"id":"\xff"}',
        b"[" * 100_000,
        b'{"zz":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"id": 1e999}',
        msgspec.json.encode(_batch()).replace(b'"wait_s":0', b'"wait_s":-1'),
        msgspec.json.encode(_batch()).replace(b'"wait_s":0', b'"wait_s":1e9'),
        msgspec.json.encode(_batch()).replace(b'"sent_at":"2', b'"sent_at":"x'),
        msgspec.json.encode(_batch()).replace(b'"orders_seen":0', b'"orders_seen":1' + b"0" * 21),
        msgspec.json.encode(_batch()).replace(b'"B-1"', b'"\\ud800"'),
    ],
)
def test_what_is_no_batch_is_refused_in_our_words(
    client: TestClient, store: SqlStore, body: bytes
) -> None:
    token = node_token(client, store)
    head = {"Authorization": f"Bearer {token}"}
    answer = client.post("/api/v1/batches", content=body, headers=head)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "bad-request"


NO_ZONE = "2026-11-30T10:00:00"


def test_a_date_without_a_zone_spoils_neither_the_batch_before_nor_any_look(
    client: TestClient, store: SqlStore, scheduler: MemoryScheduler
) -> None:
    """One such finding once made every look at the cluster fail."""
    head = {"Authorization": f"Bearer {node_token(client, store)}"}
    spoilt = msgspec.to_builtins(_batch(_finding("F-1"), _finding("F-2")))
    spoilt["findings"][1]["at"] = NO_ZONE
    answer = client.post("/api/v1/batches", json=spoilt, headers=head)
    assert answer.status_code == 400
    assert "findings[1].at" in answer.json()["error"]["message"].replace("`", "").replace(
        "...", "1"
    )
    assert store.count_findings() == 0
    good = msgspec.json.encode(_batch(_finding("F-3")))
    assert client.post("/api/v1/batches", content=good, headers=head).status_code == 200
    _until("the node is drained", lambda: scheduler.drains == ["n0"])


def test_what_is_out_of_bounds_is_refused_whole(client: TestClient, store: SqlStore) -> None:
    head = {"Authorization": f"Bearer {node_token(client, store)}"}
    long = msgspec.structs.replace(_finding("F-2"), summary="A" * 900_000)
    body = msgspec.json.encode(_batch(_finding("F-1"), long))
    answer = client.post("/api/v1/batches", content=body, headers=head)
    assert answer.status_code == 400
    assert "finding 'F-2' summary is out of bounds" in answer.json()["error"]["message"]
    assert store.count_findings() == 0


def test_a_kernel_line_with_nul_is_kept_without_it(client: TestClient, store: SqlStore) -> None:
    token = node_token(client, store)
    evidence = Evidence(observation="O-1", at=datetime.now(UTC), text="name=\x00\\u0000")
    sent(client, _batch(msgspec.structs.replace(_finding(), evidence=(evidence,))), token)
    (kept,) = store.findings(C)
    assert kept.evidence[0].text == "name=\ufffd\\u0000"


def test_too_many_items_and_too_many_bytes_are_refused(client: TestClient, store: SqlStore) -> None:
    head = {"Authorization": f"Bearer {node_token(client, store)}"}
    many = msgspec.json.encode(_batch(*(_finding(f"F-{n}") for n in range(501))))
    assert client.post("/api/v1/batches", content=many, headers=head).status_code == 400
    huge = b"x" * (MAX_BATCH_BYTES + 1)
    assert client.post("/api/v1/batches", content=huge, headers=head).status_code == 413
    parts = (b"x" * (1 << 20) for _ in range(9))
    assert client.post("/api/v1/batches", content=parts, headers=head).status_code == 413
    assert store.count_findings() == 0


def test_a_join_token_enrols_one_node_of_its_cluster(client: TestClient, store: SqlStore) -> None:
    node_token(client, store, "n0")
    for cluster, node in (("c", "n1"), ("watched", "n0")):
        asked = {"join_token": "join-n0", "cluster": cluster, "node": node}
        assert client.post("/api/v1/enrol", json=asked).status_code == 403
    asked = {"join_token": "join-n0", "cluster": "c", "node": "../n1"}
    assert client.post("/api/v1/enrol", json=asked).status_code == 400


def test_a_node_that_enrols_again_is_said_out_loud_and_its_old_token_is_void(
    client: TestClient, store: SqlStore
) -> None:
    now = datetime.now(UTC)
    store.put_join_token(secrets.token_hash("j"), C, 2, now + timedelta(hours=1), now)
    asked = {"join_token": "j", "cluster": "c", "node": "n0"}
    with capture_logs() as logs:
        first, _ = (client.post("/api/v1/enrol", json=asked).json() for _ in range(2))
    assert [one["event"] for one in logs if one["event"].startswith("node_enrolled")] == [
        "node_enrolled",
        "node_enrolled_again",
    ]
    headers = {"Authorization": f"Bearer {first['node_token']}"}
    said = client.post("/api/v1/batches", content=msgspec.json.encode(_batch()), headers=headers)
    assert said.status_code == 401
    shown = client.get("/api/v1/nodes/c/n0", headers=bearer("viewer")).json()
    assert "the agent enrolled again" in shown["story"][0]["text"]


def test_a_token_for_many_nodes_does_not_take_the_place_of_one_that_speaks(
    client: TestClient, store: SqlStore
) -> None:
    now = datetime.now(UTC)
    store.put_join_token(secrets.token_hash("many"), C, 9, now + timedelta(hours=1), now)
    mine = node_token(client, store)
    sent(client, _batch(), mine)
    asked = {"join_token": "many", "cluster": "c", "node": "n0"}
    answer = client.post("/api/v1/enrol", json=asked)
    assert answer.status_code == 403
    assert "komainu server join-token c --node n0" in answer.json()["error"]["message"]
    sent(client, _batch(), mine)


def test_names_the_scheduler_does_not_know_give_the_guard_no_room(
    client: TestClient, store: SqlStore, scheduler: MemoryScheduler
) -> None:
    before = client.get("/api/v1/clusters", headers=bearer("viewer")).json()[0]
    for number in range(5):
        node = f"ghost{number}"
        sent(client, _batch(node=node), node_token(client, store, node))
    after = client.get("/api/v1/clusters", headers=bearer("viewer")).json()[0]
    assert after["nodes"] == before["nodes"] + 5
    assert store.cluster_situation(C, datetime.now(UTC), 600).nodes_total == len(scheduler.known)


def test_a_node_of_a_cluster_nobody_watches_is_told_so(client: TestClient, store: SqlStore) -> None:
    token = node_token(client, store, "n0", "strange")
    batch = msgspec.structs.replace(_batch(), cluster="strange")
    head = {"Authorization": f"Bearer {token}"}
    answer = client.post("/api/v1/batches", content=msgspec.json.encode(batch), headers=head)
    assert answer.status_code == 403
    assert "does not watch cluster strange" in answer.json()["error"]["message"]


def test_a_cluster_without_a_scheduler_is_told_about_and_never_acted_on(
    client: TestClient, store: SqlStore
) -> None:
    token = node_token(client, store, "n9", "watched")
    finding = msgspec.structs.replace(_finding(), cluster="watched", node="n9")
    batch = msgspec.structs.replace(_batch(finding, node="n9"), cluster="watched")
    reply = sent(client, batch, token)
    assert [o["kind"] for o in reply["orders"]] == ["policy", "advise-only"]  # type: ignore[index]
    (record,) = store.decision_records()
    assert not record.allowed


def test_a_waiting_agent_is_answered_as_soon_as_there_is_an_order(
    client: TestClient, store: SqlStore
) -> None:
    token = node_token(client, store)
    sent(client, _batch(), token)
    replies: list[object] = []
    began = time.monotonic()
    waiting = threading.Thread(
        target=lambda: replies.append(sent(client, _batch(wait_s=30, seen=1), token))
    )
    waiting.start()
    time.sleep(0.3)
    assert replies == []
    ask = {"reason": "look at it"}
    assert client.post("/api/v1/nodes/c/n0/hold", json=ask, headers=bearer("operator")).is_success
    waiting.join(10)
    assert time.monotonic() - began < 10
    assert [o["kind"] for o in replies[0]["orders"]] == ["hold"]  # type: ignore[index]


def test_a_wait_without_an_order_ends_in_time(client: TestClient, store: SqlStore) -> None:
    token = node_token(client, store)
    sent(client, _batch(), token)
    began = time.monotonic()
    assert sent(client, _batch(wait_s=0.2, seen=1), token)["orders"] == []  # type: ignore[index]
    assert 0.2 <= time.monotonic() - began < 5


def test_a_scheduler_that_fails_loses_nothing(
    client: TestClient, store: SqlStore, scheduler: MemoryScheduler
) -> None:
    token = node_token(client, store)
    scheduler.broken = True
    reply = sent(client, _batch(_finding()), token)
    assert [o["kind"] for o in reply["orders"]] == ["policy", "hold"]  # type: ignore[index]
    _until("the failure is recorded", lambda: _outcomes(store) == ["failed"])
    assert scheduler.drains == []
    scheduler.broken = False
    _until("the node is drained after all", lambda: scheduler.drains == ["n0"])
    _until("it is recorded as done", lambda: _outcomes(store) == ["failed", "done"])


def test_an_idle_nodes_heartbeat_costs_no_thought(
    client: TestClient, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = node_token(client, store)
    sent(client, _batch(), token)
    thought: list[object] = []
    real = store.situation

    def counted(key: NodeKey, now: datetime) -> NodeSituation:
        thought.append(key)
        return real(key, now)

    monkeypatch.setattr(store, "situation", counted)
    sent(client, _batch(seen=1), token)
    assert thought == []
    sent(client, _batch(_finding(), seen=1), token)
    assert len(thought) == 1


def test_when_the_guard_trips_healthy_nodes_hear_of_it_with_their_next_heartbeat(
    client: TestClient, store: SqlStore
) -> None:
    tokens = [node_token(client, store, f"n{number}") for number in range(4)]
    sent(client, _batch(node="n3"), tokens[3])
    kinds = []
    for number in range(3):  # the guard has room for two
        node = f"n{number}"
        reply = sent(client, _batch(_finding(f"F-{node}", node), node=node), tokens[number])
        kinds.append([order["kind"] for order in reply["orders"]])  # type: ignore[index]
    assert kinds == [["policy", "hold"], ["policy", "hold"], ["policy", "advise-only"]]
    reply = sent(client, _batch(node="n3", seen=1), tokens[3])
    assert [order["kind"] for order in reply["orders"]] == ["advise-only"]  # type: ignore[index]


def test_a_fault_of_our_own_ends_no_loop(
    store: SqlStore, scheduler: MemoryScheduler, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.mirror(C, list(scheduler.known.values()), [], clock.now())
    real = scheduler.drain
    failures: list[str] = []

    async def drain(nodes: Collection[NodeName], reason: str) -> None:
        if not failures:
            failures.append(reason)
            raise ZeroDivisionError
        await real(nodes, reason)

    monkeypatch.setattr(scheduler, "drain", drain)
    with TestClient(application(store, scheduler, clock, poll_s=1)) as client:
        sent(client, _batch(_finding()), node_token(client, store))
        _until("the node is drained by the next round", lambda: scheduler.drains == ["n0"])
    assert len(failures) == 1


def _outcomes(store: SqlStore) -> list[str]:
    return [one.result.value for record in store.decision_records() for one in record.outcomes]
