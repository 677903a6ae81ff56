from __future__ import annotations

from pathlib import Path

import pytest
from tests.health.health_lines import labelled

import komainu
from komainu.core.verdict import FaultClass, Severity
from komainu.health.catalogue import catalogue
from komainu.health.detect.reading import read_pasted
from komainu.health.model import OUR_ACTION, SEVERITY
from komainu.health.runbooks import OTHER_FINDINGS, can_exist, index_page, runbook_of

DOCS = Path(komainu.__file__).resolve().parent.parent.parent / "docs"


def test_all_177_xids_and_420_sxids_are_in_the_catalogue() -> None:
    known = catalogue()
    assert set(known.xids) == set(range(177))
    assert sum(1 for entry in known.sxids.values() if entry.name) == 420


def test_classes_are_spread_as_the_survey_says() -> None:
    counts = {
        fault_class: sum(x.fault_class is fault_class for x in catalogue().xids.values())
        for fault_class in FaultClass
    }
    assert counts == {
        FaultClass.QUARANTINE_NOW: 24,
        FaultClass.DRAIN_AFTER_JOB: 6,
        FaultClass.APP_RESTART_DRAIN: 1,
        FaultClass.OBEY_ACTION_CODE: 1,
        FaultClass.DECODE_REGS: 1,
        FaultClass.DECODE_NVL5: 7,
        FaultClass.SYMPATHETIC: 1,
        FaultClass.APP_COUNT: 54,
        FaultClass.WATCH: 25,
        FaultClass.INFO: 5,
        FaultClass.UNKNOWN: 52,
    }


@pytest.mark.parametrize(
    ("code", "immediate", "investigate", "fault_class"),
    [
        (79, "RESTART_BM", "CONTACT_SUPPORT", FaultClass.QUARANTINE_NOW),
        (48, "WORKFLOW_XID_48", "WORKFLOW_XID_48", FaultClass.QUARANTINE_NOW),
        (63, "IGNORE", "IGNORE", FaultClass.DRAIN_AFTER_JOB),
        (94, "RESTART_APP", "IGNORE (sympathetic)", FaultClass.APP_RESTART_DRAIN),
        (109, "RESET_GPU", "CONTACT_SUPPORT", FaultClass.APP_COUNT),
        (
            154,
            "XID_154",
            "N/A Informational only regarding another Xid",
            FaultClass.OBEY_ACTION_CODE,
        ),
        (171, "", "", FaultClass.QUARANTINE_NOW),
        (0, "", "", FaultClass.UNKNOWN),
    ],
)
def test_nvidias_words_and_our_class_stand_side_by_side(
    code: int, immediate: str, investigate: str, fault_class: FaultClass
) -> None:
    entry = catalogue().xids[code]
    assert (entry.immediate, entry.investigate) == (immediate, investigate)
    assert entry.fault_class is fault_class
    assert entry.source
    assert entry.date.year >= 2025


def test_every_class_has_a_severity_and_words() -> None:
    assert set(SEVERITY) == set(FaultClass) == set(OUR_ACTION)


def test_no_class_that_only_counts_or_is_unknown_condemns() -> None:
    for fault_class in ("APP_COUNT", "SYMPATHETIC", "WATCH", "INFO", "UNKNOWN"):
        assert SEVERITY[FaultClass(fault_class)] < Severity.DEGRADED


def test_renumbered_sxids_say_what_they_meant_before() -> None:
    known = catalogue()
    assert known.renumbered_at == "550.40.07"
    assert known.sxids[28000].was == "multicast state"
    assert known.sxids[28006].was == "multicast state"  # only older drivers use it
    assert known.sxids[29003].was == "reduction state"
    assert known.sxids[20034].was == ""


def _every_code() -> list[str]:
    known = catalogue()
    codes = [f"GPU-XID-{code}" for code in known.xids] + ["GPU-XID-999"]
    codes += [line.finding for line in known.lines.values() if line.finding]
    codes += [f"{who}-SXID-{code}" for who in ("NVSWITCH", "FM") for code in (20034, 99999)]
    codes += list(OTHER_FINDINGS)
    codes += [r.finding for line, _, _ in labelled() if (r := read_pasted(line)) and r.finding]
    return codes


def test_every_finding_code_has_a_runbook_with_all_its_parts() -> None:
    for page in {runbook_of(code) for code in _every_code()}:
        text = (DOCS / page).read_text(encoding="utf-8")
        for part in (
            "## Meaning",
            "## How sure",
            "## Komainu",
            "## You",
            "## Clearing",
            "## Sources",
        ):
            assert part in text, f"{page} lacks {part}"


def test_every_code_that_is_made_can_exist() -> None:
    assert [code for code in _every_code() if not can_exist(code)] == []


@pytest.mark.parametrize(
    "code", ["", "GPU-XID", "GPU-XID-", "GPU-XID-79x", "gpu-xid-79", "XID-79", "gpu/uuid", "NIC"]
)
def test_a_misspelt_code_cannot_exist(code: str) -> None:
    assert not can_exist(code)


ABOUT_GPUS = ("GPU-", "NVSWITCH-", "FABRIC-", "PCIE-")


def test_how_to_clear_fits_what_broke() -> None:
    """A drive is not well because every GPU is listed."""
    for page in sorted({runbook_of(code) for code in _every_code()}):
        text = (DOCS / page).read_text(encoding="utf-8")
        clearing = text.partition("## Clearing")[2].partition("## Sources")[0]
        assert "komainu release NODE --because" in clearing, page
        if "nvidia-smi" in clearing:
            assert page.removeprefix("runbooks/").startswith(ABOUT_GPUS), page


def test_every_xid_that_takes_a_node_out_has_its_own_page() -> None:
    out = {FaultClass.QUARANTINE_NOW, FaultClass.DRAIN_AFTER_JOB, FaultClass.APP_RESTART_DRAIN}
    for entry in catalogue().xids.values():
        if entry.fault_class in out:
            assert runbook_of(f"GPU-XID-{entry.code}") == f"runbooks/GPU-XID-{entry.code}.md"


def test_the_index_of_runbooks_is_the_one_made_from_the_catalogue() -> None:
    assert (DOCS / "runbooks" / "index.md").read_text(encoding="utf-8") == index_page(catalogue())
