from __future__ import annotations

import contextlib
import threading
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.store.samples import (
    BOOT,
    GRADES,
    KEY,
    NOW,
    C,
    batch,
    decision,
    drained,
    finding,
    gate,
    later,
    observation,
    outcome,
    queued,
    shown,
)

from komainu.core.decision import Action
from komainu.core.errors import InputError, StorageError
from komainu.core.names import JobId, NodeKey, NodeName, stable_id
from komainu.core.node import HELD_BY_PROLOG, NodePolicy, NodeVerdict
from komainu.core.observation import Finding, ObservationKind
from komainu.core.situation import Settled, Thought
from komainu.core.verdict import Severity, Verdict
from komainu.core.wire import GpuSeen, Hardware
from komainu.store import SqlStore
from komainu.store.queries import health


def test_what_is_received_comes_back_as_it_was(store: SqlStore) -> None:
    store.receive(batch(finding(), observations=(observation(),), verdict=Verdict.FAULT), NOW)
    assert store.findings(C) == [finding()]
    heard = store.node_record(KEY)
    assert heard is not None
    assert heard.verdict == NodeVerdict(verdict=Verdict.FAULT)
    record = store.finding_record("F-1")
    assert record is not None
    assert record.finding == finding()
    assert record.received == NOW


def test_a_batch_sent_three_times_is_kept_once(store: SqlStore) -> None:
    sent = batch(finding(), observations=(observation(), gate("O-2")), verdict=Verdict.FAULT)
    first = store.receive(sent, NOW)
    assert (first.findings, set(first.observations)) == (("F-1",), {"O-1", "O-2"})
    assert first.verdict_changed
    fed = store.last_seq()
    for seconds in (1, 2):
        again = store.receive(sent, later(seconds))
        assert (again.findings, again.observations, again.verdict_changed) == ((), (), False)
    assert store.last_seq() == fed
    assert store.count_findings(C) == 1
    assert len(store.situation(KEY, NOW).refusals) == 1


def test_a_repeat_within_one_batch_is_kept_once(store: SqlStore) -> None:
    got = store.receive(batch(finding(), finding()), NOW)
    assert got.findings == ("F-1",)
    assert store.count_findings(C) == 1


def test_two_nodes_may_use_the_same_id(store: SqlStore) -> None:
    """A node that guesses another's ids must not be able to hide what the other reports."""
    store.receive(batch(finding()), NOW)
    assert store.receive(batch(finding(node="n2"), node="n2"), NOW).findings == ("F-1",)
    assert store.count_findings(C) == 2


def test_a_node_speaks_only_for_itself(store: SqlStore) -> None:
    with pytest.raises(InputError, match="speaks only for itself"):
        store.receive(batch(finding(node="n2")), NOW)
    assert store.last_seq() == 0


@pytest.mark.parametrize("ident", ["", "x" * 129, "a b", "a\x00", "é"])
def test_an_id_that_is_no_id_is_refused_and_nothing_of_the_batch_is_kept(
    store: SqlStore, ident: str
) -> None:
    with pytest.raises(InputError, match="is not usable"):
        store.receive(batch(finding(), observations=(observation(ident),)), NOW)
    assert store.count_findings() == 0


def test_hardware_and_the_head_of_a_batch_are_kept(store: SqlStore) -> None:
    seen = Hardware(rack="r\x007", gpus=(GpuSeen(index=0, pci="0000:41:00.0", model="H200"),))
    store.receive(msgspec.structs.replace(batch(), hardware=seen, policy_seen="p1"), NOW)
    store.receive(batch(), later(5))
    record = store.node_record(KEY)
    assert record is not None
    assert (record.hardware, record.seen, record.boot_id) == (seen, later(5), BOOT)
    assert record.rack == "r\ufffd7"


def test_a_verdict_is_told_since_when_its_word_holds(store: SqlStore) -> None:
    for seconds, verdict in ((0, Verdict.OK), (5, Verdict.OK), (9, Verdict.FAULT)):
        store.receive(batch(verdict=verdict), later(seconds))
    record = store.node_record(KEY)
    assert record is not None
    assert record.verdict_since == later(9)


