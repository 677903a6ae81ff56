"""Drains that Slurm made of our gate's refusals: whose they become, and that it never is a circle."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.quarantine.cases import (
    MINUTE,
    N1,
    N2,
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
from komainu.core.names import JobId
from komainu.core.node import NodeVerdict
from komainu.core.policy import Policy
from komainu.core.situation import NodeSituation, Refusal
from komainu.core.verdict import Verdict
from komainu.quarantine.decide import think

BY_SLURM = shows(drained=True, reason="Prolog error")
FAULT = NodeVerdict(verdict=Verdict.FAULT)
WELL = NodeVerdict(verdict=Verdict.OK)
FULL = whole("a", total=1)
LATER = NOW + 2 * MINUTE


def refused(
    *refusals: Refusal, at: datetime = LATER, policy: Policy | None = None, **more: Any
) -> NodeSituation:
    """A node that Slurm drained, of which no finding is open."""
    given = {"scheduler": BY_SLURM, "scheduler_at": at} | more
    version = (policy or Policy()).version
    return situation(N1, refusals=refusals, policy_ordered=version, **given)


# ── the gate refuses what the server does not see ────────────────────────────────────────────────


def test_a_node_that_goes_on_refusing_for_its_own_reasons_is_taken_out_after_a_minute() -> None:
    """Undone, the next job would be refused again: a circle that costs a job in each round."""
    early = refused(refusal(), at=NOW + timedelta(seconds=59), verdict=FAULT)
    assert think([early], whole(), Policy(), NOW + MINUTE).decisions == ()
    (adopt,) = think([refused(refusal(), verdict=FAULT)], whole(), Policy(), LATER).decisions
    assert (adopt.action, adopt.reason) == (
        Action.ADOPT,
        "the gate refuses jobs for what the server does not know: verdict fault",
    )


def test_when_it_says_that_it_is_well_the_drain_is_undone() -> None:
    (back,) = think([refused(refusal(), verdict=WELL)], whole(), Policy(), LATER).decisions
    assert (back.action, back.job) == (Action.RESUME, "7")


def test_without_room_it_stays_as_slurm_left_it_in_the_open_and_the_guard_does_not_trip() -> None:
    thought = think([refused(refusal(), verdict=FAULT)], FULL, Policy(), LATER)
    assert thought.decisions == ()
    assert [h.decision.action for h in thought.held] == [Action.ADOPT]
    assert thought.settled == ()
    assert thought.tripped is None
    assert thought.orders == ()


@pytest.mark.parametrize("why", [Why.UNKNOWN, Why.STALE, Why.MISSING])
def test_a_gate_that_is_to_refuse_the_unsure_is_not_given_a_job_in_a_circle(why: Why) -> None:
    policy = Policy(stale="closed")
    dark = refused(refusal(why=why), policy=policy, verdict=NodeVerdict(verdict=Verdict.UNKNOWN))
    thought = think([dark], FULL, policy, LATER)
    assert (thought.decisions, thought.tripped) == ((), None)
    assert [h.decision.action for h in thought.held] == [Action.ADOPT]
    assert [d.action for d in think([dark], whole(), policy, LATER).decisions] == [Action.ADOPT]


def test_a_bad_node_without_room_is_undone_once_its_gate_has_heard_to_advise_only() -> None:
    bad = msgspec.structs.replace(refused(refusal(held=True), verdict=FAULT), findings=(finding(),))
    thought = think([bad], FULL, Policy(), LATER)
    assert [d.action for d in thought.decisions] == [Action.RELEASE_JOB]
    assert thought.settled == ()
    assert [one.order.kind for one in thought.orders] == [OrderKind.ADVISE_ONLY]
    told = msgspec.structs.replace(bad, verdict=WELL, advise_only=True)
    then = think([told], FULL, Policy(), LATER)
    assert Action.RESUME in [d.action for d in then.decisions]


def test_under_advise_only_no_gate_refuses_the_unsure() -> None:
    assert Policy(stale="closed", advise_only=True).for_node().stale == "open"
    assert Policy(stale="closed").for_node().stale == "closed"


def test_under_advise_only_a_refusal_is_undone_or_told_of_and_never_adopted() -> None:
    policy = Policy(stale="closed", advise_only=True)
    unsure = refused(refusal(why=Why.UNKNOWN), policy=policy, advise_only=True)
    (back,) = think([unsure], whole(), policy, LATER).decisions
    assert back.action is Action.RESUME
    insists = refused(refusal(), policy=policy, advise_only=True, verdict=FAULT)
    thought = think([insists], whole(), policy, LATER)
    assert thought.decisions == ()
    assert [(h.decision.action, h.result) for h in thought.held] == [(Action.ADOPT, Result.ADVISED)]


def test_a_node_on_its_way_back_is_neither_taken_out_nor_given_back_twice() -> None:
    """Its release is decided; its last verdict is from before it took it."""
    for why in (Why.FAULT, Why.STALE):
        policy = Policy(stale="closed")
        back = refused(refusal(why=why), policy=policy, verdict=FAULT, returning=True)
        assert think([back], whole(N1), policy, LATER).decisions == ()


# ── one refusal after another ────────────────────────────────────────────────────────────────────


def test_the_newest_refusal_is_the_one_behind_the_drain() -> None:
    """The first, of a job that srun started, is open still, and its drain was given back since."""
    again = refused(
        refusal(1, job="5"), refusal(2, job="6", held=True, at=NOW + MINUTE), verdict=FAULT
    )
    bad = msgspec.structs.replace(again, findings=(finding(2),))
    adopt, free = think([bad], whole(), Policy(), LATER).decisions
    assert (adopt.action, adopt.job, free.job) == (Action.ADOPT, "6", "6")
    first = think([refused(refusal(1, job="5"), at=LATER)], whole(), Policy(), LATER).decisions
    assert adopt.id not in {d.id for d in first}


def test_a_refusal_stays_open_until_its_drain_is_dealt_with() -> None:
    late = NOW + 30 * MINUTE
    waits = refused(refusal(), at=late, verdict=FAULT)
    assert think([waits], FULL, Policy(), late).settled == ()
    lifted = msgspec.structs.replace(waits, scheduler=shows())
    assert [s.observation for s in think([lifted], FULL, Policy(), late).settled] == ["O-1"]


def test_a_job_seen_held_before_its_nodes_drain_leaves_its_refusal_open() -> None:
    early = refused(refusal(held=True), scheduler=shows(), at=NOW)
    thought = think([early], whole(), Policy(), NOW)
    assert [d.action for d in thought.decisions] == [Action.RELEASE_JOB]
    assert thought.settled == ()


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_releases_a_job_once_in_ten_minutes_however_many_refusals_it_sends() -> None:
    standing: dict[str, Any] = {
        "scheduler": shows(drained=True, reason="komainu:D-1: x"),
        "standing": decision(),
        "standing_outcome": outcome(Result.DONE),
    }
    many = tuple(refusal(n, job="99", held=True) for n in range(5))
    freed = think([refused(*many, **standing)], whole(N1), Policy(), LATER)
    assert [d.action for d in freed.decisions] == [Action.RELEASE_JOB]
    again = refused(*many[1:], **standing, released_jobs=frozenset({JobId("99")}))
    thought = think([again], whole(N1), Policy(), LATER)
    assert (thought.decisions, thought.settled) == ((), ())
    then = think([refused(*many[1:], **standing)], whole(N1), Policy(), LATER)
    assert [d.action for d in then.decisions] == [Action.RELEASE_JOB]


def test_two_bad_nodes_may_release_the_same_job() -> None:
    one = refused(refusal(1, held=True), verdict=WELL)
    other = msgspec.structs.replace(
        situation(N2, refusals=(refusal(2, held=True),)),
        scheduler=shows(N2, drained=True, reason="Prolog error"),
        scheduler_at=LATER,
    )
    thought = think([one, other], whole(), guarded(), LATER)
    freed = [d.node for d in thought.decisions if d.action is Action.RELEASE_JOB]
    assert freed == [N1, N2]
