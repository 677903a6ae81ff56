from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.health.health_lines import benign, labelled, xid

from komainu.core.verdict import FaultClass, Severity
from komainu.health.detect.lines import parse
from komainu.health.detect.reading import Transcript, read_pasted
from komainu.health.model import Reading

PREFIXES = [
    "",
    "[   12.345678] ",
    "[   12.345678] [ T1234] ",
    "[   12.345678][    C3] ",
    "[Fri Aug 30 11:43:09 2024] ",
    "[  +0.000898] ",
    "[Aug30 11:43] ",
    "[    1.234567 <    0.000012>] ",
    "<4>[   12.345678] ",
    "<4>",
    "kern  :warn  : [   12.345678] ",
    "kern  :err   : [Fri Aug 30 11:43:09 2024] ",
    "kern  :emerg : 2025-05-27T04:18:33,211323+00:00 ",
    "2025-05-27T04:18:33,211323+00:00 ",
    "kernel: ",
    "host7 kernel: ",
    "May 19 07:08:57 host02 kernel: [680111.646286] ",
    "May 19 07:08:57 host02 kernel: ",
    "May  9 07:08:57.123456 host02 kernel: ",
    "May 19 07:08:57 kernel: ",
    "2024-08-30T11:43:14.123456+00:00 host02 kernel: ",
    "2024-08-30T11:43:14.123456+02:00 host02 kernel: [680111.646286] ",
    "2024-08-30T11:43:14Z host02 kernel: ",
    "2024-08-30T11:43:14+0000 host02 kernel: ",
    "2024-08-30 11:43:14 host02 kernel: ",
    "Fri 2024-08-30 11:43:14 UTC host02 kernel: ",
    "Fri 2024-08-30 11:43:14 CEST host02 kernel: ",
    "1725018194.123456 host02 kernel: ",
    "[  123.456789] host02 kernel: ",
    "[Sun Dec  1 14:54:40 2024] host02 kernel: ",
    "<4>2024-08-30T11:43:14.123456+00:00 host02 kernel: ",
    "<4>1 2024-08-30T11:43:14.123456+00:00 host02 kernel - - - ",
    "4,5112,171167620236,-;",
    "[2023-06-22 21:55:31.778747][5975154.296056] ",
    "[2026-07-15T04:18:55.513286+00:00] ",
    "6月 28 02:52:53 jjf-Super-Server kernel: ",
    "févr. 28 02:52:53 noeud7 kernel: ",
    "Mai 19 07:08:57 knoten2 kernel: [680111.646286] ",
    "[Fr Aug 30 11:43:09 2024] ",
    "[五 8月 30 11:43:09 2024] ",
    "1759600000.5 host kernel: ",
    "2026-08-12T03:14:22+0000 kernel: ",
]
OTHERS = [
    "host python3[123]: ",
    "python3[123]: ",
    "sshd: ",
    "sshd[7]: ",
    "kernel[123]: ",
    "May 19 07:08:57 host02 python3[123]: ",
    "May 19 07:08:57 host02 sshd[123]: kernel: ",
    "May 19 07:08:57 host02 python3: kernel: [680111.646286] ",
    "May 19 07:08:57 host02 kernel: python3[123]: ",
    "May 19 07:08:57 host02 systemd-networkd[5398]: ",
    "May 19 07:08:57 host02 nv-fabricmanager[5398]: ",
    "May 19 07:08:57 host02 NVRM: ",
    "2024-08-30T11:43:14.123456+00:00 host02 python3[5]: ",
    "2024-08-30T11:43:14.123456+00:00 host02 slurmd: ",
    "user  :notice: [   12.345678] ",
    "user  :warn  : ",
    "daemon:info  : [   12.345678] ",
    "syslog:emerg : 2025-05-27T04:18:33,211323+00:00 ",
    "<12>[   12.345678] ",
    "<14>May 19 07:08:57 host02 kernel: ",
    "12,5112,171167620236,-;",
    "[   12.345678] python3[99]: ",
    "[   12.345678] audit: name=",
    "usb 1-1: Product: ",
    "[   12.345678] usb 1-1: Product: x\\n",
    "watchdog: BUG: hard to say [",
    '"',
    "> ",
]
OFF_BUS = "NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


