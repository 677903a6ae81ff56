"""The change feed: what changed, in one order without gaps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update

from komainu.core.errors import InputError
from komainu.core.names import ClusterName, NodeName
from komainu.ports import Changed
from komainu.store.tables import changes, feed_counter

_ID = re.compile(r"[A-Za-z0-9_.:+\-]{1,128}")
OURS = "S-"
"""How the ids of the server's own observations begin: a node that could guess one would stand in the
way of the next look at the scheduler.
"""
CHUNK = 400
"""Ids in one IN (…): SQLite allows 32,766 parameters, and short statements are planned faster."""


class Writing:
    """One writing transaction. Whoever opens it holds the counter's row: writers come one by one."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self.connection = connection
        self.now = now
        self._seq: int = connection.execute(
            select(feed_counter.c.seq).with_for_update()
        ).scalar_one()
        self._changes: list[dict[str, object]] = []

    def changed(self, cluster: ClusterName, node: NodeName | str, what: str, ref: str) -> int:
        """Feed a change; its number, which is used for nothing else."""
        self._seq += 1
        self._changes.append(
            {
                "seq": self._seq,
                "at": self.now,
                "cluster": cluster,
                "node": node,
                "what": what,
                "ref": ref,
            }
        )
        return self._seq

    def close(self) -> None:
        """Write the feed's share; the caller commits."""
        if self._changes:
            self.connection.execute(insert(changes), self._changes)
            self.connection.execute(update(feed_counter).values(seq=self._seq))


def after(
    connection: Connection, seq: int, cluster: ClusterName | None, limit: int
) -> Sequence[Changed]:
    query = select(changes).where(changes.c.seq > seq).order_by(changes.c.seq).limit(limit)
    if cluster is not None:
        query = query.where(changes.c.cluster == cluster)
    return [
        Changed(
            seq=row.seq,
            at=row.at,
            cluster=row.cluster,
            node=row.node,
            what=row.what,
            ref=row.ref,
        )
        for row in connection.execute(query)
    ]


def last(connection: Connection) -> int:
    return int(connection.execute(select(feed_counter.c.seq)).scalar_one())


def prune(connection: Connection, before: datetime) -> None:
    """Forget old entries; the counter stays, so that numbers are never used again."""
    connection.execute(delete(changes).where(changes.c.at < before))


def checked_id(what: str, text: str) -> str:
    """An id that came from outside, or InputError."""
    if not _ID.fullmatch(text) or text.startswith(OURS):
        raise InputError(
            f"{what} id {text[:60]!r} is not usable: expected at most 128 letters, digits or "
            f"'_.:+-', not beginning with {OURS}. Ids are made by core.names.stable_id."
        )
    return text


def plain(text: str, limit: int = 128) -> str:
    """Text from outside for a column: bounded, and without what PostgreSQL cannot hold."""
    whole = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return whole[:limit]
