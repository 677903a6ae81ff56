"""Every other kernel line that means something: patterns, and the one way from text to Line.

Each pattern matches from the first character of the record. Some records begin with the
name of a process, which a tenant chooses, and go on to name a file: those are refused whole (`_NAME_FIRST`),
and no pattern has a gap that arbitrary text would fill. A pattern is listed under its finding code; what it
means stands in catalogue/lines.toml under that code.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from komainu.core.observation import Scalar
from komainu.health.detect.sxid import parse_sxid, switch_address
from komainu.health.detect.xid import parse_xid, pci_address
from komainu.health.model import SEVERITY, Catalogue, Line, Reading

_D = r"(?P<device>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?)"
_GPU = r"NVRM: (?:GPU ?\d+:? )?(?:\w+: )?"
_LUSTRE_AT = r"\d+:\d+:\([\w./\-]+:\d+:\w+\(\)\) "
_WORDS = r"[A-Za-z][\w .,()/#\-]{0,60}?"
_NEWLINE = r"(?:\\n|\\x0a|\s|NVRM:)"

_NVRM = {
    "GPU-OFF-BUS": (
        rf"NVRM: GPU (?:at )?(?:PCI:)?{_D}:? (?:GPU )?has fallen off the bus"
        rf"|NVRM: The NVIDIA GPU (?P<lost>[0-9A-Fa-f:.]{{10,18}}){_NEWLINE}{{0,40}}(?:\(PCI ID: \w{{4}}:\w{{4}}\))?"
        rf"{_NEWLINE}{{0,40}}installed in this system has{_NEWLINE}{{0,40}}fallen off the bus"
        r"|NVRM: (?:\(PCI ID: \w{4}:\w{4}\) )?(?:installed in this system has )?fallen off the bus and is"
        rf"|{_GPU}GPU has fallen off the bus"
    ),
    "gpu/uuid": rf"NVRM: GPU at (?:PCI:)?{_D}: (?P<uuid>GPU-[0-9A-Fa-f\-]{{36}})",
    "gpu/serial": r"NVRM: GPU (?:Board Serial Number: |is on Board )(?P<serial>\w{1,32})",
    "GPU-RESET-REQUIRED": rf"{_GPU}(?:Assertion|Check) failed: Reset required \[NV_ERR_RESET_REQUIRED\]",
    "GPU-IS-LOST": rf"{_GPU}(?:Assertion|Check) failed: GPU lost from the bus \[NV_ERR_GPU_IS_LOST\]",
    "GPU-UVM-FATAL": rf"{_GPU}uvm encountered global fatal error (?P<status>0x[0-9A-Fa-f]+)",
    "GPU-INIT-FAILED": (
        rf"NVRM: (?:GPU (?:at )?(?:PCI:)?{_D}:? )?"
        r"(?:RmInitAdapter failed!(?: \((?P<where>[0-9A-Fa-fx:]{3,40})\))?|rm_init_adapter(?:\(\d+\))? failed)"
    ),
    "GPU-GSP-BOOT-FAILED": rf"{_GPU}unexpected WPR2 already up",
    "GPU-WATCHDOG": rf"{_GPU}(?:RC watchdog: )?GPU is probably locked!",
    "GPU-GSP-RATE-LIMITED": rf"{_GPU}Rate limiting GSP RPC error prints(?: for GPU at (?:PCI:)?{_D})?",
}
_NVIDIA = {
    "GPU-PEERMEM": r"nvidia-peermem \w+:\d+ ERROR ",
    "GPU-UVM-FATAL": r"nvidia-uvm: (?:\w+: )?uvm encountered global fatal error (?P<status>0x[0-9A-Fa-f]+)",
}
# Patterns of a family continue where its prefix ends: the prefix is matched once, not once per pattern.
_MLX5 = (
    rf"(?:mlx[45]_core(?: {_D})?(?: (?P<interface>[\w.\-@]{{1,15}}))?: )?"
    r"(?:(?:[0-9A-Fa-f]{4}:[0-9A-Fa-f:.]{7}:)?\w+:\d+:(?:\(pid -?\d+\):)? )?"
)
_NIC = {
    "NIC-PCIE-DEGRADED": (
        r"[\d.]+ Gb/s available PCIe bandwidth, limited by [\d.]+ GT/s PCIe x(?P<lanes>\d+) link at \S{1,16} "
        r"\(capable of [\d.]+ Gb/s with [\d.]+ GT/s PCIe x(?P<capable>\d+)"
    ),
    "NIC-POWER": r"Detected insufficient power on the PCIe slot \((?P<watts>\d+)W\)",
    "NIC-OPTIC": r"Port module event\[error\]: module (?P<module>\d+)",
    "NIC-OPTIC-EVENT": r"Port module event: module (?P<module>\d+)",
    "NIC-ACCESS-REG": r"ACCESS_REG(?:ISTER)?\(0x805\) op_mod\(\w+\) failed",
    "NIC-COMMAND": (
        r"[A-Z0-9_]{3,40}\(0x[0-9a-f]+\) op_mod\(\w+\) failed"
        r"|(?:cmd\[-?\d+\]: )?[A-Z0-9_]{3,40}\(0x[0-9a-f]+\) (?:timeout\. Will cause a leak|No done completion)"
    ),
    "NIC-HEALTH": (
        r"device's health compromised|Health issue observed|synd 0x[0-9a-f]+: |Fatal error \d+ detected"
        r"|health recovery flow aborted|handling bad device here"
    ),
    "NIC-TEMPERATURE": r"High temperature on sensors",
    "NIC-INIT": (
        r"(?:handle_hca_cap|enable hca|set_hca_ctrl|init hca) failed"
        r"|(?:mlx5_)?(?:function_setup|load_one|init_one)(?:\(\))? failed"
        r"|probe with driver mlx5_core failed with error"
        r"|probe of (?P<probed>[0-9A-Fa-f:.]{10,18}) failed with error"
    ),
    "NIC-LINK-FLAP": r"Link down",
}
# The kernel always prints the function number; with it, this is longer than a process name.
_ANY_PCI = r"[\w\-]+ (?P<device>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]): "
_AER = {
    "PCIE-AER-CORRECTED": (
        r"AER: (?:Multiple )?Correct(?:ed|able) error (?:message )?received"
        r"|(?:AER: )?PCIe Bus Error: severity=Correct(?:ed|able)\b"
    ),
    "PCIE-AER-NONFATAL": (
        r"AER: (?:Multiple )?Uncorrect(?:ed|able) \(Non-Fatal\) error (?:message )?received"
        r"|(?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Non-Fatal\)"
    ),
    "PCIE-AER-FATAL": (
        r"AER: (?:Multiple )?Uncorrect(?:ed|able) \(Fatal\) error (?:message )?received"
        r"|(?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Fatal\)"
        r"|AER: can't recover|AER: device recovery failed"
        r"|DPC: containment event|DPC: unmasked uncorrectable error"
    ),
    "aer-status": (
        r"(?:AER: )? *device \[\w{4}:\w{4}\] error status/mask=(?P<status>\w{8})/(?P<mask>\w{8})"
    ),
    "aer-bit": r"(?:AER: )? +\[ ?(?P<bit>\d{1,2})\] (?P<what>[A-Za-z][\w \-]{2,30})",
}
_ERRORS = {
    # A report of the boot before (BERT) has no number; a machine check has the same words in front.
    "GHES-CPER-FATAL": r"(?:\{(?P<record>\d{1,6})\})?\[Hardware Error\]: event severity: fatal",
    "GHES-CPER-PCIE": (
        r"(?:\{(?P<record>\d{1,6})\})?\[Hardware Error\]: +(?:device_id: (?P<device>[0-9A-Fa-f:.]{7,16})"
        r"|section_type: PCIe error)"
    ),
    "GHES-CPER": (
        r"(?:\{(?P<record>\d{1,6})\}\[Hardware Error\]: "
        r"|\[Hardware Error\]: +(?:event severity|Hardware error from APEI|section_type|Error \d+, type))"
    ),
    "DRAM-USER-ACCESS": r"mce: Uncorrected hardware memory error in user-access at ",
    "CPU-MCE": r"(?:mce: )?\[Hardware Error\]: ",
    "NVME-IO-ERROR": (
        r"(?:\w+: )?(?:I/O|critical \w+|timeout|recoverable transport) error, dev (?P<device>nvme\w{1,20})[, ]"
        r"|Buffer I/O error on dev(?:ice)? (?P<buffer>nvme\w{1,20})[, ]"
    ),
    "DISK-IO-ERROR": (
        r"(?:\w+: )?(?:I/O|critical \w+|timeout) error, dev (?P<device>sd[a-z]{1,3}|dm-\d+|md\d+)[, ]"
        r"|Buffer I/O error on dev(?:ice)? (?P<buffer>sd[a-z]{1,3}\d*|dm-\d+|md\d+)[, ]"
    ),
}
_EDAC = {
    f"DRAM-EDAC-{kind}": (
        rf"EDAC (?:\w+ )?MC(?P<mc>\d+): (?:(?P<count>\d{{1,9}}) {kind} (?:{_WORDS} )?on (?P<dimm>[\w#\-]{{1,60}})"
        rf"|{kind} (?:page 0x|- no information available|row \d|ERROR_ADDRESS))"
    )
    for kind in ("UE", "CE")
}
_LOCKUP = {
    "CPU-SOFT-LOCKUP": (
        r"(?:NMI )?(?:watchdog: )?BUG: soft lockup (?:- |detected on )CPU#(?P<cpu>\d+)"
        r"(?: stuck for (?P<seconds>\d+) ?s)?"
    ),
    "CPU-HARD-LOCKUP": r"(?:NMI )?watchdog: (?:BUG: |Watchdog detected )hard LOCKUP on cpu (?P<cpu>\d+)",
}
_INFO = {
    "OS-HUNG-TASK": (
        r"INFO: task (?s:.{1,15}?):\d+ (?:<\w+> )?blocked (?:in I/O wait )?"
        r"(?:on an? [\w\-]+(?: likely)?(?: last)? (?:owned|held) by task (?s:.{1,15}?):\d+ (?:<\w+> )?)?"
        r"for more than (?P<seconds>\d+) seconds"
    ),
    "CPU-RCU-STALL": r"(?:rcu: )?INFO: rcu_\w+ (?:self-)?detected (?:expedited )?stalls?",
}
_NVME = {
    "NVME-TIMEOUT": (
        r"nvme (?P<device>nvme\d{1,4}): I/O (?:tag )?\d+ ?(?:\([\w \-]{1,40}\) )?(?:type \d+ )?"
        r"(?:opcode 0x[0-9a-f]+ )?(?:\([\w \-/]{1,40}\) )?QID \d+ timeout\b"
    ),
    "NVME-LOST": (
        r"nvme (?P<device>nvme\d{1,4}): (?:Removing after probe failure|Disabling device after reset failure"
        r"|Device not ready; aborting|controller is down; will reset|Device shutdown incomplete"
        r"|Identify Controller failed)"
    ),
    "NVME-IO-ERROR": (
        r"(?:nvme )?(?P<device>nvme\d{1,4}n\d+): [\w/ \-]{1,40}\(0x[0-9a-f]{1,4}\)(?: @ LBA \d+, \d+ blocks)?, "
        r"I/O Error \("
    ),
}
_PARTITION = r"nvme\d{1,4}n\d{1,4}(?:p\d{1,4})?"
_FILE_SYSTEM = {
    "NVME-FS-ERROR": (
        rf"XFS \((?P<device>{_PARTITION})\): (?:(?:metadata|log) I/O error|(?:Log )?I/O Error Detected|writeback error on |"
        r"Metadata (?:corruption|CRC error) detected|Corruption (?:detected|of in-memory data)|"
        r"Internal error |xfs_do_force_shutdown\(|Filesystem has been shut down due to )"
        rf"|EXT4-fs error \(device (?P<ext4>{_PARTITION})\): "
        rf"|EXT4-fs \((?P<mounted>{_PARTITION})\): (?:I/O error|Remounting filesystem read-only|"
        r"previous I/O error |Delayed block allocation failed)"
    ),
}
_LUSTRE = {
    "LUSTRE-LBUG": rf"LustreError: {_LUSTRE_AT}(?:LBUG|ASSERTION\()",
    "LUSTRE-RPC": (
        r"Lustre(?:Error)?: \d+:\d+:\([\w./\-]+:\d+:ptlrpc_expire_one_request\(\)\) @@@ Request sent has "
        r"(?:failed|timed out)"
    ),
    "LUSTRE-EVICTED": r"Lustre(?:Error)?: (?:167-0: )?(?P<device>[\w.\-]{1,80}): This client was evicted by ",
    "LUSTRE-PING": r"LustreError: 11-0: (?:(?P<device>[\w.\-]{1,80}): )?",
    "LUSTRE-LOST": (
        r"Lustre(?:Error)?: (?:\d+-\w+: )?(?P<device>[\w.\-]{1,80}): Connection to \S{1,80} \(at \S{1,80}\) was lost"
    ),
    "LUSTRE-ERROR": r"LustreError: (?P<number>[0-9a-f]{1,4}-[0-9a-f]{1,3}): ",
}
_OTHER = {
    "LNET-TIMEOUT": rf"LNet(?:Error)?: {_LUSTRE_AT}Timed out (?:tx|RDMA)",
    "NFS-NOT-RESPONDING": r"nfs: server (?P<device>[\w.:\-]{1,255}) not responding, ",
    "NVME-RAID": r"md/raid[\w:]*: Disk failure on (?P<device>\w{1,32})",
    "NVME-PATH": r"block (?P<device>nvme\w{1,20}): no (?:available|usable) path - ",
    "DRAM-MEMORY-FAILURE": r"Memory failure: 0x[0-9a-f]+: ",
}
_NETWORKD = {"NIC-LINK-FLAP": r"(?P<device>[\w.\-@]{1,15}): [Ll]ost carrier"}


_NAME_FIRST = re.compile(
    r"(?as).{0,15}?(?:(?<!cmd)\[\d+\]:? |/\d+: | ?\(\d+\):? | (?:invoked oom-killer|used greatest stack depth|uses |"
    r"tried |attempted |is using |sent |calls )|: (?:page allocation|vmalloc|undefined instruction|attempt to |unhandled |"
    r"bad |potentially |numerical sysctl|oom-kill|memory allocation|page fault|fault ))"
)
"""Records that begin with a process name (at most 15 bytes, and 0 when it is empty), as the kernel's sources
print them: fault.c, signal.c, traps.c, oom_kill.c, page_alloc.c, vmalloc.c, drop_caches.c, exit.c."""


class _Family:
    """Patterns that share a beginning: one expression finds which, the pattern's own reads its fields."""

    def __init__(self, patterns: dict[str, str], prefix: str = "") -> None:
        self._prefix = re.compile(prefix, re.ASCII) if prefix else None
        self._own = {
            key: re.compile(f"{prefix}(?:{pattern})", re.ASCII) for key, pattern in patterns.items()
        }
        # One alternation is about three times faster than trying ten patterns in turn. Group names may
        # not repeat in it, so the inner ones are dropped and each alternative is numbered instead.
        nameless = (re.sub(r"\(\?P<\w+>", "(?:", pattern) for pattern in patterns.values())
        self._which = re.compile(
            "|".join(f"(?P<k{n}>{pattern})" for n, pattern in enumerate(nameless)), re.ASCII
        )
        self._keys = {f"k{n}": key for n, key in enumerate(patterns)}

    def find(self, text: str) -> tuple[str, dict[str, str]] | None:
        start = 0
        if self._prefix is not None:
            head = self._prefix.match(text)
            if head is None:
                return None
            start = head.end()
        found = self._which.match(text, start)
        if found is None or found.lastgroup is None:
            return None
        key = self._keys[found.lastgroup]
        own = self._own[key].match(text)
        groups = own.groupdict() if own else {}
        return key, {name: value for name, value in groups.items() if value is not None}


