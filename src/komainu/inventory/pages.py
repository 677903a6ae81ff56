"""Pages of what there is: clusters, the map, nodes, and one node with its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from komainu.core.errors import InputError
from komainu.core.names import ClusterName, NodeKey, NodeName, cluster_name, node_name
from komainu.core.observation import Finding
from komainu.core.record import ClusterRecord, GateSeen, NodeRecord, Standing
from komainu.core.views import (
    ClusterView,
    Columns,
    NodeRow,
    NodeView,
    decision_view,
    finding_view,
    guard_view,
    job_rows,
)
from komainu.inventory.model import Seen, map_columns, node_row
from komainu.inventory.story import story
from komainu.ports import Asked, Desk, Page

COLUMNS_TYPE = "application/vnd.komainu.columns"
MAX_JSON_GPUS = 5000
"""Above this many cells a map travels as columns unless JSON is asked for by name: decoding 5,000
rows of JSON takes a browser longer than a frame."""
STORY = 200
FINDINGS = 100


def clusters(desk: Desk, asked: Asked) -> list[ClusterView]:
    del asked
    known = {record.cluster: record for record in desk.ledger.clusters()}
    return [
        _cluster(desk, known.get(cluster, ClusterRecord(cluster=cluster)))
        for cluster in desk.clusters
    ]


def _cluster(desk: Desk, record: ClusterRecord) -> ClusterView:
    last = desk.ledger.last_seq()
    rows = rows_of(desk, record.cluster)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.standing] = counts.get(row.standing, 0) + 1
    jobs = [job.state for job in desk.ledger.scheduler_jobs(record.cluster)]
    policy = desk.policy_of(record.cluster)
    guard = policy.guard
    whole = desk.ledger.cluster_situation(record.cluster, desk.now(), guard.window_s)
    return ClusterView(
        cluster=record.cluster,
        nodes=len(rows),
        counts=counts,
        guard=guard_view(whole, guard),
        jobs_running=jobs.count("RUNNING"),
        jobs_pending=jobs.count("PENDING"),
        policy_version=policy.version,
        advise_only=policy.advise_only,
        lab=desk.lab,
        scheduler_seen=record.scheduler_seen,
        scheduler_error=record.scheduler_error,
        last_seq=last,
        held_back=tuple(desk.ledger.kept_in_service(record.cluster, desk.now())),
    )


def cluster_map(desk: Desk, asked: Asked) -> Columns | list[NodeRow]:
    cluster = watched(desk, asked.path["cluster"])
    seq = desk.ledger.last_seq()
    rows = rows_of(desk, cluster)
    cells = sum(len(row.gpus) for row in rows)
    wants_json = "application/json" in asked.accept and COLUMNS_TYPE not in asked.accept
    if COLUMNS_TYPE in asked.accept or (cells > MAX_JSON_GPUS and not wants_json):
        return map_columns(rows, cluster, seq)
    return rows


def nodes(desk: Desk, asked: Asked) -> list[NodeRow]:
    named = asked.query.get("cluster")
    wanted = [watched(desk, named)] if named else desk.clusters
    return [row for cluster in wanted for row in rows_of(desk, cluster)]


def node(desk: Desk, asked: Asked) -> NodeView:
    key = NodeKey(watched(desk, asked.path["cluster"]), node_name(asked.path["node"]))
    ledger, now, policy = desk.ledger, desk.now(), desk.policy_of(key.cluster)
    record = ledger.node_record(key)
    if record is None:
        raise KeyError(f"node {key}")
    standings = ledger.standings(key.cluster, now)
    admitted = ledger.admitted(key.cluster, key.node)
    opened = ledger.finding_records(key.cluster, key.node, open_only=True, limit=FINDINGS)
    closed = ledger.finding_records(
        key.cluster, key.node, open_only=False, limit=FINDINGS - len(opened)
    )
    findings = [finding.finding for finding in reversed(opened)]
    history = ledger.history(key, STORY)
    standing = standings.get(key.node)
    stands = ledger.decision_record(standing.decision.id) if standing else None
    whole = ledger.cluster_situation(key.cluster, now, policy.guard.window_s)
    return NodeView(
        row=_row(desk, record, findings, standing, admitted.get(key.node, ())),
        verdict=record.verdict,
        scheduler=record.scheduler,
        standing_decision=decision_view(stands) if stands else None,
        findings=[finding_view(one) for one in (*opened, *closed)],
        decisions=[decision_view(one) for one in history.decisions[:FINDINGS]],
        story=story(history, STORY),
        jobs=job_rows(ledger.scheduler_jobs(key.cluster), key.node),
        guard=guard_view(whole, policy.guard),
        agent_version=record.agent_version,
        boot_id=record.boot_id,
        policy_version=record.policy_seen,
    )


def rows_of(desk: Desk, cluster: ClusterName) -> list[NodeRow]:
    """Every node of a cluster, in the order of names. Made once for all who look at the same change
    of the feed within a second (silence is not in the feed, and is told by the clock).
    """
    version = (desk.ledger.last_seq(), int(desk.now().timestamp()))
    rows: list[NodeRow] = desk.shared(f"rows {cluster}", version, lambda: _rows(desk, cluster))
    return rows


def _rows(desk: Desk, cluster: ClusterName) -> list[NodeRow]:
    ledger = desk.ledger
    standings = ledger.standings(cluster, desk.now())
    admitted = ledger.admitted(cluster)
    findings = _by_node(ledger.findings(cluster))
    return [
        _row(
            desk,
            record,
            findings.get(record.node, ()),
            standings.get(record.node),
            admitted.get(record.node, ()),
        )
        for record in ledger.node_records(cluster)
    ]


def _row(
    desk: Desk,
    record: NodeRecord,
    findings: Sequence[Finding],
    standing: Standing | None,
    admitted: Sequence[GateSeen],
) -> NodeRow:
    seen = Seen(
        record=record, findings=tuple(findings), standing=standing, admitted=tuple(admitted)
    )
    silence = timedelta(seconds=desk.policy_of(record.cluster).node_unseen_s)
    return node_row(seen, desk.node_policy, silence, desk.now())


def _by_node(findings: Sequence[Finding]) -> Mapping[NodeName, Sequence[Finding]]:
    grouped: dict[NodeName, list[Finding]] = {}
    for finding in findings:
        grouped.setdefault(finding.node, []).append(finding)
    return grouped


def watched(desk: Desk, name: str) -> ClusterName:
    """A cluster this server watches; KeyError for another, InputError for what is no name."""
    if not name:
        raise InputError("no cluster is named; expected one of this server's clusters")
    cluster = cluster_name(name)
    if cluster not in desk.clusters:
        raise KeyError(f"cluster {cluster}")
    return cluster


PAGES = (
    Page(method="GET", path="/clusters", answer=clusters),
    Page(method="GET", path="/clusters/{cluster}/map", answer=cluster_map),
    Page(method="GET", path="/nodes", answer=nodes),
    Page(method="GET", path="/nodes/{cluster}/{node}", answer=node),
)
