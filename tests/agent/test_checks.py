"""The node's checks, and the probe that reads /proc and /sys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.fakes import KEY

from komainu.agent import checks
from komainu.agent.checks import GPU_MISSING, GpuBaseline, GpuLook
from komainu.agent.probe import SysProbe
from komainu.core.node import NodePolicy
from komainu.core.verdict import Severity, Verdict
from komainu.core.wire import GpuSeen, Hardware

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def _hardware(*slots: int) -> Hardware:
    return Hardware(gpus=tuple(GpuSeen(index=n, pci=f"0000:{n:02x}:00") for n in slots))


def _look(
    seen: Hardware | None,
    baseline: GpuBaseline | None = None,
    released: frozenset[str] = frozenset(),
    policy: NodePolicy | None = None,
    *,
    later_s: int = 0,
    expected: int = 0,
) -> GpuLook:
    return checks.gpus(
        KEY, seen, baseline or GpuBaseline(), NOW + timedelta(seconds=later_s),
        policy=policy or NodePolicy(), released=released, expected=expected,
    )  # fmt: skip


def test_the_first_look_is_the_baseline() -> None:
    found = _look(_hardware(1, 2))
    assert found.look == checks.Look(Verdict.OK, "2 of 2 GPUs")
    assert (found.findings, found.observations) == ((), ())


def test_a_node_without_gpus_is_ok_and_says_that_none_was_expected() -> None:
    found = _look(_hardware()).look
    assert found.verdict is Verdict.OK
    assert "none is expected" in found.detail


@pytest.mark.parametrize("slots", [(), (1, 2, 3, 4, 5, 6, 7)])
def test_fewer_than_expected_at_the_first_look_is_a_finding(slots: tuple[int, ...]) -> None:
    first = _look(_hardware(*slots), expected=8)
    unseen = 8 - len(slots)
    assert first.look == checks.Look(Verdict.FAULT, f"{unseen} of 8 GPUs gone: {unseen} never seen")
    (finding,) = first.findings
    assert (finding.code, finding.component.kind, finding.component.id) == (GPU_MISSING, "gpu", "")
    again = _look(_hardware(*slots), first.baseline, later_s=1, expected=8)
    assert (again.look.verdict, again.findings) == (Verdict.FAULT, ())
    released = frozenset({finding.id})
    anew = _look(_hardware(*slots), again.baseline, released, later_s=2, expected=8)
    assert anew.findings[0].id != finding.id


def test_the_expected_number_is_met_when_the_last_one_appears() -> None:
    first = _look(_hardware(1), expected=2)
    back = _look(_hardware(1, 2), first.baseline, later_s=1, expected=2)
    assert back.look == checks.Look(Verdict.OK, "2 of 2 GPUs")
    assert back.baseline.gone == {}
    lost = _look(_hardware(1), back.baseline, later_s=2, expected=2)
    assert lost.look == checks.Look(Verdict.FAULT, "1 of 2 GPUs gone: 0000:02:00")
    assert [f.component.id for f in lost.findings] == ["0000:02:00"]


def test_more_than_expected_is_no_fault() -> None:
    assert _look(_hardware(1, 2), expected=1).look == checks.Look(Verdict.OK, "2 of 2 GPUs")


def test_what_cannot_be_told_is_unknown_and_keeps_the_baseline() -> None:
    before = _look(_hardware(1)).baseline
    assert _look(None, before).baseline == before
    assert _look(None, before).look.verdict is Verdict.UNKNOWN


def test_a_gpu_that_is_gone_is_one_finding_however_often_one_looks() -> None:
    first = _look(_hardware(1), _look(_hardware(1, 2)).baseline, later_s=1)
    again = _look(_hardware(1), first.baseline, later_s=2)
    assert first.look.verdict is Verdict.FAULT
    assert [(f.code, f.component.id) for f in first.findings] == [(GPU_MISSING, "0000:02:00")]
    assert again.look.verdict is Verdict.FAULT
    assert again.findings == ()


def test_a_gpu_that_came_back_and_goes_again_is_a_new_finding() -> None:
    first = _look(_hardware(1), _look(_hardware(1, 2)).baseline, later_s=1)
    back = _look(_hardware(1, 2), first.baseline, later_s=2)
    again = _look(_hardware(1), back.baseline, later_s=3)
    assert back.look.verdict is Verdict.OK
    assert again.findings[0].id != first.findings[0].id


def test_a_release_does_not_bring_a_gpu_back() -> None:
    """Known bad is known bad: the node is released, and condemned anew for what is still gone."""
    gone = _look(_hardware(1), _look(_hardware(1, 2)).baseline)
    released = frozenset({gone.findings[0].id})
    again = _look(_hardware(1), gone.baseline, released, later_s=1)
    assert again.look == checks.Look(Verdict.FAULT, "1 of 2 GPUs gone: 0000:02:00")
    assert [f.component.id for f in again.findings] == ["0000:02:00"]
    assert again.findings[0].id not in released
    assert _look(_hardware(1), again.baseline, released, later_s=2).findings == ()


def test_the_server_is_told_of_the_gpus_that_are_gone_in_their_place() -> None:
    baseline = _look(_hardware(1, 3), _look(_hardware(1, 2, 3)).baseline).baseline
    told = checks.with_the_gone(_hardware(1, 3), baseline)
    assert [(gpu.index, gpu.here) for gpu in told.gpus] == [(0, True), (1, False), (2, True)]
    assert checks.with_the_gone(_hardware(1, 2, 3), baseline) == _hardware(1, 2, 3)


def test_policy_may_tolerate_absences() -> None:
    policy = NodePolicy(severity={GPU_MISSING: Severity.WATCH})
    gone = _look(_hardware(1), _look(_hardware(1, 2)).baseline, policy=policy)
    assert gone.look.verdict is Verdict.OK
    assert len(gone.findings) == 1


SLOTS = st.sets(st.integers(1, 5)).map(lambda slots: _hardware(*sorted(slots)))


@given(st.lists(st.none() | SLOTS, max_size=12))
def test_whatever_comes_and_goes_ok_means_all_ever_seen_are_there(
    looks: list[Hardware | None],
) -> None:
    baseline, ever, told = GpuBaseline(), set[str](), set[str]()
    for second, seen in enumerate(looks):
        found = _look(seen, baseline, later_s=second)
        baseline = found.baseline
        assert not told & {f.id for f in found.findings}
        told |= {f.id for f in found.findings}
        if seen is not None:
            here = {gpu.pci for gpu in seen.gpus}
            ever |= here
            assert (found.look.verdict is Verdict.OK) == (here == ever)
            assert set(baseline.gone) == ever - here


def test_a_clock_is_compared_with_the_server_when_one_was_heard() -> None:
    assert checks.clock(NOW, timedelta(seconds=59)).verdict is Verdict.OK
    assert checks.clock(NOW, timedelta(seconds=-61)).verdict is Verdict.UNKNOWN
    assert checks.clock(NOW, None).verdict is Verdict.OK
    assert "no server heard" in checks.clock(NOW, None).detail
    assert checks.clock(datetime(1970, 1, 1, tzinfo=UTC), None).verdict is Verdict.UNKNOWN


def test_a_log_not_read_to_its_end_is_unknown() -> None:
    assert checks.kernel_log(5, 5, "").verdict is Verdict.OK
    assert checks.kernel_log(4, 5, "").verdict is Verdict.UNKNOWN
    assert checks.kernel_log(None, 5, "").verdict is Verdict.UNKNOWN
    assert checks.kernel_log(None, None, "").verdict is Verdict.OK
    assert checks.kernel_log(5, 5, "gone").verdict is Verdict.UNKNOWN


def test_a_state_directory_needs_rights_and_room() -> None:
    assert checks.state_dir("/x", writable=True, free_bytes=1 << 30, trouble="").detail == ""
    for writable, free, trouble in ((False, 1 << 30, ""), (True, 10, ""), (True, 1 << 30, "t")):
        found = checks.state_dir("/x", writable=writable, free_bytes=free, trouble=trouble)
        assert found.verdict is Verdict.UNKNOWN
        assert found.detail


# ── the probe ────────────────────────────────────────────────────────────────────────────────────

INFORMATION = """Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 164
GPU UUID: \t GPU-6d2d4a5e-0000-0000-0000-00000000000{n}
Video BIOS: \t 96.00.74.00.01
Bus Type: \t PCIe
Bus Location: \t {pci}
Device Minor: \t {n}
"""


def _driver(root: Path, *locations: str) -> None:
    for number, pci in enumerate(locations):
        folder = root / "proc/driver/nvidia/gpus" / pci
        folder.mkdir(parents=True)
        (folder / "information").write_text(INFORMATION.format(n=number, pci=pci))


def _device(root: Path, address: str, vendor: str, class_: str) -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(vendor + "\n")
    (folder / "class").write_text(class_ + "\n")


async def test_the_probe_reads_the_drivers_list(tmp_path: Path) -> None:
    _driver(tmp_path, "0000:C1:00.0", "0000:41:00.0")
    found = await SysProbe("r7", tmp_path).hardware()
    assert found is not None
    assert found.rack == "r7"
    assert [(gpu.index, gpu.pci) for gpu in found.gpus] == [(0, "0000:41:00"), (1, "0000:c1:00")]
    assert found.gpus[0].model == "NVIDIA H100 80GB HBM3"
    assert found.gpus[0].uuid.startswith("GPU-6d2d4a5e")


async def test_gpus_plugged_in_and_none_listed_cannot_be_told(tmp_path: Path) -> None:
    _device(tmp_path, "0000:41:00.0", "0x10de", "0x030200")
    assert await SysProbe("", tmp_path).hardware() is None


async def test_switches_and_other_makers_are_no_gpus(tmp_path: Path) -> None:
    _device(tmp_path, "0000:05:00.0", "0x10de", "0x068000")
    _device(tmp_path, "0000:06:00.0", "0x1a03", "0x030000")
    assert await SysProbe("", tmp_path).hardware() == Hardware()


async def test_a_machine_without_any_is_told_so(tmp_path: Path) -> None:
    assert await SysProbe("", tmp_path).hardware() == Hardware()
