"""Clusters and nodes: what the agents and the scheduler say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, bindparam, func, insert, select, update

from komainu.core.names import ClusterName, NodeKey, NodeName, stable_id
from komainu.core.node import NodeVerdict, SchedulerNode
from komainu.core.observation import Observation, ObservationKind
from komainu.core.record import ClusterRecord, NodeRecord
from komainu.core.situation import NodeSituation
from komainu.core.wire import MAX_ORDERS, Batch, Hardware
from komainu.store.queries.feed import OURS, Writing, plain
from komainu.store.tables import clusters, nodes, observations

_encode = msgspec.json.Encoder(order="deterministic").encode
_verdict = msgspec.json.Decoder(NodeVerdict).decode
_hardware = msgspec.json.Decoder(Hardware).decode
_scheduler = msgspec.json.Decoder(SchedulerNode).decode


def ensure_cluster(connection: Connection, cluster: ClusterName) -> None:
    known = connection.execute(select(clusters.c.name).where(clusters.c.name == cluster)).first()
    if known is None:
        connection.execute(insert(clusters).values(name=cluster, scheduler_error=""))


def ensure_node(connection: Connection, key: NodeKey) -> Row[Any]:
    """The node's row, made when it is first heard of."""
    query = select(nodes).where(nodes.c.cluster == key.cluster, nodes.c.node == key.node)
    row = connection.execute(query).first()
    if row is None:
        ensure_cluster(connection, key.cluster)
        connection.execute(insert(nodes).values(**_fresh(key)))
        row = connection.execute(query).one()
    return row


def _fresh(key: NodeKey) -> dict[str, object]:
    return {"cluster": key.cluster, "node": key.node}


def set_node(connection: Connection, key: NodeKey, **values: object) -> None:
    connection.execute(
        update(nodes)
        .where(nodes.c.cluster == key.cluster, nodes.c.node == key.node)
        .values(**values)
    )


def hear(tx: Writing, batch: Batch, key: NodeKey) -> tuple[bool, bool]:
    """Keep a batch's head; whether the verdict changed, and whether the node has booted since."""
    row = ensure_node(tx.connection, key)
    values: dict[str, object] = {
        "seen": tx.now,
        "agent_version": plain(batch.agent_version, 64),
        "boot_id": plain(batch.boot_id, 64),
        "policy_seen": plain(batch.policy_seen, 64),
        "orders_seen": min(max(batch.orders_seen, 0), MAX_ORDERS),
        "dropped_debug": min(row.dropped_debug + max(batch.dropped_debug, 0), MAX_ORDERS),
    }
    if batch.hardware is not None:
        values["hardware"] = _encode(batch.hardware).decode()
        values["rack"] = plain(batch.hardware.rack)
    changed = False
    if batch.verdict is not None:
        before = _verdict(row.verdict) if row.verdict else None
        changed = before != batch.verdict
        if before is None or before.verdict is not batch.verdict.verdict:
            values["verdict_since"] = tx.now
        if changed:
            values["verdict"] = _encode(batch.verdict).decode()
            tx.changed(key.cluster, key.node, "verdict", batch.verdict.verdict)
    set_node(tx.connection, key, **values)
    return changed, row.boot_id not in {"", values["boot_id"]}


def node_records(connection: Connection, cluster: ClusterName) -> Sequence[NodeRecord]:
    query = select(nodes).where(nodes.c.cluster == cluster).order_by(nodes.c.node)
    return [_record(row) for row in connection.execute(query)]


def node_record(connection: Connection, key: NodeKey) -> NodeRecord | None:
    row = connection.execute(
        select(nodes).where(nodes.c.cluster == key.cluster, nodes.c.node == key.node)
    ).first()
    return None if row is None else _record(row)


def _record(row: Row[Any]) -> NodeRecord:
    return NodeRecord(
        cluster=row.cluster,
        node=row.node,
        rack=row.rack,
        hardware=_hardware(row.hardware) if row.hardware else None,
        verdict=_verdict(row.verdict) if row.verdict else None,
        verdict_since=row.verdict_since,
        seen=row.seen,
        scheduler=_scheduler(row.scheduler) if row.scheduler else None,
        agent_version=row.agent_version,
        boot_id=row.boot_id,
        policy_seen=row.policy_seen,
        advise_only=row.advise_only,
        dropped_debug=row.dropped_debug,
    )


def placed(connection: Connection, situation: NodeSituation) -> NodeSituation:
    """`situation` with what the scheduler shows of its node and what the node was last told."""
    row = connection.execute(
        select(nodes, clusters.c.scheduler_seen)
        .join(clusters, clusters.c.name == nodes.c.cluster)
        .where(nodes.c.cluster == situation.cluster, nodes.c.node == situation.node)
    ).first()
    if row is None:
        return situation
    view = _scheduler(row.scheduler) if row.scheduler else None
    return msgspec.structs.replace(
        situation,
        scheduler=view,
        scheduler_at=row.scheduler_seen if view else None,
        advise_only=row.advise_only,
        policy_ordered=row.policy_told,
        verdict=_verdict(row.verdict) if row.verdict else None,
    )


