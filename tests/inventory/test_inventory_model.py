from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from komainu.core.decision import Action, Decision
from komainu.core.gate import GateRecord, Why
from komainu.core.names import ClusterName, NodeName
from komainu.core.node import NodePolicy, NodeVerdict, SchedulerNode
from komainu.core.observation import Component, Finding
from komainu.core.record import GateSeen, NodeRecord, Standing
from komainu.core.verdict import FaultClass, Severity, Verdict
from komainu.core.views import NodeRow
from komainu.core.views import Standing as Word
from komainu.core.wire import GpuSeen, Hardware
from komainu.inventory.model import Seen, map_columns, node_row

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
C, N = ClusterName("c"), NodeName("n1")
SILENCE = timedelta(seconds=30)
GPUS = tuple(
    GpuSeen(index=i, pci=f"00000000:{40 + i}:00.0", uuid=f"GPU-{i}", serial=f"S{i}")
    for i in range(4)
)


def _record(
    verdict: Verdict | None = Verdict.OK,
    *,
    heard_s: float | None = 1,
    scheduler: SchedulerNode | None = None,
) -> NodeRecord:
    return NodeRecord(
        cluster=C,
        node=N,
        hardware=Hardware(rack="r", gpus=GPUS),
        verdict=None if verdict is None else NodeVerdict(verdict=verdict, message="said"),
        verdict_since=NOW,
        seen=None if heard_s is None else NOW - timedelta(seconds=heard_s),
        scheduler=scheduler,
    )


def _finding(severity: Severity = Severity.FATAL, component: str = "0000:41:00") -> Finding:
    return Finding(
        id="F-1",
        cluster=C,
        node=N,
        code="GPU-XID-79",
        component=Component("gpu", component),
        severity=severity,
        fault_class=FaultClass.WATCH,
        summary="it means",
        at=NOW,
    )


def _shown(*flags: str, state: str = "IDLE", reason: str = "") -> SchedulerNode:
    return SchedulerNode(
        cluster=C,
        node=N,
        state=state,
        flags=frozenset(flags),
        reason=reason,
        reason_by="root",
        gpus=2,
    )


def _standing(*, done: bool) -> Standing:
    decision = Decision(
        id="D-1", cluster=C, node=N, action=Action.DRAIN, reason="ours", by="policy", at=NOW
    )
    return Standing(decision=decision, done=done)


def _row(seen: Seen, policy: NodePolicy | None = None) -> NodeRow:
    return node_row(seen, policy or NodePolicy(), SILENCE, NOW)


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (Seen(record=_record()), Word.HEALTHY),
        (Seen(record=_record(), findings=(_finding(Severity.WATCH),)), Word.WATCHED),
        (Seen(record=_record(), findings=(_finding(),)), Word.FAULTY),
        (Seen(record=_record(Verdict.FAULT)), Word.FAULTY),
        (Seen(record=_record(), standing=_standing(done=True)), Word.QUARANTINED),
        (Seen(record=_record(), standing=_standing(done=False)), Word.FAULTY),
        (
            Seen(
                record=_record(scheduler=_shown("DRAIN", reason="komainu:D-1: x")),
                standing=_standing(done=False),
            ),
            Word.QUARANTINED,
        ),
        (
            Seen(record=_record(scheduler=_shown("DRAIN", reason="komainu:D-9: x"))),
            Word.QUARANTINED,
        ),
        (Seen(record=_record(scheduler=_shown("DRAIN", reason="fans"))), Word.FOREIGN),
        (Seen(record=_record(scheduler=_shown(state="DOWN"))), Word.FOREIGN),
        (Seen(record=_record(heard_s=None)), Word.UNSEEN),
        (Seen(record=_record(heard_s=31)), Word.UNSEEN),
        (Seen(record=_record(Verdict.UNKNOWN)), Word.UNSEEN),
        (Seen(record=_record(Verdict.SKIPPED)), Word.UNSEEN),
        (Seen(record=_record(None)), Word.UNSEEN),
        (Seen(record=_record(heard_s=None), findings=(_finding(),)), Word.FAULTY),
    ],
)
def test_a_node_has_one_word(seen: Seen, word: Word) -> None:
    assert _row(seen).standing is word


@given(
    verdict=st.sampled_from([None, *Verdict]),
    heard_s=st.sampled_from([None, 1.0, 31.0]),
    severity=st.sampled_from([None, *Severity]),
    done=st.sampled_from([None, True, False]),
    scheduler=st.sampled_from([None, _shown(), _shown("DRAIN", reason="x"), _shown(state="DOWN")]),
)
def test_a_node_is_healthy_only_when_it_was_looked_at_and_nothing_speaks_against_it(
    verdict: Verdict | None,
    heard_s: float | None,
    severity: Severity | None,
    done: bool | None,
    scheduler: SchedulerNode | None,
) -> None:
    row = _row(
        Seen(
            record=_record(verdict, heard_s=heard_s, scheduler=scheduler),
            findings=() if severity is None else (_finding(severity),),
            standing=None if done is None else _standing(done=done),
        )
    )
    quiet = severity in {None, Severity.INFO}  # INFO is recorded and nobody is told
    sound = verdict is Verdict.OK and heard_s == 1 and quiet and done is None
    in_service = scheduler is None or not scheduler.out
    assert (row.standing is Word.HEALTHY) is (sound and in_service)
    assert (row.why == "") is (row.standing is Word.HEALTHY)
    assert all(gpu.standing is not Word.HEALTHY for gpu in row.gpus) or row.standing in {
        Word.HEALTHY,
        Word.WATCHED,
        Word.FAULTY,
    }


