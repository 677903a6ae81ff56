"""What someone should be told at once, as log events, until there are notifications.

`alert_raised` is the one event to alert on; the guide (docs/guides/server.md) lists it with the others
worth watching. `guard_tripped` and `decision_held` say what the guard keeps in service.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import structlog

from komainu.core.decision import Result
from komainu.core.errors import InputError
from komainu.core.gate import GateRecord, Why, record_of_data
from komainu.core.names import ClusterName
from komainu.core.observation import Observation, ObservationKind
from komainu.core.situation import Thought
from komainu.core.verdict import FaultClass, Verdict
from komainu.core.wire import Batch
from komainu.ports import Received

NAMED = 20
"""Nodes or jobs named in one event; more are counted."""

log = structlog.get_logger()


class Alerts:
    """One cluster's events. It remembers only what it has said already."""

    def __init__(self, cluster: ClusterName) -> None:
        self._cluster = cluster
        self._held: frozenset[str] = frozenset()

    def heard(self, batch: Batch, got: Received) -> None:
        """A node spoke: what of the new in it calls for a person."""
        seen, found = frozenset(got.observations), frozenset(got.findings)
        for why, jobs in _let_in_unsure(batch.observations, seen).items():
            self._raise(batch.node, f"gate-{why}", f"jobs let in unsure: {_few(jobs)}")
        for finding in batch.findings:
            graded = finding.fault_class is not FaultClass.UNKNOWN
            if finding.id in found and not (graded and finding.verdict is Verdict.FAULT):
                what = "nobody grades this code" if not graded else "it could not be looked at"
                self._raise(batch.node, finding.code, f"{what}: finding {finding.id}")

    def thought(self, thought: Thought, *, of_all: bool) -> None:
        """What the guard did. `of_all`: the thought was of every unsettled node, so that what it does
        not hold back is held back no longer.
        """
        held = [one for one in thought.held if one.result is Result.HELD]
        for one in held:
            if one.decision.id not in self._held:
                node, decision = one.decision.node, one.decision.id
                log.warning(
                    "decision_held",
                    cluster=self._cluster,
                    node=node,
                    decision=decision,
                    limit=one.limit,
                )
        ids = frozenset(one.decision.id for one in held)
        self._held = ids if of_all else self._held | ids
        if thought.tripped:
            limit, nodes = (held[0].limit if held else ""), [one.decision.node for one in held]
            log.error(
                "guard_tripped",
                cluster=self._cluster,
                limit=limit,
                held=nodes[:NAMED],
                held_count=len(nodes),
            )
            self._raise("", "guard-tripped", limit)
        elif thought.tripped is False:
            log.warning("guard_reset", cluster=self._cluster)

    def _raise(self, node: str, code: str, why: str) -> None:
        log.warning("alert_raised", cluster=self._cluster, node=node, code=code, why=why)


def _let_in_unsure(
    observations: Collection[Observation], new: Collection[str]
) -> Mapping[Why, list[str]]:
    """Why → the jobs that a gate let in for it."""
    jobs: dict[Why, list[str]] = {}
    for record in _records(observations, new):
        if record.unsure:
            jobs.setdefault(record.why, []).append(record.job)
    return jobs


def _records(observations: Collection[Observation], new: Collection[str]) -> Iterator[GateRecord]:
    for observation in observations:
        if observation.kind is ObservationKind.GATE and observation.id in new:
            try:
                yield record_of_data(observation.data)
            except InputError:
                continue  # the store has logged it: gate_record_refused


def _few(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"
