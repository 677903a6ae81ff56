"""Made-up reports of one node, short to write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from komainu.core.decision import Action, Decision, Order, OrderKind, Outcome, Result
from komainu.core.gate import GateRecord, Why, record_data
from komainu.core.names import ClusterName, JobId, NodeKey, NodeName
from komainu.core.node import NodePolicy, NodeVerdict, SchedulerJob, SchedulerNode
from komainu.core.observation import (
    Component,
    Evidence,
    Finding,
    Observation,
    ObservationKind,
)
from komainu.core.situation import Held, NodeOrder, Thought
from komainu.core.verdict import FaultClass, Severity, Verdict
from komainu.core.wire import Batch

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
C = ClusterName("c")
KEY = NodeKey(C, NodeName("n1"))
GRADES = NodePolicy()
"""The catalogue's own grades."""
BOOT = "3a7f1c3e-1111-2222-3333-444455556666"


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def finding(ident: str = "F-1", *, node: str = "n1", code: str = "GPU-XID-79") -> Finding:
    return Finding(
        id=ident,
        cluster=C,
        node=NodeName(node),
        code=code,
        component=Component("gpu", "0000:41:00"),
        severity=Severity.FATAL,
        fault_class=FaultClass.QUARANTINE_NOW,
        summary="GPU has fallen off the bus",
        at=NOW,
        evidence=(Evidence(observation="O-1", at=NOW, text="NVRM: Xid …, name=<b>\x00</b>"),),
    )


def observation(
    ident: str = "O-1", kind: ObservationKind = ObservationKind.KERNEL_LINE
) -> Observation:
    return Observation(
        id=ident, cluster=C, node=KEY.node, kind=kind, at=NOW, data={"text": "x\x00"}
    )


def gate(  # noqa: PLR0917
    ident: str,
    answer: str = "refuse",
    job: str = "7",
    where: str = "prolog",
    gpus: tuple[str, ...] = ("0", "1"),
    seconds: float = 0,
    boot_id: str = BOOT,
) -> Observation:
    record = GateRecord(
        where=where,
        answer=answer,
        why=Why.FAULT if answer == "refuse" else Why.OK,
        uptime_s=1,
        boot_id=boot_id,
        job=job,
        user="ann",
        uid=1000,
        gpus=gpus,
        waited_s=0,
    )
    return Observation(
        id=ident,
        cluster=C,
        node=KEY.node,
        kind=ObservationKind.GATE,
        at=later(seconds),
        data=record_data(record),
    )


def batch(
    *findings: Finding,
    observations: tuple[Observation, ...] = (),
    verdict: Verdict | None = None,
    node: str = "n1",
    boot_id: str = BOOT,
    orders_seen: int = 0,
    orders_at: datetime | None = None,
) -> Batch:
    return Batch(
        id="B-1",
        cluster=C,
        node=node,
        boot_id=boot_id,
        agent_version="0.1.0",
        sent_at=NOW,
        findings=list(findings),
        observations=list(observations),
        verdict=None if verdict is None else NodeVerdict(verdict=verdict),
        orders_seen=orders_seen,
        orders_at=orders_at,
    )


def decision(
    ident: str = "D-1",
    action: Action = Action.DRAIN,
    *,
    node: str = "n1",
    seconds: float = 0,
    expires_s: float | None = 3600,
    findings: tuple[str, ...] = (),
) -> Decision:
    return Decision(
        id=ident,
        cluster=C,
        node=NodeName(node),
        action=action,
        reason="GPU-XID-79 on gpu 0000:41:00",
        by="policy",
        at=later(seconds),
        expires=None if expires_s is None else later(seconds + expires_s),
        findings=findings,
    )


def order(
    ident: str | None = "D-1",
    kind: OrderKind = OrderKind.HOLD,
    *,
    node: str = "n1",
    value: str = "",
) -> NodeOrder:
    return NodeOrder(
        key=NodeKey(C, NodeName(node)),
        order=Order(number=0, kind=kind, at=NOW, decision=ident, value=value),
    )


def drained(ident: str = "D-1", node: str = "n1") -> Thought:
    return Thought(
        cluster=C, decisions=(decision(ident, node=node),), orders=(order(ident, node=node),)
    )


def held(
    ident: str = "D-1", limit: str = "1 of 1 nodes out", result: Result = Result.HELD
) -> Thought:
    return Thought(
        cluster=C, held=(Held(decision=decision(ident), limit=limit, result=result),), tripped=True
    )


def outcome(ident: str = "D-1", result: Result = Result.DONE, seconds: float = 1) -> Outcome:
    return Outcome(
        decision=ident, cluster=C, node=KEY.node, result=result, at=later(seconds), detail="d"
    )


def shown(
    node: str = "n1", *flags: str, reason: str = "", jobs: tuple[str, ...] = ()
) -> SchedulerNode:
    return SchedulerNode(
        cluster=C,
        node=NodeName(node),
        state="IDLE",
        flags=frozenset(flags),
        reason=reason,
        jobs=tuple(JobId(job) for job in jobs),
        gpus=8,
    )


def queued(
    ident: str, state: str = "PENDING", *, held: bool = False, reason: str = ""
) -> SchedulerJob:
    return SchedulerJob(id=JobId(ident), state=state, held=held, reason=reason)
