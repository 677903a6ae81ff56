"""A drain of ours that is gone: a person gave the node back, or the scheduler lost its state."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from tests.quarantine.cases import (
    MINUTE,
    N1,
    N2,
    NOW,
    decision,
    finding,
    outcome,
    shows,
    situation,
    whole,
)

from komainu.core.decision import Action, OrderKind, Result
from komainu.core.policy import Policy
from komainu.core.situation import NodeSituation
from komainu.quarantine.decide import think
from komainu.quarantine.decide.nodes import BY_HAND

THEN = NOW + 5 * MINUTE


def gone(node: str = N1, *, state: str = "IDLE", flags: tuple[str, ...] = ()) -> NodeSituation:
    """Our drain was done at NOW, and five minutes later the scheduler shows none."""
    shown = msgspec.structs.replace(shows(node, state=state), flags=frozenset(flags))
    return situation(
        node,
        finding(1, node),
        standing=decision(f"D-{node}", node, findings=(f"F-{node}-1",)),
        standing_outcome=outcome(Result.DONE, f"D-{node}", node),
        last_decision=f"D-{node}",
        scheduler=shown,
        scheduler_at=THEN,
    )


def test_one_node_back_under_a_scheduler_that_ran_all_along_is_a_persons_doing() -> None:
    seen = whole(N1, scheduler_started=NOW - 2 * MINUTE)
    thought = think([gone()], seen, Policy(), THEN)
    assert [(d.action, d.by) for d in thought.decisions] == [(Action.RESUME, BY_HAND)]


def test_a_drain_that_is_gone_since_the_scheduler_started_is_made_again() -> None:
    seen = whole(N1, scheduler_started=NOW + MINUTE)
    thought = think([gone()], seen, Policy(), THEN)
    (again,) = thought.decisions
    assert (again.action, again.findings, again.by) == (Action.DRAIN, ("F-n1-1",), "policy")
    assert again.id != "D-n1"
    assert again.expires == THEN + timedelta(hours=1)
    assert thought.released == ()
    assert [one.order.kind for one in thought.orders] == [OrderKind.HOLD]


def test_a_scheduler_that_started_within_a_minute_of_the_drain_may_have_lost_it() -> None:
    seen = whole(N1, scheduler_started=NOW - timedelta(seconds=59))
    assert think([gone()], seen, Policy(), THEN).decisions[0].action is Action.DRAIN


def test_where_our_clock_was_set_back_a_drain_that_is_gone_is_made_again() -> None:
    """Whether the scheduler started before or after it can then not be told."""
    early = NOW - 20 * MINUTE
    back = msgspec.structs.replace(gone(), scheduler_at=early)
    seen = whole(N1, scheduler_started=NOW - 60 * MINUTE)
    assert think([back], seen, Policy(), early).decisions[0].action is Action.DRAIN


def test_two_drains_gone_at_once_are_made_again_though_nobody_knows_of_a_start() -> None:
    thought = think([gone(N1), gone(N2)], whole(N1, N2), Policy(), THEN)
    assert [(d.node, d.action) for d in thought.decisions] == [
        (N1, Action.DRAIN),
        (N2, Action.DRAIN),
    ]
    assert thought.released == ()


def test_they_are_made_again_though_the_guard_is_tripped_since_they_stood() -> None:
    shut = whole(N1, N2, total=2, tripped_at=THEN)
    thought = think([gone(N1), gone(N2)], shut, Policy(), THEN)
    assert [d.action for d in thought.decisions] == [Action.DRAIN, Action.DRAIN]
    assert thought.held == ()


def test_a_persons_hold_that_the_scheduler_lost_stays_that_persons() -> None:
    held = msgspec.structs.replace(
        gone(), findings=(), standing=decision("D-n1", by="person:ann", reason="looks odd (ann)")
    )
    (again,) = think([held], whole(N1, scheduler_started=THEN), Policy(), THEN).decisions
    assert (again.action, again.by, again.reason) == (
        Action.DRAIN,
        "person:ann",
        "looks odd (ann)",
    )


@pytest.mark.parametrize(
    ("state", "flags"), [("UNKNOWN", ()), ("IDLE", ("NOT_RESPONDING",)), ("UNKNOWN", ("PLANNED",))]
)
def test_a_node_whose_slurmd_has_not_reported_gives_no_evidence(
    state: str, flags: tuple[str, ...]
) -> None:
    blind = gone(state=state, flags=flags)
    assert think([blind], whole(N1), Policy(), THEN).decisions == ()
    both = think([blind, gone(N2)], whole(N1, N2), Policy(), THEN)
    assert [d.action for d in both.decisions] == [Action.DRAIN, Action.DRAIN]


def test_one_nodes_report_alone_ends_no_drain() -> None:
    """Whether others are gone too is seen by a look at all of them."""
    seen = whole(N1, N2, looked=False)
    assert think([gone()], seen, Policy(), THEN).decisions == ()