def read(line: str) -> Reading:
    reading = read_pasted(line)
    assert reading is not None, line
    return reading


@pytest.mark.parametrize(("line", "component", "code"), labelled())
def test_every_labelled_line_gives_its_component_and_code(
    line: str, component: str, code: str
) -> None:
    reading = read(line)
    assert (reading.line.component, reading.line.code) == (component, code)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_kernels_own_lines_are_read_behind_any_prefix(prefix: str) -> None:
    assert read(prefix + OFF_BUS).finding == "GPU-XID-79"
    assert read(prefix + OFF_BUS + "\r").finding == "GPU-XID-79"
    assert (
        read(prefix + "EDAC MC3: 1 UE memory read error on DIMM0 (channel:2)").line.code
        == "EDAC UE"
    )
    assert read_pasted(prefix + "usb 1-1: new high-speed USB device number 2") is None


@pytest.mark.parametrize("prefix", OTHERS)
def test_what_a_program_wrote_means_nothing(prefix: str) -> None:
    assert read_pasted(prefix + OFF_BUS) is None


@pytest.mark.parametrize("line", benign())
def test_benign_lines_mean_nothing(line: str) -> None:
    assert parse(line) is None
    assert read_pasted(line) is None
    assert read_pasted(f"[   17.123456] {line}") is None
    assert read_pasted(f"Nov  3 17:40:22 host06 kernel: [   17.123456] {line}") is None


def test_there_are_at_least_500_distinct_benign_lines() -> None:
    assert len(set(benign())) >= 500


@pytest.mark.parametrize(
    "name",
    [
        "a): 79, GPU",
        "): 79, x",
        "Xid (PCI:0000",
        "NVRM: Xid (PCI:",
        "x, 79, GPU has",
        "a\\nNVRM: Xid",
        "caused by 79",
        "RST: Yes",
    ],
)
def test_a_process_name_never_chooses_a_code(name: str) -> None:
    line = (
        f"NVRM: Xid (PCI:0000:41:00): 13, pid=7, name={name}, Graphics Exception: ESR 0x52e7b0=0x1"
    )
    reading = read(line)
    assert reading.finding == "GPU-XID-13"
    assert reading.severity is Severity.INFO
    assert name not in reading.summary


@pytest.mark.parametrize(
    "line",
    [
        "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [NVRM: Xid (PCI:0000:01:00): 79:2254956]",
        "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [a): 79, GPU:2254956]",
    ],
)
def test_a_lockup_stays_a_lockup_whatever_the_task_is_called(line: str) -> None:
    assert read(line).finding == "CPU-SOFT-LOCKUP"


def test_a_hung_task_stays_one_whatever_its_name() -> None:
    for name in ("NVRM: Xid (PCI:", "0): 79, x", "a:1 blocked for", "DataXceiver for"):
        line = f"INFO: task {name}:136986 blocked for more than 120 seconds."
        assert read(line).finding == "OS-HUNG-TASK"


