from __future__ import annotations

import time
from datetime import UTC, datetime

import msgspec
import pytest
from starlette.testclient import TestClient
from tests.server.site import C, MemoryScheduler, bearer, node_token, sent

from komainu.core.decision import OrderKind
from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.core.node import NodeVerdict
from komainu.core.observation import Component, Finding
from komainu.core.verdict import FaultClass, Severity, Verdict
from komainu.core.views import Answer, ClusterView, DecisionPage, FindingPage, NodeRow, NodeView
from komainu.core.wire import Batch, GpuSeen, Hardware
from komainu.server.columns import MEDIA_TYPE
from komainu.store import SqlStore

READ = bearer("viewer")
ACT = bearer("operator")
_SEVERITY = {"GPU-XID-79": Severity.FATAL, "NIC-OPTIC-EVENT": Severity.INFO}


def _report(
    client: TestClient, store: SqlStore, *codes: str, node: str = "n0", cluster: str = C
) -> None:
    now = datetime.now(UTC)
    findings = [
        Finding(
            id=f"F-{node}-{code}",
            cluster=ClusterName(cluster),
            node=node,  # type: ignore[arg-type]
            code=code,
            component=Component("gpu", "0000:41:00"),
            severity=_SEVERITY.get(code, Severity.WATCH),
            fault_class=FaultClass.QUARANTINE_NOW,
            summary="what it means",
            at=now,
        )
        for code in codes
    ]
    gpus = tuple(GpuSeen(index=i, pci=f"00000000:4{i}:00.0", uuid=f"GPU-{i}") for i in range(8))
    batch = Batch(
        id="B",
        cluster=cluster,
        node=node,
        boot_id="b",
        agent_version="0.1",
        sent_at=now,
        findings=findings,
        verdict=NodeVerdict(verdict=Verdict.FAULT if "GPU-XID-79" in codes else Verdict.OK),
        hardware=Hardware(rack="r1", gpus=gpus),
    )
    sent(client, batch, node_token(client, store, node, cluster))


def _get(client: TestClient, path: str, kind: type, **query: str):  # type: ignore[no-untyped-def]
    answer = client.get(f"/api/v1{path}", params=query, headers=READ)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=kind)


def _ask(client: TestClient, path: str, *, role: str = "operator", **body: object) -> Answer:
    answer = client.post(f"/api/v1{path}", json=body, headers=bearer(role))
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=Answer)