_ERRORS_FAMILY = _Family(_ERRORS)
_AER_FAMILY = _Family(_AER, _ANY_PCI)
_FILE_SYSTEM_FAMILY = _Family(_FILE_SYSTEM)
_INFO_FAMILY = _Family(_INFO)
_LOCKUP_FAMILY = _Family(_LOCKUP)
_NIC_FAMILY = _Family(_NIC, _MLX5)
_OTHER_FAMILY = _Family(_OTHER)
_BY_HEAD = {
    "NVRM": _Family(_NVRM),
    "nvid": _Family(_NVIDIA),
    "mlx5": _NIC_FAMILY,
    "mlx4": _NIC_FAMILY,
    "pcie": _AER_FAMILY,
    "EDAC": _Family(_EDAC),
    "watc": _LOCKUP_FAMILY,
    "NMI ": _LOCKUP_FAMILY,
    "BUG:": _LOCKUP_FAMILY,
    "INFO": _INFO_FAMILY,
    "rcu:": _INFO_FAMILY,
    "nvme": _Family(_NVME),
    "XFS ": _FILE_SYSTEM_FAMILY,
    "EXT4": _FILE_SYSTEM_FAMILY,
    "Lust": _Family(_LUSTRE),
    "LNet": _OTHER_FAMILY,
    "nfs:": _OTHER_FAMILY,
    "md/r": _OTHER_FAMILY,
    "bloc": _OTHER_FAMILY,
    "Memo": _OTHER_FAMILY,
}
HEADS = frozenset(_BY_HEAD)
"""First four characters of every line that can mean something, unless it contains `ERROR_WORD`."""
ERROR_WORD = "rror"
"""In every AER, GHES, machine-check and block-layer line, whichever driver's name comes first."""

