"""The asking commands: what they print at 3 a.m., and what their exit codes say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from click.testing import Result as Ran
from hypothesis import given
from hypothesis import strategies as st
from tests.quarantine.cases import N1, NOW, decision, finding, outcome, shows

from komainu.core.decision import Action, Outcome, Result
from komainu.core.errors import InputError
from komainu.core.names import ClusterName, NodeKey
from komainu.core.node import NodeVerdict
from komainu.core.observation import Evidence
from komainu.core.verdict import Severity, Verdict
from komainu.core.views import (
    Answer,
    Ask,
    ClusterView,
    DecisionPage,
    DecisionView,
    FindingPage,
    FindingView,
    GuardView,
    NodeRow,
    NodeView,
    Standing,
)
from komainu.quarantine.commands import COMMANDS, text

GUARD = GuardView(
    out=1, limit=8, removed_in_window=1, max_in_window=5, window_s=600, tripped_at=None
)
NASTY = "x\x1b[2J\x1b]0;owned\x07\u202egnp.exe\r\nkomainu: all is well"


def row(standing: Standing = Standing.QUARANTINED, node: str = N1, cluster: str = "c") -> NodeRow:
    return NodeRow(
        cluster=cluster,
        node=node,
        rack="r1",
        standing=standing,
        verdict=Verdict.OK if standing is Standing.HEALTHY else Verdict.FAULT,
        why="" if standing is Standing.HEALTHY else "GPU-XID-79 on gpu 0000:41:00",
        since=NOW,
        seen=NOW,
        scheduler="IDLE+DRAIN",
        jobs=1,
        gpus=(),
        open_findings=1,
    )


def found(number: int = 1, *, is_open: bool = True, text_: str = "Xid 79") -> FindingView:
    proof = Evidence(observation="O-1", at=NOW, text=text_)
    made = msgspec.structs.replace(finding(number), evidence=(proof,), vendor_action="RESTART_BM")
    return FindingView(
        finding=made,
        severity="fatal",
        open=is_open,
        received=NOW,
        released_by=None if is_open else "D-9",
    )


def decided(result: Result = Result.DONE, limit: str = "") -> DecisionView:
    return DecisionView(
        decision=decision(),
        state=result.value,
        outcomes=[msgspec.structs.replace(outcome(result), detail="now IDLE+DRAIN")],
        limit=limit,
    )


def view(standing: Standing = Standing.QUARANTINED, **more: Any) -> NodeView:
    given_more: dict[str, Any] = {
        "row": row(standing),
        "verdict": NodeVerdict(verdict=Verdict.FAULT, checks={"kernel-log": Verdict.UNKNOWN}),
        "scheduler": shows(drained=True, reason="komainu:D-1: GPU-XID-79"),
        "standing_decision": decided(),
        "findings": [found()],
        "decisions": [decided()],
        "story": [],
        "jobs": [],
        "guard": GUARD,
        "agent_version": "0.1.0",
    } | more
    return NodeView(**given_more)


class FakeServer:
    """Answers what it was given; remembers what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[Any] = []

    def cluster(self) -> ClusterName:
        return ClusterName("c")

    def clusters(self) -> list[ClusterView]:
        views: list[ClusterView] = self.answers.get("clusters", [])
        return views

    def nodes(self, cluster: str | None = None) -> list[NodeRow]:
        rows: list[NodeRow] = self.answers["nodes"]
        return [one for one in rows if cluster in {None, one.cluster}]

    def node(self, key: NodeKey) -> NodeView:
        self.asked.append(key)
        if key.node != N1:
            raise InputError(f"no node {key}")
        said: NodeView = self.answers["node"]
        return said

    def findings(self, **asked: Any) -> FindingPage:
        self.asked.append(asked)
        pages: list[FindingPage] = self.answers["findings"]
        return pages.pop(0)

    def decisions(self, **asked: Any) -> DecisionPage:
        self.asked.append(asked)
        pages: list[DecisionPage] = self.answers["decisions"]
        return pages.pop(0)

    def hold(self, key: NodeKey, ask: Ask) -> Answer:
        self.asked.append(("hold", key, ask))
        said: Answer = self.answers["answer"]
        return msgspec.structs.replace(said, dry_run=ask.dry_run)

    release = hold


