from __future__ import annotations

import itertools
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.health.health_lines import KEY, START, by_code, found, kernel_line_texts, seen, xid

from komainu.core.names import stable_id
from komainu.core.observation import Finding, Observation, ObservationKind, Scalar
from komainu.core.verdict import FaultClass, Severity, Verdict
from komainu.health.detect import Memory, detect
from komainu.health.detect.correlate import MAX_TEXT
from komainu.health.detect.memory import MAX_RECENT, MAX_SEEN
from komainu.health.model import RECOVERY_ACTION

CONTAINED = "Contained: SM (0x1). RST: No, D-RST: No"


def only(*timed: tuple[float, str]) -> Finding:
    findings = found(*timed)
    assert len(findings) == 1, [f.summary for f in findings]
    return findings[0]


# ── one line ───────────────────────────────────────────────────────────────────────────────────────


def test_one_xid_79_condemns_the_node() -> None:
    finding = only((0, xid(79, "GPU has fallen off the bus.")))
    assert finding.code == "GPU-XID-79"
    assert finding.condemns
    assert finding.severity is Severity.FATAL
    assert finding.fault_class is FaultClass.QUARANTINE_NOW
    assert finding.vendor_action == "RESTART_BM"
    assert str(finding.component) == "gpu 0000:41:00"
    assert finding.catalogue.startswith("xid 1")


def test_a_findings_id_is_made_from_node_code_component_and_observation() -> None:
    (observation,) = seen((0, xid(79)))
    parts = (KEY.cluster, KEY.node, "GPU-XID-79", "0000:41:00", observation.id)
    assert only((0, xid(79))).id == stable_id(*parts, prefix="F-")


def test_the_summary_holds_no_text_of_the_line() -> None:
    finding = only((0, "NVRM: Xid (PCI:0000:41:00): 79, pid=7, name=<script>, secret words"))
    assert "script" not in finding.summary
    assert "secret" not in finding.summary
    assert finding.evidence[0].text.endswith("secret words")


def test_evidence_is_bounded() -> None:
    finding = only((0, xid(79, "x" * 5000)))
    assert len(finding.evidence[0].text) == MAX_TEXT


@pytest.mark.parametrize(
    ("number", "severity"),
    [
        (0, Severity.INFO),
        (1, Severity.FATAL),
        (2, Severity.FATAL),
        (3, Severity.DEGRADED),
        (4, Severity.FATAL),
        (5, Severity.DEGRADED),
        (6, Severity.WATCH),
    ],
)
@pytest.mark.parametrize(
    "word", ["GPU Reset Required", "PF FLR", "OS Reboot", "None", "words of a later release"]
)
def test_154_is_obeyed_by_its_number_whatever_the_words(
    number: int, severity: Severity, word: str
) -> None:
    finding = only(
        (0, xid(154, f"GPU recovery action changed from 0x0 (None) to 0x{number:x} ({word})"))
    )
    assert finding.severity is severity
    assert finding.driver_action == number
    assert finding.fault_class is FaultClass.OBEY_ACTION_CODE
    assert word == "None" or word not in finding.summary
    assert RECOVERY_ACTION.get(number, "nobody") in finding.summary


def test_154_without_its_numbers_is_watched() -> None:
    assert only((0, xid(154, "GPU recovery act"))).severity is Severity.WATCH


@pytest.mark.parametrize(
    ("code", "text", "severity"),
    [
        (94, CONTAINED, Severity.DEGRADED),
        (94, "Contained: SM (0x1). RST: Yes, D-RST: No", Severity.FATAL),
        (94, "Contained: SM (0x1). RST: No, D-RST: Yes", Severity.DEGRADED),
        (94, "Ch 00000008", Severity.DEGRADED),
        (95, "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No", Severity.FATAL),
        (95, "Uncontained: LTC TAG (0x2, 0x1). RST: No, D-RST: No", Severity.FATAL),
        (
            63,
            "Row Remapper: New row (0x18f31d80) marked for remapping, reset gpu to activate.",
            Severity.DEGRADED,
        ),
        (
            64,
            "Row Remapper Error: (0x2eebc4100) - All reserved rows for bank are remapped",
            Severity.FATAL,
        ),
        (
            31,
            "Ch 00000030, intr 00000000. MMU Fault: ENGINE HOST0 HUBCLIENT_ESC faulted @ 0x10_00200000.",
            Severity.INFO,
        ),
        (
            31,
            "channel 0x2, intr 0. MMU Fault: ENGINE GRAPHICS GPC0 UNRECOGNIZED_CLIENT faulted @ 0x18_3.",
            Severity.DEGRADED,
        ),
        (92, "High single-bit ECC error rate", Severity.WATCH),
        (
            119,
            "Timeout waiting for RPC from GSP! Expected function 103 (GSP_RM_ALLOC) (0x80 0x38).",
            Severity.FATAL,
        ),
    ],
)
def test_what_a_line_says_grades_it(code: int, text: str, severity: Severity) -> None:
    assert only((0, xid(code, text))).severity is severity