BIT_LINE = ":    ["
"""Of the lines after an AER error, those that spell out one bit; any driver's name may come first."""

_NETWORKD_FAMILY = _Family(_NETWORKD)


def parse(text: str) -> Line | None:
    """What a kernel record says; None when it means nothing to us. Never raises, whatever the text."""
    if text.startswith("NVRM: Xid ("):
        return parse_xid(text)
    if text.startswith("nvidia-nvswitch"):
        return parse_sxid(text)
    family = _BY_HEAD.get(text[:4])
    found = family.find(text) if family is not None else None
    if found is None and (family is not None or ERROR_WORD in text or BIT_LINE in text):
        found = _AER_FAMILY.find(text) or _ERRORS_FAMILY.find(text)
    return None if found is None or _NAME_FIRST.match(text) else _line(*found)


def parse_networkd(text: str) -> Line | None:
    """A line of systemd-networkd (never of the kernel): a port that lost its carrier."""
    found = _NETWORKD_FAMILY.find(text)
    return None if found is None else _line(*found)


def _line(key: str, groups: dict[str, str]) -> Line:
    device = next((groups.pop(k) for k in _DEVICE_GROUPS if k in groups), "")
    special = _SPECIAL.get(key)
    if special is not None:
        key = special(groups)
    fields: dict[str, Scalar] = {
        name: int(value) if value.isdecimal() and name not in {"serial", "number"} else value
        for name, value in groups.items()
    }
    if ":" in device and not key.startswith("NFS"):
        device = pci_address(device) if key.startswith(("GPU", "gpu")) else switch_address(device)
        fields["pci"] = device
    elif device:
        fields["device"] = device
    return Line("", str(fields.get("number", "")), key, device, fields)