@pytest.mark.parametrize(
    "separator", ["\n               ", "\\n               ", "\\x0a", "\n", " "]
)
def test_off_the_bus_over_three_lines_in_one_record(separator: str) -> None:
    parts = (
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    line = parse(separator.join(parts))
    assert line is not None
    assert (line.entry, line.device) == ("GPU-OFF-BUS", "0000:b3:00")


def test_off_the_bus_as_three_records_is_known_by_its_last() -> None:
    assert parse("NVRM: The NVIDIA GPU 0000:b3:00.0") is None
    assert parse("NVRM: (PCI ID: 10de:26b5) installed in this system has") is None
    assert read("NVRM: fallen off the bus and is not responding to commands.").line.code == "79"


def transcript(*lines: str) -> list[str | None]:
    paste = Transcript()
    return [r.finding if (r := paste.read(line)) else None for line in lines]


def test_an_indented_line_is_a_part_of_the_record_before_it() -> None:
    shown = transcript(
        "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
        "[ 1843.439662] NVRM: The NVIDIA probe routine failed for 1 device(s).",
    )
    assert shown == [None, None, "GPU-OFF-BUS", None]


@pytest.mark.parametrize(
    "broken",
    [f"               {OFF_BUS}", f"\t{OFF_BUS}", f" [   12.5] {OFF_BUS}", f"  kernel: {OFF_BUS}"],
)
def test_text_broken_over_lines_cannot_pose_as_a_record(broken: str) -> None:
    assert transcript("[   12.1] usb 1-1: Product: x", broken) == [None, None]
    assert transcript(xid(13, "name=a"), broken) == ["GPU-XID-13", None]


def test_a_paste_that_is_indented_as_a_whole_is_read_all_the_same() -> None:
    lines = ("    [   12.1] usb 1-1: Product: x", f"    [   12.5] {OFF_BUS}", f"        {OFF_BUS}")
    assert transcript(*lines) == [None, "GPU-XID-79", None]


def test_an_unsupported_gpu_has_not_fallen_off_the_bus() -> None:
    text = "NVRM: The NVIDIA GPU 0000:2c:00.0 (PCI ID: 10de:1d16)\nNVRM: installed in this system is not supported by open"
    assert parse(text) is None


def test_fields_of_an_xid_are_read() -> None:
    reading = read(
        "NVRM: Xid (PCI:00000000:CB:00 GPU-I:05 GPU-CI:01): 13, pid=42, name=ray::WorkerDict, "
        "Graphics SM Warp Exception on (GPC 7, TPC 6, SM 1): Illegal Instruction Parameter"
    )
    fields = reading.line.fields
    assert reading.line.device == "0000:cb:00"
    assert (fields["gi"], fields["ci"], fields["pid"], fields["name"]) == (
        5,
        1,
        42,
        "ray::WorkerDict",
    )
    assert (fields["gpc"], fields["tpc"], fields["sm"]) == (7, 6, 1)


@pytest.mark.parametrize(
    ("line", "code", "device"),
    [
        ("NVRM: Xid (0001:00): 13, 0008 00000000 00009097", "13", "0001:00"),
        ("NVRM: Xid (0000:03:00): 56, CMDre 00000000 00000080", "56", "0000:03:00"),
        ("NVRM: Xid (PCI:0000:01:00): 79", "79", "0000:01:00"),
        ("NVRM: Xid (PCI:0000:01:00): 79,", "79", "0000:01:00"),
        (
            "NVRM: Xid (PCI:0000:00:05): 43, pid=1045242, name=pt_main_thread, Ch 00000008",
            "43",
            "0000:00:05",
        ),
        ("NVRM: Xid (PCI:0000:01:00): 61, 0d02(31c4) 00000000", "61", "0000:01:00"),
        ("NVRM: Xid (PCI:0000:01:00 FUTURE:7): 79, x", "79", "0000:01:00"),
        ("NVRM: Xid (PCI:0000:01:00): 4711, something new", "4711", "0000:01:00"),
    ],
)
def test_old_new_truncated_and_future_forms(line: str, code: str, device: str) -> None:
    reading = read(line)
    assert (reading.line.code, reading.line.device) == (code, device)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:zz:01:00): 79, GPU",
        "NVRM: Xid (a): 79, GPU",
        "NVRM: Xid (PCI:0000:01:00): seventy-nine",
        "NVRM: Xid 79",
        "XNVRM: Xid (PCI:0000:01:00): 79, GPU",
        "nvrm: xid (pci:0000:01:00): 79, gpu",
        "nvidia-nvswitch0: SXid (PCI:zz): 20034, Fatal",
    ],
)
def test_what_the_driver_never_prints_is_not_an_xid(line: str) -> None:
    assert read_pasted(line) is None


