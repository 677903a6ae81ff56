"""The gates' answers: refusals to settle, and which job is on which node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import structlog
from sqlalchemy import Connection, Row, delete, insert, select, update

from komainu.core.errors import InputError
from komainu.core.gate import GateRecord, record_of_data
from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.core.node import HELD_BY_PROLOG, SchedulerJob
from komainu.core.observation import Observation, ObservationKind
from komainu.core.record import GateSeen
from komainu.core.situation import Refusal, Settled
from komainu.store.queries.feed import Writing, plain
from komainu.store.tables import gate

_encode = msgspec.json.Encoder(order="deterministic").encode
_record = msgspec.json.Decoder(GateRecord).decode
log = structlog.get_logger()


def keep(tx: Writing, key: NodeKey, new: Sequence[Observation]) -> None:
    """Keep what the gate answered, in the order it answered."""
    spoken = sorted((o for o in new if o.kind is ObservationKind.GATE), key=lambda o: o.at)
    for observation in spoken:
        try:
            record = record_of_data(observation.data)
        except InputError as error:
            log.warning("gate_record_refused", node=str(key), why=str(error))
            continue
        tx.connection.execute(
            insert(gate).values(
                cluster=key.cluster,
                node=key.node,
                observation=observation.id,
                at=observation.at,
                received=tx.now,
                state=_state(tx, key, record),
                job=plain(record.job, 64),
                held=False,
                body=_encode(record).decode(),
            )
        )
        tx.changed(key.cluster, key.node, "job", plain(record.job, 64))


def _state(tx: Writing, key: NodeKey, record: GateRecord) -> str:
    """What a new answer is; a job's end, or its next start, ends what ran under that id before."""
    if record.where == "prolog" and record.answer == "refuse":
        return "refused"
    ended = tx.connection.execute(
        update(gate)
        .where(*_of(key), gate.c.job == plain(record.job, 64), gate.c.state == "running")
        .values(state="ended")
    ).rowcount
    if record.where == "prolog":
        return "running"
    return "ended" if ended else "stray"


def booted(tx: Writing, key: NodeKey, boot_id: str) -> None:
    """A node that has booted since runs none of the jobs it ran before."""
    query = select(gate.c.number, gate.c.body).where(*_of(key), gate.c.state == "running")
    gone = [
        row.number for row in tx.connection.execute(query) if _record(row.body).boot_id != boot_id
    ]
    tx.connection.execute(update(gate).where(gate.c.number.in_(gone)).values(state="ended"))


def _of(key: NodeKey) -> tuple[Any, ...]:
    return gate.c.cluster == key.cluster, gate.c.node == key.node


def refusals(connection: Connection, key: NodeKey) -> tuple[Refusal, ...]:
    query = select(gate).where(*_of(key), gate.c.state == "refused").order_by(gate.c.number)
    return tuple(
        Refusal(
            observation=row.observation,
            at=row.at,
            record=_record(row.body),
            held=row.held,
            received=row.received,
        )
        for row in connection.execute(query)
    )


def nodes_with_refusals(connection: Connection, cluster: ClusterName) -> set[NodeName]:
    query = select(gate.c.node).where(gate.c.cluster == cluster, gate.c.state == "refused")
    return set(connection.execute(query.distinct()).scalars())


def settle(tx: Writing, settled: Sequence[Settled]) -> None:
    for one in settled:
        tx.connection.execute(
            update(gate)
            .where(
                *_of(one.key),
                gate.c.observation == one.observation,
                gate.c.state == "refused",
            )
            .values(state="settled", settled_by=one.decision)
        )


def mark_held(tx: Writing, cluster: ClusterName, jobs: Iterable[SchedulerJob]) -> None:
    """Mark the refusals whose job the scheduler holds because of a failed prolog, and unmark those
    whose job it no longer holds.
    """
    held = {job.id for job in jobs if job.held and job.reason == HELD_BY_PROLOG}
    query = select(gate.c.number, gate.c.node, gate.c.job, gate.c.held, gate.c.observation).where(
        gate.c.cluster == cluster, gate.c.state == "refused"
    )
    for row in tx.connection.execute(query).all():
        if row.held != (row.job in held):
            tx.connection.execute(
                update(gate).where(gate.c.number == row.number).values(held=row.job in held)
            )
            tx.changed(cluster, row.node, "job", row.job)


def admitted(
    connection: Connection, cluster: ClusterName, node: NodeName | None
) -> Mapping[NodeName, Sequence[GateSeen]]:
    query = select(gate).where(gate.c.cluster == cluster, gate.c.state == "running")
    if node is not None:
        query = query.where(gate.c.node == node)
    found: dict[NodeName, list[GateSeen]] = {}
    for row in connection.execute(query.order_by(gate.c.number)):
        found.setdefault(row.node, []).append(_seen(row))
    return found


def prune(connection: Connection, before: datetime) -> None:
    """Forget answers received before `before` that nothing waits for any more."""
    over = gate.c.state.in_(["ended", "stray", "settled"])
    connection.execute(delete(gate).where(gate.c.received < before, over))


def recent(connection: Connection, key: NodeKey, limit: int) -> Sequence[GateSeen]:
    query = select(gate).where(*_of(key)).order_by(gate.c.number.desc()).limit(limit)
    return [_seen(row) for row in connection.execute(query)]


def _seen(row: Row[Any]) -> GateSeen:
    return GateSeen(
        node=row.node,
        observation=row.observation,
        at=row.at,
        record=_record(row.body),
        settled_by=row.settled_by,
    )