def page_of(code: str) -> str:
    return f"runbooks/{code}.md"


def run(server: FakeServer, *words: str) -> Ran:
    group = click.Group(commands=list(COMMANDS))
    return CliRunner().invoke(group, words, obj={"api": lambda: server, "runbook_of": page_of})


# ── why ──────────────────────────────────────────────────────────────────────────────────────────


def test_why_says_what_since_when_why_who_and_what_next() -> None:
    ran = run(FakeServer(node=view()), "why", "n1")
    assert ran.exit_code == 1
    for said in (
        "c/n1: QUARANTINED, out by our doing",
        "since 2026-11-30 03:00:00 UTC",
        "fatal    GPU-XID-79 on gpu 0000:41:00: GPU has fallen off the bus",
        "NVIDIA advises RESTART_BM",
        "| 03:00:00 Xid 79",
        "D-1  drain by policy at 2026-11-30 03:00:00 UTC: done",
        "03:00:00 done: now IDLE+DRAIN",
        "reason (ours): komainu:D-1: GPU-XID-79",
        "not seen healthy: kernel-log UNKNOWN",
        "read docs/runbooks/GPU-XID-79.md (GPU-XID-79)",
        'when it is repaired: komainu release c/n1 --because "what was done"',
    ):
        assert said in ran.output


@pytest.mark.parametrize(
    ("standing", "code", "next_step"),
    [
        (Standing.HEALTHY, 0, "nothing to do"),
        (Standing.WATCHED, 1, "to close the findings"),
        (Standing.FAULTY, 1, "to keep jobs off now"),
        (Standing.QUARANTINED, 1, "when it is repaired"),
        (Standing.FOREIGN, 1, "ask whoever drained it"),
        (Standing.UNSEEN, 2, "systemctl status komainu-agent"),
    ],
)
def test_only_a_node_seen_healthy_is_fine(standing: Standing, code: int, next_step: str) -> None:
    ran = run(FakeServer(node=view(standing)), "why", "c/n1")
    assert ran.exit_code == code
    assert next_step in ran.output


def test_a_cause_is_shown_once_with_its_parts_and_the_worst_comes_first() -> None:
    cause, part, other = found(1), found(2, text_="Xid 154"), found(3)
    part = msgspec.structs.replace(
        part, finding=msgspec.structs.replace(part.finding, code="GPU-XID-154", cause="F-n1-1")
    )
    mild = msgspec.structs.replace(other.finding, code="NIC-X", severity=Severity.INFO)
    other = msgspec.structs.replace(other, finding=mild, severity="info")
    lines = run(FakeServer(node=view(findings=[other, part, cause])), "why", "n1").output
    assert "GPU has fallen off the bus (with GPU-XID-154)" in lines
    assert "| 03:00:00 Xid 154" in lines
    assert lines.count("first seen") == 2
    assert lines.index("GPU-XID-79 on gpu") < lines.index("NIC-X on gpu")


def test_without_knowing_the_pages_the_index_is_named() -> None:
    group = click.Group(commands=list(COMMANDS))
    server = FakeServer(node=view())
    ran = CliRunner().invoke(group, ["why", "n1"], obj={"api": lambda: server})
    assert "read docs/runbooks/index.md (GPU-XID-79)" in ran.output


def test_why_shows_what_the_guard_holds_back_and_its_limit() -> None:
    held = decided(Result.HELD, limit="8 of 8 nodes are out (max_nodes 8)")
    seen = view(Standing.FAULTY, standing_decision=None, decisions=[held])
    ran = run(FakeServer(node=seen), "why", "n1")
    assert "held back: 8 of 8 nodes are out (max_nodes 8)" in ran.output
    assert "guard: room for 4 more; 1 of 8 nodes out" in ran.output


def test_a_node_nobody_knows_is_told_as_an_error() -> None:
    ran = run(FakeServer(node=view()), "why", "n9")
    assert isinstance(ran.exception, InputError)