def test_an_unknown_code_is_watched_and_never_drains() -> None:
    for line in ("NVRM: Xid (PCI:0000:01:00): 4711, x", "NVRM: Xid (PCI:0000:01:00): 999999999, x"):
        reading = read(line)
        assert reading.fault_class is FaultClass.UNKNOWN
        assert reading.severity is Severity.WATCH
    switch = read("nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 99999, Fatal, Link 1 something")
    assert (switch.fault_class, switch.severity) == (FaultClass.UNKNOWN, Severity.WATCH)


@pytest.mark.parametrize(
    ("line", "code", "severity"),
    [
        (
            "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
            20034,
            Severity.FATAL,
        ),
        (
            "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20009, Non-fatal, Link 04 RX Short Error Rate",
            20009,
            Severity.WATCH,
        ),
        (
            "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 12028, Correctable, Link 61 x",
            12028,
            Severity.INFO,
        ),
        ("nvidia-nvswitch0: SXid (PCI:0004:00:00.0): 26006, SOE HALTED", 26006, Severity.FATAL),
    ],
)
def test_the_severity_word_grades_an_sxid(line: str, code: int, severity: Severity) -> None:
    reading = read(line)
    assert reading.finding == f"NVSWITCH-SXID-{code}"
    assert reading.severity is severity


