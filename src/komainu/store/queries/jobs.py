"""The scheduler's queue, mirrored: what it has forgotten leaves here too."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import BindParameter, Connection, bindparam, delete, insert, select, update

from komainu.core.names import ClusterName
from komainu.core.node import SchedulerJob
from komainu.store.queries.feed import Writing, plain
from komainu.store.queries.health import chunks
from komainu.store.tables import jobs

_encode = msgspec.json.Encoder(order="deterministic").encode
_OF: BindParameter[str] = bindparam("of")
_NAMED: BindParameter[str] = bindparam("named")
_VALUES: dict[str, BindParameter[str]] = {"state": bindparam("now"), "body": bindparam("whole")}
_job = msgspec.json.Decoder(SchedulerJob).decode


def mirror(tx: Writing, cluster: ClusterName, seen: Sequence[SchedulerJob]) -> None:
    query = select(jobs.c.id, jobs.c.body).where(jobs.c.cluster == cluster)
    before = {row.id: row.body for row in tx.connection.execute(query)}
    now = {plain(job.id, 64): job for job in seen}
    rows = [
        {"of": cluster, "named": ident, "now": plain(job.state, 32), "whole": body}
        for ident, job in now.items()
        if before.get(ident) != (body := _encode(job).decode())
    ]
    new = [row for row in rows if row["named"] not in before]
    old = [row for row in rows if row["named"] in before]
    if new:
        tx.connection.execute(insert(jobs).values(**_VALUES, cluster=_OF, id=_NAMED), new)
    if old:
        tx.connection.execute(
            update(jobs).where(jobs.c.cluster == _OF, jobs.c.id == _NAMED).values(**_VALUES), old
        )
    for row in rows:
        ident = row["named"]
        if ident not in before or _shown(_job(before[ident])) != _shown(now[ident]):
            tx.changed(cluster, "", "job", ident)
    gone = sorted(before.keys() - now.keys())
    for part in chunks(gone):
        tx.connection.execute(delete(jobs).where(jobs.c.cluster == cluster, jobs.c.id.in_(part)))
    for ident in gone:
        tx.changed(cluster, "", "job", ident)


def _shown(job: SchedulerJob) -> tuple[object, ...]:
    """What of a job is worth a line in the feed; its waiting reason changes all the time."""
    return job.state, job.nodes, job.held


def all_of(connection: Connection, cluster: ClusterName) -> Sequence[SchedulerJob]:
    query = select(jobs.c.body).where(jobs.c.cluster == cluster).order_by(jobs.c.id)
    return [_job(body) for body in connection.execute(query).scalars()]
