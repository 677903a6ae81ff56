from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from komainu.core.decision import Action, Decision, Outcome, Result
from komainu.core.names import ClusterName, NodeName
from komainu.server.retry import FIRST_S, MOST_S, Retry

NOW = datetime(2026, 11, 30, tzinfo=UTC)
C, N = ClusterName("c"), NodeName("n1")


def _decision(ident: str) -> Decision:
    return Decision(
        id=ident, cluster=C, node=N, action=Action.DRAIN, reason="r", by="policy", at=NOW
    )


def _outcome(ident: str, result: Result) -> Outcome:
    return Outcome(decision=ident, cluster=C, node=N, result=result, at=NOW)


class _Time:
    now = 100.0


def test_what_failed_waits_longer_each_time_and_others_do_not_wait_for_it() -> None:
    retry, waits = Retry(lambda: _Time.now), []
    _Time.now = 100.0
    for _ in range(8):
        retry.ripe(_decision("D-1"))
        retry.note([_outcome("D-1", Result.FAILED)])
        assert not retry.ripe(_decision("D-1"))
        assert retry.ripe(_decision("D-2"))
        wait = retry.due_in_s()
        assert wait is not None
        waits.append(wait)
        _Time.now += wait
        assert retry.ripe(_decision("D-1"))
        assert retry.due_in_s() == 0
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]


def test_what_succeeded_at_last_starts_anew() -> None:
    _Time.now = 100.0
    retry = Retry(lambda: _Time.now)
    retry.note([_outcome("D-1", Result.FAILED)])
    retry.note([_outcome("D-1", Result.DONE)])
    retry.ripe(_decision("D-1"))
    assert retry.due_in_s() is None
    retry.ripe(_decision("D-1"))
    retry.note([_outcome("D-1", Result.FAILED)])
    assert retry.due_in_s() == FIRST_S


def test_what_is_no_longer_to_do_wakes_nobody() -> None:
    _Time.now = 100.0
    retry = Retry(lambda: _Time.now)
    retry.ripe(_decision("D-1"))
    retry.note([_outcome("D-1", Result.FAILED)])
    assert retry.due_in_s() == FIRST_S
    retry.ripe(_decision("D-2"))
    assert retry.due_in_s() is None


@given(st.lists(st.sampled_from([Result.FAILED, Result.DONE, Result.FOREIGN]), max_size=20))
def test_nothing_waits_longer_than_the_bound(results: list[Result]) -> None:
    _Time.now = 0.0
    retry = Retry(lambda: _Time.now)
    for result in results:
        retry.ripe(_decision("D-1"))
        retry.note([_outcome("D-1", result)])
        wait = retry.due_in_s()
        assert (wait is not None) is (result is Result.FAILED)
        assert wait is None or 0 < wait <= MOST_S
