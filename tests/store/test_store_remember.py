from __future__ import annotations

import msgspec
import pytest
from tests.store.samples import (
    GRADES,
    KEY,
    NOW,
    C,
    batch,
    decision,
    drained,
    finding,
    held,
    later,
    order,
    outcome,
    queued,
    shown,
)

from komainu.core.decision import Action, Decision, OrderKind, Result
from komainu.core.names import JobId, NodeKey, NodeName
from komainu.core.situation import Held, Thought
from komainu.core.verdict import Verdict
from komainu.store import SqlStore, open_store


def test_what_is_decided_is_to_do_until_it_is_done(store: SqlStore) -> None:
    store.remember(drained(), NOW)
    assert store.to_do(C, NOW) == [decision()]
    store.note([outcome(result=Result.FAILED)])
    assert store.to_do(C, later(2)) == [decision()]
    store.note([outcome()])
    assert store.to_do(C, later(2)) == []


def test_what_is_decided_is_still_to_do_for_the_next_process(store: SqlStore, url: str) -> None:
    store.remember(drained(), NOW)
    again = open_store(url)
    assert again.to_do(C, NOW) == [decision()]
    again.close()


def test_deciding_twice_is_one_decision_with_its_orders(store: SqlStore) -> None:
    for _ in range(3):
        store.remember(drained(), NOW)
    assert [one.number for one in store.orders_after(KEY, 0)] == [1]
    assert len(store.decision_records(C)) == 1


def test_orders_are_numbered_for_each_node_without_gaps(store: SqlStore) -> None:
    for number in range(3):
        store.remember(drained(f"D-a{number}", "n1"), NOW)
        store.remember(drained(f"D-b{number}", "n2"), NOW)
    for node in ("n1", "n2"):
        given = store.orders_after(NodeKey(C, NodeName(node)), 0)
        assert [one.number for one in given] == [1, 2, 3]
    assert [one.number for one in store.orders_after(KEY, 2)] == [3]


def test_an_order_of_no_decision_is_given_each_time(store: SqlStore) -> None:
    advise = order(None, OrderKind.ADVISE_ONLY, value="on")
    store.remember(Thought(cluster=C, orders=(advise,)), NOW)
    assert store.situation(KEY, NOW).advise_only
    assert store.unsettled(C, NOW, GRADES) == [KEY]
    advise = order(None, OrderKind.ADVISE_ONLY, value="off")
    store.remember(Thought(cluster=C, orders=(advise,)), NOW)
    assert not store.situation(KEY, NOW).advise_only
    assert len(store.orders_after(KEY, 0)) == 2


def test_the_newest_policy_ordered_is_known(store: SqlStore) -> None:
    given = order(None, OrderKind.POLICY)
    given = msgspec.structs.replace(
        given, order=msgspec.structs.replace(given.order, policy_version="p2")
    )
    store.remember(Thought(cluster=C, orders=(given,)), NOW)
    assert store.situation(KEY, NOW).policy_ordered == "p2"


def test_a_drain_stands_until_it_is_undone(store: SqlStore) -> None:
    store.remember(drained(), NOW)
    store.note([outcome()])
    situation = store.situation(KEY, NOW)
    assert situation.standing == decision()
    assert situation.standing_outcome == outcome()
    assert store.cluster_situation(C, NOW, 600).out == {KEY.node}
    store.remember(Thought(cluster=C, decisions=(_resume(),)), later(5))
    assert store.situation(KEY, NOW).standing is None
    assert store.situation(KEY, NOW).last_decision == "D-2"
    assert store.cluster_situation(C, later(6), 600).out == {KEY.node}, "still out: not resumed yet"
    store.note([outcome("D-2")])
    assert store.cluster_situation(C, later(7), 600).out == frozenset()


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (Result.DONE, True),
        (Result.ALREADY, True),
        (Result.FAILED, True),
        (Result.FOREIGN, False),
        (Result.EXPIRED, False),
    ],
)
def test_only_what_was_done_or_may_yet_be_done_is_shown_as_out_and_the_guard_counts_all(
    store: SqlStore, result: Result, *, shown: bool
) -> None:
    store.remember(drained(), NOW)
    store.note([outcome(result=result)])
    assert (KEY.node in store.standings(C, later(2))) is shown
    assert store.situation(KEY, NOW).standing == decision()
    assert store.cluster_situation(C, later(2), 600).out == {KEY.node}
    assert store.unsettled(C, later(2), GRADES) == [KEY]