@pytest.mark.parametrize(
    ("registers", "severity"),
    [
        ("0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", Severity.FATAL),  # register 0 bit 16: hardware
        ("0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", Severity.INFO),
        ("0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", Severity.WATCH),
        ("0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0", Severity.WATCH),
        ("0x0, 0x0, 0x0, 0x40000, 0x0, 0x0, 0x0", Severity.DEGRADED),
        (
            "0x0, 0x10000, 0x0, 0x0, 0x0, 0x0, 0x0",
            Severity.DEGRADED,
        ),  # register 1 is not decoded: default
        ("0x10001, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", Severity.FATAL),  # the worst bit decides
        ("0x0, 0x0", Severity.DEGRADED),
    ],
)
def test_74_is_decoded_by_its_registers(registers: str, severity: Severity) -> None:
    finding = only((0, xid(74, f"NVLink: fatal error detected on link 14({registers})")))
    assert finding.severity is severity
    assert finding.fields["link"] == 14


def test_74_without_registers_keeps_the_default() -> None:
    assert (
        only((0, xid(74, "NVLink: fatal error detected on link 2"))).severity is Severity.DEGRADED
    )


def test_the_third_parity_error_on_one_link_drains() -> None:
    line = xid(74, "NVLink: fatal error detected on link 3(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)")
    other = xid(74, "NVLink: fatal error detected on link 4(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)")
    severities = [f.severity for f in found((0, line), (60, other), (100, line), (7200, line))]
    assert severities == [Severity.WATCH, Severity.WATCH, Severity.WATCH, Severity.DEGRADED]


@pytest.mark.parametrize(
    ("text", "severity", "link"),
    [
        (
            "RLW_SRC_TRACK Nonfatal XC1 i0 Link 16 (0x040a08e2 0x00000008 0x0 0x0 0x0 0x0)",
            Severity.WATCH,
            16,
        ),
        (
            "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x0 0x0 0x0 0x0)",
            Severity.FATAL,
            1,
        ),
        ("NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x0 0x0 0x0 0x0)", Severity.FATAL, -1),
        ("NETIR_LINK_EVT", Severity.WATCH, None),
    ],
)
def test_nvlink5_is_graded_by_its_severity_word(
    text: str, severity: Severity, link: int | None
) -> None:
    finding = only((0, xid(149, text)))
    assert finding.severity is severity
    assert finding.fields.get("link") == link
    assert finding.component.kind == "gpu/nvlink5"


def test_the_sub_code_of_a_link_event_is_shown() -> None:
    text = "NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x021425c6 0x00000000 0x0 0x0 0x0 0x0)"
    assert only((0, xid(149, text))).fields["sub_code"] == 33


# ── lines that go together ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("order", list(itertools.permutations([48, 63, 94])))
def test_a_double_bit_error_is_one_incident_in_any_order(order: tuple[int, ...]) -> None:
    texts = {48: "DBE", 63: "Row Remapper: New row marked", 94: CONTAINED}
    findings = by_code(
        found(*((n * 0.001, xid(code, texts[code])) for n, code in enumerate(order)))
    )
    root = findings["GPU-XID-48"]
    assert root.cause is None
    assert findings["GPU-XID-63"].cause == root.id
    assert findings["GPU-XID-94"].cause == root.id


def test_its_detail_codes_join_it() -> None:
    findings = by_code(found((0, xid(48)), (0.002, xid(171)), (0.003, xid(172))))
    assert (
        findings["GPU-XID-171"].cause == findings["GPU-XID-48"].id == findings["GPU-XID-172"].cause
    )


