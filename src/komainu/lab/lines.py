"""What a node's kernel prints when a fault strikes, and what healthy nodes print all day.

The lines are those of real drivers, taken from public reports (tests/data/kernel names each); only
addresses, serial numbers and process ids are made up.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec

from komainu.core.wire import GpuSeen
from komainu.lab.faults import Fault


class Printed(msgspec.Struct, frozen=True):
    """One line of a fault: so many seconds after the one before."""

    after_s: float
    text: str


INTRODUCED = (
    Printed(0.0, "NVRM: GPU at PCI:{pci}: {uuid}"),
    Printed(0.0, "NVRM: GPU Board Serial Number: {serial}"),
)
"""The driver prints these once per GPU, before its first Xid."""

_NOBODY = "pid='<unknown>', name=<unknown>"
_RESET = "{xid}: 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"

LINES: Mapping[Fault, tuple[Printed, ...]] = {
    Fault.GPU_LOST: (
        Printed(0.0, "{xid}: 79, pid={pid}, name=python3, GPU has fallen off the bus."),
        Printed(0.0, "NVRM: GPU {pci}.0: GPU has fallen off the bus."),
        Printed(
            0.002,
            "{xid}: 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        ),
    ),
    Fault.DOUBLE_BIT: (
        Printed(
            0.0,
            "{xid}: 48, " + _NOBODY + ", An uncorrectable double bit error (DBE) has been detected "
            "on GPU in the framebuffer at physAddr 0x{address:x} partition 16, subpartition 3.",
        ),
        Printed(
            0.001,
            "{xid}: 63, " + _NOBODY + ", Row Remapper: New row (0x{address:016x}) marked for "
            "remapping, reset gpu to activate.",
        ),
        Printed(0.001, "{xid}: 94, " + _NOBODY + ", Contained: SM (0x1). RST: No, D-RST: No"),
    ),
    Fault.UNCONTAINED: (
        Printed(0.0, "{xid}: 95, pid={pid}, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No"),
        Printed(0.002, _RESET),
    ),
    Fault.REMAP_FAILED: (
        Printed(
            0.0,
            "{xid}: 64, "
            + _NOBODY
            + ", Row Remapper Error: (0x{address:016x}) - All reserved rows "
            "for bank are remapped",
        ),
    ),
    Fault.GSP_TIMEOUT: (
        Printed(
            0.0,
            "{xid}: 119, pid={pid}, name=nvidia-smi, Timeout after 6s of waiting for RPC response "
            "from GPU{index} GSP! Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4).",
        ),
        Printed(0.003, _RESET),
    ),
    Fault.NVLINK: (
        Printed(
            0.0,
            "{xid}: 74, " + _NOBODY + ", NVLink: fatal error detected on link {link}"
            "(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        ),
    ),
    Fault.SINGLE_BIT: (Printed(0.0, "{xid}: 92, " + _NOBODY + ", High single-bit ECC error rate"),),
    Fault.UNKNOWN_CODE: (
        Printed(0.0, "{xid}: 51, BAD_TSG encountered on runlist: 0 with error code: 4"),
    ),
    Fault.USER_CRASH: (
        Printed(
            0.0,
            "{xid}: 31, pid={pid}, name=python3, Ch 00000030, intr 00000000. MMU Fault: ENGINE "
            "GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f1c_00200000. Fault is of type FAULT_PDE "
            "ACCESS_TYPE_VIRT_READ",
        ),
        Printed(0.2, "{xid}: 43, pid={pid}, name=python3, channel 0x00000019"),
    ),
    Fault.SPOOF: (Printed(0.0, "{xid}: 43, pid={pid}, name=a): 79, GPU, channel 0x00000019"),),
    Fault.NIC_DEAD: (
        Printed(0.0, "mlx5_core 0000:9c:00.0: device's health compromised - reached miss count"),
    ),
    Fault.CABLE: (
        Printed(
            0.0,
            "mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, "
            "High Temperature",
        ),
    ),
    Fault.NIC_SLOW: (
        Printed(
            0.0,
            "mlx5_core 0000:9c:00.0: 252.056 Gb/s available PCIe bandwidth, limited by 32.0 GT/s "
            "PCIe x8 link at 0000:97:01.0 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)",
        ),
    ),
    Fault.DRAM: (
        Printed(
            0.0,
            "EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0 (channel:2 slot:0 "
            "page:0xb757589 offset:0x140 grain:32 -  OVERFLOW err_code:0101:0092 socket:1 imc:1 "
            "rank:0 bg:3 ba:0 row:1a1e8 col:180)",
        ),
    ),
}


def printed(fault: Fault, gpu: GpuSeen, chance: random.Random) -> Sequence[Printed]:
    """What the kernel prints when `fault` strikes `gpu` (or the node around it)."""
    lines = LINES[fault]
    if any("{xid}" in line.text for line in lines):
        lines = (*INTRODUCED, *lines)
    values = {
        "xid": f"NVRM: Xid (PCI:{gpu.pci})",
        "pci": gpu.pci,
        "uuid": gpu.uuid,
        "serial": gpu.serial,
        "index": gpu.index,
        "pid": chance.randrange(2_000, 3_000_000),
        "address": chance.randrange(1 << 36),
        "link": chance.randrange(18),
    }
    return [Printed(line.after_s, line.text.format(**values)) for line in lines]


NOISE = (
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth1a2b3c4: link becomes ready",
    'audit: type=1400 audit(1764503812.113:52): apparmor="STATUS" operation="profile_load"',
    "perf: interrupt took too long (2512 > 2500), lowering kernel.perf_event_max_sample_rate",
    "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Quota mode: none.",
    "mlx5_core 0000:5c:00.0: firmware version: 28.39.1002",
    "TCP: request_sock_TCP: Possible SYN flooding on port 29500. Sending cookies.",
    "process 'python3' launched '/bin/sh' with NULL argv: empty string added",
)
"""Lines every healthy node prints, which must change nothing."""
