"""Observations and findings: kept once, however often they are sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog
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

from komainu.core.names import ClusterName, NodeKey, NodeName, stable_id
from komainu.core.node import NodePolicy, weighs
from komainu.core.observation import Finding, Observation, ObservationKind
from komainu.core.record import FindingRecord
from komainu.core.verdict import Severity, Verdict
from komainu.core.wire import MAX_BATCH, Batch
from komainu.store.queries.feed import CHUNK, OURS, Writing, checked_id, plain
from komainu.store.queries.inventory import observation_row
from komainu.store.tables import findings, observations

log = structlog.get_logger()
_encode = msgspec.json.Encoder(order="deterministic").encode
_finding = msgspec.json.Decoder(Finding).decode
_observation = msgspec.json.Decoder(Observation).decode
MOST_OPEN, FIRST_OF_CODE = 2000, 20
"""Open findings kept of a node, light and heavy each, and of one code beyond that: a node that sends
more has a fault in its software, and would fill the database and every page.
"""
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
    """Keep those not yet known, open, and return them; of a node that has very many, only some."""
    by_id = {checked_id("finding", one.id): one for one in sent}
    for part in chunks(list(by_id)):
        query = select(findings.c.id).where(
            findings.c.cluster == key.cluster,
            findings.c.node == key.node,
            findings.c.id.in_(part),
        )
        for known in tx.connection.execute(query).scalars().all():
            del by_id[known]
    new = _within_bounds(tx, key, list(by_id.values()))
    if new:
        tx.connection.execute(insert(findings), [_row(one, tx.now) for one in new])
    for one in new:
        tx.changed(key.cluster, key.node, "finding", one.id)
    return new


def _within_bounds(tx: Writing, key: NodeKey, new: Sequence[Finding]) -> list[Finding]:
    """Those of `new` that are kept. Beyond MOST_OPEN a node's light findings are only counted, save the
    first of each code (the site's policy may grade that one higher); its heavy ones have as much room
    of their own.
    """
    if not new:
        return []
    of_code, light, heavy = _open_now(tx.connection, key)
    kept: list[Finding] = []
    for one in new:
        code = plain(one.code, 64)
        if _is_light(one.severity, one.verdict):
            rare = of_code[code] < FIRST_OF_CODE and light < 2 * MOST_OPEN
            fits = light < MOST_OPEN or rare
            light += fits
        else:
            fits = heavy < MOST_OPEN
            heavy += fits
        if fits:
            of_code[code] += 1
            kept.append(one)
    if len(kept) < len(new):
        _only_counted(tx, key, len(new) - len(kept))
    return kept


def _open_now(connection: Connection, key: NodeKey) -> tuple[Counter[str], int, int]:
    """A node's open findings: by code, and how many are light and heavy."""
    kind = (findings.c.code, findings.c.severity, findings.c.verdict)
    query = select(*kind, func.count()).group_by(*kind)
    query = _where(query, key.cluster, key.node, None, open_only=True)
    of_code: Counter[str] = Counter()
    light = heavy = 0
    for code, severity, verdict, number in connection.execute(query):
        of_code[code] += number
        if _is_light(Severity(severity), Verdict(verdict)):
            light += number
        else:
            heavy += number
    return of_code, light, heavy


def _is_light(severity: Severity, verdict: Verdict) -> bool:
    return verdict is Verdict.FAULT and severity <= Severity.WATCH


def _only_counted(tx: Writing, key: NodeKey, number: int) -> None:
    """One line an hour in the node's history says how many were not kept."""
    hour = tx.now.strftime("%Y-%m-%dT%H")
    ident = stable_id(key.cluster, key.node, "findings_not_kept", hour, prefix=OURS)
    this = (
        observations.c.cluster == key.cluster,
        observations.c.node == key.node,
        observations.c.id == ident,
    )
    before = tx.connection.execute(select(observations.c.body).where(*this)).scalar()
    if before is not None:
        number += int(_observation(before).data["count"] or 0)
    said = Observation(
        id=ident,
        cluster=key.cluster,
        node=key.node,
        kind=ObservationKind.AGENT,
        at=tx.now,
        data={"event": "findings_not_kept", "count": number},
    )
    if before is None:
        log.warning("findings_not_kept", node=str(key), open_at_most=MOST_OPEN)
        tx.connection.execute(insert(observations), [observation_row(said, tx.now)])
    else:
        tx.connection.execute(update(observations).where(*this).values(body=_encode(said).decode()))


def rests_on_unknown(connection: Connection, batch: Batch, key: NodeKey) -> bool:
    """Whether the verdict names findings that nobody has sent here: the node sent them to a database
    that was lost, or had no server then. A full batch may have left some for the next one, and while
    MOST_OPEN are kept of the node they would not be kept this time either.
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
    return bool(named) and max(_open_now(connection, key)[1:]) < MOST_OPEN


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
