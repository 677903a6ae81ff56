"""What goes together: one incident per cause, one finding per error.

A double-bit error prints Xid 48, 63 and 94 within 2 ms; an NVSwitch error prints three lines; a killed job
prints a burst of 45s. Each such group is one incident: the first in causal order is the cause, the others
name it in `Finding.cause`. Time windows are symmetric and a batch is looked at in causal order, so the
order in which lines arrive does not matter within a batch; across batches, what was said stands and later
lines attach to it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter, itemgetter

import msgspec

from komainu.core.names import stable_id
from komainu.core.observation import (
    Component,
    Evidence,
    Finding,
    Observation,
    ObservationKind,
    Scalar,
)
from komainu.core.verdict import FaultClass, Verdict
from komainu.health.catalogue import catalogue
from komainu.health.detect.memory import Desk, Memory, Recent, Track
from komainu.health.detect.reading import REMEMBERED, shipped
from komainu.health.model import OUR_ACTION, SEVERITY, Reading

INCIDENT = 2.0
"""48 → 63 → 94 → 171/172, 154 after its Xid, off-bus lines, AER before 79 (0.1 s in a public log). Seconds."""
FOLD = 1.0
"""Lines of one error: the three of an SXid, the dozens of ESR lines of one Xid 13."""
FOLLOWS = 10.0
"""A 109 after a 13/31/43 is that fault's doing (5 s in a public log); a nameless 45 after any Xid."""
NAMED = 60.0
"""How far back a 45 that names its Xid, or a rate-limit notice, looks for it."""
DRIVE = 120.0
"""NVMe timeout → reset → removal."""
MAX_TEXT = 1000
"""Characters of the raw line kept as evidence (a kernel record has at most about that many)."""

_MEMORY_FAULT = frozenset({48, 63, 64, 94, 95, 171, 172})
_APP_FAULT = frozenset({13, 31, 43})
_FOLLOWERS = frozenset({45, 154})
# Causes before consequences: within a batch, later ranks find their causes already concluded.
_RANK = {171: 2, 172: 2, 63: 3, 64: 3, 94: 4, 95: 4, 109: 5, 154: 8, 45: 9}
_RANK_OF_CODE = {
    "PCIE-AER-FATAL": 0,
    "NVME-TIMEOUT": 0,
    "GPU-OFF-BUS": 7,
    "GPU-GSP-RATE-LIMITED": 7,
}
# Every one of these lines is an error of its own: an Xid condemns, an EDAC line carries its own count.
_NEVER_FOLDED = ("GPU-", "DRAM-EDAC-")
_NOT_XID = -1
_BUS_ERRORS = "pcie fatal"
"""A place of its own, since a fatal PCIe error names the port and not the GPU below it."""


class _Case(msgspec.Struct, frozen=True):
    """A reading with everything correlation needs of it that depends on the text alone."""

    reading: Reading
    rank: int
    xid: int
    pid: int | None
    place: str
    """Where related lines meet: the GPU, the switch, the drive's controller (nvme2 for nvme2n1)."""
    detail: str | None
    """None: every such line is an error of its own."""
    component: Component


@lru_cache(REMEMBERED)
def _case(text: str) -> _Case | None:
    reading = shipped()(text)
    if reading is None or not reading.finding:
        return None
    line, code = reading.line, reading.finding
    xid, pid = line.fields.get("xid"), line.fields.get("pid")
    drive = re.match(r"nvme\d+", line.device) if code.startswith("NVME-") else None
    return _Case(
        reading=reading,
        rank=_rank(reading),
        xid=xid if isinstance(xid, int) else _NOT_XID,
        pid=pid if isinstance(pid, int) else None,
        place=drive[0] if drive else line.device,
        detail=_detail(reading),
        component=Component(line.component, line.device),
    )


def _rank(reading: Reading) -> int:
    xid = reading.line.fields.get("xid")
    if isinstance(xid, int):
        return _RANK.get(xid, 1)
    if "sxid" in reading.line.fields and "link" not in reading.line.fields:
        return 2  # severity and data lines of an SXid fold into its summary
    return _RANK_OF_CODE.get(reading.finding, 1)


