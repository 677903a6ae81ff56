"""A cluster made up for the console's tests: every standing, long and hostile texts, nothing random."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from komainu.core.decision import Action, Decision, Outcome, Result
from komainu.core.names import ClusterName, JobId, NodeName
from komainu.core.node import NodeVerdict, Phase, SchedulerNode
from komainu.core.observation import Component, Evidence, Finding
from komainu.core.verdict import FaultClass, Severity, Verdict
from komainu.core.views import (
    SEVERITY_WORDS,
    DecisionView,
    FindingView,
    GpuView,
    JobRow,
    NodeRow,
    NodeView,
    Standing,
    StoryLine,
)

CLUSTER = ClusterName("lab-a")
HOSTILE = '<img src=x onerror="window.__owned=1">\'"&<script>window.__owned=1</script>'
NOW = datetime.now(UTC).replace(microsecond=0)
PER_RACK = 8
LONG_ID = "D-a4353ceec3e1d199f9df"
HELD = "gpu-017"
"""The node whose removal the guard holds back."""
BLIND = 38
"""The node whose agent speaks and could not look."""

# The nodes that are not healthy, by number.
_SPECIAL = {
    12: Standing.QUARANTINED,
    17: Standing.FAULTY,
    23: Standing.WATCHED,
    31: Standing.FOREIGN,
    38: Standing.UNSEEN,
    39: Standing.UNSEEN,
    45: Standing.QUARANTINED,
    58: Standing.WATCHED,
    77: Standing.QUARANTINED,
}
_VERDICTS = {
    Standing.FAULTY: Verdict.FAULT,
    Standing.QUARANTINED: Verdict.FAULT,
    Standing.UNSEEN: Verdict.UNKNOWN,
}
_FAULTS = {
    12: ("GPU-XID-79", Severity.FATAL, 3, "GPU has fallen off the bus"),
    17: ("GPU-XID-95", Severity.FATAL, 5, "Uncontained memory error"),
    23: ("GPU-XID-63", Severity.WATCH, 1, "Row remapping recorded; a reset is due"),
    45: ("GPU-XID-94", Severity.DEGRADED, 0, "Contained memory error"),
    58: ("GPU-XID-154-9", Severity.WATCH, 2, "A code no catalogue grades"),
    77: ("GPU-XID-74", Severity.FATAL, 7, "NVLink error: the link is lost"),
}


def name_of(number: int) -> NodeName:
    return NodeName(f"gpu-{number:03d}")


def standing_of(number: int) -> Standing:
    return _SPECIAL.get(number, Standing.HEALTHY)


def _busy(number: int, index: int) -> bool:
    return (number * 7 + index // 4) % 5 != 0


def _gpu(number: int, index: int, standing: Standing) -> GpuView:
    fault = _FAULTS.get(number)
    own = standing
    if standing is Standing.FAULTY or standing is Standing.WATCHED:
        own = standing if fault is not None and fault[2] == index else Standing.HEALTHY
    if standing is Standing.QUARANTINED and fault is not None and fault[2] == index:
        own = Standing.FAULTY
    holds = _busy(number, index) if standing is Standing.HEALTHY else index < 4 and number == 45
    return GpuView(
        index=index,
        pci=f"0000:{0x18 + index * 0x11:02x}:00",
        uuid=f"GPU-{number:08x}-{index:04x}",
        model="NVIDIA H100 80GB HBM3",
        standing=own,
        job=str(4100 + number) if holds else "",
    )


def row(number: int) -> NodeRow:
    standing = standing_of(number)
    fault = _FAULTS.get(number)
    gpus = () if number == 39 else tuple(_gpu(number, i, standing) for i in range(8))
    why = {
        Standing.FOREIGN: "drained by root: replacing a DIMM, ticket 4411",
        Standing.UNSEEN: "gpus UNKNOWN: the driver lists no GPU",
    }.get(standing, "")
    if fault is not None:
        why = f"{fault[0]} on GPU {fault[2]}: {fault[3]}"
    out = standing in {Standing.QUARANTINED, Standing.FOREIGN}
    age = timedelta(minutes=3 + number * 2)
    return NodeRow(
        cluster=CLUSTER,
        node=name_of(number),
        rack=f"rack-{number // PER_RACK + 1}",
        standing=standing,
        verdict=_VERDICTS.get(standing, Verdict.OK),
        why=why,
        since=NOW - (age if standing is not Standing.HEALTHY else timedelta(days=3)),
        seen=None if number == 39 else NOW - timedelta(seconds=4),
        scheduler=("IDLE" if number % 3 else "ALLOCATED") + ("+DRAIN" if out else ""),
        jobs=1 if any(gpu.job for gpu in gpus) else 0,
        gpus=gpus,
        open_findings=(3 if number == 12 else 1) if fault else 0,
    )


def _evidence(number: int, text: str, at: datetime, seq: int) -> Evidence:
    return Evidence(observation=f"O-{number}-{seq}", at=at, text=text)


def finding(number: int, at: datetime | None = None) -> Finding:
    code, severity, gpu, summary = _FAULTS.get(
        number, ("GPU-XID-79", Severity.FATAL, 0, "GPU has fallen off the bus")
    )
    at = at or NOW - timedelta(minutes=3 + number * 2)
    pci = f"PCI:0000:{0x18 + gpu * 0x11:02x}:00"
    xid = code.split("-")[2]
    return Finding(
        id=f"F-{number:04d}",
        cluster=CLUSTER,
        node=name_of(number),
        code=code,
        component=Component(kind="gpu", id=f"0000:{0x18 + gpu * 0x11:02x}:00"),
        severity=severity,
        fault_class=FaultClass.QUARANTINE_NOW
        if severity >= Severity.DEGRADED
        else FaultClass.WATCH,
        summary=summary,
        at=at,
        evidence=(
            _evidence(number, f"NVRM: Xid ({pci}): {xid}, pid=20714, name={HOSTILE}", at, 1),
            _evidence(number, f"NVRM: GPU at {pci}: GPU-{number:08x}-{gpu:04x}", at, 2),
        ),
        vendor_action="RESTART_BM",
        driver_action=None,
        job=JobId("4112"),
        catalogue="xid 2026-08",
    )


def part(number: int, of: Finding) -> Finding:
    """A finding whose cause is `of`."""
    return Finding(
        id=f"{of.id}-{number}",
        cluster=of.cluster,
        node=of.node,
        code="GPU-XID-45",
        component=of.component,
        severity=Severity.INFO,
        fault_class=FaultClass.SYMPATHETIC,
        summary="Channels were torn down because of another fault",
        at=of.at + timedelta(seconds=number),
        evidence=(
            _evidence(number, "NVRM: Xid (PCI:0000:4b:00): 45, pid=1, name=python", of.at, 9),
        ),
        cause=of.id,
    )


def view_of(found: Finding, *, parts: int = 0, is_open: bool = True) -> FindingView:
    return FindingView(
        finding=found,
        severity=SEVERITY_WORDS[found.severity],
        open=is_open,
        received=found.at + timedelta(milliseconds=120),
        released_by=None if is_open else "D-0001",
        count=1 + parts,
    )


def first_findings() -> list[FindingView]:
    """Newest first."""
    found = []
    for number in _FAULTS:
        cause = finding(number)
        parts = 2 if number == 12 else 0
        found.append(view_of(cause, parts=parts))
        found.extend(view_of(part(i + 1, cause)) for i in range(parts))
    old = view_of(finding(3, NOW - timedelta(days=2)), is_open=False)
    return sorted([*found, old], key=lambda view: view.finding.at, reverse=True)


def decision(number: int) -> DecisionView:
    node_row = row(number)
    made = Decision(
        id=f"D-{number:04d}",
        cluster=CLUSTER,
        node=name_of(number),
        action=Action.DRAIN,
        reason=node_row.why or "asked for by a person",
        by="policy",
        at=(node_row.since or NOW) + timedelta(milliseconds=80),
        policy_version="9f31c2d40a77",
        undo=Action.RESUME,
    )
    held = number == 17
    outcome = Outcome(
        decision=made.id,
        cluster=CLUSTER,
        node=name_of(number),
        result=Result.HELD if held else Result.DONE,
        at=made.at + timedelta(milliseconds=140),
        detail="5 removals in 600 s" if held else "IDLE became IDLE+DRAIN",
    )
    return DecisionView(
        decision=made,
        state="held" if held else "done",
        outcomes=[outcome],
        limit="5 removals in 600 s" if held else "",
    )


def decisions() -> list[DecisionView]:
    made = [decision(number) for number in (12, 17, 45, 77)]
    return sorted(made, key=lambda view: view.decision.at, reverse=True)


def _story(number: int) -> list[StoryLine]:
    at = (row(number).since or NOW) + timedelta(0)
    told = [
        ("agent", -4000.0, "agent 0.1.0 started, boot 7c1f"),
        ("gate", -60.0, "job 4112 was let in on GPUs 0-7"),
        ("finding", 0.0, "GPU-XID-79: GPU has fallen off the bus"),
        ("decision", 0.08, "drain by policy: GPU-XID-79 on GPU 3"),
        ("order", 0.1, "order 4: hold"),
        ("outcome", 0.22, "done: IDLE became IDLE+DRAIN"),
        ("gate", 31.0, f"job 4120 of {HOSTILE} was refused"),
    ]
    lines = [
        StoryLine(at=at + timedelta(seconds=after), what=what, text=text)
        for what, after, text in told
    ]
    return lines[::-1]


def node_view(number: int, node_row: NodeRow, **changes: object) -> dict[str, object]:
    """Fields of a NodeView besides its guard."""
    condemned = node_row.standing in {Standing.QUARANTINED, Standing.FAULTY}
    found = [view for view in first_findings() if view.finding.node == node_row.node]
    scheduler = SchedulerNode(
        cluster=CLUSTER,
        node=name_of(number),
        state=node_row.scheduler.split("+", maxsplit=1)[0],
        flags=frozenset({"DRAIN"}) if "DRAIN" in node_row.scheduler else frozenset(),
        reason=f"komainu:{LONG_ID}: {node_row.why}" if condemned else "",
        reason_by="root" if condemned else "",
        reason_at=node_row.since if condemned else None,
        gpus=8,
    )
    held = node_row.standing is Standing.FAULTY
    job = JobRow(
        id=str(4100 + number),
        state="RUNNING",
        user="mallory",
        name=HOSTILE,
        gpus=8,
        nodes=2,
        started=NOW - timedelta(hours=5),
    )
    return {
        "row": node_row,
        "verdict": NodeVerdict(
            verdict=node_row.verdict,
            phase=Phase.SETTLED,
            since=node_row.since,
            checks={
                "clock": Verdict.OK,
                "gpus": Verdict.UNKNOWN if number == BLIND else Verdict.OK,
                "kernel-log": Verdict.OK,
            },
            details={"gpus": f"the driver lists no GPU {HOSTILE}"} if number == BLIND else {},
        ),
        "scheduler": scheduler,
        "standing_decision": decision(number) if condemned and not held else None,
        "findings": found,
        "decisions": [decision(number)] if condemned else [],
        "story": _story(number),
        "jobs": [job] if node_row.jobs else [],
        "agent_version": "0.1.0",
        "boot_id": "7c1f2b9e-51d3-4a70-9f6d-2e2f4b1c9a10",
        "policy_version": "9f31c2d40a77",
        **changes,
    }


__all__ = ["CLUSTER", "HOSTILE", "NOW", "NodeView", "decisions", "first_findings", "row"]
