"""The guard: never more than there is room for, recoveries always, and it resets itself."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from tests.quarantine.cases import CLUSTER, NOW, decision, whole

from komainu.core.decision import Action
from komainu.core.names import NodeName
from komainu.core.policy import GuardPolicy
from komainu.core.situation import ClusterSituation
from komainu.core.verdict import Severity
from komainu.quarantine.decide.guard import guard
from komainu.quarantine.decide.nodes import Proposal

WIDE = GuardPolicy(max_nodes=8, max_share=1.0, max_in_window=5, window_s=600)


def proposal(number: int, action: Action = Action.DRAIN, **more: object) -> Proposal:
    given_decision = decision(f"D-{number}", f"n{number}", action)
    return Proposal(decision=given_decision, **more)  # type: ignore[arg-type]


def drains(count: int) -> list[Proposal]:
    return [proposal(number) for number in range(count)]


def test_the_window_bounds_how_many_go_at_once() -> None:
    said = guard(drains(20), whole(), WIDE, NOW)
    assert len(said.allowed) == 5
    assert len(said.held) == 15
    assert said.tripped
    assert said.held[0].limit == "5 of 5 removals within 600 s (max_in_window)"


def test_the_count_bounds_how_many_are_out() -> None:
    said = guard(drains(2), whole(*(f"out{i}" for i in range(7))), WIDE, NOW)
    assert len(said.allowed) == 1
    assert said.held[0].limit == "8 of 8 nodes are out (max_nodes 8, max_share 1 of 100 nodes)"


def test_the_share_bounds_a_small_cluster_and_one_node_may_always_go() -> None:
    policy = GuardPolicy(max_share=0.1)
    assert len(guard(drains(5), whole(total=20), policy, NOW).allowed) == 2
    assert len(guard(drains(5), whole(total=4), policy, NOW).allowed) == 1
    assert len(guard(drains(5), whole(total=0), policy, NOW).allowed) == 1


def test_the_worst_goes_first() -> None:
    watchful = [proposal(1, urgency=Severity.DEGRADED), proposal(2, urgency=Severity.FATAL)]
    said = guard(watchful, whole(total=1), WIDE, NOW)
    assert [d.node for d in said.allowed] == ["n2"]


def test_an_exempt_one_passes_a_tripped_guard_and_is_counted() -> None:
    shut = whole("out1", total=2, tripped_at=NOW)
    said = guard([proposal(1, exempt=True), proposal(2)], shut, WIDE, NOW)
    assert [d.node for d in said.allowed] == ["n1"]
    assert [h.decision.node for h in said.held] == ["n2"]


def test_once_tripped_it_stays_so_for_its_window_though_there_is_room() -> None:
    shut = whole(tripped_at=NOW)
    early, late = NOW + timedelta(seconds=599), NOW + timedelta(seconds=600)
    assert guard(drains(1), shut, WIDE, early).held[0].limit == (
        "the guard tripped at 2026-11-30 03:00:00 UTC and resets itself after 600 s, "
        "when there is room"
    )
    assert guard(drains(1), shut, WIDE, late).allowed
    assert not guard(drains(1), shut, WIDE, late).tripped


def test_it_does_not_reset_while_there_is_no_room() -> None:
    full = whole(*(f"out{i}" for i in range(8)), tripped_at=NOW)
    assert guard([], full, WIDE, NOW + timedelta(days=1)).tripped


def test_a_clock_set_back_does_not_keep_it_tripped() -> None:
    shut = whole(tripped_at=NOW + timedelta(days=365))
    assert guard(drains(1), shut, WIDE, NOW).allowed


def test_a_node_that_is_out_already_needs_no_room() -> None:
    full = whole(*(f"n{i}" for i in range(8)))
    assert guard(drains(8), full, WIDE, NOW).held == ()


proposals = st.lists(
    st.builds(
        proposal,
        st.integers(0, 30),
        st.sampled_from(Action),
        urgency=st.sampled_from(Severity),
    ),
    unique_by=lambda p: p.decision.id,
)
ages = st.integers(-100, 1200).map(lambda s: NOW - timedelta(seconds=s))
clusters = st.builds(
    lambda out, total, removed, tripped: ClusterSituation(
        cluster=CLUSTER,
        nodes_total=total,
        out=frozenset(NodeName(f"n{i}") for i in out),
        removed_at=tuple(sorted(removed)),
        tripped_at=tripped,
    ),
    st.sets(st.integers(0, 40), max_size=12),
    st.integers(0, 50),
    st.lists(ages, max_size=8),
    st.none() | ages,
)
policies = st.builds(
    GuardPolicy,
    max_nodes=st.integers(1, 10),
    max_share=st.floats(0.01, 1.0),
    max_in_window=st.integers(1, 10),
)


@given(proposals, clusters, policies)
def test_never_more_out_than_there_is_room(
    asked: list[Proposal], cluster: ClusterSituation, policy: GuardPolicy
) -> None:
    said = guard(asked, cluster, policy, NOW)
    gone = {d.node for d in said.allowed if d.action in {Action.DRAIN, Action.ADOPT}}
    new = gone - cluster.out
    assert len(cluster.out | gone) <= max(policy.room(cluster.nodes_total), len(cluster.out))
    recent = sum(at > NOW - timedelta(seconds=policy.window_s) for at in cluster.removed_at)
    assert len(new) <= max(0, policy.max_in_window - recent)


@given(proposals, clusters, policies)
def test_recoveries_always_pass_and_count_for_nothing(
    asked: list[Proposal], cluster: ClusterSituation, policy: GuardPolicy
) -> None:
    said = guard(asked, cluster, policy, NOW)
    back = {p.decision.id for p in asked if p.decision.action not in {Action.DRAIN, Action.ADOPT}}
    assert back <= {d.id for d in said.allowed}
    removals = [p for p in asked if p.decision.id not in back]
    without = guard(removals, cluster, policy, NOW)
    assert without.held == said.held
    assert without.tripped == said.tripped


@given(proposals, clusters, policies, st.randoms(use_true_random=False))
def test_the_order_of_asking_makes_no_difference(
    asked: list[Proposal], cluster: ClusterSituation, policy: GuardPolicy, random: object
) -> None:
    shuffled = list(asked)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert guard(shuffled, cluster, policy, NOW) == guard(asked, cluster, policy, NOW)


@given(proposals, clusters, policies)
def test_everything_asked_is_allowed_or_held_and_the_held_name_their_limit(
    asked: list[Proposal], cluster: ClusterSituation, policy: GuardPolicy
) -> None:
    said = guard(asked, cluster, policy, NOW)
    answered = sorted([d.id for d in said.allowed] + [h.decision.id for h in said.held])
    assert answered == sorted(p.decision.id for p in asked)
    assert all(h.limit for h in said.held)
    assert said.tripped or not said.held


@given(proposals, clusters, policies, st.integers(0, 3000))
def test_time_alone_never_takes_room_away(
    asked: list[Proposal], cluster: ClusterSituation, policy: GuardPolicy, later: int
) -> None:
    past = [at for at in cluster.removed_at if at <= NOW]
    tripped = cluster.tripped_at if cluster.tripped_at and cluster.tripped_at <= NOW else None
    calm = ClusterSituation(
        cluster=CLUSTER,
        nodes_total=cluster.nodes_total,
        out=cluster.out,
        removed_at=tuple(past),
        tripped_at=tripped,
    )
    then: datetime = NOW + timedelta(seconds=later)
    allowed_now = {d.id for d in guard(asked, calm, policy, NOW).allowed}
    assert allowed_now <= {d.id for d in guard(asked, calm, policy, then).allowed}