def test_not_on_another_gpu_and_not_after_two_seconds() -> None:
    findings = found((0, xid(48)), (1, xid(63, gpu="0000:42:00")), (2.5, xid(94, CONTAINED)))
    assert [f.cause for f in findings] == [None, None, None]


def test_a_late_batch_attaches_to_what_was_already_said() -> None:
    memory, first = detect(Memory(), seen((0.002, xid(94, CONTAINED))))
    _, second = detect(memory, seen((0, xid(48))))
    assert second[0].cause == first[0].id
    assert second[0].severity is Severity.FATAL


def test_a_45_follows_the_xid_it_names() -> None:
    findings = found(
        (0, xid(145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x8)")),
        (1, xid(31, "Ch 00000003")),
        (9, xid(45, "Ch 0000000c caused by previous Xid 145", pid=3)),
    )
    assert findings[2].cause == findings[0].id
    assert findings[2].severity is Severity.INFO
    assert findings[2].fields["caused_by_xid"] == 145


def test_a_45_without_a_name_follows_the_nearest_other_xid() -> None:
    findings = found((0, xid(79)), (2, xid(45, "Ch 00000015", pid=3)))
    assert findings[1].cause == findings[0].id


def test_a_45_alone_counts_for_nothing() -> None:
    finding = only((0, xid(45, "channel 0x00000015", pid=9684)))
    assert finding.cause is None
    assert not finding.condemns
    assert finding.severity is Severity.INFO


def test_a_burst_of_45s_of_one_process_is_one_finding() -> None:
    burst = [(0.001 * n, xid(45, f"Ch {n:08x}", pid=77)) for n in range(1, 60)]
    findings = found((0, xid(79)), *burst)
    assert [f.code for f in findings] == ["GPU-XID-79", "GPU-XID-45"]


def test_the_lines_of_one_exception_are_one_finding() -> None:
    lines = [
        (0.0005 * n, xid(13, f"Graphics Exception: ESR 0x52e7b0=0x{n:x}", pid=5)) for n in range(40)
    ]
    assert len(found(*lines)) == 1
    assert len(found(*lines, (0.0101, xid(13, "Graphics Exception: ESR", pid=6)))) == 2


def test_a_154_belongs_to_the_xid_before_it() -> None:
    link = xid(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x021425c6 0x0)")
    action = xid(154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)")
    peer = xid(
        154,
        "GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset Required)",
        gpu="0019:01:00",
    )
    findings = found((0, link), (0.001, action), (0.3, peer))
    assert [f.cause for f in findings] == [None, findings[0].id, None]


def test_a_109_alone_drains() -> None:
    finding = only(
        (0, xid(109, "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005", pid=4))
    )
    assert finding.severity is Severity.DEGRADED
    assert finding.fault_class is FaultClass.APP_COUNT


@pytest.mark.parametrize("app", [13, 31, 43])
@pytest.mark.parametrize("pid", [4, None])
def test_a_109_after_the_same_process_failed_does_not(app: int, pid: int | None) -> None:
    findings = found((0, xid(app, "Ch 00000008", pid=pid)), (5, xid(109, "Ch 00000008", pid=4)))
    assert findings[1].severity is Severity.INFO
    assert findings[1].cause == findings[0].id


def test_a_109_after_another_process_failed_drains() -> None:
    findings = found((0, xid(13, pid=9)), (5, xid(109, pid=4)))
    assert findings[1].severity is Severity.DEGRADED


def test_a_109_that_repeats_drains_even_so() -> None:
    findings = found(
        (0, xid(13, pid=4)), (5, xid(109, pid=4)), (600, xid(13, pid=8)), (605, xid(109, pid=8))
    )
    assert [f.severity for f in findings if f.code == "GPU-XID-109"] == [
        Severity.INFO,
        Severity.DEGRADED,
    ]


def test_the_three_lines_of_an_sxid_are_one_finding() -> None:
    switch = "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034,"
    lines = [
        f"{switch} Fatal, Link 48 LTSSM Fault Up",
        f"{switch} Severity 1 Engine instance 48 Sub-engine instance 00",
        f"{switch} Data {{0x10000000, 0x00000000}}",
    ]
    for order in itertools.permutations(range(3)):
        findings = found(*((0.002 * n, lines[i]) for n, i in enumerate(order)))
        assert [f.code for f in findings] == ["NVSWITCH-SXID-20034"]
        assert findings[0].severity is Severity.FATAL
        assert findings[0].fields["link"] == 48


def test_two_links_of_a_switch_are_two_findings() -> None:
    switch = "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link"
    assert len(found((0, f"{switch} 48 LTSSM Fault Up"), (0.1, f"{switch} 49 LTSSM Fault Up"))) == 2


def test_off_the_bus_lines_belong_to_their_79() -> None:
    findings = by_code(
        found((0, "NVRM: GPU 0000:41:00.0: GPU has fallen off the bus."), (0.000004, xid(79)))
    )
    assert findings["GPU-OFF-BUS"].cause == findings["GPU-XID-79"].id


def test_off_the_bus_without_any_xid_condemns() -> None:
    finding = only((0, "NVRM: GPU 0000:41:00.0: GPU has fallen off the bus."))
    assert finding.code == "GPU-OFF-BUS"
    assert finding.severity is Severity.FATAL


def test_a_fatal_bus_error_just_before_is_the_cause_of_79() -> None:
    aer = "pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010"
    findings = found((0, aer), (0.102, xid(79)))
    assert findings[1].cause == findings[0].id
    assert [f.severity for f in findings] == [Severity.DEGRADED, Severity.FATAL]


def test_a_drive_that_times_out_and_goes_is_one_incident() -> None:
    findings = found(
        (0, "nvme nvme2: I/O 775 QID 2 timeout, aborting"),
        (30, "nvme nvme2: I/O 775 QID 2 timeout, reset controller"),
        (60, "nvme nvme2: Disabling device after reset failure: -19"),
        (61, "blk_update_request: I/O error, dev nvme2n1, sector 6442712256 op 0x1:(WRITE)"),
        (61.5, "nvme nvme3: Disabling device after reset failure: -19"),
    )
    causes = {f.code + f.component.id: f.cause for f in findings}
    assert causes["NVME-LOSTnvme2"] == findings[0].id == causes["NVME-IO-ERRORnvme2n1"]
    assert causes["NVME-LOSTnvme3"] is None


def test_rate_limited_gsp_prints_belong_to_their_119() -> None:
    text = "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:41:00 (printing 1 of every 30).  The GPU likely needs to be reset."
    findings = found((0, xid(119, "Timeout after 45s")), (1, text))
    assert findings[1].code == "GPU-GSP-RATE-LIMITED"
    assert findings[1].cause == findings[0].id


def test_edac_lines_are_never_folded_so_no_count_is_lost() -> None:
    line = "EDAC MC0: 29589 CE memory read error on CPU_SrcID#0_Ha#0_Chan#0_DIMM#1 (channel:0)"
    assert sum(int(str(f.fields["count"])) for f in found((0, line), (0.1, line))) == 2 * 29589


# ── what could not be looked at ────────────────────────────────────────────────────────────────────


def about(kind: ObservationKind, **data: Scalar) -> list[Finding]:
    seen_once = Observation(
        id="O-1", cluster=KEY.cluster, node=KEY.node, kind=kind, at=START, data=data
    )
    return detect(Memory(), [seen_once])[1]


def test_lost_records_are_a_finding_whose_verdict_is_unknown() -> None:
    (finding,) = about(ObservationKind.KERNEL_GAP, lost=17, boot_id="b", first_seq=1, last_seq=18)
    assert (finding.code, finding.verdict) == ("HOST-KMSG-GAP", Verdict.UNKNOWN)
    assert finding.severity is Severity.WATCH
    assert not finding.condemns
    assert "17" in finding.summary


def test_an_unreadable_log_is_one_too_and_a_readable_one_is_not() -> None:
    (finding,) = about(ObservationKind.KERNEL_SOURCE, readable=False, why="permission denied <b>")
    assert (finding.code, finding.verdict) == ("HOST-KMSG-UNREADABLE", Verdict.UNKNOWN)
    assert [piece.text for piece in finding.evidence] == ["permission denied <b>"]
    assert "<b>" not in finding.summary
    assert about(ObservationKind.KERNEL_SOURCE, readable=True) == []


def test_a_boot_before_that_nobody_could_read_is_a_finding_of_its_own() -> None:
    (finding,) = about(ObservationKind.KERNEL_SOURCE, readable=False, boot="previous", why="<b>")
    assert (finding.code, finding.verdict) == ("HOST-KMSG-PREVIOUS-BOOT", Verdict.UNKNOWN)
    assert "<b>" not in finding.summary


def test_other_observations_say_nothing_here() -> None:
    assert about(ObservationKind.GATE, where="prolog") == []


# ── laws ───────────────────────────────────────────────────────────────────────────────────────────

XIDS = [13, 31, 43, 45, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 137, 149, 171, 4711]
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 40_000).map(lambda ms: ms / 1000),
        st.one_of(
            st.builds(
                xid,
                st.sampled_from(XIDS),
                gpu=st.sampled_from(["0000:41:00", "0000:42:00"]),
                pid=st.sampled_from([4, 5, None]),
            ),
            st.sampled_from(kernel_line_texts()),
        ),
    ),
    max_size=25,
    unique_by=lambda event: event[0],
)


