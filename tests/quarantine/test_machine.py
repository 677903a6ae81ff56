"""Anything may happen, in any order: faults, refusals, persons, crashes, clock jumps, a dead slurmctld.

What must hold all the same: nothing foreign is cleared or overwritten (ModelSlurm fails at once),
never more nodes out by our doing than the guard allows, no node drained twice by one decision, and
once things have settled no job is held because of us.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.quarantine.cases import BOOT, CLUSTER, Clock, finding, guarded
from tests.quarantine.memory_store import MemoryStore
from tests.quarantine.model_slurm import ModelSlurm

from komainu import flow
from komainu.core.decision import Decision, Outcome, Result
from komainu.core.gate import GateRecord, Why, record_data
from komainu.core.names import JobId, NodeKey, NodeName
from komainu.core.node import NodeVerdict, Phase
from komainu.core.observation import Finding, Observation, ObservationKind
from komainu.core.verdict import Severity, Verdict
from komainu.core.wire import Batch
from komainu.ports import Scheduler, Store
from komainu.quarantine import decide
from komainu.quarantine.act import act
from komainu.quarantine.decide.verdict import OrdersState, apply_order, node_verdict
from komainu.store import open_store

NAMES = [NodeName(f"n{i}") for i in range(6)]
POLICY = guarded(2, 3)
ROOM = POLICY.guard.room(len(NAMES))
node_names = st.sampled_from(NAMES)


class Killed(BaseException):
    """The server dies here."""


class ModelNode:
    """An agent and its gate, with nothing but the pure parts of both."""

    def __init__(self, name: NodeName) -> None:
        self.key = NodeKey(CLUSTER, name)
        self.findings: list[Finding] = []
        """All it knows of, told or not."""
        self.unsent: list[Finding | Observation] = []
        self.orders = OrdersState()

    def said(self, now: datetime) -> NodeVerdict:
        """Its verdict, when the bounded wait for the server is over."""
        known = {f.id: now - timedelta(hours=1) for f in self.findings}
        checks = {"kernel-log": Verdict.OK}
        policy = self.orders.policy
        said = node_verdict(
            self.findings, self.orders, policy, checks, False, now, known_since=known
        )
        assert said.phase is not Phase.CONFIRMING
        return said

    def gate(self, now: datetime) -> Why:
        """What the gate answers: a confirming fault is refused after its bounded wait."""
        return Why.FAULT if self.said(now).verdict is Verdict.FAULT else Why.OK


class Cluster(RuleBasedStateMachine):
    """Six nodes, of which two may be out by our doing."""

    def make_store(self) -> Store:
        return MemoryStore(CLUSTER, NAMES)

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.slurm = ModelSlurm(CLUSTER, NAMES)
        self.store = self.make_store()
        self.nodes = {name: ModelNode(name) for name in NAMES}
        self.number = 0
        self.forgotten: set[NodeName] = set()
        self.die: str = ""
        self.centre = flow.Centre(
            cluster=CLUSTER,
            policy=POLICY,
            rooms=flow.Rooms(think=decide.think, act=self._act),
            store=self.store,
            scheduler=self.slurm,
            clock=self.clock,
        )
        self.run(flow.turn(self.centre))

    def run(self, work: Any) -> Any:
        """Work of the server. Two pieces of it never fall into the same instant."""
        self.clock.time += timedelta(milliseconds=1)
        return self.loop.run_until_complete(work)

    async def _act(
        self, decisions: Sequence[Decision], scheduler: Scheduler, now: datetime
    ) -> Sequence[Outcome]:
        outcomes = await act(decisions, scheduler, now)
        if self.die:
            raise Killed
        return outcomes

    def next(self) -> int:
        self.number += 1
        return self.number

    # ── the world ────────────────────────────────────────────────────────────────────────────────

    @rule(
        name=node_names, severity=st.sampled_from([Severity.FATAL, Severity.FATAL, Severity.WATCH])
    )
    def a_fault_strikes(self, name: NodeName, severity: Severity) -> None:
        new = finding(self.next(), name, severity=severity, at=self.clock.time)
        node = self.nodes[name]
        node.findings.append(new)
        node.unsent.append(new)

    @rule(name=node_names)
    def a_fault_strikes_that_the_server_forgets(self, name: NodeName) -> None:
        """It is restored from a backup: the node has reported it, and will not again."""
        self.nodes[name].findings.append(finding(self.next(), name, at=self.clock.time))
        self.forgotten.add(name)

    @rule(name=node_names)
    def a_node_is_given_back_and_breaks_again(self, name: NodeName) -> None:
        """Within the ten minutes for which the refusal of a job of srun stays open."""
        for _ in range(2):
            self.a_fault_strikes(name, Severity.FATAL)
            self.a_job_starts(name, by_srun=True)
            self.an_agent_reports(name)
            self.slurm.broken = False
            self.run(flow.turn(self.centre))
            self.a_person_asks(name, "release")
            self.an_agent_reports(name)
            self.run(flow.turn(self.centre))

    @rule(name=node_names, by_srun=st.booleans())
    def a_job_starts(self, name: NodeName, by_srun: bool) -> None:
        if self.slurm.shown[name].out:
            return
        node, job = self.nodes[name], JobId(str(self.next()))
        why = node.gate(self.clock.time)
        if why is Why.OK:
            return
        self.slurm.prolog_failed(name, job, requeued=not by_srun)
        record = GateRecord(
            where="prolog",
            answer="refuse",
            why=why,
            uptime_s=1,
            boot_id=BOOT,
            job=job,
            user="u",
            uid=1000,
            gpus=(),
            waited_s=0,
        )
        node.unsent.append(
            Observation(
                id=f"O-{job}",
                cluster=CLUSTER,
                node=name,
                kind=ObservationKind.GATE,
                at=self.clock.time,
                data=record_data(record),
            )
        )

    @rule(name=node_names)
    def a_person_drains(self, name: NodeName) -> None:
        """Nobody drains what is drained: they would have to overwrite a reason."""
        if not self.slurm.shown[name].out:
            self.slurm.drain_by("person", name, "swapping a DIMM")

    @rule(name=node_names)
    def the_sites_own_prolog_fails(self, name: NodeName) -> None:
        """Where a refusal of ours is still open, nobody can tell the two apart; not modelled."""
        if not self.slurm.shown[name].out and not self._open_refusals(name):
            self.slurm.drain_by("site", name, "Prolog error")

    def _open_refusals(self, name: NodeName) -> bool:
        unsent = any(isinstance(one, Observation) for one in self.nodes[name].unsent)
        return unsent or bool(
            self.store.situation(NodeKey(CLUSTER, name), self.clock.time).refusals
        )

    @rule(name=node_names)
    def a_person_resumes_by_hand(self, name: NodeName) -> None:
        """After this a drain may be repeated, where the server died before it noted the first."""
        if self.slurm.shown[name].out:
            self.slurm.undrain(name)
            self.slurm.drains = [drain for drain in self.slurm.drains if drain[0] != name]

    @rule()
    def slurmctld_loses_its_state(self) -> None:
        """Every drain is gone at once, and nobody gave a node back: what stood by our decision, a
        minute and a look later, is drained again or stands so still, and no finding is closed.
        """
        stood = {
            name: self._standing_in_force(name) for name in NAMES if self.slurm.shown[name].drained
        }
        seen = len(self.store.findings(CLUSTER))
        self.slurm.broken = False
        self.slurm.lose_state(self.clock.time)
        self.clock.time += timedelta(seconds=90)
        self.run(flow.turn(self.centre))
        assert len(self.store.findings(CLUSTER)) == seen, "a lost drain was taken for a release"
        for name in (name for name, stands in stood.items() if stands):
            assert self.slurm.shown[name].ours, f"{name} was drained by us and is let go"

    def _standing_in_force(self, name: NodeName) -> bool:
        seen = self.store.situation(NodeKey(CLUSTER, name), self.clock.time)
        outcome = seen.standing_outcome
        if outcome is None or outcome.at > self.clock.time:
            return False
        return outcome.result in {Result.DONE, Result.ALREADY} and self.slurm.shown[name].ours

    @rule()
    def slurmctld_breaks(self) -> None:
        self.slurm.broken = True

    @rule()
    def slurmctld_is_back(self) -> None:
        self.slurm.broken = False

    @rule(seconds=st.sampled_from([1, 5, 61, 700, 4000]))
    def time_passes(self, seconds: int) -> None:
        self.clock.time += timedelta(seconds=seconds)

    @precondition(lambda self: not self.slurm.broken)
    @rule(seconds=st.sampled_from([30, 2000]))
    def the_clock_is_set_back(self, seconds: int) -> None:
        """A turn follows within seconds. With slurmctld silent for the whole time as well, a view
        may look newer than it is; that pair of misfortunes is not modelled.
        """
        self.clock.time -= timedelta(seconds=seconds)
        self.run(flow.turn(self.centre))

    # ── komainu ──────────────────────────────────────────────────────────────────────────────────

    @rule(name=node_names)
    def an_agent_reports(self, name: NodeName) -> None:
        """A batch, what is thought of it, and the orders in its reply. Sending it twice is normal."""
        node, now = self.nodes[name], self.clock.time
        batch = Batch(
            id="B",
            cluster=CLUSTER,
            node=name,
            boot_id=BOOT,
            agent_version="1",
            sent_at=now,
            observations=[one for one in node.unsent if isinstance(one, Observation)],
            findings=[one for one in node.unsent if isinstance(one, Finding)],
            orders_seen=node.orders.seen,
            verdict=node.said(now),
        )
        self.store.receive(batch, now)
        self.store.receive(batch, now)
        flow.consider(self.centre, [node.key], now)
        node.unsent.clear()
        self._hear(node)

    def _hear(self, node: ModelNode) -> None:
        for order in self.store.orders_after(node.key, node.orders.seen):
            node.orders = apply_order(node.orders, order)

    @rule()
    def the_server_acts(self) -> None:
        self.run(flow.carry_out(self.centre))

    @precondition(lambda self: not self.slurm.broken)
    @rule()
    def a_turn(self) -> None:
        self.run(flow.turn(self.centre))

    @rule()
    def the_server_dies_after_acting(self) -> None:
        self.die = "now"
        try:
            self.run(flow.carry_out(self.centre))
        except Killed:
            pass
        finally:
            self.die = ""

    @rule(name=node_names, what=st.sampled_from(["hold", "release"]))
    def a_person_asks(self, name: NodeName, what: str) -> None:
        now = self.clock.time
        situation = self.store.situation(NodeKey(CLUSTER, name), now)
        whole = self.store.cluster_situation(CLUSTER, now, POLICY.guard.window_s)
        if what == "hold":
            thought = decide.hold(situation, whole, POLICY, "ann", "looks odd", now)
        else:
            thought = decide.release(situation, POLICY, "ann", "repaired", now)
        if not thought.held:
            self.store.remember(msgspec.structs.replace(thought, cluster=CLUSTER), now)

    # ── what must hold ───────────────────────────────────────────────────────────────────────────

    @invariant()
    def the_guard_is_kept(self) -> None:
        whole = self.store.cluster_situation(CLUSTER, self.clock.time, POLICY.guard.window_s)
        assert len(whole.out) <= ROOM
        holding = [n for n in self.nodes.values() if n.orders.hold is not None]
        assert len(self.slurm.owned("komainu")) <= ROOM, holding

    @invariant()
    def nothing_is_drained_twice(self) -> None:
        ids = [reason.split(":")[1] for _, reason in self.slurm.drains]
        assert len(ids) == len(set(ids)), ids

    @invariant()
    def a_job_is_released_once(self) -> None:
        assert len(self.slurm.releases) == len(set(self.slurm.releases))

    def teardown(self) -> None:
        try:
            self.everything_heals()
        finally:
            self.loop.close()

    def everything_heals(self) -> None:
        """Everything heals and time passes: then nothing of ours is left hanging."""
        self.slurm.broken = False
        for _ in range(6):
            for name in NAMES:
                self.an_agent_reports(name)
            self.run(flow.turn(self.centre))
            self.clock.time += timedelta(seconds=90)
            self.the_guard_is_kept()
            self.nothing_is_drained_twice()
            self.a_job_is_released_once()
        held = [job.id for job in self.slurm.queue.values() if job.held]
        assert held == [], "jobs are still held because of our refusals"
        for name in self.slurm.owned("gate"):
            seen = self.store.situation(NodeKey(CLUSTER, name), self.clock.time)
            in_the_open = name in self.forgotten and seen.held_back is not None
            assert in_the_open, f"a drain Slurm made for us on {name} is nobody's"
        assert len(self.slurm.owned("komainu")) <= ROOM
        self._nothing_bad_is_in_service_unknown()

    def _nothing_bad_is_in_service_unknown(self) -> None:
        """A condemned node is out, or held back in the open."""
        for name in NAMES:
            seen = self.store.situation(NodeKey(CLUSTER, name), self.clock.time)
            if any(f.condemns for f in seen.findings) and not self.slurm.shown[name].out:
                assert seen.held_back is not None, f"{name} is bad, in service and forgotten"


class SqlCluster(Cluster):
    """The same with the store the server has, on SQLite."""

    def make_store(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        self.sql = open_store(f"sqlite:///{self.folder.name}/komainu.db")
        return self.sql

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.sql.close()
            self.folder.cleanup()


def run_machine(machine: type[Cluster], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


@pytest.mark.timeout(300)
def test_whatever_happens_nothing_foreign_is_touched_and_the_guard_is_kept() -> None:
    run_machine(Cluster, 80)


@pytest.mark.timeout(300)
def test_the_same_holds_with_the_servers_own_store() -> None:
    run_machine(SqlCluster, 6)
