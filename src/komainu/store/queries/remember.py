"""Remembering a thought and what came of it. Asking is in quarantine.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, and_, insert, or_, select, true, update

from komainu.core.decision import FINAL, Action, Decision, Order, OrderKind, Outcome, Result
from komainu.core.errors import StorageError
from komainu.core.names import ClusterName, NodeKey
from komainu.core.situation import Held, NodeOrder, Thought
from komainu.core.wire import Batch
from komainu.store.queries.feed import Writing, checked_id
from komainu.store.queries.health import chunks
from komainu.store.queries.inventory import ensure_cluster, ensure_node, set_node
from komainu.store.queries.quarantine import TAKES_OUT, newest_order, orders_after
from komainu.store.tables import clusters, decisions, orders, outcomes

_encode = msgspec.json.Encoder(order="deterministic").encode
_outcome = msgspec.json.Decoder(Outcome).decode


def keep_decisions(tx: Writing, thought: Thought) -> set[str]:
    """Keep what is new and return its ids: unknown decisions, and held ones the guard now allows."""
    new: set[str] = set()
    for decision in thought.decisions:
        row = _find(tx.connection, checked_id("decision", decision.id))
        if row is not None and (row.allowed or row.final):
            continue
        if row is None:
            _insert(tx, decision, allowed=True, limit="")
        else:
            _allow(tx, decision)
        new.add(decision.id)
        _supersede(tx, decision)
        tx.changed(decision.cluster, decision.node, "decision", decision.id)
    for held in thought.held:
        if _hold_back(tx, held):
            new.add(held.decision.id)
    return new


def _find(connection: Connection, decision: str) -> Row[Any] | None:
    return connection.execute(select(decisions).where(decisions.c.id == decision)).first()


def _insert(tx: Writing, decision: Decision, *, allowed: bool, limit: str) -> None:
    ensure_node(tx.connection, decision.key)
    tx.connection.execute(
        insert(decisions).values(
            id=decision.id,
            cluster=decision.cluster,
            node=decision.node,
            action=decision.action.value,
            at=decision.at,
            remembered=tx.now,
            expires=decision.expires,
            allowed=allowed,
            allowed_at=tx.now if allowed else None,
            guard_limit=limit,
            final=False,
            body=_encode(decision).decode(),
        )
    )


def _allow(tx: Writing, decision: Decision) -> None:
    """The guard lets a held decision pass: it takes its place among the newest."""
    tx.connection.execute(
        update(decisions)
        .where(decisions.c.id == decision.id)
        .values(
            allowed=True,
            allowed_at=tx.now,
            guard_limit="",
            result=None,
            at=decision.at,
            expires=decision.expires,
            body=_encode(decision).decode(),
        )
    )


def _hold_back(tx: Writing, held: Held) -> bool:
    """Whether the decision is new; one the guard has already let pass is not held after the fact."""
    decision = held.decision
    row = _find(tx.connection, checked_id("decision", decision.id))
    if row is None:
        _insert(tx, decision, allowed=False, limit=held.limit)
    elif row.allowed or row.final:
        return False
    outcome = Outcome(
        decision=decision.id,
        cluster=decision.cluster,
        node=decision.node,
        result=held.result,
        at=tx.now,
        detail=held.limit,
    )
    if row is None or (row.guard_limit, row.result) != (held.limit, held.result.value):
        note(tx, outcome, final=False)
        tx.connection.execute(
            update(decisions).where(decisions.c.id == decision.id).values(guard_limit=held.limit)
        )
        tx.changed(decision.cluster, decision.node, "decision", decision.id)
    return row is None


def _supersede(tx: Writing, decision: Decision) -> None:
    """End what `decision` makes stale on its node, so that it is never carried out after it."""
    if decision.action not in {Action.DRAIN, Action.ADOPT, Action.RESUME}:
        return
    resume = decision.action is Action.RESUME
    of_node = and_(
        decisions.c.cluster == decision.cluster,
        decisions.c.node == decision.node,
        decisions.c.id != decision.id,
    )
    # A removal overtakes the older ones that were to be done too: were the clock set back, one that
    # had expired would be to do again. What the guard holds back is for deciding to drop.
    taken_out = decisions.c.action.in_(TAKES_OUT)
    stale = (
        taken_out
        if resume
        else or_(
            decisions.c.action == Action.RESUME.value,
            and_(taken_out, decisions.c.allowed.is_(True)),
        )
    )
    query = select(decisions).where(of_node, stale, decisions.c.final.is_(False))
    for row in tx.connection.execute(query).all():
        _conclude(tx, row, Result.EXPIRED, f"superseded by {decision.id}")
    # What keeps the node out from now on is this decision alone, whatever the clock said when the
    # others were allowed (it may have been set back since).
    tx.connection.execute(
        update(decisions)
        .where(
            of_node,
            decisions.c.action.in_(TAKES_OUT),
            decisions.c.allowed.is_(True) if not resume else true(),
            decisions.c.undone_by.is_(None),
        )
        .values(undone_by=decision.id)
    )


def expire(tx: Writing, cluster: ClusterName) -> None:
    """End what was not carried out in time: it is dropped, never replayed."""
    query = select(decisions).where(
        decisions.c.cluster == cluster,
        decisions.c.final.is_(False),
        decisions.c.expires <= tx.now,
    )
    for row in tx.connection.execute(query).all():
        _conclude(tx, row, Result.EXPIRED, f"not carried out by {row.expires.isoformat()}")


def _conclude(tx: Writing, row: Row[Any], result: Result, detail: str) -> None:
    note(
        tx,
        Outcome(
            decision=row.id,
            cluster=row.cluster,
            node=row.node,
            result=result,
            at=tx.now,
            detail=detail,
        ),
    )


def drop(tx: Writing, ids: Sequence[str]) -> None:
    """End held decisions that the present state no longer asks for."""
    for part in chunks(ids):
        query = select(decisions).where(
            decisions.c.id.in_(part),
            decisions.c.allowed.is_(False),
            decisions.c.final.is_(False),
        )
        for row in tx.connection.execute(query).all():
            _conclude(tx, row, Result.EXPIRED, "no longer called for")


def note(tx: Writing, outcome: Outcome, *, final: bool | None = None) -> None:
    """Keep an outcome; the same one again (a retry that failed the same way) only moves its time.
    `final` overrides what the result says: a decision held back is never final.
    """
    row = _find(tx.connection, outcome.decision)
    if row is None:
        raise StorageError(
            f"outcome {outcome.result} is of decision {outcome.decision}, which is not remembered: "
            "decisions are remembered before anything is done"
        )
    query = select(outcomes).where(outcomes.c.decision == outcome.decision)
    last = tx.connection.execute(query.order_by(outcomes.c.number.desc()).limit(1)).first()
    body = _encode(outcome).decode()
    if last is not None and _same(_outcome(last.body), outcome):
        tx.connection.execute(
            update(outcomes)
            .where(outcomes.c.number == last.number)
            .values(at=outcome.at, body=body)
        )
        return
    tx.connection.execute(
        insert(outcomes).values(
            cluster=row.cluster,
            decision=outcome.decision,
            result=outcome.result.value,
            at=outcome.at,
            body=body,
        )
    )
    tx.connection.execute(
        update(decisions)
        .where(decisions.c.id == outcome.decision)
        .values(
            result=outcome.result.value,
            final=outcome.result in FINAL if final is None else final,
        )
    )
    if outcome.result is Result.EXPIRED and row.action == Action.RESUME.value:
        # The node was not resumed after all, so what it undid stands again.
        tx.connection.execute(
            update(decisions).where(decisions.c.undone_by == row.id).values(undone_by=None)
        )
    tx.changed(row.cluster, row.node, "outcome", outcome.decision)


def _same(one: Outcome, other: Outcome) -> bool:
    return one.result is other.result and one.detail == other.detail


def keep_orders(tx: Writing, given: Sequence[NodeOrder], new: set[str]) -> None:
    """Number and keep orders; those of a decision that was known before were given with it."""
    fresh: dict[str, bool] = {}
    for one in given:
        decision = one.order.decision
        if decision is not None and decision not in new:
            if decision not in fresh:
                fresh[decision] = _find(tx.connection, decision) is None
            if not fresh[decision]:
                continue
        _append(tx, one.key, one.order)


def give_again(tx: Writing, batch: Batch, key: NodeKey) -> None:
    """Where the node follows orders that this database does not tell of (it was restored from a
    backup since), number on above them and say again what stands, so that nothing given under a
    number the node takes for an old one is lost. Before the batch itself is kept.

    A HOLD stands until a RELEASE. A RELEASE is said again only when the node had not taken it: the
    lost database may have held the node for something else since, and that is for a person to lift.
    """
    seen = batch.orders_seen
    if seen == 0 or not _of_a_lost_past(tx.connection, batch, key):
        return
    row = ensure_node(tx.connection, key)
    stand = _standing_orders(orders_after(tx.connection, key, 0), row.orders_seen, tx.now)
    set_node(tx.connection, key, last_order=max(row.last_order, seen))
    for order in stand:
        _append(tx, key, msgspec.structs.replace(order, at=tx.now, again=True))


def _of_a_lost_past(connection: Connection, batch: Batch, key: NodeKey) -> bool:
    """Whether the order the node saw last is not the one we gave under that number. Where there is
    none of that number and there are later ones, those were said again for such a node before.
    """
    seen = batch.orders_seen
    ours = orders_after(connection, key, seen - 1)
    if not ours or ours[0].number > seen:
        return not ours
    if batch.orders_at is None or any(order.again for order in ours):
        return False
    return ours[0].at != batch.orders_at


def _standing_orders(given: Sequence[Order], taken: int, now: datetime) -> list[Order]:
    """What of `given` still stands; `taken` is the number the node had acknowledged."""
    last = {order.kind: order for order in given}
    word = next((o for o in reversed(given) if o.kind in {OrderKind.HOLD, OrderKind.RELEASE}), None)
    policy, advise = last.get(OrderKind.POLICY), last.get(OrderKind.ADVISE_ONLY)
    untaken = [o for o in given if o.kind is OrderKind.RELEASE and o.number > taken]
    return [
        *([policy] if policy else []),
        *untaken,
        *([word] if word is not None and word.kind is OrderKind.HOLD else []),
        advise or Order(number=0, kind=OrderKind.ADVISE_ONLY, at=now, value="off"),
    ]


def _append(tx: Writing, key: NodeKey, order: Order) -> None:
    number = ensure_node(tx.connection, key).last_order + 1
    order = msgspec.structs.replace(order, number=number, previous=newest_order(tx.connection, key))
    tx.connection.execute(
        insert(orders).values(
            cluster=key.cluster,
            node=key.node,
            number=number,
            decision=order.decision,
            body=_encode(order).decode(),
        )
    )
    values: dict[str, object] = {"last_order": number}
    if order.kind is OrderKind.ADVISE_ONLY:
        values["advise_only"] = order.value == "on"
    if order.kind is OrderKind.POLICY:
        values["policy_told"] = order.policy_version
    set_node(tx.connection, key, **values)
    tx.changed(key.cluster, key.node, "order", str(number))


def set_tripped(tx: Writing, cluster: ClusterName, *, tripped: bool) -> None:
    ensure_cluster(tx.connection, cluster)
    row = tx.connection.execute(select(clusters).where(clusters.c.name == cluster)).one()
    if (row.tripped_at is not None) != tripped:
        tx.connection.execute(
            update(clusters)
            .where(clusters.c.name == cluster)
            .values(tripped_at=tx.now if tripped else None)
        )
        tx.changed(cluster, "", "guard", "tripped" if tripped else "recovered")
