"""Findings, refusals and the scheduler's view become decisions and orders."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.quarantine.cases import (
    CLUSTER,
    MINUTE,
    N1,
    NOW,
    decision,
    finding,
    guarded,
    outcome,
    refusal,
    shows,
    situation,
    whole,
)

from komainu.core.decision import Action, OrderKind, Result
from komainu.core.gate import Why
from komainu.core.node import NodePolicy
from komainu.core.observation import Component, Finding
from komainu.core.policy import Policy
from komainu.core.situation import NodeSituation, Thought
from komainu.core.verdict import Severity, Verdict
from komainu.quarantine.decide import think
from komainu.quarantine.decide.words import reason_of

OURS = shows(drained=True, reason="komainu:D-1: GPU-XID-79")
BY_SLURM = shows(drained=True, reason="Prolog error")
BY_A_PERSON = shows(drained=True, reason="swapping a DIMM")


def kinds(thought: Thought) -> list[tuple[OrderKind, str]]:
    return [(one.order.kind, one.order.value) for one in thought.orders]


def test_one_fatal_finding_drains_its_node_and_holds_its_gate() -> None:
    thought = think([situation(N1, finding())], whole(), Policy(), NOW)
    (drain,) = thought.decisions
    assert drain.action is Action.DRAIN
    assert drain.undo is Action.RESUME
    assert drain.findings == ("F-n1-1",)
    assert drain.reason == "GPU-XID-79 on gpu 0000:41:00: GPU has fallen off the bus"
    assert drain.expires == NOW + timedelta(hours=1)
    assert drain.policy_version == Policy().version
    (order,) = [one.order for one in thought.orders]
    assert (order.kind, order.decision) == (OrderKind.HOLD, drain.id)
    assert order.findings == drain.findings
    assert thought.tripped is None


def test_a_degraded_finding_drains_too_since_running_jobs_finish_anyway() -> None:
    thought = think([situation(N1, finding(severity=Severity.DEGRADED))], whole(), Policy(), NOW)
    assert [d.action for d in thought.decisions] == [Action.DRAIN]


def test_a_finding_that_something_could_not_be_seen_does_not_drain() -> None:
    blind = msgspec.structs.replace(finding(), verdict=Verdict.UNKNOWN)
    assert think([situation(N1, blind)], whole(), Policy(), NOW).decisions == ()


def test_policy_grades_codes_up_and_down() -> None:
    down = Policy(severity={"GPU-XID-79": "watch"})
    up = Policy(severity={"GPU-XID-31": "fatal"})
    softened = situation(N1, finding(), policy_ordered=down.version)
    hardened = situation(
        N1, finding(code="GPU-XID-31", severity=Severity.INFO), policy_ordered=up.version
    )
    assert think([softened], whole(), down, NOW) == Thought()
    assert think([hardened], whole(), up, NOW).decisions[0].action is Action.DRAIN


def test_while_a_decision_stands_further_findings_add_none() -> None:
    held = situation(
        N1,
        finding(1),
        finding(2),
        standing=decision(findings=("F-n1-1",)),
        standing_outcome=outcome(Result.DONE),
        scheduler=OURS,
        scheduler_at=NOW + 5 * MINUTE,
    )
    assert think([held], whole(N1), Policy(), NOW + 5 * MINUTE) == Thought()


def test_a_decision_that_is_held_back_keeps_its_id_and_takes_the_present_state() -> None:
    shut = whole("a", "b", total=2)
    first = think([situation(N1, finding(1))], shut, Policy(), NOW)
    (held,) = first.held
    assert first.tripped is True
    assert kinds(first) == [(OrderKind.ADVISE_ONLY, "on")]
    later = situation(N1, finding(1), finding(2), held_back=held.decision, advise_only=True)
    then = NOW + 11 * MINUTE
    second = think([later], whole(tripped_at=NOW), Policy(), then)
    (allowed,) = second.decisions
    assert allowed.id == held.decision.id
    assert allowed.findings == ("F-n1-1", "F-n1-2")
    assert allowed.at == then
    assert second.tripped is False
    assert kinds(second) == [(OrderKind.HOLD, ""), (OrderKind.ADVISE_ONLY, "off")]


def test_a_held_decision_nothing_asks_for_any_more_is_dropped() -> None:
    repaired = situation(N1, held_back=decision("D-9"), advise_only=True)
    thought = think([repaired], whole(), Policy(), NOW)
    assert thought.dropped == ("D-9",)
    assert thought.decisions == ()
    assert kinds(thought) == [(OrderKind.ADVISE_ONLY, "off")]


def test_while_tripped_every_node_that_is_heard_of_is_told_to_advise_only() -> None:
    policy = guarded(8, fatal_when_tripped=("GPU-XID-119",))
    fine = situation(N1, policy_ordered=policy.version)
    thought = think([fine], whole(tripped_at=NOW), policy, NOW)
    (order,) = [one.order for one in thought.orders]
    assert (order.kind, order.value) == (OrderKind.ADVISE_ONLY, "on")
    assert order.codes == ("GPU-XID-119",)


def test_a_code_policy_names_goes_out_though_the_guard_has_tripped() -> None:
    policy = guarded(1, fatal_when_tripped=("GPU-XID-79",))
    bad = situation(N1, finding(), policy_ordered=policy.version)
    thought = think([bad], whole("other", tripped_at=NOW), policy, NOW)
    assert [d.action for d in thought.decisions] == [Action.DRAIN]
    assert kinds(thought) == [(OrderKind.HOLD, "")]


def test_advise_only_says_what_would_be_done_and_does_nothing() -> None:
    policy = Policy(advise_only=True)
    bad = situation(N1, finding(), policy_ordered=policy.version)
    thought = think([bad], whole(), policy, NOW)
    assert thought.decisions == ()
    (held,) = thought.held
    assert (held.result, held.limit) == (Result.ADVISED, "policy says advise only")
    assert thought.tripped is None
    assert kinds(thought) == [(OrderKind.ADVISE_ONLY, "on")]


def test_the_policy_is_ordered_once() -> None:
    new = situation(N1, policy_ordered="older")
    (order,) = [one.order for one in think([new], whole(), Policy(), NOW).orders]
    assert order.kind is OrderKind.POLICY
    assert msgspec.json.decode(order.value, type=NodePolicy) == Policy().for_node()
    assert think([situation()], whole(), Policy(), NOW) == Thought()


# ── other owners ─────────────────────────────────────────────────────────────────────────────────


def test_a_node_a_person_has_out_is_left_alone_and_takes_no_room() -> None:
    bad = situation(N1, finding(), scheduler=BY_A_PERSON, scheduler_at=NOW)
    thought = think([bad], whole("a", total=1), Policy(), NOW)
    assert thought.decisions == ()
    assert thought.held[0].result is Result.FOREIGN
    assert thought.tripped is None


def test_when_the_person_gives_it_back_with_findings_still_open_it_is_drained() -> None:
    first = think([situation(N1, finding(), scheduler=BY_A_PERSON)], whole(), Policy(), NOW)
    held = first.held[0].decision
    back = situation(N1, finding(), held_back=held, scheduler=shows(), scheduler_at=NOW)
    assert [d.id for d in think([back], whole(), Policy(), NOW).decisions] == [held.id]


def test_a_drain_that_met_a_foreign_one_is_tried_again_when_that_is_lifted() -> None:
    standing = decision(findings=("F-n1-1",))
    met = situation(
        N1,
        finding(),
        standing=standing,
        standing_outcome=outcome(Result.FOREIGN),
        last_decision="D-1",
        scheduler=shows(),
        scheduler_at=NOW + MINUTE,
    )
    (again,) = think([met], whole(N1), Policy(), NOW + MINUTE).decisions
    assert (again.action, again.findings) == (Action.DRAIN, standing.findings)
    assert again.id != standing.id


def test_a_view_older_than_the_drain_says_nothing_against_it() -> None:
    fresh = situation(
        N1,
        finding(),
        standing=decision(),
        standing_outcome=outcome(Result.DONE, at=NOW),
        scheduler=shows(),
        scheduler_at=NOW + timedelta(seconds=59),
    )
    assert think([fresh], whole(N1), Policy(), NOW + MINUTE) == Thought()


def test_a_drain_that_could_not_be_carried_out_in_time_is_decided_anew() -> None:
    expired = decision(expires=NOW - MINUTE, findings=("F-n1-1",))
    late = situation(
        N1,
        finding(),
        standing=expired,
        standing_outcome=outcome(Result.FAILED, at=NOW - MINUTE),
        last_decision="D-1",
    )
    (again,) = think([late], whole(N1), Policy(), NOW).decisions
    assert again.id != "D-1"
    assert again.expires == NOW + timedelta(hours=1)


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────


def refused(*refusals: object, **more: object) -> NodeSituation:
    given_more = {"scheduler": BY_SLURM, "scheduler_at": NOW} | more
    return situation(N1, finding(), refusals=refusals, **given_more)


def test_the_drain_slurm_made_of_our_refusal_becomes_ours_and_the_job_is_released() -> None:
    thought = think([refused(refusal(held=True))], whole(), Policy(), NOW)
    adopt, free = thought.decisions
    assert (adopt.action, free.action) == (Action.ADOPT, Action.RELEASE_JOB)
    assert adopt.reason.startswith("GPU-XID-79")
    assert free.job == "7"
    assert [(s.observation, s.decision) for s in thought.settled] == [("O-1", free.id)]
    assert kinds(thought) == [(OrderKind.HOLD, "")]


def test_without_room_the_drain_is_undone_and_the_node_told_to_advise_only() -> None:
    thought = think([refused(refusal(held=True))], whole("a", total=1), Policy(), NOW)
    back, free = thought.decisions
    assert (back.action, back.job, free.action) == (Action.RESUME, "7", Action.RELEASE_JOB)
    assert [h.decision.action for h in thought.held] == [Action.DRAIN]
    assert thought.tripped is True
    assert thought.released == ()
    assert kinds(thought) == [(OrderKind.ADVISE_ONLY, "on")]


def test_a_prolog_error_without_a_refusal_of_ours_is_not_ours() -> None:
    thought = think([refused()], whole(), Policy(), NOW)
    assert thought.decisions == ()
    assert thought.held[0].result is Result.FOREIGN


def test_the_job_is_released_where_a_person_drained_the_node_meanwhile() -> None:
    seen = refused(refusal(held=True), scheduler=BY_A_PERSON)
    thought = think([seen], whole(), Policy(), NOW)
    assert [d.action for d in thought.decisions] == [Action.RELEASE_JOB]


def test_a_job_that_is_not_held_yet_is_waited_for_and_not_for_ever() -> None:
    waiting = refused(refusal(), scheduler=OURS, standing=decision())
    assert think([waiting], whole(N1), Policy(), NOW).settled == ()
    late = refused(refusal(), scheduler=OURS, standing=decision(), scheduler_at=NOW + 10 * MINUTE)
    settled = think([late], whole(N1), Policy(), NOW + 10 * MINUTE).settled
    assert [(s.observation, s.decision) for s in settled] == [("O-1", "D-1")]


def test_where_policy_keeps_jobs_held_the_refusal_is_settled_without_releasing() -> None:
    policy = Policy(release_held_jobs=False)
    seen = refused(refusal(held=True), policy_ordered=policy.version)
    thought = think([seen], whole(), policy, NOW)
    assert [d.action for d in thought.decisions] == [Action.ADOPT]
    assert len(thought.settled) == 1


def test_a_refusal_of_a_node_nobody_condemns_any_more_is_undone() -> None:
    cleared = situation(N1, refusals=(refusal(),), scheduler=BY_SLURM, scheduler_at=NOW)
    (back,) = think([cleared], whole(), Policy(), NOW).decisions
    assert (back.action, back.job) == (Action.RESUME, "7")


def test_a_refusal_for_a_stale_verdict_is_adopted_where_the_site_asked_for_it() -> None:
    policy = Policy(stale="closed")
    dark = situation(
        N1,
        refusals=(refusal(why=Why.STALE),),
        scheduler=BY_SLURM,
        scheduler_at=NOW,
        policy_ordered=policy.version,
    )
    (adopt,) = think([dark], whole(), policy, NOW).decisions
    assert adopt.reason == "the gate refused a job: verdict stale"


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────

situations = st.builds(
    lambda node, severities, out, held, advise, refused_too: situation(
        node,
        *(finding(i, node, severity=s) for i, s in enumerate(severities)),
        scheduler=None if out is None else shows(node, drained=bool(out), reason=out),
        scheduler_at=NOW,
        held_back=decision("D-held", node) if held else None,
        advise_only=advise,
        refusals=(refusal(),) if refused_too else (),
    ),
    st.sampled_from([f"n{i}" for i in range(6)]),
    st.lists(st.sampled_from(Severity), max_size=3),
    st.sampled_from([None, "", "Prolog error", "swapping a DIMM", "komainu:D-0: old"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
many = st.lists(situations, max_size=6, unique_by=lambda s: s.node)


@given(many, st.randoms(use_true_random=False))
def test_thinking_twice_or_in_another_order_is_the_same_thought(
    seen: list[NodeSituation], random: object
) -> None:
    policy = guarded(2, 3)
    shuffled = seen + seen
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert think(shuffled, whole(total=6), policy, NOW) == think(seen, whole(total=6), policy, NOW)


@given(many)
def test_every_node_has_at_most_one_decision_about_itself(seen: list[NodeSituation]) -> None:
    thought = think(seen, whole(total=6), guarded(2, 3), NOW)
    about = [d.node for d in thought.decisions if d.action is not Action.RELEASE_JOB]
    assert len(about) == len(set(about))


@given(many, st.integers(0, 5))
def test_more_findings_never_bring_a_node_back(seen: list[NodeSituation], which: int) -> None:
    """Monotone: with room enough, one more fatal finding takes no node off the list."""
    policy = guarded(100)

    def gone(situations: list[NodeSituation]) -> set[str]:
        thought = think(situations, whole(), policy, NOW)
        return {d.node for d in thought.decisions if d.action in {Action.DRAIN, Action.ADOPT}}

    worse = [
        msgspec.structs.replace(s, findings=(*s.findings, finding(99, s.node)))
        if s.node == f"n{which}"
        else s
        for s in seen
    ]
    assert gone(seen) <= gone(worse)


@given(st.text(), st.text(), st.text())
def test_a_reason_is_one_short_plain_line_whatever_an_agent_sent(
    code: str, part: str, summary: str
) -> None:
    sent = msgspec.structs.replace(finding(), code=code, component=Component(part), summary=summary)
    found: list[Finding] = [sent, finding(2), finding(3)]
    reason = reason_of(found)
    assert reason.isascii()
    assert reason.isprintable()
    assert len(decision(reason=reason).scheduler_reason) <= 250


def test_a_reason_does_not_say_the_place_twice() -> None:
    said = "Xid 79 on GPU 0000:41:00: GPU has fallen off the bus"
    twice = msgspec.structs.replace(finding(), summary=said)
    assert reason_of([twice]) == "GPU-XID-79 on gpu 0000:41:00: GPU has fallen off the bus"
    bare = msgspec.structs.replace(finding(), summary="0000:41:00: ")
    assert reason_of([bare]).endswith(": 0000:41:00:")


def test_a_reason_counts_causes_and_not_their_parts() -> None:
    cause = finding(1, code="GPU-XID-48")
    part = msgspec.structs.replace(finding(2, code="GPU-XID-63"), cause=cause.id)
    assert reason_of([part, cause]).startswith("GPU-XID-48 on gpu 0000:41:00")
    assert "more" not in reason_of([part, cause])
    assert reason_of([cause, finding(3)]).endswith("(+1 more)")
    assert cause.cluster == CLUSTER