def test_a_decision_not_carried_out_in_time_is_dropped_and_recorded(store: SqlStore) -> None:
    store.remember(drained(), NOW)
    assert store.to_do(C, later(3600)) == []
    store.mirror(C, [], [], later(3601))
    record = store.decision_record("D-1")
    assert record is not None
    assert [one.result for one in record.outcomes] == [Result.EXPIRED]
    assert store.standings(C, later(3601)) == {}
    assert store.cluster_situation(C, later(3601), 600).out == {KEY.node}


def test_a_resume_makes_an_undone_drain_stale(store: SqlStore) -> None:
    store.remember(drained(), NOW)
    store.remember(Thought(cluster=C, decisions=(_resume(),)), later(1))
    assert [one.id for one in store.to_do(C, later(1))] == ["D-2"]


def test_a_drain_makes_an_undone_resume_stale(store: SqlStore) -> None:
    store.remember(drained(), NOW)
    store.note([outcome()])
    store.remember(Thought(cluster=C, decisions=(_resume(),)), later(1))
    store.remember(drained("D-3"), later(2))
    assert [one.id for one in store.to_do(C, later(2))] == ["D-3"]
    standing = store.situation(KEY, later(2)).standing
    assert standing is not None
    assert standing.id == "D-3"


def test_a_resume_closes_the_findings_it_names(store: SqlStore) -> None:
    store.receive(batch(finding("F-1"), finding("F-2")), NOW)
    store.remember(drained(), NOW)
    back = msgspec.structs.replace(_resume(), findings=("F-1",))
    released = Thought(cluster=C, decisions=(back,), released=("F-1",))
    store.remember(released, later(1))
    store.remember(released, later(2))
    assert [one.id for one in store.findings(C)] == ["F-2"]
    record = store.finding_record("F-1")
    assert record is not None
    assert (record.open, record.released_by) == (False, "D-2")
    store.receive(batch(finding("F-1")), later(3))
    assert store.count_findings(C, open_only=True) == 1


def test_a_release_closes_no_finding_of_another_node_that_bears_the_same_id(
    store: SqlStore,
) -> None:
    store.receive(batch(finding("F-1")), NOW)
    store.receive(batch(finding("F-1", node="n2"), node="n2"), NOW)
    back = msgspec.structs.replace(_resume(), findings=("F-1",))
    store.remember(Thought(cluster=C, decisions=(back,), released=("F-1",)), later(1))
    assert [one.node for one in store.findings(C)] == ["n2"]


def test_a_held_decision_is_not_done_and_says_which_limit_it_met(store: SqlStore) -> None:
    store.remember(held(), NOW)
    situation = store.situation(KEY, NOW)
    assert (situation.held_back, situation.standing) == (decision(), None)
    assert situation.last_decision == "D-1"
    assert store.to_do(C, NOW) == []
    whole = store.cluster_situation(C, NOW, 600)
    assert (whole.out, whole.removed_at, whole.tripped_at) == (frozenset(), (), NOW)
    record = store.decision_record("D-1")
    assert record is not None
    assert record.limit == "1 of 1 nodes out"


def test_holding_back_the_same_again_changes_nothing(store: SqlStore) -> None:
    store.remember(held(), NOW)
    fed = store.last_seq()
    store.remember(held(), later(5))
    assert store.last_seq() == fed
    store.remember(held(limit="2 of 2 nodes out"), later(6))
    assert store.last_seq() > fed


def test_a_held_decision_that_is_allowed_later_counts_from_then(store: SqlStore) -> None:
    store.remember(held(), NOW)
    store.remember(msgspec.structs.replace(drained(), tripped=False), later(100))
    assert [one.id for one in store.to_do(C, later(100))] == ["D-1"]
    whole = store.cluster_situation(C, later(100), 600)
    assert (whole.removed_at, whole.tripped_at) == ((later(100),), None)
    assert store.situation(KEY, later(100)).held_back is None
    assert store.situation(KEY, later(100)).standing_outcome is None
    assert [one.decision for one in store.orders_after(KEY, 0)] == ["D-1"]
    store.remember(held(), later(101))
    assert [one.id for one in store.to_do(C, later(101))] == ["D-1"]