def test_a_cluster_may_be_named_and_a_name_is_checked() -> None:
    server = FakeServer(node=view())
    run(server, "why", "other/n1")
    assert server.asked == [NodeKey(ClusterName("other"), N1)]
    assert isinstance(run(server, "why", "n1;reboot").exception, InputError)


def test_hostile_text_cannot_reach_the_terminal_as_it_is() -> None:
    seen = view(findings=[found(text_=NASTY)])
    ran = run(FakeServer(node=seen), "why", "n1")
    assert "\\x1b[2J" in ran.output
    assert "\\u202egnp.exe\\x0d\\x0akomainu" in ran.output
    assert not any(c in ran.output for c in "\x1b\x07\r\u202e")


@given(st.text())
def test_whatever_is_shown_is_printable_and_bounded(anything: str) -> None:
    assert text.shown(anything).isprintable()
    assert len(text.shown(anything)) <= 160


def test_json_is_the_view_itself() -> None:
    ran = run(FakeServer(node=view()), "why", "n1", "--json")
    assert ran.exit_code == 1
    assert msgspec.json.decode(ran.stdout, type=NodeView) == view()


# ── lists ────────────────────────────────────────────────────────────────────────────────────────


def test_nodes_are_listed_counted_and_filtered() -> None:
    rows = [row(Standing.HEALTHY, "n2"), row(), row(Standing.UNSEEN, "n3")]
    ran = run(FakeServer(nodes=rows), "nodes")
    assert ran.exit_code == 1
    assert ran.output.splitlines()[-1] == "3 nodes: 1 healthy, 1 quarantined, 1 unseen"
    only = run(FakeServer(nodes=rows), "nodes", "--standing", "quarantined")
    assert "c/n1" in only.output
    assert "c/n2" not in only.output


def test_nodes_ends_with_the_guards_room_and_what_it_keeps_in_service() -> None:
    tripped = msgspec.structs.replace(GUARD, out=8, tripped_at=NOW)
    views = [
        ClusterView(
            cluster=cluster,
            nodes=1,
            counts={},
            guard=guard,
            jobs_running=0,
            jobs_pending=0,
            policy_version="p",
            advise_only=False,
            held_back=held,
        )
        for cluster, guard, held in [
            ("d", GUARD, ()),
            ("c", tripped, tuple(f"n{i}" for i in range(12))),
        ]
    ]
    ran = run(FakeServer(nodes=[row()], clusters=views), "nodes")
    lines = ran.output.splitlines()[-3:]
    assert lines[0].startswith("c: guard: room for 0 more; 8 of 8 nodes out")
    assert lines[0].endswith("TRIPPED since 2026-11-30 03:00:00 UTC")
    assert lines[1] == (
        "  held back, and in service: n0 n1 n2 n3 n4 n5 n6 n7 n8 n9 and 2 more; why: komainu why c/NODE"
    )
    assert lines[2].startswith("d: guard: room for 4 more; 1 of 8 nodes out")
    assert "TRIPPED" not in lines[2]
    only = run(FakeServer(nodes=[row()], clusters=views), "nodes", "--cluster", "d")
    assert "\nc: guard" not in only.output


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([row(Standing.HEALTHY)], 0),
        ([row(Standing.HEALTHY), row(Standing.UNSEEN, "n2")], 2),
        ([row(), row(Standing.UNSEEN, "n2")], 1),
        ([], 2),
    ],
)
def test_nodes_says_findings_before_doubt_and_of_nothing_that_it_cannot_tell(
    rows: list[NodeRow], code: int
) -> None:
    assert run(FakeServer(nodes=rows), "nodes").exit_code == code


def test_open_findings_are_exit_code_one_and_none_is_fine() -> None:
    some = [FindingPage(findings=[found()], total=1, more=False)]
    none = [FindingPage(findings=[], total=0, more=False)]
    ran = run(FakeServer(findings=some), "findings")
    assert ran.exit_code == 1
    assert "GPU-XID-79" in ran.output
    ran = run(FakeServer(findings=none), "findings")
    assert (ran.exit_code, ran.output) == (0, "no open findings\n")