def _until_seen(client: TestClient) -> None:
    """The first look at the scheduler has been taken."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if _get(client, "/clusters", list[ClusterView])[0].scheduler_seen:
            return
        time.sleep(0.01)
    raise AssertionError("the scheduler was not looked at")


def test_nodes_nobody_speaks_for_are_shown_as_unseen(client: TestClient) -> None:
    _until_seen(client)
    cluster, watched = _get(client, "/clusters", list[ClusterView])
    assert (cluster.nodes, cluster.counts) == (4, {"unseen": 4})
    assert (watched.nodes, watched.advise_only, watched.scheduler_seen) == (0, True, None)
    rows = _get(client, "/nodes", list[NodeRow], cluster="c")
    assert [(row.node, len(row.gpus)) for row in rows] == [(f"n{i}", 8) for i in range(4)]


def test_a_fault_is_seen_on_the_map_at_its_gpu(
    client: TestClient, store: SqlStore, scheduler: MemoryScheduler
) -> None:
    _until_seen(client)
    _report(client, store, "GPU-XID-79")
    _report(client, store, "GPU-XID-63", node="n1")
    _report(client, store, "NIC-OPTIC-EVENT", node="n2")
    _wait_drained(scheduler, "n0")
    rows = {row.node: row for row in _get(client, "/clusters/c/map", list[NodeRow])}
    standings = {name: row.standing.value for name, row in rows.items()}
    assert standings == {"n0": "quarantined", "n1": "watched", "n2": "healthy", "n3": "unseen"}
    assert [gpu.standing.value for gpu in rows["n0"].gpus] == ["quarantined", "faulty"] + [
        "quarantined"
    ] * 6
    assert [gpu.standing.value for gpu in rows["n1"].gpus].count("watched") == 1
    assert rows["n0"].why
    assert rows["n2"].why == ""


def test_the_map_comes_as_columns_to_those_who_ask(client: TestClient, store: SqlStore) -> None:
    _report(client, store, "GPU-XID-63")
    answer = client.get("/api/v1/clusters/c/map", headers={**READ, "Accept": MEDIA_TYPE})
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert answer.content[:4] == b"KCL1"


def test_a_node_page_tells_its_story(
    client: TestClient, store: SqlStore, scheduler: MemoryScheduler
) -> None:
    _until_seen(client)
    _report(client, store, "GPU-XID-79")
    _wait_drained(scheduler, "n0")
    view = _get(client, "/nodes/c/n0", NodeView)
    assert view.standing_decision is not None
    assert view.standing_decision.state in {"done", "to do"}
    assert [one.finding.code for one in view.findings] == ["GPU-XID-79"]
    assert {"finding", "decision", "order"} <= {line.what for line in view.story}
    assert (view.guard.out, view.guard.limit) == (1, 2)


def test_a_dry_run_says_what_the_act_says_and_changes_nothing(
    client: TestClient, store: SqlStore, scheduler: MemoryScheduler
) -> None:
    _until_seen(client)
    for what in ("hold", "release"):
        fed = store.last_seq()
        plan = _ask(client, f"/nodes/c/n1/{what}", reason="a cable", dry_run=True)
        assert (plan.dry_run, plan.outcome, store.last_seq()) == (True, None, fed)
        done = _ask(client, f"/nodes/c/n1/{what}", reason="a cable")
        assert done.text == plan.text
        assert done.outcome is not None
        assert done.outcome.result.value in {"done", "already"}
        assert scheduler.known["n1"].drained is (what == "hold")  # type: ignore[index]
    assert store.last_seq() > fed


def test_a_hold_beyond_the_guards_room_needs_an_admin(
    client: TestClient, scheduler: MemoryScheduler
) -> None:
    _until_seen(client)
    for node in ("n0", "n1"):
        _ask(client, f"/nodes/c/{node}/hold", reason="why")
    refused = _ask(client, "/nodes/c/n2/hold", reason="why")
    assert "the guard has no room" in refused.text
    assert refused.outcome is None
    assert not scheduler.known["n2"].drained  # type: ignore[index]
    forced = _ask(client, "/nodes/c/n2/hold", role="admin", reason="why", force=True)
    assert forced.outcome is not None
    assert scheduler.known["n2"].drained  # type: ignore[index]


def test_a_hold_in_a_cluster_that_is_only_watched_is_refused_and_nothing_is_told(
    client: TestClient, store: SqlStore
) -> None:
    watched = NodeKey(ClusterName("watched"), NodeName("n0"))
    _report(client, store, "GPU-XID-79", cluster="watched")
    told = store.orders_after(watched, 0)
    assert [order.value for order in told if order.kind is OrderKind.ADVISE_ONLY] == ["on"]
    for body in ({"reason": "smoke"}, {"reason": "smoke", "dry_run": True}):
        refused = client.post("/api/v1/nodes/watched/n0/hold", json=body, headers=ACT)
        assert refused.status_code == 400
        assert 'scheduler = "none"' in refused.json()["error"]["message"]
    released = _ask(client, "/nodes/watched/n0/release", reason="repaired")
    assert released.decision is not None
    assert released.decision.policy_version == told[0].policy_version
    assert OrderKind.HOLD not in {order.kind for order in store.orders_after(watched, 0)}
    (_, cluster) = _get(client, "/clusters", list[ClusterView])
    assert cluster.policy_version == told[0].policy_version
    assert cluster.advise_only


def test_a_release_leaves_the_drain_of_someone_else_and_says_so(
    client: TestClient, store: SqlStore, scheduler: MemoryScheduler
) -> None:
    _until_seen(client)
    scheduler.set("n0", "DRAIN", reason="maintenance", by="root")
    _report(client, store, "GPU-XID-79")
    answer = _ask(client, "/nodes/c/n0/release", reason="repaired")
    assert "drain by root (maintenance) is not ours" in answer.text
    assert scheduler.known["n0"].reason == "maintenance"  # type: ignore[index]
    assert store.count_findings(open_only=True) == 0


def test_a_hold_without_a_reason_is_refused(client: TestClient, store: SqlStore) -> None:
    _until_seen(client)
    for body in ({"reason": "  "}, {}, {"reason": "x", "extra": 1}):
        answer = client.post("/api/v1/nodes/c/n0/hold", json=body, headers=ACT)
        assert answer.status_code == 400
    assert store.decision_records() == []


def test_findings_come_in_pages(client: TestClient, store: SqlStore) -> None:
    _report(client, store, *(f"GPU-XID-{n}" for n in range(31, 36)))
    first = _get(client, "/findings", FindingPage, limit="2")
    assert (len(first.findings), first.total, first.more) == (2, 5, True)
    assert first.before is not None
    rest = _get(client, "/findings", FindingPage, before=first.before)
    assert (len(rest.findings), rest.more, rest.before) == (3, False, None)
    one = first.findings[0].finding.id
    assert client.get(f"/api/v1/findings/{one}", headers=READ).json()["finding"]["id"] == one


def test_decisions_come_in_pages(client: TestClient) -> None:
    _until_seen(client)
    for node in ("n0", "n1"):
        _ask(client, f"/nodes/c/{node}/hold", reason="why")
    page = _get(client, "/decisions", DecisionPage, limit="1", cluster="c")
    assert (len(page.decisions), page.more) == (1, True)
    assert len(_get(client, "/decisions", DecisionPage, node="n0").decisions) == 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nodes/c/nobody", 404),
        ("/nodes/strange/n0", 404),
        ("/clusters/strange/map", 404),
        ("/findings/F-none", 404),
        ("/nodes?cluster=strange", 404),
        ("/findings?limit=0", 400),
        ("/findings?limit=x", 400),
        ("/findings?before=-1", 400),
        ("/findings?open=perhaps", 400),
        ("/findings?node=a%20b", 400),
        ("/decisions?cluster=%00", 400),
        ("/nothing", 404),
    ],
)
def test_what_is_not_there_or_not_sensible_is_told_as_an_error(
    client: TestClient, path: str, status: int
) -> None:
    answer = client.get(f"/api/v1{path}", headers=READ)
    assert answer.status_code == status
    assert answer.json()["error"]["status"] == status


def test_a_scheduler_that_cannot_be_read_is_shown(
    client: TestClient, scheduler: MemoryScheduler, store: SqlStore
) -> None:
    _until_seen(client)
    scheduler.broken = True
    _ask(client, "/nodes/c/n0/hold", reason="why")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not store.clusters()[0].scheduler_error:
        time.sleep(0.01)
    (cluster, _) = _get(client, "/clusters", list[ClusterView])
    assert "did not answer" in cluster.scheduler_error


def _wait_drained(scheduler: MemoryScheduler, node: str) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and node not in scheduler.drains:
        time.sleep(0.01)
    assert node in scheduler.drains
