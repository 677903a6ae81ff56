"""What goes together: one incident per cause, one finding per error.

A double-bit error prints Xid 48, 63 and 94 within 2 ms; an NVSwitch error prints three lines; a killed job
prints a burst of 45s. Each such group is one incident: the first in causal order is the cause, the others
name it in `Finding.cause`. Time windows are symmetric and a batch is looked at in causal order, so the
order in which lines arrive does not matter within a batch; across batches, what was said stands and later
lines attach to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

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
from komainu.core.verdict import FaultClass, Severity, Verdict
from komainu.health.catalogue import catalogue
from komainu.health.detect.reading import shipped
from komainu.health.model import OUR_ACTION, SEVERITY, Reading

INCIDENT = timedelta(seconds=2)
"""48 → 63 → 94 → 171/172, 154 after its Xid, off-bus lines, AER before 79 (102 ms in a public log)."""
FOLD = timedelta(seconds=1)
"""Lines of one error: the three of an SXid, the dozens of ESR lines of one Xid 13."""
FOLLOWS = timedelta(seconds=10)
"""A 109 after a 13/31/43 is that fault's doing (5 s in a public log); a nameless 45 after any Xid."""
NAMED = timedelta(seconds=60)
"""How far back a 45 that names its Xid, or a rate-limit notice, looks for it."""
DRIVE = timedelta(seconds=120)
"""NVMe timeout → reset → removal."""
REPEAT = timedelta(hours=24)
"""Repeats of 109 and of NVLink register faults are counted so far back."""

MAX_RECENT, MAX_DEVICES, MAX_SEEN, MAX_TALLIES, MAX_TALLY = 32, 128, 1024, 256, 8
"""Bounds of Memory: under 1 MB however long a flood lasts."""
MAX_TEXT = 1000
"""Characters of the raw line kept as evidence (a kernel record has at most about that many)."""

_V = TypeVar("_V")

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


class Recent(msgspec.Struct, frozen=True):
    """What correlation must remember of a finding."""

    id: str
    code: str
    xid: int
    at: datetime
    severity: Severity
    detail: str = ""
    """What must agree for two lines to be one error: link, action, process."""
    pid: int | None = None
    root: str | None = None


class Memory(msgspec.Struct, frozen=True):
    """What correlation remembers between calls and across restarts. Bounded, and plain JSON."""

    recent: dict[str, tuple[Recent, ...]] = {}
    """Device → its newest findings, oldest first."""
    tallies: dict[str, tuple[datetime, ...]] = {}
    """What is counted over a day: key → newest times."""
    seen: tuple[str, ...] = ()
    """Ids of the newest observations concluded: the same observation again concludes nothing."""


class _Desk:
    """A Memory opened for one call: lists are copied only where this call writes."""

    def __init__(self, memory: Memory) -> None:
        self._before = memory
        self._recent: dict[str, list[Recent]] = {}
        self._tallies: dict[str, list[datetime]] = {}
        self._seen = dict.fromkeys(memory.seen)

    def first_sight(self, observation: str) -> bool:
        if observation in self._seen:
            return False
        self._seen[observation] = None
        return True

    def recent(self, device: str) -> list[Recent]:
        found = self._recent.get(device)
        if found is None:
            found = self._recent[device] = list(self._before.recent.get(device, ()))
        return found

    def everywhere(self) -> list[Recent]:
        """Of all devices; only rare codes look so far."""
        untouched = (v for k, v in self._before.recent.items() if k not in self._recent)
        return [r for group in (*untouched, *self._recent.values()) for r in group]

    def tally(self, key: str, at: datetime) -> list[datetime]:
        """Times within REPEAT of `at` under this key, `at` included; counted once per time."""
        times = self._tallies.setdefault(key, list(self._before.tallies.get(key, ())))
        if at not in times:
            times.append(at)
            times.sort()
            del times[:-MAX_TALLY]
        return [time for time in times if abs(at - time) <= REPEAT]

    def closed(self) -> Memory:
        recent = {k: v for k, v in self._before.recent.items() if k not in self._recent}
        recent |= {k: tuple(v[-MAX_RECENT:]) for k, v in self._recent.items() if v}
        tallies = {k: v for k, v in self._before.tallies.items() if k not in self._tallies}
        tallies |= {k: tuple(v) for k, v in self._tallies.items()}
        return Memory(
            recent=_newest(recent, MAX_DEVICES),
            tallies=_newest(tallies, MAX_TALLIES),
            seen=tuple(self._seen)[-MAX_SEEN:],
        )