@settings(deadline=None)  # a busy machine is not a failure
@given(EVENTS)
def test_detecting_twice_adds_nothing(events: list[tuple[float, str]]) -> None:
    memory, _ = detect(Memory(), seen(*events))
    again, findings = detect(memory, seen(*events))
    assert findings == []
    assert again == memory


@settings(deadline=None)  # a busy machine is not a failure
@given(EVENTS, st.randoms(use_true_random=False))
def test_the_order_within_a_batch_does_not_matter(
    events: list[tuple[float, str]], random: object
) -> None:
    observations = seen(*events)
    expected = detect(Memory(), observations)
    shuffled = list(observations)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    memory, findings = detect(Memory(), shuffled)
    assert findings == expected[1]
    assert memory.recent == expected[0].recent


def worst(findings: list[Finding]) -> Severity:
    return max((f.severity for f in findings), default=Severity.INFO)


def explains_away(text: str) -> bool:
    """A 109 is explained by another Xid, the one place where more evidence may soften a finding."""
    return "): 109," in text


@settings(deadline=None)  # a busy machine is not a failure
@given(EVENTS, EVENTS)
def test_more_evidence_never_lowers_the_worst_severity(
    some: list[tuple[float, str]], more: list[tuple[float, str]]
) -> None:
    some = [e for e in some if not explains_away(e[1])]
    more = [(at + 0.0005, text) for at, text in more if not explains_away(text)]
    assert worst(found(*some, *more)) >= worst(found(*some))


