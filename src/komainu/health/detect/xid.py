"""Xid lines: what they say (parse) and what that comes to (grade).

The code is the number right after the driver's own closing parenthesis, at the very start of the record.
Nothing after it can choose another code: the process name there is a tenant's text. It is at most 15
bytes (the kernel's `comm`), and every grammar decoded further on (registers, recovery action, RST) is
longer than that or stands at the end of the line, after the name. Since a name may hold `, ` itself,
those grammars are searched for, never expected at a fixed place. Formats: krcReportXid_IMPL of NVIDIA's
open kernel module 595.45.04, and older forms from public bug reports.
"""

from __future__ import annotations

import re

from komainu.core.observation import Scalar
from komainu.core.verdict import FaultClass
from komainu.health.detect.nvlink import decode_nvlink5, decode_registers
from komainu.health.model import OUR_ACTION, RECOVERY_ACTION, SEVERITY, Catalogue, Line, Reading

START = "NVRM: Xid ("

_XID = re.compile(
    r"(?a)NVRM: Xid \((?:PCI:)?"
    # Domain, bus, device; drivers before about 2012 print no domain: (0001:00).
    r"((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2,4}:[0-9A-Fa-f]{2})(?:\.[0-7])?"
    r"(?: GPU-I:(\d+)(?: GPU-CI:(\d+))?)?"
    # Room for an attribute a future driver may add inside its parenthesis.
    r"[^)\n]{0,60}\): (\d{1,9})(?:,|\s|\Z) ?"
    r"(?:pid=('?<[^>]{0,20}>'?|\d{1,10}),? ?)?"
    r"(?:name=(.{0,100}?)(?:, |\Z))?"
)
_PLACE = re.compile(r"(?a)\(GPC (\d+), TPC (\d+), SM (\d+)\)")
# Short enough to stand in the rest of a process name that holds a comma: the last one in its reach
# counts. Where the driver prints none, such a name may forge one: it is shown, and decides nothing.
_CHANNEL = re.compile(
    r"(?as)(?:.{0,20}, )?(?:Ch|channel|Channel ID|Channel) (?:0x)?([0-9A-Fa-f]{8})"
)
_RESET = re.compile(r"(?a)RST: (Yes|No), D-RST: (Yes|No)\s*\Z")
_ACTION = re.compile(
    r"(?a)GPU recovery action changed from 0x([0-9A-Fa-f]{1,8}) \([^)]{0,60}\) to 0x([0-9A-Fa-f]{1,8})"
)
_CAUSED_BY = re.compile(r"(?a)caused by previous Xid (\d{1,9})\s*\Z")
_UNRECOGNIZED = re.compile(
    r"(?a)MMU Fault: ENGINE [A-Z0-9_ ]{1,80}UNRECOGNIZED_CLIENT faulted @ 0x"
)


def pci_address(text: str) -> str:
    """A PCI address as `0000:41:00`: lower case, four-digit domain, no function number."""
    address = text.lower().partition(".")[0]
    return address[4:] if len(address) == 14 and address.startswith("0000") else address


def parse_xid(text: str) -> Line | None:
    """Read a record that starts as the driver starts an Xid; None when the rest is not one."""
    found = _XID.match(text)
    if found is None:
        return None
    address, gpu_instance, compute_instance, number, pid, name = found.groups()
    code, pci = int(number), pci_address(address)
    fields: dict[str, Scalar] = {"pci": pci, "xid": code}
    if pid is not None and pid.isdecimal():
        fields["pid"] = int(pid)
    if name is not None and not name.startswith("<"):
        fields["name"] = name
    if gpu_instance is not None:
        fields["gi"] = int(gpu_instance)
    if compute_instance is not None:
        fields["ci"] = int(compute_instance)
    decode = _DECODERS.get(code)
    if decode is not None:
        decode(text[found.end() :], fields)
    return Line("gpu/mig" if gpu_instance is not None else "gpu", str(code), "", pci, fields)