def _detail(reading: Reading) -> str | None:
    fields = reading.line.fields
    if reading.fault_class in {FaultClass.APP_COUNT, FaultClass.SYMPATHETIC} and "xid" in fields:
        return "" if fields["xid"] == 109 else str(fields.get("pid", ""))
    if reading.finding.startswith(_NEVER_FOLDED) and reading.finding != "GPU-OFF-BUS":
        return None
    return str(fields.get("link", fields.get("record", "")))


def detect(memory: Memory, seen: Sequence[Observation]) -> tuple[Memory, list[Finding]]:
    """What `seen` adds to what is known: new findings, oldest first, and what to remember.

    Pure and repeat-free: an observation that was already concluded gives nothing again, and the same
    observation always gives the same finding id.
    """
    desk = Desk(memory)
    out: list[Finding] = []
    cases: list[tuple[int, float, str, Observation, _Case]] = []
    for observation in seen:
        if observation.kind is ObservationKind.KERNEL_LINE:
            case = _case(str(observation.data.get("text", "")))
            if case is not None and desk.first_sight(observation.id):
                at = observation.at.timestamp()
                cases.append((case.rank, at, observation.id, observation, case))
        elif (finding := _about_the_log(observation)) and desk.first_sight(observation.id):
            out.append(finding)
    cases.sort(key=_CAUSAL_ORDER)
    for _, at, _, observation, case in cases:
        concluded = _conclude(desk, observation, case, at)
        if concluded is not None:
            out.append(concluded)
    out.sort(key=_TIME_ORDER)
    return (desk.closed() if out or cases else memory), out


_CAUSAL_ORDER = itemgetter(0, 1, 2)
_TIME_ORDER = attrgetter("at", "id")


def _conclude(desk: Desk, seen: Observation, case: _Case, at: float) -> Finding | None:
    """One observation's finding, or None when it is part of an error already concluded."""
    track = desk.track(case.place)
    if case.detail is not None and _folds(track, case, at):
        return None
    cause = _cause(desk, track, case, at)
    graded = _in_context(desk, case, cause, at)
    root = None if cause is None else cause.root or cause.id
    finding = _finding(seen, case, graded, root)
    recent = Recent(
        finding.id, finding.code, case.xid, at, finding.severity, case.detail, case.pid, root
    )
    track.add(recent)
    if finding.code == "PCIE-AER-FATAL":
        desk.track(_BUS_ERRORS).add(recent)
    return finding


def _folds(track: Track, case: _Case, at: float) -> bool:
    code, detail, severity = case.reading.finding, case.detail, case.reading.severity
    near = track.near(at, FOLD)
    return bool(near) and any(
        r.code == code and r.severity >= severity and (r.detail == detail or not detail)
        for r in near
    )


def _cause(desk: Desk, track: Track, case: _Case, at: float) -> Recent | None:
    """The finding this one is part of."""
    if case.xid != _NOT_XID:
        return _cause_of_xid(desk, track, case, at)
    match case.reading.finding:
        case "GPU-OFF-BUS":
            lost = [r for r in track.near(at, INCIDENT) if r.xid == 79]
            return _nearest(lost or desk.track(_BUS_ERRORS).near(at, INCIDENT), at)
        case "GPU-GSP-RATE-LIMITED":
            near = track.near(at, NAMED) if case.place else desk.near_anywhere(at, NAMED)
            return _nearest([r for r in near if r.xid == 119], at)
        case "NVME-LOST" | "NVME-IO-ERROR" | "NVME-PATH" | "NVME-RAID":
            return next((r for r in track.near(at, DRIVE) if r.code.startswith("NVME-")), None)
        case code if code.startswith("NVSWITCH-"):
            return _nearest(
                [r for r in track.near(at, FOLD) if r.code == code and not r.detail], at
            )
    return None


def _cause_of_xid(desk: Desk, track: Track, case: _Case, at: float) -> Recent | None:
    xid = case.xid
    if xid in _MEMORY_FAULT:
        near = track.near(at, INCIDENT)
        return next((r for r in near if r.xid in _MEMORY_FAULT and r.root is None), None)
    if xid == 45:
        named = case.reading.line.fields.get("caused_by_xid")
        if named is not None:
            return _nearest([r for r in track.near(at, NAMED) if r.xid == named], at)
        return _nearest(_faults(track.near(at, FOLLOWS)), at)
    if xid == 154:
        return _nearest(_faults(track.near(at, INCIDENT)), at)
    if xid == 109:
        near = [r for r in track.near(at, FOLLOWS) if r.xid in _APP_FAULT]
        return _nearest([r for r in near if r.pid == case.pid or None in {r.pid, case.pid}], at)
    return _nearest(desk.track(_BUS_ERRORS).near(at, INCIDENT), at) if xid == 79 else None


