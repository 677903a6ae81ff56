"""Small values for the tests of deciding: a finding, a node's situation, a cluster's numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from komainu.core.decision import Action, Decision, Outcome, Result
from komainu.core.gate import GateRecord, Why
from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.core.node import SchedulerNode
from komainu.core.observation import Component, Finding
from komainu.core.policy import GuardPolicy, Policy
from komainu.core.situation import ClusterSituation, NodeSituation, Refusal
from komainu.core.verdict import FaultClass, Severity

NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
CLUSTER = ClusterName("c")
N1, N2 = NodeName("n1"), NodeName("n2")
MINUTE = timedelta(minutes=1)
BOOT = "01234567-89ab-cdef-0123-456789abcdef"


def key(node: str) -> NodeKey:
    return NodeKey(CLUSTER, NodeName(node))


def finding(
    number: int = 1,
    node: str = N1,
    *,
    code: str = "GPU-XID-79",
    severity: Severity = Severity.FATAL,
    at: datetime = NOW,
    **more: Any,
) -> Finding:
    return Finding(
        id=f"F-{node}-{number}",
        cluster=CLUSTER,
        node=NodeName(node),
        code=code,
        component=Component("gpu", "0000:41:00"),
        severity=severity,
        fault_class=FaultClass.QUARANTINE_NOW,
        summary="GPU has fallen off the bus",
        at=at,
        **more,
    )


def decision(
    id_: str = "D-1", node: str = N1, action: Action = Action.DRAIN, **more: Any
) -> Decision:
    given: dict[str, Any] = {
        "reason": "GPU-XID-79 on gpu 0000:41:00",
        "by": "policy",
        "at": NOW,
    } | more
    return Decision(id=id_, cluster=CLUSTER, node=NodeName(node), action=action, **given)


def outcome(result: Result, id_: str = "D-1", node: str = N1, at: datetime = NOW) -> Outcome:
    return Outcome(decision=id_, cluster=CLUSTER, node=NodeName(node), result=result, at=at)


def shows(
    node: str = N1, *, drained: bool = False, reason: str = "", state: str = "IDLE"
) -> SchedulerNode:
    """A node as the scheduler shows it."""
    flags = frozenset({"DRAIN"}) if drained else frozenset[str]()
    return SchedulerNode(
        cluster=CLUSTER, node=NodeName(node), state=state, flags=flags, reason=reason
    )


def refusal(
    number: int = 1, *, job: str = "7", why: Why = Why.FAULT, held: bool = False, at: datetime = NOW
) -> Refusal:
    record = GateRecord(
        where="prolog",
        answer="refuse",
        why=why,
        uptime_s=100,
        boot_id=BOOT,
        job=job,
        user="u",
        uid=1000,
        gpus=("0",),
        waited_s=0,
    )
    return Refusal(observation=f"O-{number}", at=at, record=record, held=held, received=at)


def situation(node: str = N1, *findings: Finding, **more: Any) -> NodeSituation:
    """A node whose agent has the policy already, unless `more` says otherwise."""
    given = {"policy_ordered": Policy().version} | more
    return NodeSituation(cluster=CLUSTER, node=NodeName(node), findings=findings, **given)


def whole(
    *out: str,
    total: int = 100,
    removed: tuple[datetime, ...] = (),
    tripped_at: datetime | None = None,
    **more: Any,
) -> ClusterSituation:
    return ClusterSituation(
        cluster=CLUSTER,
        nodes_total=total,
        out=frozenset(NodeName(node) for node in out),
        removed_at=removed,
        tripped_at=tripped_at,
        **more,
    )


def guarded(max_nodes: int = 8, max_in_window: int = 100, **more: Any) -> Policy:
    """A policy with room for `max_nodes` in all."""
    guard = GuardPolicy(max_nodes=max_nodes, max_share=1.0, max_in_window=max_in_window, **more)
    return Policy(guard=guard)


class Clock:
    """Time as the test sets it."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    def uptime_s(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