def test_findings_follow_pages_and_say_when_there_are_more() -> None:
    pages = [
        FindingPage(findings=[found(i) for i in range(200)], total=500, more=True, before="b1"),
        FindingPage(findings=[found(i) for i in range(50)], total=500, more=True, before="b2"),
    ]
    server = FakeServer(findings=pages)
    ran = run(server, "findings", "--limit", "250", "--node", "n1", "--code", "GPU-XID-79")
    assert ran.output.splitlines()[-1] == "250 of 500 shown; --limit shows more"
    assert [(a["before"], a["limit"]) for a in server.asked] == [(None, 200), ("b1", 50)]
    assert server.asked[0]["cluster"] == "c"
    assert server.asked[0]["open_only"] is True


def test_closed_findings_are_shown_on_request_and_are_no_alarm() -> None:
    pages = [FindingPage(findings=[found(is_open=False)], total=1, more=False)]
    server = FakeServer(findings=pages)
    ran = run(server, "findings", "--all")
    assert ran.exit_code == 0
    assert "closed by D-9" in ran.output
    assert server.asked[0]["open_only"] is False


def test_a_node_of_another_cluster_contradicts_the_cluster() -> None:
    ran = run(FakeServer(), "findings", "--cluster", "a", "--node", "b/n1")
    assert ran.exit_code == 2
    assert "is not in --cluster a" in ran.output


def test_decisions_are_told_with_what_came_of_them() -> None:
    pages = [DecisionPage(decisions=[decided(Result.HELD, limit="8 of 8")], more=False)]
    ran = run(FakeServer(decisions=pages), "decisions", "--node", "n1")
    assert ran.exit_code == 0
    assert "held" in ran.output
    assert "[8 of 8]" in ran.output


# ── requests ─────────────────────────────────────────────────────────────────────────────────────


def answered(result: Result | None = Result.DONE) -> Answer:
    came = None if result is None else outcome(result)
    return Answer(
        text="drain c/n1: no new job starts there",
        decision=decision(),
        outcome=came,
        jobs=["12"],
        guard=GUARD,
        dry_run=False,
    )


def test_hold_asks_with_its_reason_and_tells_the_outcome() -> None:
    server = FakeServer(answer=answered())
    ran = run(server, "hold", "n1", "--because", "smells of smoke", "--force")
    assert ran.exit_code == 0
    assert server.asked == [
        ("hold", NodeKey(ClusterName("c"), N1), Ask(reason="smells of smoke", force=True))
    ]
    assert "1 job running there now: 12" in ran.output
    assert "outcome of D-1: done" in ran.output


def test_the_dry_run_says_the_same_and_that_nothing_was_done() -> None:
    wet = run(FakeServer(answer=answered()), "release", "n1", "--because", "fixed")
    dry = run(FakeServer(answer=answered()), "release", "n1", "--because", "fixed", "--dry-run")
    assert dry.output.splitlines()[:-1] == wet.output.splitlines()[:-1]
    assert dry.output.splitlines()[-1] == "dry run: nothing was decided or done"


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (Result.ALREADY, 0),
        (Result.FOREIGN, 1),
        (Result.HELD, 1),
        (None, 1),
        (Result.FAILED, 2),
    ],
)
def test_the_exit_code_says_whether_it_was_done(result: Result | None, code: int) -> None:
    ran = run(FakeServer(answer=answered(result)), "hold", "n1", "--because", "x")
    assert ran.exit_code == code


def test_a_request_needs_a_reason() -> None:
    ran = run(FakeServer(), "hold", "n1")
    assert ran.exit_code == 2
    assert "--because" in ran.output


def test_times_are_told_with_their_age() -> None:
    assert text.when(NOW, NOW + timedelta(hours=3)) == "2026-11-30 03:00:00 UTC (3 h ago)"
    assert text.when(NOW, NOW - timedelta(hours=3)).endswith("(in the future)")
    assert text.when(None) == "never"
    last = Outcome(decision="D", cluster=ClusterName("c"), node=N1, result=Result.DONE, at=NOW)
    assert last.at == decision(action=Action.DRAIN).at