@pytest.mark.parametrize(
    ("line", "component", "code"),
    [
        (
            "pcieport 0000:00:1c.5: AER: Multiple Corrected error received: 0000:00:1c.5",
            "pcie",
            "AER corrected",
        ),
        (
            "nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            "pcie",
            "AER corrected",
        ),
        (
            "mlx5_core 0000:c1:00.0: AER: Uncorrected (Fatal) error received: 0000:c1:00.0",
            "pcie",
            "AER fatal",
        ),
        (
            "iwlwifi 0000:00:14.3: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer",
            "pcie",
            "AER fatal",
        ),
        (
            "pcieport 0000:00:02.0: AER: Uncorrectable (Fatal) error message received from 0000:03:00.0",
            "pcie",
            "AER fatal",
        ),
        (
            "pcieport 0000:00:1c.0:   device [8086:a110] error status/mask=00000001/00002000",
            "pcie",
            "AER corrected",
        ),
        (
            "pcieport 0000:00:1c.0:   device [8086:a110] error status/mask=00001000/00002000",
            "pcie",
            "AER corrected",
        ),
        ("pcieport 0000:00:1c.0:    [ 0] RxErr                  (First)", "pcie", "AER corrected"),
        ("pcieport 0000:00:03.0:    [ 5] Surprise Down Error    (First)", "pcie", "AER fatal"),
        (
            "nvidia 0000:03:00.0: AER: can't recover (no error_detected callback)",
            "pcie",
            "AER fatal",
        ),
        (
            "{12}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4",
            "ghes",
            "CPER",
        ),
        ("{1}[Hardware Error]:   section_type: PCIe error", "ghes", "CPER PCIe"),
        (
            "EDAC MC1: 3 CE memory scrubbing error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0 slot:0)",
            "dram",
            "EDAC CE",
        ),
        ("mce: [Hardware Error]: Machine check events logged", "cpu", "MCE"),
        (
            "NMI watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:99]",
            "cpu",
            "soft lockup",
        ),
        ("INFO: task python3:77112 blocked for more than 241 seconds.", "os", "hung task"),
        ("nvme nvme0: I/O 22 (I/O Cmd) QID 5 timeout, aborting", "nvme", "timeout"),
        (
            "nvme nvme0: I/O tag 3 (3003) opcode 0x1 (I/O Cmd) QID 1 timeout, aborting req_op:WRITE(1) size:4096",
            "nvme",
            "timeout",
        ),
        ("nvme nvme1: Removing after probe failure status: -19", "nvme", "lost"),
        (
            "I/O error, dev nvme0n1, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
            "nvme",
            "I/O error",
        ),
        ("md/raid1:md0: Disk failure on nvme1n1p1, disabling device.", "nvme/raid", "raid"),
        (
            "mlx5_core 0000:0d:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count",
            "nic",
            "mlx5 health",
        ),
        (
            "mlx5_core 0000:01:00.0: mlx5_cmd_out_err:808:(pid 12): ACCESS_REG(0x805) op_mod(0x1) failed, status bad parameter(0x3)",
            "nic",
            "mlx5 access_reg",
        ),
        (
            "mlx5_core 0000:5c:00.0: Port module event[error]: module 1, Cable error, Bus stuck (I2C or data shorted)",
            "nic/optic",
            "mlx5 module",
        ),
        (
            "mlx5_core 0000:5c:00.0: Port module event: module 1, Cable unplugged",
            "nic/optic",
            "mlx5 module",
        ),
        ("Aug 17 06:18:01 h systemd-networkd[5398]: ib0: Lost carrier", "nic/link", "link flap"),
        (
            "Lustre: 1:0:(client.c:2289:ptlrpc_expire_one_request()) @@@ Request sent has timed out for slow reply: [sent 1/real 1]",
            "lustre",
            "rpc",
        ),
        (
            "LNetError: 2431:0:(o2iblnd_cb.c:3311:kiblnd_check_txs_locked()) Timed out tx: active_txs, 0 seconds",
            "lustre/lnet",
            "LNet timeout",
        ),
        ("nfs: server fs.example.org not responding, still trying", "nfs", "nfs"),
        (
            "mlx5_core 0000:12:00.0: mlx5_pcie_event:299: Detected insufficient power on the PCIe slot (27W).",
            "nic",
            "mlx5 power",
        ),
        (
            "mlx5_core: Port module event[error]: module 0, Cable error, High Temperature",
            "nic/optic",
            "mlx5 module",
        ),
        ("mlx5_core enp1s0f0np0: Link down", "nic/link", "link flap"),
        (
            "mlx5_core 0000:d2:00.0: poll_health:174: device's health compromised - reached miss count",
            "nic",
            "mlx5 health",
        ),
        ("mlx5_core 0000:01:00.0: mlx5_load_one failed with error code -22", "nic", "mlx5 init"),
        ("mlx5_core: probe of 0000:01:00.0 failed with error -22", "nic", "mlx5 init"),
        ("EDAC MC0: 1 CE on DIMM0", "dram", "EDAC CE"),
        (
            "watchdog: BUG: soft lockup - CPU#5 stuck for 26 seconds! [bash:537]",
            "cpu",
            "soft lockup",
        ),
        ("watchdog: BUG: soft lockup - CPU#11 stuck for 94s!", "cpu", "soft lockup"),
        ("[Hardware Error]: event severity: fatal", "ghes", "CPER"),
        ("{763}[Hardware Error]:   vendor_id: 0x8086, device_id: 0x10fb", "ghes", "CPER"),
        ("NVRM: GPU has fallen off the bus.", "gpu", "79"),
        ("NVRM: Xid (PCI:0000:00:1e.0): 79, pid=18422, name=python3", "gpu", "79"),
        ("INFO: task DataXceiver for:7494 blocked for more than 120 seconds.", "os", "hung task"),
        (
            "EDAC MC0: 1 CE reserved error (16) on unknown label (node:0 rank:0 bank:0)",
            "dram",
            "EDAC CE",
        ),
        ("igc 0000:2b:00.0:    [ 8] Rollover", "pcie", "AER corrected"),
        (
            "igc 0000:2b:00.0:   device [8086:5502] error status/mask=00001100/00002000",
            "pcie",
            "AER corrected",
        ),
        ("pcieport 0000:00:1c.5: AER:    [12] Timeout", "pcie", "AER corrected"),
        (
            "vfio-pci 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
            "pcie",
            "AER nonfatal",
        ),
        (
            "Lustre: fs1-OST0000-osc-XX: This client was evicted by fs1-OST0000; in progress operations using this service will fail.",
            "lustre",
            "167-0 evicted",
        ),
        (
            "LustreError: 11-0: an error occurred while communicating with 172.31.32.5@tcp. The mds_close operation failed with -116",
            "lustre",
            "11-0",
        ),
        (
            "LustreError: 15c-8: MGC10.0.0.1@tcp: Configuration from log fs1-client failed from MGS -5",
            "lustre",
            "15c-8",
        ),
        ("nvme nvme1: I/O 22 QID 0 timeout, disable controller", "nvme", "timeout"),
        ("nvme nvme0: I/O tag 17 (1011) QID 0 timeout, completion polled", "nvme", "timeout"),
        ("block nvme1n1: no usable path - requeuing I/O", "nvme", "path"),
        ("XFS (nvme1n1p1): log I/O error -5", "nvme", "file system"),
        (
            'XFS (nvme1n1p1): metadata I/O error in "xfs_da_read_buf+0x9e/0x100" at daddr 0x40 len 8 error 5',
            "nvme",
            "file system",
        ),
        (
            "XFS (nvme0n1): Filesystem has been shut down due to log error (0x2).",
            "nvme",
            "file system",
        ),
        (
            "XFS (nvme0n1): Corruption of in-memory data (0x8) detected at xfs_defer_finish_noroll+0x1/0x2",
            "nvme",
            "file system",
        ),
        (
            "EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #131073: comm ls: reading directory lblock 0",
            "nvme",
            "file system",
        ),
        ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", "nvme", "file system"),
        (
            "mce: Uncorrected hardware memory error in user-access at 3c1f2e0040",
            "dram",
            "user-access",
        ),
        (
            "NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7",
            "gpu",
            "rc-watchdog",
        ),
        (
            "NVRM: GPU0 krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7",
            "gpu",
            "rc-watchdog",
        ),
        ("NVRM: GPU at 0000:01:00.0 has fallen off the bus.", "gpu", "79"),
        (
            "NVRM: GPU 0000:09:00.0: rm_init_adapter failed, device minor number 0",
            "gpu",
            "init-failed",
        ),
        ("NVRM: GPU at 0000:01:00: GPU-009fc6be-db2e-11be-ceae-9ba664de1bac", "gpu", "uuid"),
    ],
)
def test_other_kernels_drivers_and_devices_give_the_same_kinds(
    line: str, component: str, code: str
) -> None:
    reading = read(line)
    assert (reading.line.component, reading.line.code) == (component, code)


