"""A process name is a tenant's text: at most 15 bytes, any byte but zero. It may stand anywhere the kernel
or a driver prints one, and it must neither make a finding nor change the grade of one.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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