def _place(message: str, fields: dict[str, Scalar]) -> None:
    if found := _PLACE.search(message):
        fields["gpc"], fields["tpc"], fields["sm"] = map(int, found.groups())
    if found := _CHANNEL.match(message):
        fields["channel"] = int(found[1], 16)
    if _UNRECOGNIZED.search(message):
        # The driver cannot tell whose access it was: a reboot was needed (flashinfer issue 3869).
        fields["unrecognized_client"] = True


def _containment(message: str, fields: dict[str, Scalar]) -> None:
    if found := _RESET.search(message):
        fields["rst"], fields["drst"] = found[1] == "Yes", found[2] == "Yes"


def _recovery(message: str, fields: dict[str, Scalar]) -> None:
    if found := _ACTION.search(message):
        fields["action_before"], fields["action"] = int(found[1], 16), int(found[2], 16)


def _cause(message: str, fields: dict[str, Scalar]) -> None:
    if found := _CAUSED_BY.search(message):
        fields["caused_by_xid"] = int(found[1])


_DECODERS = {
    13: _place,
    31: _place,
    43: _place,
    45: _cause,
    74: decode_registers,
    94: _containment,
    95: _containment,
    154: _recovery,
    **dict.fromkeys(range(144, 151), decode_nvlink5),
}


def grade_xid(line: Line, catalogue: Catalogue) -> Reading:
    """What an Xid line means, taken alone. A code the catalogue lacks is UNKNOWN: watched, never drained."""
    code = int(line.code)
    entry = catalogue.xids.get(code)
    fault_class = entry.fault_class if entry else FaultClass.UNKNOWN
    graded, why = _graded(code, fault_class, line.fields)
    action = line.fields.get("action")
    if entry is not None and entry.component != "gpu":
        line = Line(entry.component, line.code, "", line.device, line.fields)
    means = entry.means if entry else "a code no catalogue knows"
    return Reading(
        line=line,
        finding=f"GPU-XID-{code}",
        fault_class=fault_class,
        graded=graded,
        severity=SEVERITY[graded],
        summary=f"Xid {code} on GPU {line.device}: {means}{why}",
        vendor_action=(entry.immediate or None) if entry else None,
        driver_action=action if isinstance(action, int) else None,
    )


def _graded(
    code: int, fault_class: FaultClass, fields: dict[str, Scalar]
) -> tuple[FaultClass, str]:
    """The class this very line comes to, and the words for it."""
    if code == 154:
        return _obeyed(fault_class, fields)
    decoded = fields.get("decoded")
    if isinstance(decoded, str):
        graded = FaultClass(decoded)
        return graded, f" ({fields['decoded_why']}: {OUR_ACTION[graded]})"
    if code == 94 and fields.get("rst"):
        return FaultClass.QUARANTINE_NOW, " (the driver asks for a reset)"
    if code == 31 and fields.get("unrecognized_client"):
        return FaultClass.DRAIN_AFTER_JOB, " (by a client the driver cannot name)"
    return fault_class, ""


def _obeyed(fault_class: FaultClass, fields: dict[str, Scalar]) -> tuple[FaultClass, str]:
    action = fields.get("action")
    if not isinstance(action, int):
        return fault_class, ""
    words = RECOVERY_ACTION.get(action, "an action nobody has documented")
    return _OBEY.get(action, FaultClass.UNKNOWN), f", to {action} ({words})"


_OBEY = {
    0: FaultClass.INFO,
    1: FaultClass.QUARANTINE_NOW,
    2: FaultClass.QUARANTINE_NOW,
    3: FaultClass.DRAIN_AFTER_JOB,
    4: FaultClass.QUARANTINE_NOW,
    5: FaultClass.DRAIN_AFTER_JOB,
}
"""Xid 154's number → class. 3 and 5 leave single-GPU work unharmed, so the running job may finish."""