def test_a_decision_left_aside_as_foreign_is_held_back_all_the_same(store: SqlStore) -> None:
    store.remember(held(result=Result.FOREIGN), NOW)
    assert store.situation(KEY, NOW).held_back == decision()


def test_a_dropped_decision_is_no_longer_held_back(store: SqlStore) -> None:
    store.remember(held(), NOW)
    store.remember(Thought(cluster=C, dropped=("D-1",)), later(1))
    assert store.situation(KEY, later(1)).held_back is None
    store.remember(drained(), later(2))
    assert store.to_do(C, later(2)) == []


def test_a_release_does_not_give_the_window_back(store: SqlStore) -> None:
    store.remember(drained(), NOW)
    store.note([outcome()])
    store.remember(Thought(cluster=C, decisions=(_resume(),)), later(10))
    assert store.cluster_situation(C, later(20), 600).removed_at == (NOW,)
    assert store.cluster_situation(C, later(601), 600).removed_at == ()


def test_a_recovered_guard_is_remembered_without_any_decision(store: SqlStore) -> None:
    store.remember(held(), NOW)
    store.remember(Thought(cluster=C, tripped=False), later(1))
    assert store.cluster_situation(C, later(1), 600).tripped_at is None
    assert [change.ref for change in store.changes(0) if change.what == "guard"] == [
        "tripped",
        "recovered",
    ]


def test_a_retry_that_fails_the_same_way_is_one_outcome(store: SqlStore) -> None:
    store.remember(drained(), NOW)
    for seconds in (1, 2, 3):
        store.note([outcome(result=Result.FAILED, seconds=seconds)])
    record = store.decision_record("D-1")
    assert record is not None
    assert [one.at for one in record.outcomes] == [later(3)]


def test_a_job_is_released_beside_what_happens_to_the_node(store: SqlStore) -> None:
    store.remember(drained(), NOW)
    job = decision("D-7", Action.RELEASE_JOB)
    store.remember(Thought(cluster=C, decisions=(job,)), NOW)
    assert [one.id for one in store.to_do(C, NOW)] == ["D-1", "D-7"]
    assert store.situation(KEY, NOW).last_decision == "D-1"


def test_the_scheduler_is_mirrored_and_only_changes_are_fed(store: SqlStore) -> None:
    nodes, jobs = [shown("n1"), shown("n2")], [queued("1")]
    store.mirror(C, nodes, jobs, NOW)
    fed = store.last_seq()
    store.mirror(C, nodes, jobs, later(5))
    assert store.last_seq() == fed
    situation = store.situation(KEY, NOW)
    assert (situation.scheduler, situation.scheduler_at) == (shown("n1"), later(5))
    assert store.cluster_situation(C, NOW, 600).nodes_total == 2
    store.mirror(C, [shown("n1", "DRAIN", reason="x")], [], later(10))
    assert {(one.what, one.node) for one in store.changes(fed)} == {
        ("scheduler", "n1"),
        ("scheduler", "n2"),
        ("job", ""),
    }
    assert store.situation(NodeKey(C, NodeName("n2")), NOW).scheduler is None
    assert store.scheduler_jobs(C) == []


def test_a_job_that_comes_and_goes_is_no_line_of_a_nodes_history(store: SqlStore) -> None:
    store.mirror(C, [shown("n1")], [], NOW)
    store.mirror(C, [shown("n1", jobs=("7",))], [], later(1))
    store.mirror(C, [shown("n1", "DRAIN", reason="x")], [], later(2))
    assert [one.data["reason"] for one in store.history(KEY, 10).spoken] == ["x", ""]


def test_a_scheduler_that_cannot_be_read_is_told_once(store: SqlStore) -> None:
    store.mirror(C, [shown()], [], NOW)
    fed = store.last_seq()
    store.scheduler_failed(C, "no answer", later(5))
    store.scheduler_failed(C, "no answer", later(10))
    assert store.last_seq() == fed + 1
    (record,) = store.clusters()
    assert (record.scheduler_seen, record.scheduler_error) == (NOW, "no answer")
    store.mirror(C, [shown()], [], later(15))
    assert store.clusters()[0].scheduler_error == ""


def _resume() -> Decision:
    return decision("D-2", Action.RESUME, seconds=1, expires_s=None)


