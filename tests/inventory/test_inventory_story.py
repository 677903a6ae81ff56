from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from komainu.core.gate import GateRecord, Why
from komainu.core.names import ClusterName, NodeName
from komainu.core.observation import Observation, ObservationKind, Scalar
from komainu.core.record import GateSeen, History
from komainu.inventory.story import MOST, story

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
OURS = "komainu:D-a4353ceec3e1d199f9df: GPU-XID-48 on gpu 0000:52:00"


def _told(kind: ObservationKind, data: dict[str, Scalar]) -> str:
    spoken = Observation(
        id="O-1", cluster=ClusterName("c"), node=NodeName("n"), kind=kind, at=NOW, data=data
    )
    (line,) = story(History(spoken=(spoken,)), 10)
    assert line.what == ("scheduler" if kind is ObservationKind.SCHEDULER else "agent")
    return line.text


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        (
            ObservationKind.SCHEDULER,
            {"state": "IDLE", "flags": "DRAIN", "reason": OURS, "reason_by": "root"},
            f"IDLE+DRAIN, set by root: {OURS}",
        ),
        (
            ObservationKind.SCHEDULER,
            {"state": "IDLE", "flags": "", "reason": "", "reason_by": "root"},
            "IDLE",
        ),
        (
            ObservationKind.SCHEDULER,
            {"state": "DOWN", "flags": "", "reason": "fans", "reason_by": ""},
            "DOWN: fans",
        ),
        (
            ObservationKind.SCHEDULER,
            {"state": "unknown to the scheduler", "flags": "", "reason": "", "reason_by": ""},
            "unknown to the scheduler",
        ),
        (
            ObservationKind.AGENT,
            {"event": "started", "version": "0.1.0"},
            "the agent started (version 0.1.0)",
        ),
        (ObservationKind.AGENT, {"event": "stopping"}, "the agent is stopping"),
        (ObservationKind.AGENT, {"event": "new_word"}, "the agent says new_word"),
        (
            ObservationKind.KERNEL_GAP,
            {"lost": 7, "boot_id": "b", "first_seq": 10, "last_seq": 16},
            "7 kernel records (10-16) were overwritten before they could be read",
        ),
        (
            ObservationKind.KERNEL_SOURCE,
            {"readable": False, "why": "permission denied"},
            "the kernel log could not be read: permission denied",
        ),
        (ObservationKind.KERNEL_SOURCE, {"readable": True}, "the kernel log can be read again"),
        (
            ObservationKind.KERNEL_SOURCE,
            {"readable": False, "boot": "previous", "why": ""},
            "the previous boot's kernel log could not be read: no reason was given",
        ),
    ],
)
def test_what_was_observed_is_told_in_words(
    kind: ObservationKind, data: dict[str, Scalar], text: str
) -> None:
    assert _told(kind, data) == text


@given(
    kind=st.sampled_from(ObservationKind),
    data=st.dictionaries(st.text(max_size=20), st.text(max_size=500), max_size=4),
)
def test_whatever_an_agent_sends_becomes_one_bounded_line(
    kind: ObservationKind, data: dict[str, Scalar]
) -> None:
    assert len(_told(kind, data)) <= MOST


@pytest.mark.parametrize(
    ("why", "answer", "text"),
    [
        (Why.OK, "admit", "the gate let in job 7 of u (ok)"),
        (Why.STALE, "admit", "the gate let in job 7 of u (stale, unsure whether the node is well)"),
        (Why.STALE, "refuse", "the gate refused job 7 of u (stale)"),
    ],
)
def test_a_job_let_in_unsure_is_told_as_such(why: Why, answer: str, text: str) -> None:
    record = GateRecord(
        where="prolog",
        answer=answer,
        why=why,
        uptime_s=1,
        boot_id="b",
        job="7",
        user="u",
        uid=1000,
        gpus=(),
        waited_s=0,
    )
    seen = GateSeen(node=NodeName("n"), observation="O-1", at=NOW, record=record)
    (line,) = story(History(gate=(seen,)), 10)
    assert (line.what, line.text) == ("gate", text)
