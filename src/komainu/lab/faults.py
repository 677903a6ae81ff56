"""The faults a lab node can have, and when they strike.

Timing, type and repair time come from a real trace (traces/README.md). Which of our faults stands for
which of its types is our choice; what a fault prints is in lines.py.
"""

from __future__ import annotations

import csv
import enum
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

TRACE = Path(__file__).parent / "traces" / "faults.csv"
DAY_S = 86_400.0


class Fault(enum.StrEnum):
    """What can be made to happen to a lab node. The value is what the page and the API say."""

    GPU_LOST = "gpu-lost"
    DOUBLE_BIT = "gpu-double-bit"
    UNCONTAINED = "gpu-uncontained"
    REMAP_FAILED = "gpu-remap-failed"
    GSP_TIMEOUT = "gpu-gsp-timeout"
    NVLINK = "nvlink"
    SINGLE_BIT = "gpu-single-bit-rate"
    UNKNOWN_CODE = "gpu-unknown-code"
    USER_CRASH = "user-crash"
    SPOOF = "spoofed-line"
    NIC_DEAD = "nic-dead"
    CABLE = "cable"
    NIC_SLOW = "nic-half-width"
    DRAM = "host-memory"


TOLD: Mapping[Fault, str] = {
    Fault.GPU_LOST: "A GPU falls off the bus (Xid 79)",
    Fault.DOUBLE_BIT: "A GPU has a double-bit memory error (Xid 48, 63, 94)",
    Fault.UNCONTAINED: "A GPU has an uncontained memory error (Xid 95)",
    Fault.REMAP_FAILED: "A GPU has no spare memory row left (Xid 64)",
    Fault.GSP_TIMEOUT: "A GPU's firmware stops answering (Xid 119)",
    Fault.NVLINK: "An NVLink fails (Xid 74)",
    Fault.SINGLE_BIT: "A GPU has many corrected memory errors (Xid 92): watched, nothing more",
    Fault.UNKNOWN_CODE: "A GPU reports a code nobody has graded: watched, never drained",
    Fault.USER_CRASH: "A user's program crashes on a GPU (Xid 31, 43): the user's own doing",
    Fault.SPOOF: "A user names a process so that it reads like Xid 79: must change nothing",
    Fault.NIC_DEAD: "A network card's firmware dies",
    Fault.CABLE: "A network cable overheats",
    Fault.NIC_SLOW: "A network card trains at half width",
    Fault.DRAM: "An uncorrectable error in the host's memory",
}
"""One line each, for the page that injects them."""


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of the schedule, in seconds since the lab's start."""

    at_s: float
    server: int
    """Number of the trace's server: the caller maps it onto its nodes, so repeats stay repeats."""
    fault: Fault
    lasts_s: float
    """Until a technician has repaired it."""


_OF_TRACE: Mapping[str, tuple[Fault, ...]] = {
    "GPU DBE(Double Bit ECC) > Threshold": (Fault.DOUBLE_BIT,),
    "GPU Lost": (Fault.GPU_LOST,),
    "GPU device not found": (Fault.GPU_LOST,),
    "GPU xid Error": (Fault.UNCONTAINED, Fault.REMAP_FAILED, Fault.USER_CRASH),
    "GPU device unknow error": (Fault.UNKNOWN_CODE, Fault.GSP_TIMEOUT, Fault.GPU_LOST),
    "nvidia-smi Timeout": (Fault.GSP_TIMEOUT,),
    "GPU SBE(Single Bit ECC) > Threshold": (Fault.SINGLE_BIT,),
    "GPU P2P Bandwidth Low": (Fault.NVLINK,),
    "GPU PCI link width low": (Fault.NVLINK,),
    "Link Down": (Fault.CABLE,),
    "NIC Lost": (Fault.NIC_DEAD,),
    "NIC Link Speed low": (Fault.NIC_SLOW,),
    "NIC PCI link Width low": (Fault.NIC_SLOW,),
    "Machine Check Exception ( Uncorrectable )": (Fault.DRAM,),
}
"""Types of the trace that a kernel log shows. Fans, power supplies and tests print nothing there."""


def schedule(
    seed: int, *, every_s: float, first_s: float, lasts_s: tuple[float, float]
) -> Iterator[Strike]:
    """The trace's faults in their order, from a place chosen by `seed`, round and round.

    The gaps keep the trace's shape (bursts stay bursts), scaled to a mean of `every_s` and bounded
    to a fifth and twice of it, so that a visitor neither waits nor drowns. Repair times likewise
    keep their order of size, between `lasts_s`.
    """
    rows = _rows()
    chance = random.Random(seed)  # noqa: S311 (a lab is repeatable, not secret)
    start = chance.randrange(len(rows))
    mean = (rows[-1].start - rows[0].start) / (len(rows) - 1)
    longest = max(row.end - row.start for row in rows)
    at_s, turn = first_s, 0
    while True:
        row = rows[(start + turn) % len(rows)]
        share = ((row.end - row.start) / longest) ** 0.5
        yield Strike(
            at_s=at_s,
            server=row.server,
            fault=chance.choice(_OF_TRACE[row.what]),
            lasts_s=lasts_s[0] + share * (lasts_s[1] - lasts_s[0]),
        )
        turn += 1
        following = rows[(start + turn) % len(rows)]
        gap = max(0.0, following.start - row.start) / mean * every_s
        at_s += min(max(gap, every_s / 5), every_s * 2)


class _Row(msgspec.Struct, frozen=True):
    start: float
    end: float
    server: int
    what: str


def _rows() -> list[_Row]:
    with TRACE.open(encoding="utf-8", newline="") as lines:
        return [
            _Row(float(r["start_day"]), float(r["end_day"]), int(r["server"]), r["what"])
            for r in csv.DictReader(lines)
            if r["what"] in _OF_TRACE
        ]
