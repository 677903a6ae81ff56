"""The store as the flow needs it, in memory: the model the real one is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from komainu.core.decision import FINAL, Action, Decision, Order, OrderKind, Outcome, Result
from komainu.core.gate import record_of_data
from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.core.node import HELD_BY_PROLOG, NodePolicy, NodeVerdict, SchedulerJob, SchedulerNode
from komainu.core.observation import Finding, ObservationKind
from komainu.core.situation import ClusterSituation, NodeSituation, Refusal, Thought
from komainu.core.wire import Batch
from komainu.ports import Received

REMOVALS = {Action.DRAIN, Action.ADOPT}


class Row:
    """A decision and what became of it."""

    def __init__(self, decision: Decision, *, allowed: bool, at: datetime) -> None:
        self.decision = decision
        self.allowed = allowed
        self.allowed_at = at
        self.undone = False
        self.ends = False
        """Whether it is a return that has ended a removal of ours."""
        self.final = False
        self.outcome: Outcome | None = None

    def end(self, result: Result, at: datetime) -> None:
        d = self.decision
        self.outcome = Outcome(decision=d.id, cluster=d.cluster, node=d.node, result=result, at=at)
        self.final = True

    def live(self, now: datetime) -> bool:
        return not self.final and (self.decision.expires is None or self.decision.expires > now)


class MemoryStore:
    """One cluster in memory."""

    def __init__(self, cluster: ClusterName, nodes: Sequence[NodeName]) -> None:
        self.cluster = cluster
        self.names = list(nodes)
        self.rows: dict[str, Row] = {}
        self.found: dict[str, Finding] = {}
        self.closed: set[str] = set()
        self.refused: dict[str, tuple[NodeName, Refusal]] = {}
        self.settled: set[str] = set()
        self.given: dict[NodeKey, list[Order]] = {}
        self.view: dict[NodeName, SchedulerNode] = {}
        self.viewed_at: datetime | None = None
        self.tripped_at: datetime | None = None
        self.said: dict[NodeKey, NodeVerdict] = {}

    def receive(self, batch: Batch, now: datetime) -> Received:
        new = [f for f in batch.findings if f.id not in self.found]
        self.found |= {f.id: f for f in new}
        for o in batch.observations:
            if o.kind is ObservationKind.GATE and o.id not in self.refused:
                record = record_of_data(o.data)
                refusal = Refusal(observation=o.id, at=o.at, record=record, received=now)
                self.refused[o.id] = (o.node, refusal)
        if batch.verdict is not None:
            self.said[NodeKey(ClusterName(batch.cluster), NodeName(batch.node))] = batch.verdict
        return Received(findings=tuple(f.id for f in new))

    def situation(self, key: NodeKey, now: datetime) -> NodeSituation:
        rows = [row for row in self.rows.values() if row.decision.key == key]
        standing = self._standing(key.node)
        held = [r for r in rows if not r.allowed and r.live(now)]
        node_rows = [r for r in rows if r.decision.action is not Action.RELEASE_JOB]
        orders = self.given.get(key, [])
        advice = [o for o in orders if o.kind is OrderKind.ADVISE_ONLY]
        policies = [o for o in orders if o.kind is OrderKind.POLICY]
        return NodeSituation(
            cluster=key.cluster,
            node=key.node,
            findings=tuple(self.findings(key.cluster, key.node)),
            standing=standing.decision if standing else None,
            standing_outcome=standing.outcome if standing else None,
            held_back=held[-1].decision if held else None,
            last_decision=node_rows[-1].decision.id if node_rows else "",
            scheduler=self.view.get(key.node),
            scheduler_at=self.viewed_at if key.node in self.view else None,
            refusals=tuple(
                refusal
                for node, refusal in self.refused.values()
                if node == key.node and refusal.observation not in self.settled
            ),
            released_jobs=frozenset(
                r.decision.job
                for r in rows
                if r.decision.action is Action.RELEASE_JOB
                and r.decision.job is not None
                and r.allowed_at > now - timedelta(minutes=10)
            ),
            returning=any(r.decision.action is Action.RESUME and not r.final for r in node_rows),
            verdict=self.said.get(key),
            advise_only=bool(advice) and advice[-1].value == "on",
            policy_ordered=policies[-1].policy_version if policies else "",
        )

    def _standing(self, node: NodeName) -> Row | None:
        rows = [r for r in self.rows.values() if r.decision.node == node and r.allowed]
        rows = [r for r in rows if r.decision.action in REMOVALS and not r.undone]
        return rows[-1] if rows else None  # allowed last, whatever the clock said

    def _returning(self, node: NodeName) -> bool:
        """Whether a return that ends something of ours is decided and not yet done."""
        ends = (r.ends for r in self.rows.values() if r.decision.node == node and not r.final)
        return any(ends)

    def cluster_situation(
        self, cluster: ClusterName, now: datetime, window_s: int
    ) -> ClusterSituation:
        removals = [r for r in self.rows.values() if r.allowed and r.decision.action in REMOVALS]
        since = now - timedelta(seconds=window_s)
        return ClusterSituation(
            cluster=cluster,
            nodes_total=len(self.names),
            out=frozenset(n for n in self.names if self._standing(n) or self._returning(n)),
            removed_at=tuple(sorted(r.allowed_at for r in removals if r.allowed_at > since)),
            tripped_at=self.tripped_at,
        )

    def unsettled(
        self, cluster: ClusterName, now: datetime, grades: NodePolicy
    ) -> Sequence[NodeKey]:
        return [NodeKey(cluster, node) for node in self.names]

    def remember(self, thought: Thought, now: datetime) -> None:
        for dropped in thought.dropped:
            row = self.rows.get(dropped)
            if row is not None and not row.allowed and not row.final:
                row.end(Result.EXPIRED, now)
        known = set(self.rows)
        for decision in thought.decisions:
            row = self.rows.get(decision.id)
            if row is not None and (row.allowed or row.final):
                continue
            self._check_once(decision, now)
            known.discard(decision.id)
            self.rows.pop(decision.id, None)
            self.rows[decision.id] = Row(decision, allowed=True, at=now)
            self._supersede(decision, now)
        for held in thought.held:
            self.rows.setdefault(held.decision.id, Row(held.decision, allowed=False, at=now))
        for one in thought.orders:
            if one.order.decision is None or one.order.decision not in known:
                orders = self.given.setdefault(one.key, [])
                orders.append(msgspec.structs.replace(one.order, number=len(orders) + 1))
        self.settled |= {one.observation for one in thought.settled}
        self.closed |= set(thought.released)
        if thought.tripped is not None and (self.tripped_at is not None) != thought.tripped:
            self.tripped_at = now if thought.tripped else None

    def _check_once(self, decision: Decision, now: datetime) -> None:
        """A node that stands drained, or soon will, is not drained again for anything, unless the
        scheduler shows that it has lost the drain.
        """
        standing = self._standing(decision.node)
        if decision.action is not Action.DRAIN or standing is None:
            return
        foreign = standing.outcome is not None and standing.outcome.result is Result.FOREIGN
        done = standing.outcome is not None and standing.outcome.result in FINAL - {Result.EXPIRED}
        view = self.view.get(decision.node)
        lost = done and view is not None and not view.out
        assert lost or foreign or not (done or standing.live(now)), (
            f"{decision} over {standing.decision}"
        )

    def _supersede(self, decision: Decision, now: datetime) -> None:
        resume = decision.action is Action.RESUME
        stale = REMOVALS if resume else {Action.RESUME}
        if decision.action is Action.RELEASE_JOB:
            return
        for row in self.rows.values():
            if row.decision.node != decision.node or row.decision.id == decision.id:
                continue
            overtaken = row.decision.action in REMOVALS and row.allowed
            if (row.decision.action in stale or overtaken) and not row.final:
                row.end(Result.EXPIRED, now)
            if resume and row.allowed and row.decision.action in REMOVALS and not row.undone:
                row.undone = self.rows[decision.id].ends = True

    def to_do(
        self, cluster: ClusterName, now: datetime, told_within_s: float = 0
    ) -> Sequence[Decision]:
        return [r.decision for r in self.rows.values() if r.allowed and r.live(now)]

    def note(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            row = self.rows[outcome.decision]
            row.outcome = outcome
            row.final = outcome.result in FINAL

    def orders_after(self, key: NodeKey, number: int) -> Sequence[Order]:
        return self.given.get(key, [])[number:]

    def mirror(
        self,
        cluster: ClusterName,
        nodes: Sequence[SchedulerNode],
        jobs: Sequence[SchedulerJob],
        now: datetime,
    ) -> None:
        self.view = {node.node: node for node in nodes}
        self.viewed_at = now
        held = {job.id for job in jobs if job.held and job.reason == HELD_BY_PROLOG}
        for id_, (node, refusal) in self.refused.items():
            known = msgspec.structs.replace(refusal, held=refusal.record.job in held)
            self.refused[id_] = (node, known)

    def findings(
        self, cluster: ClusterName, node: NodeName | None = None, *, open_only: bool = True
    ) -> Sequence[Finding]:
        found = (f for f in self.found.values() if node is None or f.node == node)
        return [f for f in found if not open_only or f.id not in self.closed]
