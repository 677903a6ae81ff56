"""A process name is a tenant's text: at most 15 bytes, any byte but zero. It may stand anywhere the kernel
or a driver prints one, and it must neither make a finding nor change the grade of one.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.health.health_lines import kernel_line_texts

from komainu.core.verdict import Severity
from komainu.health.catalogue import catalogue
from komainu.health.detect import lines
from komainu.health.detect.lines import parse
from komainu.health.detect.reading import shipped
from komainu.health.model import Reading

COMM = 15
"""Bytes of a process name (TASK_COMM_LEN less its zero)."""

_TEMPTING = (
    ", ",
    "): ",
    "79",
    "154",
    "Ch 0000dead",
    "RST: Yes",
    "Fatal",
    "0x2",
    "(GPC 1",
    "\n",
    "x",
    " ",
)
process_names = st.one_of(
    st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=COMM),
    st.lists(st.sampled_from(_TEMPTING), max_size=8).map(lambda parts: "".join(parts)[:COMM]),
)

XIDS = [
    (154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
    (154, "GPU recovery action changed from 0x0 (None) to 0x0 (None)"),
    (94, "Ch 00000008, Contained: SM (0x1). RST: No, D-RST: No"),
    (94, "Ch 00000008, Contained: SM (0x1). RST: Yes, D-RST: No"),
    (95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"),
    (13, "Graphics SM Warp Exception on (GPC 7, TPC 6, SM 1): Illegal Instruction Parameter"),
    (31, "Ch 00000008, intr 10000000. MMU Fault: ENGINE GRAPHICS GPC faulted @ 0x7f_12345000"),
    (31, "Ch 00000009, intr 0. MMU Fault: ENGINE GRAPHICS UNRECOGNIZED_CLIENT faulted @ 0x7f_1"),
    (43, "Ch 0000000a"),
    (45, "Ch 0000000c caused by previous Xid 145"),
    (74, "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),
    (74, "NVLink: fatal error detected on link 6(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"),
    (119, "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76"),
    (145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001)"),
    (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)"),
    (150, "MSE Correctable XC0 i0 Link -1 (0x00000001 0x00000000 0x00000000)"),
]


@pytest.mark.parametrize(("code", "message"), XIDS)
@given(name=process_names)
@example(name="a, b")
@example(name="a, Ch 0000dead")
@example(name=", Ch 0000beef, ")
@example(name="), 79, x")
def test_a_process_name_neither_hides_nor_forges_what_an_xid_says(
    code: int, message: str, name: str
) -> None:
    plain = read_xid(code, f"pid=7, name=python3, {message}")
    spoofed = read_xid(code, f"pid=7, name={name}, {message}")
    assert spoofed.finding == plain.finding
    assert (spoofed.graded, spoofed.severity) == (plain.graded, plain.severity)
    assert without_name(spoofed, message) == without_name(plain, message)
    assert spoofed.summary == plain.summary


@pytest.mark.parametrize("code", sorted({code for code, _ in XIDS}))
@given(name=process_names)
def test_a_name_that_ends_an_xid_line_forges_nothing(code: int, name: str) -> None:
    plain = read_xid(code, "pid=7, name=python3")
    assert read_xid(code, f"pid=7, name={name}").graded is plain.graded


def read_xid(code: int, rest: str) -> Reading:
    reading = shipped()(f"NVRM: Xid (PCI:0000:3b:00): {code}, {rest}")
    assert reading is not None
    return reading


def without_name(reading: Reading, message: str) -> dict[str, object]:
    # Where the driver prints no channel, a name may pose as one; nothing is concluded from a channel.
    ignored = {"name"} if message.startswith("Ch ") else {"name", "channel"}
    return {key: value for key, value in reading.line.fields.items() if key not in ignored}


# ── records that begin with a process name ─────────────────────────────────────────────────────────

NAME_FIRST = [
    # arch/x86/mm/fault.c show_signal_msg, arch/*/kernel/signal.c, traps.c, vsyscall_64.c, process.c
    "{comm}[8465]: segfault at 0 ip 00005645abe6919b sp 00007ffc2a7ad630 error 6 in {file}[119b,5645abe69000+1000] likely on CPU 0 (core 0, socket 0)",
    "{comm}[7]: segfault at 0 ip 0 sp 0 error 14 in {file}[400000+1000]",
    "{comm}[8465]: bad frame in rt_sigreturn frame:0 ip:0 sp:0 orax:0 in {file}[1+1]",
    "{comm}[12] trap divide error ip:0 sp:0 error:0 in {file}[400000+1000]",
    "{comm}[12] general protection fault ip:0 sp:0 error:0 in {file}[400000+1000]",
    "{comm}[12] vsyscall attempted with vsyscall=none ip:0 cs:33 sp:0 ax:0 si:0 di:0",
    "{comm}[8465]: unhandled exception: DABT (lower EL), ESR 0x92000006, in {file}[1+1]",
    "{comm}[8465]: undefined instruction: pc=0000000000000000",
    "{comm}/8465: potentially unexpected fatal signal 11.",
    "{comm} (8465): undefined instruction: pc=00000000",
    "{comm}: unhandled page fault (11) at 0x00000000, code 0x017",
    # mm/oom_kill.c, page_alloc.c, vmalloc.c, drop_caches.c; kernel/exit.c, sysctl; fs
    "{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "{comm}: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL), nodemask=(null)",
    "{comm}: page allocation stalls for 10000ms, order:0, mode:0xcc0(GFP_KERNEL)",
    "{comm}: vmalloc error: size 4096, failed to allocate pages",
    "{comm} (8465): drop_caches: 3",
    "{comm} (8465) used greatest stack depth: 1 bytes left",
    "{comm}(8465): Attempt to set a LOCK_MAND lock via flock(2).",
    "{comm}: attempt to access beyond end of device",
    "{comm} uses obsolete (PF_INET,SOCK_PACKET)",
    "{comm} (8465) attempted a duplicate cross-thread {file}",
    "{comm}: numerical sysctl 1 2 is obsolete.",
]
# One of each kind whose beginning a process name could hold, or nearly; the labelled lines are the others.
MORE = [
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0 (channel:0)",
    "EDAC MC0: UE page 0x0, offset 0x0, grain 0",
    "EDAC MC0: 1 CE on DIMM0 (",
    "EDAC MC0: CE - no information available: x",
    "EDAC MC0: UE x",
    "EDAC MC0: 9 UE ",
    "EDAC MC0: CE ",
    "nvme nvme0: I/O 22 QID 0 timeout, disable controller",
    "nvme nvme0: QID 1 timeout",
    "nvme0n1: Read(0x2) @ LBA 1, 8 blocks, I/O Error (sct 0x3 / sc 0x71)",
    "a: I/O error, dev nvme0n1, sector 1",
    "I/O error, dev sda, sector 1",
    "a 0000:00:00:    [12] Timeout",
    "INFO: task a:1 blocked for more than 120 seconds.",
    "rcu: INFO: rcu_sched self-detected stall on CPU",
    "BUG: soft lockup - CPU#1 stuck for 26s!",
    "mlx5_load_one failed with error code -22",
    "mlx5_core: Link down",
    "mlx5_core: cmd[3]: CREATE_EQ(0x301) timeout. Will cause a leak of a command resource",
    "nfs: server a not responding, still trying",
    "Lustre: a: This client was evicted by b;",
    "LustreError: 11-0: an error occurred",
    "md/raid:a: Disk failure on b, disabling device.",
    "block nvme0: no usable path - requeuing I/O",
    "Memory failure: 0x1: recovery action",
    "{1}[Hardware Error]: event severity: fatal",
    "mce: [Hardware Error]: CPU 1",
    "nvidia-peermem a:1 ERROR b",
    "NVRM: GPU has fallen off the bus.",
    "NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7",
    "mce: Uncorrected hardware memory error in user-access at 1f3c",
    "XFS (nvme0n1): log I/O error -5",
    "EXT4-fs (nvme0n1): I/O error while writing superblock",
    "EXT4-fs error (device nvme0n1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0",
    "NVRM: Assertion failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F)",
    "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:41:00",
    "NVRM: Xid (0000:03): 79, x",
    "nvidia-nvswitch0: SXid (0000:06:00): 20034, Fatal, Link 1",
]


def poses() -> list[tuple[str, str]]:
    """Every beginning of every sample that a process name can hold, and what would have to follow it."""
    return sorted(
        {
            (text[:cut], text[cut:])
            for text in (*kernel_line_texts(), *MORE)
            for cut in range(COMM + 1)
        }
    )


def as_file(rest: str) -> set[str]:
    """File names that would continue the line: a name holds no slash, and is at most 255 bytes."""
    parts = (
        rest,
        rest.strip(),
        *rest.split("/"),
        *rest.split(", "),
        *rest.split(": "),
        f"on {rest} (",
    )
    return {part.replace("/", "\u2215")[:200] for part in parts}


@pytest.mark.parametrize("form", NAME_FIRST)
def test_a_record_that_begins_with_a_process_name_means_nothing(form: str) -> None:
    for comm, rest in poses():
        for file in as_file(rest) if "{file}" in form else {"a.out"}:
            text = form.format(comm=comm, file=file)
            assert shipped()(text) is None, text


@pytest.mark.parametrize("form", NAME_FIRST)
def test_the_patterns_alone_leave_no_room_for_a_process_name(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may gain a form this list lacks: then what each driver's own words demand must do."""
    monkeypatch.setattr(lines, "_NAME_FIRST", re.compile(r"(?!)"))
    for comm, rest in poses():
        for file in as_file(rest) if "{file}" in form else {"a.out"}:
            text = form.format(comm=comm, file=file)
            assert parse(text) is None, text


@given(
    form=st.sampled_from(NAME_FIRST),
    pose=st.sampled_from(poses()),
    more=process_names,
    file=st.text(st.characters(codec="utf-8", exclude_characters="\0/"), max_size=60),
)
def test_no_name_and_no_file_name_make_a_finding(
    form: str, pose: tuple[str, str], more: str, file: str
) -> None:
    text = form.format(comm=(pose[0] + more)[:COMM], file=pose[1].replace("/", "") + file)
    assert shipped()(text) is None


def test_what_the_drivers_print_is_still_read() -> None:
    """The samples are no empty threat: each kind of line that condemns is among them, and is read."""
    condemning = {
        reading.finding
        for text in (*kernel_line_texts(), *MORE)
        if (reading := shipped()(text)) is not None and reading.severity >= Severity.DEGRADED
    }
    assert condemning >= {
        entry.finding
        for entry in catalogue().lines.values()
        if entry.severity >= Severity.DEGRADED and not entry.finding.startswith("FM-")
    }