def _faults(near: list[Recent]) -> list[Recent]:
    """Xids that can be a cause: not those that only follow."""
    return [r for r in near if r.xid != _NOT_XID and r.xid not in _FOLLOWERS]


def _nearest(near: list[Recent], at: float) -> Recent | None:
    return min(near, key=lambda r: abs(at - r.at), default=None) if near else None


def _in_context(desk: Desk, case: _Case, cause: Recent | None, at: float) -> FaultClass:
    """The class a line comes to given what else was seen."""
    reading = case.reading
    if case.xid == 109:
        # More than FOLLOWS apart, so that one hang that prints twice is not a repetition.
        repeated = any(at - time > FOLLOWS for time in desk.tally(f"109 {case.place}", at))
        return FaultClass.DRAIN_AFTER_JOB if repeated or cause is None else reading.graded
    if case.xid == 74 and isinstance(repeats := reading.line.fields.get("repeats_to_drain"), int):
        times = desk.tally(f"74 {case.place} {reading.line.fields.get('link')}", at)
        return FaultClass.DRAIN_AFTER_JOB if len(times) >= repeats else reading.graded
    return reading.graded


def _finding_id(seen: Observation, case: _Case) -> str:
    """`stable_id(cluster, node, code, component, observation)`, all but the last hashed beforehand."""
    digest = _hashed(seen.cluster, seen.node, case.reading.finding, case.component.id).copy()
    digest.update(seen.id.encode())
    return f"F-{digest.hexdigest()}"


@lru_cache(REMEMBERED)
def _hashed(*parts: str) -> hashlib.blake2b:
    start = "".join(f"{part}\x1f" for part in parts)
    return hashlib.blake2b(start.encode("utf-8", "surrogatepass"), digest_size=10)


def _finding(seen: Observation, case: _Case, graded: FaultClass, root: str | None) -> Finding:
    reading, summary, severity = case.reading, case.reading.summary, case.reading.severity
    if graded is not reading.graded:
        summary, severity = f"{summary} ({OUR_ACTION[graded]})", SEVERITY[graded]
    return Finding(
        id=_finding_id(seen, case),
        cluster=seen.cluster,
        node=seen.node,
        code=reading.finding,
        component=case.component,
        severity=severity,
        fault_class=reading.fault_class,
        summary=summary,
        at=seen.at,
        evidence=(
            Evidence(observation=seen.id, at=seen.at, text=str(seen.data["text"])[:MAX_TEXT]),
        ),
        cause=root,
        vendor_action=reading.vendor_action,
        driver_action=reading.driver_action,
        catalogue=catalogue().version,
        fields=reading.line.fields,
    )


_LOG = Component("host/kmsg")


def _about_the_log(seen: Observation) -> Finding | None:
    """What we could not look at is a finding too: unknown is never OK."""
    fields: dict[str, Scalar] = {}
    if seen.kind is ObservationKind.KERNEL_GAP:
        lost = seen.data.get("lost")
        fields["lost"] = lost if isinstance(lost, int) else None
        code, summary = (
            "HOST-KMSG-GAP",
            f"{fields['lost']} kernel log records were overwritten unread",
        )
    elif seen.kind is ObservationKind.KERNEL_SOURCE and seen.data.get("readable") is False:
        code, summary = "HOST-KMSG-UNREADABLE", "the kernel log cannot be read: faults go unseen"
        if seen.data.get("boot") == "previous":
            code = "HOST-KMSG-PREVIOUS-BOOT"
            summary = "the last kernel lines of the boot before could not be read"
    else:
        return None
    return Finding(
        id=stable_id(seen.cluster, seen.node, code, "", seen.id, prefix="F-"),
        cluster=seen.cluster,
        node=seen.node,
        code=code,
        component=_LOG,
        severity=SEVERITY[FaultClass.UNKNOWN],
        fault_class=FaultClass.UNKNOWN,
        verdict=Verdict.UNKNOWN,
        summary=summary,
        at=seen.at,
        evidence=(Evidence(observation=seen.id, at=seen.at, text=str(seen.data.get("why", ""))),),
        catalogue=catalogue().version,
        fields=fields,
    )