def test_a_node_is_given_back_when_it_has_taken_its_release(store: SqlStore) -> None:
    """Otherwise the job that the scheduler sends at once meets the old verdict."""
    store.remember(drained(), NOW)
    store.note([outcome()])
    told = Thought(cluster=C, decisions=(_resume(),), orders=(order("D-2", OrderKind.RELEASE),))
    store.remember(told, later(2))
    assert store.to_do(C, later(2), 3) == []
    assert store.untold(C, later(2), 3)
    store.receive(batch(orders_seen=1), later(2.1))
    assert store.to_do(C, later(2.1), 3) == []
    store.receive(batch(orders_seen=2), later(2.2))
    assert [one.id for one in store.to_do(C, later(2.2), 3)] == ["D-2"]
    assert not store.untold(C, later(2.2), 3)


def test_a_silent_agent_keeps_its_node_out_for_a_moment_only(store: SqlStore) -> None:
    store.remember(drained(), NOW)
    store.note([outcome()])
    told = Thought(cluster=C, decisions=(_resume(),), orders=(order("D-2", OrderKind.RELEASE),))
    store.remember(told, later(2))
    assert store.to_do(C, later(4.9), 3) == []
    assert [one.id for one in store.to_do(C, later(5.1), 3)] == ["D-2"]


def test_policy_says_how_long_a_silent_agent_keeps_its_node_out(store: SqlStore) -> None:
    store.remember(drained(), NOW)
    store.note([outcome()])
    told = Thought(cluster=C, decisions=(_resume(),), orders=(order("D-2", OrderKind.RELEASE),))
    store.remember(told, later(2))
    assert store.to_do(C, later(6.9), 5) == []
    assert store.untold(C, later(6.9), 5)
    assert [one.id for one in store.to_do(C, later(6.9), 4)] == ["D-2"]
    assert not store.untold(C, later(6.9), 4)


def test_the_newest_removal_stands_also_after_the_clock_was_set_back(store: SqlStore) -> None:
    store.remember(drained("D-1"), later(60))
    store.remember(drained("D-3"), NOW)
    standing = store.situation(KEY, NOW).standing
    assert standing is not None
    assert standing.id == "D-3"


def test_a_situation_says_what_the_node_said_and_that_it_is_on_its_way_back(
    store: SqlStore,
) -> None:
    store.receive(batch(verdict=Verdict.FAULT), NOW)
    store.remember(drained(), NOW)
    seen = store.situation(KEY, NOW)
    assert seen.verdict is not None
    assert (seen.verdict.verdict, seen.returning) == (Verdict.FAULT, False)
    store.remember(Thought(cluster=C, decisions=(_resume(),)), later(1))
    assert store.situation(KEY, later(1)).returning
    store.note([outcome("D-2")])
    assert not store.situation(KEY, later(2)).returning


def test_a_job_released_because_of_a_node_is_remembered_for_ten_minutes(store: SqlStore) -> None:
    freed = msgspec.structs.replace(decision("D-7", Action.RELEASE_JOB), job=JobId("7"))
    store.remember(Thought(cluster=C, decisions=(freed,)), NOW)
    assert store.situation(KEY, later(599)).released_jobs == {JobId("7")}
    assert store.situation(KEY, later(601)).released_jobs == frozenset()
    assert store.situation(NodeKey(C, NodeName("n2")), later(1)).released_jobs == frozenset()


def test_a_node_whose_adoption_is_held_back_is_not_kept_in_service(store: SqlStore) -> None:
    adopt = decision("D-2", Action.ADOPT, node="n2")
    store.remember(held(), NOW)
    store.remember(Thought(cluster=C, held=(Held(decision=adopt, limit="full"),)), NOW)
    assert store.kept_in_service(C, NOW) == ["n1"]
    assert store.situation(NodeKey(C, NodeName("n2")), NOW).held_back == adopt


def test_a_removal_overtakes_the_one_that_was_to_be_done(store: SqlStore) -> None:
    """Else the older one is to do again when the clock is set back to before its end."""
    store.remember(drained("D-1"), NOW)
    store.remember(drained("D-3"), later(4000))
    assert [one.id for one in store.to_do(C, later(1), 3)] == ["D-3"]
    record = store.decision_record("D-1")
    assert record is not None
    assert [one.result for one in record.outcomes] == [Result.EXPIRED]