def cluster_records(connection: Connection) -> Sequence[ClusterRecord]:
    return [
        ClusterRecord(
            cluster=row.name,
            scheduler_seen=row.scheduler_seen,
            scheduler_error=row.scheduler_error,
            tripped_at=row.tripped_at,
        )
        for row in connection.execute(select(clusters).order_by(clusters.c.name))
    ]


def count_nodes(connection: Connection, cluster: ClusterName) -> int:
    """How many nodes the cluster has: those its scheduler knows, once it has been read. Whoever holds
    a join token could otherwise widen the guard's room with names.
    """
    query = select(func.count()).select_from(nodes).where(nodes.c.cluster == cluster)
    read = select(clusters.c.scheduler_seen).where(clusters.c.name == cluster)
    if connection.execute(read).scalar() is not None:
        query = query.where(nodes.c.scheduler.is_not(None))
    return int(connection.execute(query).scalar_one())


def scheduler_failed(tx: Writing, cluster: ClusterName, why: str) -> None:
    """Remember that the scheduler could not be read, and feed it when that is new."""
    ensure_cluster(tx.connection, cluster)
    row = tx.connection.execute(select(clusters).where(clusters.c.name == cluster)).one()
    if row.scheduler_error != why:
        tx.connection.execute(
            update(clusters).where(clusters.c.name == cluster).values(scheduler_error=why)
        )
        tx.changed(cluster, "", "scheduler", "unread")


def mirror_nodes(tx: Writing, cluster: ClusterName, seen: Sequence[SchedulerNode]) -> None:
    """Keep the scheduler's view of every node; what it no longer knows loses its view."""
    ensure_cluster(tx.connection, cluster)
    values: dict[str, object] = {"scheduler_seen": tx.now, "scheduler_error": ""}
    tx.connection.execute(update(clusters).where(clusters.c.name == cluster).values(**values))
    query = select(nodes.c.node, nodes.c.scheduler).where(nodes.c.cluster == cluster)
    before = {row.node: row.scheduler for row in tx.connection.execute(query)}
    after = {node.node: node for node in seen}
    bodies: dict[NodeName, str | None] = {n: _encode(node).decode() for n, node in after.items()}
    bodies |= {name: None for name in before if name not in after}
    fresh = [_fresh(NodeKey(cluster, name)) for name in after if name not in before]
    if fresh:
        tx.connection.execute(insert(nodes), fresh)
    changed = {name: body for name, body in bodies.items() if before.get(name) != body}
    if changed:
        _set_views(tx.connection, cluster, changed)
    told = [_tell(tx, cluster, name, after.get(name), before.get(name)) for name in changed]
    rows = [observation_row(one, tx.now) for one in told if one is not None]
    if rows:
        tx.connection.execute(insert(observations), rows)


def _set_views(
    connection: Connection, cluster: ClusterName, views: Mapping[NodeName, str | None]
) -> None:
    """All in one statement: a whole cluster changes at once when its scheduler restarts."""
    connection.execute(
        update(nodes)
        .where(nodes.c.cluster == bindparam("of"), nodes.c.node == bindparam("named"))
        .values(scheduler=bindparam("view")),
        [{"of": cluster, "named": name, "view": view} for name, view in views.items()],
    )


def _tell(
    tx: Writing,
    cluster: ClusterName,
    name: NodeName,
    node: SchedulerNode | None,
    before: str | None,
) -> Observation | None:
    """Feed a changed view; a change of anything but its jobs is also an observation to keep."""
    seq = tx.changed(cluster, name, "scheduler", plain(node.state, 32) if node else "unknown")
    old = _scheduler(before) if before else None
    if old is not None and node is not None and _standing(old) == _standing(node):
        return None
    return Observation(
        id=stable_id(cluster, name, str(seq), "scheduler", prefix=OURS),
        cluster=cluster,
        node=name,
        kind=ObservationKind.SCHEDULER,
        at=tx.now,
        data={
            "state": node.state if node else "unknown to the scheduler",
            "flags": "+".join(sorted(node.flags)) if node else "",
            "reason": node.reason if node else "",
            "reason_by": node.reason_by if node else "",
        },
    )


def _standing(node: SchedulerNode) -> tuple[object, ...]:
    """What of the scheduler's view is worth a line of history: not that a job came or went."""
    return node.out, node.flags - {"PLANNED", "COMPLETING"}, node.reason


def observation_row(observation: Observation, now: datetime) -> Mapping[str, object]:
    return {
        "cluster": observation.cluster,
        "node": observation.node,
        "id": observation.id,
        "kind": observation.kind.value,
        "at": observation.at,
        "received": now,
        "body": _encode(observation).decode(),
    }


def advised(connection: Connection, cluster: ClusterName) -> set[NodeName]:
    """Nodes whose last word from us is to advise only."""
    query = select(nodes.c.node).where(nodes.c.cluster == cluster, nodes.c.advise_only.is_(True))
    return set(connection.execute(query).scalars())