def test_an_edac_line_carries_its_count() -> None:
    reading = read(
        "EDAC MC0: 29589 CE memory read error on CPU_SrcID#0_Ha#0_Chan#0_DIMM#1 (channel:0)"
    )
    assert reading.line.fields["count"] == 29589
    assert "29589 times" in reading.summary


@settings(deadline=None)  # a busy machine is not a failure
@given(st.text(max_size=300))
def test_reading_never_raises(text: str) -> None:
    parse(text)
    read_pasted(text)


@settings(deadline=None)  # a busy machine is not a failure
@given(
    st.sampled_from(
        [
            "NVRM: Xid (",
            "NVRM: ",
            "nvidia-nvswitch0: SXid (PCI:",
            "mlx5_core ",
            "EDAC MC0: ",
            "Lustre: ",
        ]
    ),
    st.text(max_size=200),
)
def test_reading_never_raises_behind_a_familiar_start(start: str, text: str) -> None:
    parse(start + text)


@settings(deadline=None)  # a busy machine is not a failure
@given(st.integers(0, 200), st.text(max_size=300))
def test_no_text_after_the_parenthesis_changes_the_code(code: int, rest: str) -> None:
    line = parse(xid(code, rest))
    assert line is not None
    assert (line.code, line.device) == (str(code), "0000:41:00")


@settings(deadline=None)  # a busy machine is not a failure
@given(
    st.integers(0, 200),
    st.text(st.characters(exclude_characters="\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029"), max_size=15),
)
def test_no_process_name_changes_code_or_grade(code: int, name: str) -> None:
    plain = read(f"NVRM: Xid (PCI:0000:41:00): {code}, pid=7, name=python3, Ch 00000008")
    spoofed = read(f"NVRM: Xid (PCI:0000:41:00): {code}, pid=7, name={name}, Ch 00000008")
    assert (spoofed.finding, spoofed.severity) == (plain.finding, plain.severity)