def _newest(mapping: dict[str, _V], bound: int) -> dict[str, _V]:
    return mapping if len(mapping) <= bound else dict(list(mapping.items())[-bound:])


def detect(memory: Memory, seen: Sequence[Observation]) -> tuple[Memory, list[Finding]]:
    """What `seen` adds to what is known: new findings, oldest first, and what to remember.

    Pure and repeat-free: an observation that was already concluded gives nothing again, and the same
    observation always gives the same finding id.
    """
    desk, out = _Desk(memory), []
    read = shipped()
    lines: list[tuple[int, datetime, str, Observation, Reading]] = []
    for observation in seen:
        if observation.kind is ObservationKind.KERNEL_LINE:
            reading = read(str(observation.data.get("text", "")))
            if reading is not None and reading.finding and desk.first_sight(observation.id):
                rank = _rank(reading)
                lines.append((rank, observation.at, observation.id, observation, reading))
        elif (finding := _about_the_log(observation)) and desk.first_sight(observation.id):
            out.append(finding)
    lines.sort(key=_in_causal_order)
    out += [f for line in lines if (f := _conclude(desk, line[3], line[4])) is not None]
    out.sort(key=_by_time)
    return desk.closed(), out


def _in_causal_order(
    line: tuple[int, datetime, str, Observation, Reading],
) -> tuple[int, datetime, str]:
    return line[0], line[1], line[2]


def _by_time(finding: Finding) -> tuple[datetime, str]:
    return finding.at, finding.id


def _rank(reading: Reading) -> int:
    xid = reading.line.fields.get("xid")
    if isinstance(xid, int):
        return _RANK.get(xid, 1)
    if "sxid" in reading.line.fields and "link" not in reading.line.fields:
        return 2  # severity and data lines of an SXid fold into its summary
    return _RANK_OF_CODE.get(reading.finding, 1)


def _conclude(desk: _Desk, seen: Observation, reading: Reading) -> Finding | None:
    """One observation's finding, or None when it is part of an error already concluded."""
    line, at = reading.line, seen.at
    device = _place(reading)
    recents = desk.recent(device)
    detail = _detail(reading)
    if detail is not None and _folds(recents, reading, detail, at):
        return None
    fields = line.fields
    xid, pid = fields.get("xid"), fields.get("pid")
    cause = _cause(desk, recents, reading, at)
    graded = _in_context(desk, reading, cause, at)
    finding = _finding(seen, reading, graded, cause)
    recents.append(
        Recent(
            finding.id,
            finding.code,
            xid if isinstance(xid, int) else -1,
            at,
            finding.severity,
            detail or "",
            pid if isinstance(pid, int) else None,
            finding.cause,
        )
    )
    if len(recents) > 2 * MAX_RECENT:
        del recents[:MAX_RECENT]
    return finding


def _place(reading: Reading) -> str:
    """Where related lines meet: the GPU, the switch, the drive's controller (nvme2 for nvme2n1)."""
    if reading.finding.startswith("NVME-"):
        found = re.match(r"nvme\d+", reading.line.device)
        return found[0] if found else reading.line.device
    return reading.line.device


def _detail(reading: Reading) -> str | None:
    """What must agree for two lines to be one error; None: every line is an error of its own."""
    fields = reading.line.fields
    if reading.fault_class in {FaultClass.APP_COUNT, FaultClass.SYMPATHETIC} and "xid" in fields:
        return "" if fields["xid"] == 109 else str(fields.get("pid", ""))
    if reading.finding.startswith(_NEVER_FOLDED) and reading.finding != "GPU-OFF-BUS":
        return None
    return str(fields.get("link", fields.get("record", "")))


def _folds(recents: list[Recent], reading: Reading, detail: str, at: datetime) -> bool:
    return any(
        r.code == reading.finding
        and (r.detail == detail or not detail)
        and abs(at - r.at) <= FOLD
        and reading.severity <= r.severity
        for r in reversed(recents)
    )


