"""Observations and findings: kept once, however often they are sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import (
    Connection,
    Row,
    Select,
    delete,
    func,
    insert,
    select,
    update,
)

from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.core.node import NodePolicy, weighs
from komainu.core.observation import Finding, Observation, ObservationKind
from komainu.core.record import FindingRecord
from komainu.core.verdict import Severity, Verdict
from komainu.core.wire import MAX_BATCH, Batch
from komainu.store.queries.feed import CHUNK, Writing, checked_id, plain
from komainu.store.queries.inventory import observation_row
from komainu.store.tables import findings, observations

_encode = msgspec.json.Encoder(order="deterministic").encode
_finding = msgspec.json.Decoder(Finding).decode
_observation = msgspec.json.Decoder(Observation).decode
SPOKEN = (
    ObservationKind.AGENT,
    ObservationKind.KERNEL_GAP,
    ObservationKind.KERNEL_SOURCE,
    ObservationKind.SCHEDULER,
)
"""Kinds that a node's story tells; the others are told by the findings made of them."""


def chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[at : at + CHUNK] for at in range(0, len(ids), CHUNK))


def keep_observations(tx: Writing, key: NodeKey, sent: Sequence[Observation]) -> list[Observation]:
    """Keep those not yet known, and return them."""
    by_id = {checked_id("observation", one.id): one for one in sent}
    for part in chunks(list(by_id)):
        query = select(observations.c.id).where(
            observations.c.cluster == key.cluster,
            observations.c.node == key.node,
            observations.c.id.in_(part),
        )
        for known in tx.connection.execute(query).scalars().all():
            del by_id[known]
    new = list(by_id.values())
    if new:
        tx.connection.execute(insert(observations), [observation_row(o, tx.now) for o in new])
    return new


def keep_findings(tx: Writing, key: NodeKey, sent: Sequence[Finding]) -> list[Finding]:
    """Keep those not yet known, open, and return them."""
    by_id = {checked_id("finding", one.id): one for one in sent}
    for part in chunks(list(by_id)):
        query = select(findings.c.id).where(
            findings.c.cluster == key.cluster,
            findings.c.node == key.node,
            findings.c.id.in_(part),
        )
        for known in tx.connection.execute(query).scalars().all():
            del by_id[known]
    new = list(by_id.values())
    if new:
        tx.connection.execute(insert(findings), [_row(one, tx.now) for one in new])
    for one in new:
        tx.changed(key.cluster, key.node, "finding", one.id)
    return new


def rests_on_unknown(connection: Connection, batch: Batch, key: NodeKey) -> bool:
    """Whether the verdict names findings that nobody has sent here: the node sent them to a database
    that was lost, or had no server then. A full batch may have left some for the next one.
    """
    if batch.verdict is None or len(batch.findings) >= MAX_BATCH:
        return False
    named = {plain(ident) for ident in batch.verdict.findings}
    for part in chunks(sorted(named)):
        query = select(findings.c.id).where(
            findings.c.cluster == key.cluster,
            findings.c.node == key.node,
            findings.c.id.in_(part),
        )
        named -= set(connection.execute(query).scalars())
    return bool(named)


def _row(finding: Finding, now: datetime) -> dict[str, object]:
    return {
        "cluster": finding.cluster,
        "node": finding.node,
        "id": finding.id,
        "code": plain(finding.code, 64),
        "at": finding.at,
        "received": now,
        "cause": None if finding.cause is None else plain(finding.cause),
        "open": True,
        "severity": finding.severity.value,
        "verdict": finding.verdict.value,
        "body": _encode(finding).decode(),
    }


def close_findings(tx: Writing, key: NodeKey, ids: Sequence[str], by: str) -> None:
    """Close what the release `by` of one node names there; twice changes nothing. Nodes make their
    ids themselves, so another node's finding may bear the same one: it stays open.
    """
    for part in chunks(ids):
        query = select(findings.c.number, findings.c.id).where(
            findings.c.cluster == key.cluster,
            findings.c.node == key.node,
            findings.c.id.in_(part),
            findings.c.open.is_(True),
        )
        for row in tx.connection.execute(query).all():
            tx.connection.execute(
                update(findings)
                .where(findings.c.number == row.number)
                .values(open=False, released_by=by)
            )
            tx.changed(key.cluster, key.node, "finding", row.id)


