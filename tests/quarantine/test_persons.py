"""A person holds a node or gives it back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.quarantine.cases import N1, NOW, decision, finding, refusal, shows, situation, whole

from komainu.core.decision import Action, OrderKind
from komainu.core.errors import InputError
from komainu.core.policy import Policy
from komainu.core.situation import Thought
from komainu.quarantine.decide import hold, release, think

POLICY = Policy()


def test_a_hold_drains_and_holds_the_gate_in_the_persons_words() -> None:
    thought = hold(situation(), whole(), POLICY, "ann", "smells of smoke", NOW)
    (drain,) = thought.decisions
    assert (drain.action, drain.by) == (Action.DRAIN, "person:ann")
    assert drain.reason == "smells of smoke (ann)"
    assert [one.order.kind for one in thought.orders] == [OrderKind.HOLD]


def test_a_hold_beyond_the_guards_room_is_held_back_unless_forced() -> None:
    full = whole("a", total=1)
    thought = hold(situation(), full, POLICY, "ann", "smoke", NOW)
    assert thought.decisions == ()
    assert thought.held[0].limit.startswith("1 of 1 nodes are out")
    assert thought.orders == ()
    forced = hold(situation(), full, POLICY, "ann", "smoke", NOW, force=True)
    assert len(forced.decisions) == 1


def test_while_the_guard_is_tripped_a_persons_hold_waits_too_unless_forced() -> None:
    shut = whole(tripped_at=NOW)
    thought = hold(situation(), shut, POLICY, "ann", "smoke", NOW)
    assert thought.decisions == ()
    assert thought.orders == ()
    assert thought.held[0].limit.startswith("the guard tripped at 2026-11-30 03:00:00 UTC")
    assert hold(situation(), shut, POLICY, "ann", "smoke", NOW, force=True).decisions
    later = NOW + timedelta(seconds=POLICY.guard.window_s)
    assert hold(situation(), shut, POLICY, "ann", "smoke", later).decisions


def test_a_node_that_takes_up_room_already_is_held_while_the_guard_is_tripped() -> None:
    returning = whole(N1, tripped_at=NOW)
    assert hold(situation(), returning, POLICY, "ann", "smoke", NOW).decisions


def test_a_dry_run_and_the_act_are_the_same_thought() -> None:
    asked = [hold(situation(), whole(), POLICY, "ann", "smoke", NOW) for _ in range(2)]
    assert asked[0] == asked[1]


def test_holding_what_we_hold_already_adds_nothing() -> None:
    held = situation(standing=decision())
    assert hold(held, whole(N1), POLICY, "ann", "smoke", NOW) == Thought()


def test_the_same_hold_after_a_release_is_another_decision() -> None:
    first = hold(situation(), whole(), POLICY, "ann", "smoke", NOW).decisions[0]
    again = situation(last_decision="D-release")
    assert hold(again, whole(), POLICY, "ann", "smoke", NOW).decisions[0].id != first.id


def test_a_release_closes_what_the_person_saw_and_tells_the_node_so() -> None:
    seen = situation(N1, finding(1), finding(2), standing=decision(), held_back=decision("D-h"))
    thought = release(seen, POLICY, "ann", "GPU replaced", NOW)
    (back,) = thought.decisions
    assert (back.action, back.by, back.reason) == (
        Action.RESUME,
        "person:ann",
        "GPU replaced (ann)",
    )
    assert thought.released == back.findings == ("F-n1-1", "F-n1-2")
    assert thought.dropped == ("D-h",)
    (order,) = [one.order for one in thought.orders]
    assert (order.kind, order.findings, order.decision) == (
        OrderKind.RELEASE,
        thought.released,
        back.id,
    )


def test_a_release_never_expires_and_asks_no_guard() -> None:
    thought = release(situation(standing=decision()), POLICY, "ann", "fixed", NOW)
    assert thought.decisions[0].expires is None


def test_a_release_of_an_adopted_drain_may_clear_slurms_own_reason() -> None:
    adopted = situation(standing=decision(action=Action.ADOPT, job="7"))
    assert release(adopted, POLICY, "ann", "fixed", NOW).decisions[0].job == "7"
    by_slurm = shows(drained=True, reason="Prolog error")
    refused = situation(refusals=(refusal(job="8", held=True),), scheduler=by_slurm)
    back, free = release(refused, POLICY, "ann", "fixed", NOW).decisions
    assert (back.job, free.action, free.job) == ("8", Action.RELEASE_JOB, "8")


def test_a_release_of_a_site_prolog_error_does_not_claim_it() -> None:
    site = situation(scheduler=shows(drained=True, reason="Prolog error"))
    assert release(site, POLICY, "ann", "fixed", NOW).decisions[0].job is None


def test_after_a_release_the_next_fault_drains_again() -> None:
    back = situation(N1, finding(3), last_decision="D-release")
    assert [d.action for d in think([back], whole(), POLICY, NOW).decisions] == [Action.DRAIN]


@pytest.mark.parametrize("empty", ["", "   ", "\u202e\x1b\n"])
def test_a_request_without_a_reason_is_refused(empty: str) -> None:
    with pytest.raises(InputError, match="--because"):
        hold(situation(), whole(), POLICY, "ann", empty, NOW)
    with pytest.raises(InputError, match="--because"):
        release(situation(), POLICY, "ann", empty, NOW)


def test_a_persons_words_lose_control_and_direction_characters_and_are_bounded() -> None:
    words = "f\x1b[31mire\u202e\r\nnow 火災 " + "x" * 500
    reason = hold(situation(), whole(), POLICY, "ann", words, NOW).decisions[0].reason
    assert reason.isprintable()
    assert reason.startswith("f [31mire now 火災 xxx")
    assert len(reason) < 215