def test_a_silent_nodes_last_verdict_is_not_shown_as_its_verdict() -> None:
    row = _row(Seen(record=_record(Verdict.OK, heard_s=31)))
    assert (row.verdict, row.why) == (Verdict.UNKNOWN, "its agent is silent")


def test_policy_grades_what_is_shown() -> None:
    seen = Seen(record=_record(), findings=(_finding(),))
    lenient = NodePolicy(severity={"GPU-XID-79": Severity.WATCH})
    assert _row(seen, lenient).standing is Word.WATCHED


def test_a_summary_that_begins_with_its_code_says_it_once() -> None:
    twice = msgspec.structs.replace(_finding(), summary="GPU-XID-79 (0000:41:00): it means")
    assert _row(Seen(record=_record(), findings=(twice,))).why == twice.summary
    assert _row(Seen(record=_record(), findings=(_finding(),))).why == (
        "GPU-XID-79 gpu 0000:41:00: it means"
    )


@pytest.mark.parametrize("named", ["0000:41:00", "00000000:41:00.0", "0000:41:00.0", "GPU-1", "S1"])
def test_a_fault_is_shown_at_its_own_gpu(named: str) -> None:
    row = _row(Seen(record=_record(), findings=(_finding(component=named),)))
    words = [gpu.standing for gpu in row.gpus]
    assert words == [Word.HEALTHY, Word.FAULTY, Word.HEALTHY, Word.HEALTHY]


def _lost(*indices: int) -> NodeRecord:
    """A node whose agent lists these GPUs no longer."""
    gpus = tuple(msgspec.structs.replace(gpu, here=gpu.index not in indices) for gpu in GPUS)
    return msgspec.structs.replace(_record(), hardware=Hardware(rack="r", gpus=gpus))


def test_a_gpu_that_is_gone_is_faulty_where_a_finding_condemns_it_and_unseen_otherwise() -> None:
    row = _row(Seen(record=_lost(1, 3), findings=(_finding(component="0000:41:00"),)))
    assert [gpu.standing for gpu in row.gpus] == [
        Word.HEALTHY,
        Word.FAULTY,
        Word.HEALTHY,
        Word.UNSEEN,
    ]
    assert [gpu.here for gpu in row.gpus] == [True, False, True, False]


@given(
    lost=st.sets(st.sampled_from(range(4))),
    severity=st.sampled_from([None, *Severity]),
    component=st.sampled_from(["", "0000:41:00", "GPU-2"]),
    verdict=st.sampled_from(list(Verdict)),
)
def test_a_gpu_that_is_gone_is_never_healthy_nor_merely_watched(
    lost: set[int], severity: Severity | None, component: str, verdict: Verdict
) -> None:
    record = _lost(*lost)
    told = msgspec.structs.replace(record, verdict=NodeVerdict(verdict=verdict))
    found = () if severity is None else (_finding(severity, component),)
    gone = [gpu for gpu in _row(Seen(record=told, findings=found)).gpus if not gpu.here]
    assert {gpu.index for gpu in gone} == lost
    assert {gpu.standing for gpu in gone} <= {Word.FAULTY, Word.UNSEEN}


def test_what_policy_accepts_does_not_bring_a_gpu_back() -> None:
    lenient = NodePolicy(severity={"GPU-XID-79": Severity.WATCH})
    row = _row(Seen(record=_lost(1), findings=(_finding(),)), lenient)
    assert row.standing is Word.WATCHED
    assert row.gpus[1].standing is Word.UNSEEN


def test_a_fault_of_no_gpu_in_particular_is_shown_at_all_of_them() -> None:
    row = _row(Seen(record=_record(), findings=(_finding(component=""),)))
    assert {gpu.standing for gpu in row.gpus} == {Word.FAULTY}


def test_the_gpus_of_a_node_no_agent_speaks_for_are_drawn_from_the_scheduler() -> None:
    record = msgspec.structs.replace(_record(scheduler=_shown(), heard_s=None), hardware=None)
    row = _row(Seen(record=record))
    assert [(gpu.index, gpu.standing) for gpu in row.gpus] == [(0, Word.UNSEEN), (1, Word.UNSEEN)]


def test_a_gpus_job_is_the_one_the_gate_let_in_last() -> None:
    admitted = tuple(
        GateSeen(
            node=N,
            observation=f"O-{job}",
            at=NOW,
            record=GateRecord(
                where="prolog",
                answer="admit",
                why=Why.OK,
                uptime_s=1,
                boot_id="b",
                job=job,
                user="u",
                uid=1,
                gpus=gpus,
                waited_s=0,
            ),
        )
        for job, gpus in (("7", ("0", "1")), ("8", ("GPU-1",)))
    )
    row = _row(Seen(record=_record(), admitted=admitted))
    assert [gpu.job for gpu in row.gpus] == ["7", "8", "", ""]
    assert row.jobs == 2


def test_the_columns_of_a_map_say_what_its_rows_say() -> None:
    rows = [
        _row(Seen(record=_record(), findings=(_finding(),))),
        _row(Seen(record=msgspec.structs.replace(_lost(2), seen=None))),
    ]
    view = map_columns(rows, "c", 9)
    columns = {column.name: list(column.values) for column in view.columns}
    words = view.meta["standings"]
    assert isinstance(words, list)
    assert [words[int(str(i))] for i in columns["node_standing"]] == [r.standing for r in rows]
    assert columns["gpu_node"] == [0] * 4 + [1] * 4
    assert columns["node_since"] == [int(NOW.timestamp()), 0]
    assert columns["gpu_here"] == [1] * 6 + [0, 1]
    assert {len(columns[name]) for name in columns if name.startswith("gpu_")} == {8}