def test_a_node_whose_server_was_restored_from_a_backup_gets_orders_it_takes_for_new(
    store: SqlStore,
) -> None:
    store.receive(batch(orders_seen=10), NOW)
    store.remember(drained(), NOW)
    given = [(one.number, one.previous, one.kind.value) for one in store.orders_after(KEY, 10)]
    assert given == [(11, 0, "advise-only"), (12, 11, "hold")]


def test_a_refusal_is_open_until_it_is_settled(store: SqlStore) -> None:
    store.receive(batch(observations=(gate("O-9"),)), later(3))
    (refusal,) = store.situation(KEY, NOW).refusals
    assert (refusal.observation, refusal.record.job, refusal.received) == ("O-9", "7", later(3))
    assert store.unsettled(C, NOW, GRADES) == [KEY]
    settled = Settled(key=KEY, observation="O-9", decision="D-1", job=JobId(refusal.record.job))
    store.remember(Thought(cluster=C, settled=(settled,)), NOW)
    assert store.situation(KEY, NOW).refusals == ()
    assert store.unsettled(C, NOW, GRADES) == []


def test_a_refusal_is_settled_on_its_own_node_alone(store: SqlStore) -> None:
    other = msgspec.structs.replace(gate("O-9"), node=NodeName("n2"))
    store.receive(batch(observations=(gate("O-9"),)), NOW)
    store.receive(batch(observations=(other,), node="n2"), NOW)
    settled = Settled(key=KEY, observation="O-9", decision="D-1", job=JobId("7"))
    store.remember(Thought(cluster=C, settled=(settled,)), NOW)
    assert [key.node for key in store.unsettled(C, NOW, GRADES)] == ["n2"]


def _watched(ident: str, node: str, code: str = "GPU-XID-63", **more: Any) -> Finding:
    made = finding(ident, node=node, code=code)
    return msgspec.structs.replace(made, **({"severity": Severity.WATCH} | more))


def test_only_findings_that_weigh_leave_a_node_unsettled(store: SqlStore) -> None:
    """Watched ones stay open for as long as nobody releases them, on every node in the end."""
    found = [
        _watched("F-1", "n1"),
        _watched("F-2", "n2", severity=Severity.DEGRADED),
        _watched("F-3", "n3", code="HOST-KMSG", verdict=Verdict.UNKNOWN),
        _watched("F-4", "n4", code="NIC-OPTIC-EVENT", severity=Severity.INFO),
        _watched("F-5", "n5", code="GPU-XID-79", severity=Severity.FATAL),
    ]
    for one in found:
        store.receive(batch(one, _watched(f"{one.id}-w", one.node), node=one.node), NOW)
    assert [key.node for key in store.unsettled(C, NOW, GRADES)] == ["n2", "n3", "n5"]
    up = NodePolicy(severity={"NIC-OPTIC-EVENT": Severity.FATAL, "GPU-XID-79": Severity.WATCH})
    assert [key.node for key in store.unsettled(C, NOW, up)] == ["n2", "n3", "n4"]
    back = tuple(
        decision(f"D-{n}", Action.RESUME, node=n, findings=(f,))
        for n, f in (("n2", "F-2"), ("n5", "F-5"))
    )
    closed = Thought(cluster=C, decisions=back, released=("F-2", "F-5"))
    store.remember(closed, NOW)
    assert [key.node for key in store.unsettled(C, NOW, GRADES)] == ["n3"]


def test_a_refusal_is_marked_while_the_scheduler_holds_its_job(store: SqlStore) -> None:
    store.receive(batch(observations=(gate("O-9"),)), NOW)
    for job, expected in (
        (queued("7", held=True, reason=HELD_BY_PROLOG), True),
        (queued("7"), False),
        (queued("7", held=True, reason="JobHeldUser"), False),
        (queued("8", held=True, reason=HELD_BY_PROLOG), False),
    ):
        store.mirror(C, [shown()], [job], NOW)
        assert store.situation(KEY, NOW).refusals[0].held is expected


def test_a_gate_record_that_cannot_be_read_is_kept_and_refuses_nothing(store: SqlStore) -> None:
    garbled = observation("O-5", ObservationKind.GATE)
    assert store.receive(batch(observations=(garbled,)), NOW).observations == ("O-5",)
    assert store.situation(KEY, NOW).refusals == ()


