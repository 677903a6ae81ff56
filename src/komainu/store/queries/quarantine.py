"""Asking what was decided, what came of it, and what the nodes were told (written in remember.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, and_, exists, func, not_, or_, select

from komainu.core.decision import Action, Decision, Order, Outcome, Result
from komainu.core.names import ClusterName, JobId, NodeKey, NodeName
from komainu.core.record import DecisionRecord, Standing
from komainu.store.queries.health import chunks
from komainu.store.tables import decisions, nodes, orders, outcomes

_decision = msgspec.json.Decoder(Decision).decode
_outcome = msgspec.json.Decoder(Outcome).decode
_order = msgspec.json.Decoder(Order).decode
TAKES_OUT = (Action.DRAIN.value, Action.ADOPT.value)


_NOT_UNDONE = and_(
    decisions.c.action.in_(TAKES_OUT),
    decisions.c.allowed.is_(True),
    decisions.c.undone_by.is_(None),
)
"""A DRAIN or ADOPT that stands, whatever came of it."""


def _keeps_out(now: datetime) -> ColumnElement[bool]:
    """Whether a standing decision keeps its node out by our doing: done, or still to be done."""
    return or_(
        decisions.c.result.in_([Result.DONE.value, Result.ALREADY.value]),
        and_(decisions.c.final.is_(False), _not_expired(now)),
    )


def _not_expired(now: datetime) -> ColumnElement[bool]:
    return or_(decisions.c.expires.is_(None), decisions.c.expires > now)


def standings(
    connection: Connection, cluster: ClusterName, now: datetime
) -> Mapping[NodeName, Standing]:
    """The newest decision that keeps it out, of each node that is out by our doing."""
    query = (
        select(decisions.c.node, decisions.c.final, decisions.c.body)
        .where(decisions.c.cluster == cluster, _NOT_UNDONE, _keeps_out(now))
        .order_by(decisions.c.allowed_at, decisions.c.number)
    )
    return {
        row.node: Standing(decision=_decision(row.body), done=row.final)
        for row in connection.execute(query)
    }


def count_against_guard(connection: Connection, cluster: ClusterName) -> frozenset[NodeName]:
    """Nodes with a decision that stands, whatever came of it: their gates hold even where the
    scheduler could not be reached, or someone else has the node out. And nodes whose return is
    decided and not yet done: they are still out, so their room is not free.
    """
    returning = select(decisions.c.id).where(
        decisions.c.cluster == cluster,
        decisions.c.action == Action.RESUME.value,
        decisions.c.final.is_(False),
    )
    query = select(decisions.c.node).where(
        decisions.c.cluster == cluster,
        decisions.c.action.in_(TAKES_OUT),
        decisions.c.allowed.is_(True),
        or_(decisions.c.undone_by.is_(None), decisions.c.undone_by.in_(returning)),
    )
    return frozenset(connection.execute(query.distinct()).scalars())


def standing(connection: Connection, key: NodeKey) -> tuple[Decision | None, Outcome | None]:
    """The newest allowed and not undone decision to take a node out, and the newest outcome of it:
    also one that came to nothing, so that deciding can try again.
    """
    row = connection.execute(
        select(decisions)
        .where(*_of(key), _NOT_UNDONE)
        .order_by(decisions.c.allowed_at.desc(), decisions.c.number.desc())
        .limit(1)
    ).first()
    if row is None:
        return None, None
    # Outcomes from the time it was held back are not what came of doing it.
    query = (
        select(outcomes.c.body)
        .where(outcomes.c.decision == row.id, outcomes.c.result == row.result)
        .order_by(outcomes.c.number.desc())
    )
    body = connection.execute(query.limit(1)).scalar()
    return _decision(row.body), None if body is None else _outcome(body)


def last_decision(connection: Connection, key: NodeKey) -> str:
    """Id of the newest decision to take the node out or give it back, whatever became of it."""
    query = (
        select(decisions.c.id)
        .where(*_of(key), decisions.c.action != Action.RELEASE_JOB.value)
        .order_by(decisions.c.number.desc())
    )
    return connection.execute(query.limit(1)).scalar() or ""


def returning(connection: Connection, key: NodeKey) -> bool:
    """Whether the node's return is decided and not yet done."""
    query = select(decisions.c.id).where(
        *_of(key), decisions.c.action == Action.RESUME.value, decisions.c.final.is_(False)
    )
    return connection.execute(query.limit(1)).first() is not None


def released_jobs(connection: Connection, key: NodeKey, since: datetime) -> frozenset[JobId]:
    """Jobs whose release was decided because of this node after `since`."""
    query = select(decisions.c.body).where(
        *_of(key),
        decisions.c.action == Action.RELEASE_JOB.value,
        decisions.c.remembered > since,
    )
    jobs = (_decision(body).job for body in connection.execute(query).scalars())
    return frozenset(job for job in jobs if job is not None)


def _of(key: NodeKey) -> tuple[ColumnElement[bool], ...]:
    return decisions.c.cluster == key.cluster, decisions.c.node == key.node


def held_back(
    connection: Connection, cluster: ClusterName, now: datetime, node: NodeName | None = None
) -> Mapping[NodeName, Decision]:
    query = select(decisions.c.node, decisions.c.body).where(
        decisions.c.cluster == cluster,
        decisions.c.action.in_(TAKES_OUT),
        decisions.c.allowed.is_(False),
        decisions.c.final.is_(False),
        _not_expired(now),
    )
    if node is not None:
        query = query.where(decisions.c.node == node)
    query = query.order_by(decisions.c.number)
    return {row.node: _decision(row.body) for row in connection.execute(query)}


