"""Which page of docs/runbooks/ explains a finding code, and the index of them."""

from __future__ import annotations

import re

from komainu.core.verdict import FaultClass
from komainu.core.views import SEVERITY_WORDS
from komainu.health.catalogue import catalogue
from komainu.health.model import OUR_ACTION, Catalogue

_OWN_PAGE = frozenset(
    {
        FaultClass.QUARANTINE_NOW,
        FaultClass.DRAIN_AFTER_JOB,
        FaultClass.APP_RESTART_DRAIN,
        FaultClass.OBEY_ACTION_CODE,
        FaultClass.DECODE_REGS,
        FaultClass.SYMPATHETIC,
    }
)
_XID_PAGE = {
    FaultClass.DECODE_NVL5: "GPU-XID-NVLINK5",
    FaultClass.APP_COUNT: "GPU-XID-APP",
    FaultClass.UNKNOWN: "GPU-XID-UNKNOWN",
    FaultClass.WATCH: "GPU-XID-WATCH",
    FaultClass.INFO: "GPU-XID-WATCH",
}
_OWN_XIDS = frozenset({109})
"""Not drained by class, but drained in context: these deserve a page of their own."""

_SHARED = {
    "GPU-IS-LOST": "GPU-RESET-REQUIRED",
    "GPU-GSP-BOOT-FAILED": "GPU-INIT-FAILED",
    "GPU-GSP-RATE-LIMITED": "GPU-XID-119",
    "GPU-PEERMEM": "GPU-XID-APP",
    "GPU-WATCHDOG": "GPU-XID-WATCH",
    "LNET-TIMEOUT": "LUSTRE",
    "DISK-IO-ERROR": "NVME",
}
_FAMILIES = (
    ("FM-SXID-", "NVSWITCH-SXID"),
    ("NVSWITCH-SXID-", "NVSWITCH-SXID"),
    ("FM-", "FABRIC-MANAGER"),
    ("NIC-", "NIC"),
    ("PCIE-AER-", "PCIE-AER"),
    ("GHES-CPER", "GHES-CPER"),
    ("DRAM-", "DRAM"),
    ("CPU-", "CPU"),
    ("OS-", "CPU"),
    ("NVME-", "NVME"),
    ("LUSTRE-", "LUSTRE"),
    ("NFS-", "NFS"),
    ("HOST-KMSG-", "HOST-KMSG"),
)


def runbook_of(code: str) -> str:
    """The page that explains a finding code, as a path below docs/: `runbooks/GPU-XID-79.md`."""
    return f"runbooks/{_page(code)}.md"


def _page(code: str) -> str:
    if code.startswith("GPU-XID-"):
        return _page_of_xid(int(code.removeprefix("GPU-XID-")))
    if code in _SHARED:
        return _SHARED[code]
    return next((page for start, page in _FAMILIES if code.startswith(start)), code)


def _page_of_xid(xid: int) -> str:
    entry = catalogue().xids.get(xid)
    fault_class = entry.fault_class if entry else FaultClass.UNKNOWN
    if fault_class in _OWN_PAGE or xid in _OWN_XIDS:
        return f"GPU-XID-{xid}"
    return _XID_PAGE[fault_class]


OTHER_FINDINGS = {
    "HOST-KMSG-GAP": (
        "kernel log records were overwritten before they were read",
        "watch",
        "show the node UNKNOWN",
    ),
    "HOST-KMSG-PREVIOUS-BOOT": (
        "after a reboot, the last lines of the boot before could not be read",
        "watch",
        "show the node UNKNOWN",
    ),
    "HOST-KMSG-UNREADABLE": ("the kernel log cannot be read", "watch", "show the node UNKNOWN"),
    "GPU-MISSING": (
        "a GPU this node has been seen with is no longer there",
        "fatal",
        "take the node out now",
    ),
}
"""Findings that no kernel line makes: code → what it means, severity, what we do."""


_NUMBERED = re.compile(r"GPU-XID-\d{1,5}|(?:NVSWITCH|FM)-SXID-\d{1,5}")
"""A driver newer than the catalogue prints numbers it does not have; a site may grade those too."""


def can_exist(code: str) -> bool:
    """Whether any finding can have this code: a policy that names another one does nothing."""
    lines = catalogue().lines
    return (
        _NUMBERED.fullmatch(code) is not None
        or code in OTHER_FINDINGS
        or (code in lines and lines[code].finding == code)
    )


def index_page(known: Catalogue) -> str:
    """docs/runbooks/index.md, made from the catalogue; a test holds the file against this."""
    rows = ["| finding | means | severity | we do |", "|---|---|---|---|"]
    for xid in known.xids.values():
        code, severity = f"GPU-XID-{xid.code}", SEVERITY_WORDS[xid.severity]
        rows.append(_index_row(code, xid.means, severity, OUR_ACTION[xid.fault_class]))
    rows.append(
        _index_row(
            "NVSWITCH-SXID-*", "any NVSwitch error", "by its severity word", "by its severity word"
        )
    )
    for line in known.lines.values():
        if line.finding:
            severity = SEVERITY_WORDS[line.severity]
            rows.append(
                _index_row(line.finding, line.means, severity, OUR_ACTION[line.fault_class])
            )
    rows += [_index_row(code, *row) for code, row in OTHER_FINDINGS.items()]
    return _INDEX_HEAD + "\n".join(rows) + "\n"


def _index_row(code: str, means: str, severity: str, action: str) -> str:
    page = runbook_of(code).removeprefix("runbooks/")
    return f"| [{code}]({page}) | {means.replace('|', '/')} | {severity} | {action} |"


_INDEX_HEAD = """# Runbooks

One page per finding code, or per family of codes. Each says what it means, how sure we are, what Komainu
does, what a person does, and how to clear it. `komainu catalogue CODE` prints the same grading on a node.

The severity follows from the fault class alone; site policy may override it per code
(`[policy.severity]` in komainu.toml).

"""