def _cause(desk: _Desk, recents: list[Recent], reading: Reading, at: datetime) -> Recent | None:
    """The finding this one is part of."""
    xid = reading.line.fields.get("xid")
    if isinstance(xid, int):
        return _cause_of_xid(desk, recents, xid, reading, at)
    match reading.finding:
        case "GPU-OFF-BUS":
            return _nearest(recents, at, INCIDENT, lambda r: r.xid == 79) or _bus_error(desk, at)
        case "GPU-GSP-RATE-LIMITED":
            among = recents if reading.line.device else desk.everywhere()
            return _nearest(among, at, NAMED, lambda r: r.xid == 119)
        case "NVME-LOST" | "NVME-IO-ERROR" | "NVME-PATH" | "NVME-RAID":
            return _first(recents, at, DRIVE, lambda r: r.code.startswith("NVME-"))
        case code if code.startswith("NVSWITCH-"):
            return _nearest(recents, at, FOLD, lambda r: r.code == code and not r.detail)
    return None


def _cause_of_xid(
    desk: _Desk, recents: list[Recent], xid: int, reading: Reading, at: datetime
) -> Recent | None:
    if xid in _MEMORY_FAULT:
        return _first(recents, at, INCIDENT, lambda r: r.xid in _MEMORY_FAULT)
    if xid == 45:
        named = reading.line.fields.get("caused_by_xid")
        if named is not None:
            return _nearest(recents, at, NAMED, lambda r: r.xid == named)
        return _nearest(recents, at, FOLLOWS, lambda r: r.xid >= 0 and r.xid not in _FOLLOWERS)
    if xid == 154:
        return _nearest(recents, at, INCIDENT, lambda r: r.xid >= 0 and r.xid not in _FOLLOWERS)
    if xid == 109:
        pid = reading.line.fields.get("pid")
        return _nearest(
            recents,
            at,
            FOLLOWS,
            lambda r: r.xid in _APP_FAULT and (r.pid == pid or None in {r.pid, pid}),
        )
    return _bus_error(desk, at) if xid == 79 else None


def _bus_error(desk: _Desk, at: datetime) -> Recent | None:
    """A fatal PCIe error names the port, not the GPU below it, so only time connects the two."""
    return _nearest(desk.everywhere(), at, INCIDENT, lambda r: r.code == "PCIE-AER-FATAL")


def _nearest(
    recents: Sequence[Recent], at: datetime, within: timedelta, wanted: Callable[[Recent], bool]
) -> Recent | None:
    near = [r for r in recents if abs(at - r.at) <= within and wanted(r)]
    return min(near, key=lambda r: abs(at - r.at), default=None)


def _first(
    recents: Sequence[Recent], at: datetime, within: timedelta, wanted: Callable[[Recent], bool]
) -> Recent | None:
    return next((r for r in recents if abs(at - r.at) <= within and wanted(r)), None)


def _in_context(desk: _Desk, reading: Reading, cause: Recent | None, at: datetime) -> FaultClass:
    """The class a line comes to given what else was seen."""
    fields, device = reading.line.fields, reading.line.device
    if fields.get("xid") == 109:
        # More than FOLLOWS apart, so that one hang that prints twice is not a repetition.
        times = desk.tally(f"109 {device}", at)
        repeated = any(at - time > FOLLOWS for time in times)
        return FaultClass.DRAIN_AFTER_JOB if repeated or cause is None else reading.graded
    repeats = fields.get("repeats_to_drain")
    if isinstance(repeats, int):
        times = desk.tally(f"{reading.finding} {device} {fields.get('link')}", at)
        return FaultClass.DRAIN_AFTER_JOB if len(times) >= repeats else reading.graded
    return reading.graded


def _finding(
    seen: Observation, reading: Reading, graded: FaultClass, cause: Recent | None
) -> Finding:
    line, summary = reading.line, reading.summary
    if graded is not reading.graded:
        summary = f"{summary} ({OUR_ACTION[graded]})"
    return Finding(
        id=stable_id(seen.cluster, seen.node, reading.finding, line.device, seen.id, prefix="F-"),
        cluster=seen.cluster,
        node=seen.node,
        code=reading.finding,
        component=Component(line.component, line.device),
        severity=SEVERITY[graded],
        fault_class=reading.fault_class,
        summary=summary,
        at=seen.at,
        evidence=(
            Evidence(observation=seen.id, at=seen.at, text=str(seen.data["text"])[:MAX_TEXT]),
        ),
        cause=(cause.root or cause.id) if cause is not None else None,
        vendor_action=reading.vendor_action,
        driver_action=reading.driver_action,
        catalogue=catalogue().version,
        fields=line.fields,
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
        evidence=(Evidence(observation=seen.id, at=seen.at, text=""),),
        catalogue=catalogue().version,
        fields=fields,
    )