def kept_in_service(
    connection: Connection, cluster: ClusterName, now: datetime
) -> Sequence[NodeName]:
    """Nodes the guard, and nothing else, keeps in service though they are condemned. One whose
    adoption it holds back is out: Slurm has drained it.
    """
    query = select(decisions.c.node).where(
        decisions.c.cluster == cluster,
        decisions.c.action == Action.DRAIN.value,
        decisions.c.allowed.is_(False),
        decisions.c.final.is_(False),
        decisions.c.result == Result.HELD.value,
        _not_expired(now),
    )
    return sorted(set(connection.execute(query).scalars()))


def removed_since(
    connection: Connection, cluster: ClusterName, since: datetime
) -> tuple[datetime, ...]:
    """When the guard let a removal pass; one that came to nothing does not count."""
    query = (
        select(decisions.c.allowed_at)
        .where(
            decisions.c.cluster == cluster,
            decisions.c.action.in_(TAKES_OUT),
            decisions.c.allowed_at > since,
            or_(
                decisions.c.result.is_(None),
                decisions.c.result.not_in([Result.FOREIGN.value, Result.EXPIRED.value]),
            ),
        )
        .order_by(decisions.c.allowed_at)
    )
    return tuple(connection.execute(query).scalars())


def to_do(
    connection: Connection, cluster: ClusterName, now: datetime, told_within_s: float
) -> Sequence[Decision]:
    query = (
        select(decisions.c.body)
        .where(*_due(cluster, now), not_(_untold(now, told_within_s)))
        .order_by(decisions.c.allowed_at, decisions.c.number)
    )
    return [_decision(body) for body in connection.execute(query).scalars()]


def untold(
    connection: Connection, cluster: ClusterName, now: datetime, told_within_s: float
) -> bool:
    """Whether something is due as soon as its node has taken its release."""
    waiting = _untold(now, told_within_s)
    query = select(decisions.c.id).where(*_due(cluster, now), waiting).limit(1)
    return connection.execute(query).first() is not None


def _due(cluster: ClusterName, now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (
        decisions.c.cluster == cluster,
        decisions.c.allowed.is_(True),
        decisions.c.final.is_(False),
        _not_expired(now),
    )


def _untold(now: datetime, told_within_s: float) -> ColumnElement[bool]:
    """A node to be given back that has not yet taken its RELEASE: were it resumed now, the job that
    the scheduler sends at once would be refused by the old verdict. A silent agent is not waited
    for beyond `told_within_s`.
    """
    not_taken = (
        select(orders.c.number)
        .join(nodes, and_(nodes.c.cluster == orders.c.cluster, nodes.c.node == orders.c.node))
        .where(
            orders.c.cluster == decisions.c.cluster,
            orders.c.node == decisions.c.node,
            orders.c.decision == decisions.c.id,
            orders.c.number > nodes.c.orders_seen,
        )
    )
    return and_(
        decisions.c.action == Action.RESUME.value,
        decisions.c.allowed_at > now - timedelta(seconds=told_within_s),
        exists(not_taken),
    )


def orders_after(connection: Connection, key: NodeKey, number: int) -> Sequence[Order]:
    query = select(orders.c.body).where(
        orders.c.cluster == key.cluster, orders.c.node == key.node, orders.c.number > number
    )
    return [_order(body) for body in connection.execute(query.order_by(orders.c.number)).scalars()]


def newest_order(connection: Connection, key: NodeKey) -> int:
    """Number of the last order given to the node, 0 when there is none."""
    query = select(func.max(orders.c.number))
    query = query.where(orders.c.cluster == key.cluster, orders.c.node == key.node)
    return int(connection.execute(query).scalar_one() or 0)


def last_orders(connection: Connection, key: NodeKey, limit: int) -> Sequence[Order]:
    query = select(orders.c.body).where(orders.c.cluster == key.cluster, orders.c.node == key.node)
    query = query.order_by(orders.c.number.desc()).limit(limit)
    return [_order(body) for body in connection.execute(query).scalars()]


def records(
    connection: Connection,
    cluster: ClusterName | None,
    node: NodeName | None,
    before: int | None,
    limit: int,
) -> Sequence[DecisionRecord]:
    query = select(decisions)
    if cluster is not None:
        query = query.where(decisions.c.cluster == cluster)
    if node is not None:
        query = query.where(decisions.c.node == node)
    if before is not None:
        query = query.where(decisions.c.number < before)
    query = query.order_by(decisions.c.number.desc()).limit(limit)
    return _records(connection, connection.execute(query).all())


def record(connection: Connection, decision: str) -> DecisionRecord | None:
    row = connection.execute(select(decisions).where(decisions.c.id == decision)).first()
    return None if row is None else _records(connection, [row])[0]


def _records(connection: Connection, rows: Sequence[Row[Any]]) -> list[DecisionRecord]:
    came: dict[str, list[Outcome]] = {}
    for part in chunks([row.id for row in rows]):
        query = select(outcomes).where(outcomes.c.decision.in_(part)).order_by(outcomes.c.number)
        for row in connection.execute(query):
            came.setdefault(row.decision, []).append(_outcome(row.body))
    return [
        DecisionRecord(
            number=row.number,
            decision=_decision(row.body),
            allowed=row.allowed,
            allowed_at=row.allowed_at,
            limit=row.guard_limit,
            outcomes=tuple(came.get(row.id, ())),
        )
        for row in rows
    ]