def test_the_gate_tells_which_job_is_on_the_node(store: SqlStore) -> None:
    store.receive(batch(observations=(gate("O-1", "admit", "7"), gate("O-2", "admit", "8"))), NOW)
    assert [seen.record.job for seen in store.admitted(C)[KEY.node]] == ["7", "8"]
    store.receive(batch(observations=(gate("O-3", "end", "7", "epilog", seconds=9),)), later(9))
    assert [seen.record.job for seen in store.admitted(C, KEY.node)[KEY.node]] == ["8"]


def test_a_node_that_has_booted_runs_none_of_its_old_jobs(store: SqlStore) -> None:
    store.receive(batch(observations=(gate("O-1", "admit", "7"),)), NOW)
    other = BOOT.replace("3a7f", "4b80")
    new = gate("O-2", "admit", "8", boot_id=other)
    store.receive(batch(observations=(new,), boot_id=other), later(60))
    assert [seen.record.job for seen in store.admitted(C)[KEY.node]] == ["8"]


def test_the_feed_has_no_gap_however_many_write_at_once(store: SqlStore) -> None:
    def write(node: str) -> None:
        for number in range(8):
            store.receive(batch(finding(f"F-{number}", node=node), node=node), NOW)

    threads = [threading.Thread(target=write, args=(f"n{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fed = store.changes(0)
    assert [change.seq for change in fed] == list(range(1, 33))
    assert len({(change.node, change.ref) for change in fed}) == 32


def test_the_feed_goes_on_from_where_one_was(store: SqlStore) -> None:
    store.receive(batch(finding("F-1"), finding("F-2")), NOW)
    store.receive(batch(finding("F-3", node="n2"), node="n2"), NOW)
    assert [change.ref for change in store.changes(1)] == ["F-2", "F-3"]
    assert [change.ref for change in store.changes(0, limit=1)] == ["F-1"]
    assert store.changes(3) == []
    assert store.last_seq() == 3


def test_pruning_forgets_observations_and_keeps_findings(store: SqlStore) -> None:
    store.receive(batch(finding(), observations=(observation(),)), NOW)
    assert store.prune(later(-1)) == 0
    assert store.prune(later(1)) == 1
    assert store.count_findings() == 1
    assert store.changes(0) == []
    store.receive(batch(finding("F-2")), later(2))
    assert [change.seq for change in store.changes(0)] == [2]


def _many(severity: Severity, idents: range, code: str = "GPU-XID-13") -> tuple[Finding, ...]:
    return tuple(
        msgspec.structs.replace(finding(f"F-{severity}-{n}", code=code), severity=severity)
        for n in idents
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MOST_OPEN", 10)
    monkeypatch.setattr(health, "FIRST_OF_CODE", 2)


@pytest.mark.usefixtures("small")
def test_of_a_node_that_floods_the_newest_light_findings_are_only_counted(store: SqlStore) -> None:
    with capture_logs() as logs:
        first = store.receive(batch(*_many(Severity.WATCH, range(8))), NOW)
        second = store.receive(batch(*_many(Severity.WATCH, range(8, 15))), later(1))
        third = store.receive(batch(*_many(Severity.INFO, range(5))), later(2))
    assert [len(got.findings) for got in (first, second, third)] == [8, 2, 0]
    assert store.count_findings() == 10
    (said,) = [one.data for one in store.history(KEY, 10).spoken]
    assert said == {"event": "findings_not_kept", "count": 10}
    assert [one["event"] for one in logs] == ["findings_not_kept"]  # once an hour, not once a batch
    store.receive(batch(*_many(Severity.INFO, range(1))), later(3600))
    assert len(store.history(KEY, 10).spoken) == 2


def test_a_node_cannot_take_the_id_of_what_the_server_will_say(store: SqlStore) -> None:
    """A node that guessed the next one once kept every look at the scheduler from being kept."""
    store.mirror(C, [shown()], [], NOW)
    for seq in range(1, 20):
        for prefix in ("O-", "S-"):
            ident = stable_id(KEY.cluster, KEY.node, str(seq), "scheduler", prefix=prefix)
            with contextlib.suppress(InputError):
                store.receive(batch(observations=(observation(ident),)), NOW)
    store.mirror(C, [shown("n1", "DRAIN")], [], later(1))
    (record,) = store.node_records(C)
    assert record.scheduler == shown("n1", "DRAIN")


@pytest.mark.usefixtures("small")
def test_what_weighs_has_room_of_its_own_beside_a_flood(store: SqlStore) -> None:
    store.receive(batch(*_many(Severity.WATCH, range(20))), NOW)
    condemning = _many(Severity.FATAL, range(11), "GPU-XID-79")
    got = store.receive(batch(*condemning), NOW)
    assert got.findings == tuple(one.id for one in condemning[:10])


@pytest.mark.usefixtures("small")
def test_a_code_not_seen_before_gets_through_a_flood_of_others(store: SqlStore) -> None:
    """The site's policy may grade that code higher than whoever found it."""
    store.receive(batch(*_many(Severity.WATCH, range(20))), NOW)
    got = store.receive(batch(*_many(Severity.INFO, range(5), "GPU-XID-63")), NOW)
    assert len(got.findings) == 2
    for number in range(30):
        store.receive(batch(*_many(Severity.INFO, range(number, number + 1), f"X-{number}")), NOW)
    assert store.count_findings() == 20


@pytest.mark.usefixtures("small")
def test_another_node_and_a_released_one_have_their_room(store: SqlStore) -> None:
    store.receive(batch(*_many(Severity.WATCH, range(20))), NOW)
    other = store.receive(batch(finding("F-1", node="n2"), node="n2"), NOW)
    assert other.findings == ("F-1",)
    gone = tuple(f"F-1-{n}" for n in range(10))
    back = decision("D-1", Action.RESUME, findings=gone)
    store.remember(Thought(cluster=C, decisions=(back,), released=gone), NOW)
    again = store.receive(batch(*_many(Severity.WATCH, range(30, 33))), NOW)
    assert len(again.findings) == 3


def test_pruning_forgets_what_the_gate_answered_and_nothing_still_waits_for(
    store: SqlStore,
) -> None:
    old = (
        gate("O-1", "admit", "7"),
        gate("O-2", "end", "7", "epilog"),
        gate("O-3", "refuse", "8"),
        gate("O-4", "refuse", "9"),
        gate("O-5", "admit", "10"),
        gate("O-6", "end", "11", "epilog"),
    )
    store.receive(batch(observations=old), NOW)
    settled = Settled(key=KEY, observation="O-3", decision="D-1", job=JobId("8"))
    store.remember(Thought(cluster=C, settled=(settled,)), NOW)
    store.receive(batch(observations=(gate("O-7", "end", "12", "epilog"),)), later(60))
    store.prune(later(30))
    left = {seen.observation for seen in store.history(KEY, 100).gate}
    assert left == {"O-4", "O-5", "O-7"}
    assert [one.observation for one in store.situation(KEY, later(60)).refusals] == ["O-4"]


def test_pruning_goes_through_days_of_observations(store: SqlStore) -> None:
    for hour in range(30):
        store.receive(batch(observations=(observation(f"O-{hour}"),)), later(3600 * hour))
    assert store.prune(later(3600 * 24)) == 24
    assert store.prune(later(3600 * 24)) == 0


def test_what_came_of_nothing_we_decided_is_an_error(store: SqlStore) -> None:
    strange = [outcome("D-unknown")]
    with pytest.raises(StorageError, match="not remembered"):
        store.note(strange)


def test_pages_of_findings_go_from_newest_to_oldest(store: SqlStore) -> None:
    store.receive(batch(*(finding(f"F-{n}", code=f"GPU-XID-{n % 2}") for n in range(5))), NOW)
    first = store.finding_records(C, limit=2)
    assert [one.finding.id for one in first] == ["F-4", "F-3"]
    rest = store.finding_records(C, before=first[-1].number)
    assert [one.finding.id for one in rest] == ["F-2", "F-1", "F-0"]
    assert store.count_findings(C, code="GPU-XID-1") == 2
    assert store.count_findings(C, NodeName("n2")) == 0


def test_a_finding_counts_those_it_causes(store: SqlStore) -> None:
    child = msgspec.structs.replace(finding("F-2"), cause="F-1")
    store.receive(batch(finding("F-1"), child), NOW)
    record = store.finding_record("F-1")
    assert record is not None
    assert record.count == 2


def test_an_unknown_node_has_an_empty_situation(store: SqlStore) -> None:
    situation = store.situation(NodeKey(C, NodeName("nobody")), NOW)
    assert (situation.findings, situation.standing, situation.scheduler) == ((), None, None)