def plain_findings(
    connection: Connection, cluster: ClusterName, node: NodeName | None, *, open_only: bool
) -> Sequence[Finding]:
    """Oldest first, as deciding reads them."""
    query = select(findings.c.body).order_by(findings.c.number)
    query = _where(query, cluster, node, None, open_only or None)
    return [_finding(body) for body in connection.execute(query).scalars()]


def nodes_that_weigh(
    connection: Connection, cluster: ClusterName, grades: NodePolicy
) -> set[NodeName]:
    """Nodes with an open finding that may ask for something. One row for each kind of finding on a
    node, however many there are of it: watched ones stay open for as long as nobody releases them.
    """
    query = select(findings.c.node, findings.c.code, findings.c.severity, findings.c.verdict)
    query = query.where(findings.c.cluster == cluster, findings.c.open.is_(True)).distinct()
    return {
        row.node
        for row in connection.execute(query)
        if weighs(row.code, Severity(row.severity), Verdict(row.verdict), grades)
    }


def records(
    connection: Connection,
    cluster: ClusterName | None,
    node: NodeName | None,
    *,
    code: str | None,
    open_only: bool | None,
    before: int | None,
    limit: int,
) -> Sequence[FindingRecord]:
    query = _where(select(findings), cluster, node, code, open_only)
    if before is not None:
        query = query.where(findings.c.number < before)
    query = query.order_by(findings.c.number.desc()).limit(limit)
    return _records(connection, connection.execute(query).all())


def record(connection: Connection, finding: str) -> FindingRecord | None:
    rows = connection.execute(select(findings).where(findings.c.id == finding).limit(1)).all()
    return next(iter(_records(connection, rows)), None)


def count(
    connection: Connection,
    cluster: ClusterName | None,
    node: NodeName | None,
    code: str | None,
    open_only: bool | None,  # noqa: FBT001 - three-valued: open, released, either
) -> int:
    query = select(func.count()).select_from(findings)
    return int(connection.execute(_where(query, cluster, node, code, open_only)).scalar_one())


def _where(
    query: Select[Any],
    cluster: ClusterName | None,
    node: NodeName | None,
    code: str | None,
    open_only: bool | None,  # noqa: FBT001 - three-valued, as above
) -> Select[Any]:
    if cluster is not None:
        query = query.where(findings.c.cluster == cluster)
    if node is not None:
        query = query.where(findings.c.node == node)
    if code is not None:
        query = query.where(findings.c.code == code)
    if open_only is not None:
        query = query.where(findings.c.open.is_(open_only))
    return query


def _records(connection: Connection, rows: Sequence[Row[Any]]) -> list[FindingRecord]:
    folded: dict[str, int] = {}
    for part in chunks([row.id for row in rows]):
        query = select(findings.c.cause, func.count()).where(findings.c.cause.in_(part))
        for row in connection.execute(query.group_by(findings.c.cause)):
            folded[row[0]] = row[1]
    return [
        FindingRecord(
            number=row.number,
            finding=_finding(row.body),
            open=row.open,
            received=row.received,
            released_by=row.released_by,
            count=1 + folded.get(row.id, 0),
        )
        for row in rows
    ]


def spoken(connection: Connection, key: NodeKey, limit: int) -> Sequence[Observation]:
    query = (
        select(observations.c.body)
        .where(
            observations.c.cluster == key.cluster,
            observations.c.node == key.node,
            observations.c.kind.in_([kind.value for kind in SPOKEN]),
        )
        .order_by(observations.c.received.desc())
        .limit(limit)
    )
    return [_observation(body) for body in connection.execute(query).scalars()]


def oldest_slice(connection: Connection, before: datetime) -> datetime | None:
    """The end of the oldest hour of observations older than `before`; None when there are none."""
    query = select(observations.c.received).where(observations.c.received < before)
    oldest = connection.execute(query.order_by(observations.c.received).limit(1)).scalar()
    return None if oldest is None else min(before, oldest + timedelta(hours=1))


def prune_observations(connection: Connection, before: datetime) -> int:
    """Forget observations received before `before`; findings carry their evidence with them."""
    return connection.execute(delete(observations).where(observations.c.received < before)).rowcount
