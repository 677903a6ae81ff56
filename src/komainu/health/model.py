"""The words of this room: what a kernel line says, how it is graded, and the catalogue that grades it.

    text ──parse──▶ Line (what it says) ──grade──▶ Reading (what it means) ──correlate──▶ Finding

NVIDIA's advice, the driver's own verdict and our class are separate fields all the way through, so that
a page can show which of them said what.
"""

from __future__ import annotations

from datetime import date

import msgspec

from komainu.core.observation import Scalar
from komainu.core.verdict import FaultClass, Severity

SEVERITY: dict[FaultClass, Severity] = {
    FaultClass.QUARANTINE_NOW: Severity.FATAL,
    FaultClass.DRAIN_AFTER_JOB: Severity.DEGRADED,
    FaultClass.APP_RESTART_DRAIN: Severity.DEGRADED,
    # An NVLink error whose registers say nothing is still an NVLink error: the link went down.
    FaultClass.DECODE_REGS: Severity.DEGRADED,
    # An NVLink 5 line without a severity word, or 154 with a number nobody knows: never drained on that.
    FaultClass.DECODE_NVL5: Severity.WATCH,
    FaultClass.OBEY_ACTION_CODE: Severity.WATCH,
    FaultClass.WATCH: Severity.WATCH,
    FaultClass.UNKNOWN: Severity.WATCH,
    FaultClass.APP_COUNT: Severity.INFO,
    FaultClass.SYMPATHETIC: Severity.INFO,
    FaultClass.INFO: Severity.INFO,
}
"""The only place where a class becomes a severity."""

OUR_ACTION: dict[FaultClass, str] = {
    FaultClass.QUARANTINE_NOW: "take the node out now",
    FaultClass.DRAIN_AFTER_JOB: "drain after the running job",
    FaultClass.APP_RESTART_DRAIN: "restart the job, drain after it",
    FaultClass.DECODE_REGS: "drain after the running job",
    FaultClass.DECODE_NVL5: "watch",
    FaultClass.OBEY_ACTION_CODE: "watch and alert",
    FaultClass.WATCH: "watch",
    FaultClass.UNKNOWN: "watch and alert",
    FaultClass.APP_COUNT: "count; never drains alone",
    FaultClass.SYMPATHETIC: "follow the fault it accompanies",
    FaultClass.INFO: "record",
}
"""Our class in words, for `komainu explain`."""

RECOVERY_ACTION: dict[int, str] = {
    0: "none",
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain peer-to-peer work",
    4: "drain and reset the GPU",
    5: "recover the IMEX domain",
}
"""Xid 154's numbers in our words (ctrl2080gpu.h). The driver's words changed in r610; the numbers not."""


class Xid(msgspec.Struct, frozen=True, kw_only=True, rename={"fault_class": "class"}):
    """One Xid. `nvidia`, `immediate` and `investigate` are NVIDIA's, verbatim; "" where it says nothing."""

    code: int
    driver: str
    nvidia: str
    immediate: str
    investigate: str
    fault_class: FaultClass
    component: str = "gpu"
    engine: str = ""
    source: str
    date: date

    @property
    def severity(self) -> Severity:
        return SEVERITY[self.fault_class]

    @property
    def means(self) -> str:
        """What it is, in NVIDIA's words where it has any, else in the driver's name for it."""
        if self.nvidia and self.nvidia != "Unused":
            return self.nvidia
        return self.driver.removeprefix("ROBUST_CHANNEL_").replace("_", " ").lower()


class Sxid(msgspec.Struct, frozen=True, kw_only=True):
    """One NVSwitch SXid."""

    code: int
    name: str
    """The header's name, complete."""
    unit: str
    what: str
    """The unit in plain words."""
    was: str = ""
    """For renumbered codes: the unit the number meant in older drivers."""
    alone: FaultClass | None = None
    """Class when the line carries no severity word; None: WATCH."""


class KernelLine(msgspec.Struct, frozen=True, kw_only=True, rename={"fault_class": "class"}):
    """One kind of kernel line that is neither Xid nor SXid."""

    finding: str
    """Finding code; "" for a line that names a thing and is no finding."""
    component: str
    code: str
    fault_class: FaultClass
    means: str
    source: str
    date: date
    vendor: str = ""

    @property
    def severity(self) -> Severity:
        return SEVERITY[self.fault_class]


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """All we know of codes. `version` names it in every finding it grades."""

    version: str
    renumbered_at: str
    xids: dict[int, Xid]
    sxids: dict[int, Sxid]
    lines: dict[str, KernelLine]
    """By finding code, or by `component/code` for lines that are no finding."""


class Line(msgspec.Struct, frozen=True):
    """What a kernel line says, before anything grades it."""

    component: str
    code: str
    """The driver's or kernel's own code: `79`, `SXid 20034`, `AER fatal`."""
    entry: str = ""
    """Key into Catalogue.lines; empty for Xid and SXid."""
    device: str = ""
    """PCI address or device name of the individual; empty when the line does not say."""
    fields: dict[str, Scalar] = {}


class Reading(msgspec.Struct, frozen=True):
    """What a line means taken alone, graded. Everything a finding needs that depends on the text only."""

    line: Line
    finding: str
    """Finding code; "" for a line that names a thing."""
    fault_class: FaultClass
    """Ours, from the catalogue."""
    graded: FaultClass
    """What the class comes to for this very line (154 with number 4 → QUARANTINE_NOW)."""
    severity: Severity
    summary: str
    vendor_action: str | None = None
    driver_action: int | None = None

    @property
    def our_action(self) -> str:
        return OUR_ACTION[self.graded]