_DEVICE_GROUPS = ("device", "lost", "probed", "buffer", "ext4", "mounted")

# Bits of the correctable status register, PCIe base specification 7.8.4.
_CORRECTED_BITS = 0b1111_0001_1100_0001
_CORRECTED_ONLY = 0b0000_0001_1100_0001
# Uncorrectable errors whose default severity is fatal: data link protocol, surprise down, flow control,
# receiver overflow, malformed packet, internal error (PCIe base specification 7.8.4.4).
_FATAL_BITS = 1 << 4 | 1 << 5 | 1 << 13 | 1 << 17 | 1 << 18 | 1 << 22
_ADVISORY_MASK = 1 << 13
_CORRECTED_NAMES = re.compile(
    r"RxErr|BadTLP|BadDLLP|Rollover|Timeout|NonFatalErr|CorrIntErr|HeaderOF"
    r"|Receiver Error|Bad TLP|Bad DLLP|RELAY_NUM|Replay|Advisory"
)


def _aer_status(groups: dict[str, str]) -> str:
    """A status line names no severity, so its bits tell: they differ between the two registers, and only
    the corrected one masks bit 13 by default.
    """
    try:
        status, mask = int(groups["status"], 16), int(groups["mask"], 16)
    except ValueError:
        return "PCIE-AER-NONFATAL"
    corrected = not status & ~_CORRECTED_BITS and (
        status & _CORRECTED_ONLY or mask & _ADVISORY_MASK
    )
    if corrected:
        return "PCIE-AER-CORRECTED"
    return "PCIE-AER-FATAL" if status & _FATAL_BITS else "PCIE-AER-NONFATAL"


def _aer_bit(groups: dict[str, str]) -> str:
    if _CORRECTED_NAMES.match(groups["what"]):
        return "PCIE-AER-CORRECTED"
    return "PCIE-AER-FATAL" if 1 << int(groups["bit"]) & _FATAL_BITS else "PCIE-AER-NONFATAL"


_SPECIAL: dict[str, Callable[[dict[str, str]], str]] = {
    "aer-status": _aer_status,
    "aer-bit": _aer_bit,
}


def grade_line(line: Line, catalogue: Catalogue) -> Reading:
    """What such a line means, from catalogue/lines.toml."""
    entry = catalogue.lines[line.entry]
    named = Line(entry.component, line.code or entry.code, line.entry, line.device, line.fields)
    where = f" ({line.device})" if line.device else ""
    count = line.fields.get("count")
    times = f", {count} times" if isinstance(count, int) else ""
    return Reading(
        line=named,
        finding=entry.finding,
        fault_class=entry.fault_class,
        graded=entry.fault_class,
        severity=SEVERITY[entry.fault_class],
        summary=f"{entry.finding or entry.code}{where}: {entry.means}{times}",
        vendor_action=entry.vendor or None,
    )
