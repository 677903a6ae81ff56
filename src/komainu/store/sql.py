"""SqlStore: the port `Store`, and what the pages and the server need besides, over SQL.

Every method is one transaction. Writers come one at a time (queries/feed.py says why), which also
means that a check and the insert that follows from it cannot be torn apart by another writer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from komainu.core.decision import Action, Decision, Order, Outcome
from komainu.core.errors import InputError, StorageError
from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.core.node import NodePolicy, SchedulerJob, SchedulerNode
from komainu.core.observation import Finding
from komainu.core.record import (
    ClusterRecord,
    DecisionRecord,
    FindingRecord,
    GateSeen,
    History,
    NodeRecord,
    Standing,
)
from komainu.core.situation import ClusterSituation, NodeSituation, Thought
from komainu.core.wire import Batch
from komainu.ports import Changed, Received
from komainu.store.accounts import Accounts
from komainu.store.connect import connect
from komainu.store.queries import feed, gate, health, inventory, jobs, quarantine, remember
from komainu.store.queries.feed import Writing

RELEASED_ONCE_IN = timedelta(minutes=10)
"""`NodeSituation.released_jobs` looks back so far."""


def open_store(url: str) -> SqlStore:
    """The store at `url`, its tables brought up to date. Raises StorageError."""
    return SqlStore(url)


class SqlStore(Accounts):
    """What the server remembers. Safe to use from several threads."""

    def __init__(self, url: str) -> None:
        self._engine = connect(url)
        self._writer = self._engine.execution_options(writes=True)
        # SQLite would make writers poll for each other; in one process they can queue instead.
        local = self._engine.dialect.name == "sqlite"
        self._turn = threading.Lock() if local else nullcontext()

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise _failed("read", error) from error

    @contextmanager
    def _writing(self, now: datetime) -> Iterator[Writing]:
        try:
            with self._turn, self._writer.begin() as connection:
                tx = Writing(connection, now)
                yield tx
                tx.close()
        except SQLAlchemyError as error:
            raise _failed("write", error) from error

    # ── the port ─────────────────────────────────────────────────────────────────────────────────

    def receive(self, batch: Batch, now: datetime) -> Received:
        key = NodeKey(ClusterName(batch.cluster), NodeName(batch.node))
        speakers = {o.key for o in batch.observations} | {f.key for f in batch.findings}
        if speakers - {key}:
            raise InputError(
                f"batch {batch.id[:60]!r} of {key} carries reports of {min(speakers - {key})}: "
                "a node speaks only for itself"
            )
        with self._writing(now) as tx:
            remember.give_again(tx, batch, key)
            changed, booted = inventory.hear(tx, batch, key)
            if booted:
                gate.booted(tx, key, batch.boot_id)
            seen = health.keep_observations(tx, key, batch.observations)
            found = health.keep_findings(tx, key, batch.findings)
            gate.keep(tx, key, seen)
            stranger = health.rests_on_unknown(tx.connection, batch, key)
        return Received(
            observations=tuple(one.id for one in seen),
            findings=tuple(one.id for one in found),
            verdict_changed=changed,
            stranger=stranger,
        )

    def situation(self, key: NodeKey, now: datetime) -> NodeSituation:
        with self._reading() as connection:
            held = quarantine.held_back(connection, key.cluster, now, key.node)
            standing, outcome = quarantine.standing(connection, key)
            situation = NodeSituation(
                cluster=key.cluster,
                node=key.node,
                findings=tuple(
                    health.plain_findings(connection, key.cluster, key.node, open_only=True)
                ),
                standing=standing,
                standing_outcome=outcome,
                held_back=held.get(key.node),
                last_decision=quarantine.last_decision(connection, key),
                refusals=gate.refusals(connection, key),
                released_jobs=quarantine.released_jobs(connection, key, now - RELEASED_ONCE_IN),
                returning=quarantine.returning(connection, key),
            )
            return inventory.placed(connection, situation)

    def cluster_situation(
        self, cluster: ClusterName, now: datetime, window_s: int
    ) -> ClusterSituation:
        since = now - timedelta(seconds=window_s)
        with self._reading() as connection:
            tripped = {c.cluster: c.tripped_at for c in inventory.cluster_records(connection)}
            return ClusterSituation(
                cluster=cluster,
                nodes_total=inventory.count_nodes(connection, cluster),
                out=quarantine.count_against_guard(connection, cluster),
                removed_at=quarantine.removed_since(connection, cluster, since),
                tripped_at=tripped.get(cluster),
            )

    def unsettled(
        self, cluster: ClusterName, now: datetime, grades: NodePolicy
    ) -> Sequence[NodeKey]:
        """As the port says, and every node that stands out or was told to advise only, since those
        may have to be told otherwise.
        """
        with self._reading() as connection:
            names = health.nodes_that_weigh(connection, cluster, grades)
            names |= gate.nodes_with_refusals(connection, cluster)
            names |= set(quarantine.held_back(connection, cluster, now))
            names |= quarantine.count_against_guard(connection, cluster)
            names |= inventory.advised(connection, cluster)
        return [NodeKey(cluster, name) for name in sorted(names)]

    def remember(self, thought: Thought, now: datetime) -> None:
        if thought == Thought(cluster=thought.cluster):
            return
        with self._writing(now) as tx:
            remember.drop(tx, thought.dropped)
            new = remember.keep_decisions(tx, thought)
            remember.keep_orders(tx, thought.orders, new)
            gate.settle(tx, thought.settled)
            for back in thought.decisions:
                if back.action is Action.RESUME:
                    closed = [f for f in back.findings if f in thought.released]
                    health.close_findings(tx, back.key, closed, back.id)
            if thought.tripped is not None:
                for cluster in _clusters_of(thought):
                    remember.set_tripped(tx, cluster, tripped=thought.tripped)

    def to_do(
        self, cluster: ClusterName, now: datetime, told_within_s: float = 0
    ) -> Sequence[Decision]:
        with self._reading() as connection:
            return quarantine.to_do(connection, cluster, now, told_within_s)

    def untold(self, cluster: ClusterName, now: datetime, told_within_s: float) -> bool:
        """Whether something is due as soon as its node has taken its release."""
        with self._reading() as connection:
            return quarantine.untold(connection, cluster, now, told_within_s)

    def note(self, outcomes: Sequence[Outcome]) -> None:
        if not outcomes:
            return
        with self._writing(max(outcome.at for outcome in outcomes)) as tx:
            for outcome in outcomes:
                remember.note(tx, outcome)

    def orders_after(self, key: NodeKey, number: int) -> Sequence[Order]:
        with self._reading() as connection:
            return quarantine.orders_after(connection, key, number)

    def mirror(
        self,
        cluster: ClusterName,
        nodes: Sequence[SchedulerNode],
        jobs: Sequence[SchedulerJob],
        now: datetime,
    ) -> None:
        with self._writing(now) as tx:
            _mirror(tx, cluster, nodes, jobs)

    def findings(
        self, cluster: ClusterName, node: NodeName | None = None, *, open_only: bool = True
    ) -> Sequence[Finding]:
        with self._reading() as connection:
            return health.plain_findings(connection, cluster, node, open_only=open_only)

    # ── for the pages ────────────────────────────────────────────────────────────────────────────

    def clusters(self) -> Sequence[ClusterRecord]:
        with self._reading() as connection:
            return inventory.cluster_records(connection)

    def node_records(self, cluster: ClusterName) -> Sequence[NodeRecord]:
        with self._reading() as connection:
            return inventory.node_records(connection, cluster)

    def node_record(self, key: NodeKey) -> NodeRecord | None:
        with self._reading() as connection:
            return inventory.node_record(connection, key)

    def standings(self, cluster: ClusterName, now: datetime) -> Mapping[NodeName, Standing]:
        with self._reading() as connection:
            return quarantine.standings(connection, cluster, now)

    def kept_in_service(self, cluster: ClusterName, now: datetime) -> Sequence[NodeName]:
        with self._reading() as connection:
            return quarantine.kept_in_service(connection, cluster, now)

    def finding_records(
        self,
        cluster: ClusterName | None = None,
        node: NodeName | None = None,
        *,
        code: str | None = None,
        open_only: bool | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[FindingRecord]:
        with self._reading() as connection:
            return health.records(
                connection,
                cluster,
                node,
                code=code,
                open_only=open_only,
                before=before,
                limit=limit,
            )

    def count_findings(
        self,
        cluster: ClusterName | None = None,
        node: NodeName | None = None,
        *,
        code: str | None = None,
        open_only: bool | None = None,
    ) -> int:
        with self._reading() as connection:
            return health.count(connection, cluster, node, code, open_only)

    def finding_record(self, finding: str) -> FindingRecord | None:
        with self._reading() as connection:
            return health.record(connection, finding)

    def decision_records(
        self,
        cluster: ClusterName | None = None,
        node: NodeName | None = None,
        *,
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[DecisionRecord]:
        with self._reading() as connection:
            return quarantine.records(connection, cluster, node, before, limit)

    def decision_record(self, decision: str) -> DecisionRecord | None:
        with self._reading() as connection:
            return quarantine.record(connection, decision)

    def history(self, key: NodeKey, limit: int) -> History:
        with self._reading() as connection:
            return History(
                findings=tuple(
                    health.records(
                        connection,
                        key.cluster,
                        key.node,
                        code=None,
                        open_only=None,
                        before=None,
                        limit=limit,
                    )
                ),
                decisions=tuple(quarantine.records(connection, key.cluster, key.node, None, limit)),
                orders=tuple(quarantine.last_orders(connection, key, limit)),
                gate=tuple(gate.recent(connection, key, limit)),
                spoken=tuple(health.spoken(connection, key, limit)),
            )

    def admitted(
        self, cluster: ClusterName, node: NodeName | None = None
    ) -> Mapping[NodeName, Sequence[GateSeen]]:
        with self._reading() as connection:
            return gate.admitted(connection, cluster, node)

    def scheduler_jobs(self, cluster: ClusterName) -> Sequence[SchedulerJob]:
        with self._reading() as connection:
            return jobs.all_of(connection, cluster)

    def changes(
        self, after: int, *, cluster: ClusterName | None = None, limit: int = 500
    ) -> Sequence[Changed]:
        with self._reading() as connection:
            return feed.after(connection, after, cluster, limit)

    def last_seq(self) -> int:
        with self._reading() as connection:
            return feed.last(connection)

    # ── for the server ───────────────────────────────────────────────────────────────────────────

    def scheduler_failed(self, cluster: ClusterName, why: str, now: datetime) -> None:
        """The scheduler could not be read: shown on the cluster until it can."""
        with self._writing(now) as tx:
            inventory.scheduler_failed(tx, cluster, why)

    def prune(self, before: datetime) -> int:
        """Forget observations, feed entries and what the gates answered before `before`, but no job
        that still runs and no refusal that is not settled; findings, decisions, outcomes and orders
        are kept for good. Returns how many observations went. An hour's worth at a time, so that the
        server of a large database can write in between.
        """
        gone = 0
        while True:
            with self._writing(before) as tx:
                upto = health.oldest_slice(tx.connection, before)
                if upto is None:
                    feed.prune(tx.connection, before)
                    gate.prune(tx.connection, before)
                    return gone
                gone += health.prune_observations(tx.connection, upto)


def _mirror(
    tx: Writing,
    cluster: ClusterName,
    seen: Sequence[SchedulerNode],
    queue: Sequence[SchedulerJob],
) -> None:
    inventory.mirror_nodes(tx, cluster, seen)
    jobs.mirror(tx, cluster, queue)
    gate.mark_held(tx, cluster, queue)
    remember.expire(tx, cluster)


def _clusters_of(thought: Thought) -> set[ClusterName]:
    named = {decision.cluster for decision in thought.decisions}
    named |= {held.decision.cluster for held in thought.held}
    named |= {order.key.cluster for order in thought.orders}
    return named if thought.cluster is None else {thought.cluster}


def _failed(did: str, error: SQLAlchemyError) -> StorageError:
    return StorageError(
        f"the store could not {did}: {type(error).__name__}: {str(error)[:300]}. Nothing of this "
        "step was kept; it is tried again. Check the database and the disk it is on."
    )