@settings(deadline=None)  # a busy machine is not a failure
@given(EVENTS, st.integers(0, 25))
def test_a_cut_between_batches_loses_no_severity(events: list[tuple[float, str]], cut: int) -> None:
    events = sorted(events)
    memory, first = detect(Memory(), seen(*events[:cut]))
    memory, second = detect(memory, seen(*events[cut:]))
    assert worst(first + second) >= worst(found(*events))


@settings(deadline=None)  # a busy machine is not a failure
@given(EVENTS)
def test_memory_survives_json(events: list[tuple[float, str]]) -> None:
    memory, _ = detect(Memory(), seen(*events))
    assert msgspec.json.decode(msgspec.json.encode(memory), type=Memory) == memory


@settings(deadline=None)  # a busy machine is not a failure
@given(EVENTS)
def test_causes_are_findings_and_never_chains(events: list[tuple[float, str]]) -> None:
    findings = found(*events)
    by_id = {f.id: f for f in findings}
    assert len(by_id) == len(findings)
    assert all(f.cause is None or by_id[f.cause].cause is None for f in findings)
    assert all(f.cause != f.id for f in findings)


@settings(max_examples=3, deadline=None)
@given(st.integers(1, 3))
def test_memory_is_bounded_in_a_flood(seconds: int) -> None:
    memory = Memory()
    for start in range(3):
        flood = [(start * 1000 + n * seconds * 0.11, xid(79, pid=n)) for n in range(900)]
        memory, findings = detect(memory, seen(*flood))
        assert len(findings) == 900
    assert len(memory.seen) == MAX_SEEN
    assert all(len(recent) <= MAX_RECENT for recent in memory.recent.values())
    assert len(msgspec.json.encode(memory)) < 1_000_000


def test_the_same_line_later_is_another_finding() -> None:
    first, second = found((0, xid(79)), (30, xid(79)))
    assert first.id != second.id
    assert second.at - first.at == timedelta(seconds=30)
