"""The waiting path: bounded, and a fault once seen is lifted by a fresh OK alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from tests.gate.gatebed import (
    DEPLOY,
    OTHER_BOOT,
    Bed,
    executable,
    replace,
    stale_line,
    uptime,
    verdict_line,
)


def later(change: Callable[[], object], after_s: float = 0.3) -> threading.Timer:
    timer = threading.Timer(after_s, change)
    timer.start()
    return timer


def confirming(wait_s: int = 10) -> str:
    return verdict_line("FAULT", "confirming", wait_s=wait_s)


def checking(verdict: str = "OK", wait_s: int = 10) -> str:
    return verdict_line(verdict, "checking", checking="wait", wait_s=wait_s)


def test_a_fault_that_settles_refuses_at_once(bed: Bed) -> None:
    replace(bed.verdict, confirming())
    later(lambda: replace(bed.verdict, verdict_line("FAULT")))
    answer = bed.run()
    assert answer.code == 1
    assert bed.records()[-1].why == "fault"
    assert 0.2 < answer.took_s < 5


def test_a_fault_lifted_by_advise_only_admits(bed: Bed) -> None:
    replace(bed.verdict, confirming())
    later(lambda: replace(bed.verdict, verdict_line("OK")))
    answer = bed.run()
    assert (answer.code, answer.said) == (0, "")
    assert bed.records()[-1].why == "ok"
    assert answer.took_s < 5


@pytest.mark.parametrize(
    "then",
    [
        None,
        "missing",
        "garbage\n",
        stale_line(),
        verdict_line("OK", boot=OTHER_BOOT),
        verdict_line("UNKNOWN"),
        verdict_line("SKIPPED"),
        verdict_line("OK", "confirming"),
    ],
    ids=["nothing", "missing", "garbled", "stale", "other-boot", "unknown", "skipped", "odd"],
)
def test_a_fault_nobody_settles_refuses_when_the_bound_runs_out(
    one_bed: Bed, then: str | None
) -> None:
    bed = one_bed
    replace(bed.verdict, confirming(wait_s=1))
    if then == "missing":
        later(bed.verdict.unlink)
    elif then is not None:
        later(lambda: replace(bed.verdict, then))
    answer = bed.run()
    assert answer.code == 1
    assert "fallen off the bus (not confirmed within 1 s)" in answer.said
    (record,) = bed.records()
    assert record.why == "confirm-timeout"
    assert 1 <= record.waited_s <= 3
    assert 1 <= answer.took_s < 6


def test_a_confirming_fault_of_an_older_boot_is_not_forgotten(bed: Bed) -> None:
    replace(bed.remembered, verdict_line("FAULT", "confirming", boot=OTHER_BOOT, wait_s=0))
    assert bed.answer() == (1, "confirm-timeout")


def test_the_check_after_a_job_is_waited_for_where_policy_says_so(bed: Bed) -> None:
    replace(bed.verdict, checking())
    later(lambda: replace(bed.verdict, verdict_line("OK")))
    answer = bed.run()
    assert answer.code == 0
    assert bed.records()[-1].why == "ok"
    assert 0.2 < answer.took_s < 5


def test_the_check_after_a_job_is_not_waited_for_otherwise(bed: Bed) -> None:
    replace(bed.verdict, verdict_line("OK", "checking", checking="open", wait_s=10))
    answer = bed.run()
    assert answer.code == 0
    assert bed.records()[-1].why == "checking"
    assert answer.took_s < 5


@pytest.mark.parametrize(
    ("verdict", "stale", "code", "why"),
    [
        ("OK", "open", 0, "checking"),
        ("OK", "closed", 0, "checking"),
        ("UNKNOWN", "open", 0, "unknown"),
        ("UNKNOWN", "closed", 1, "unknown"),
    ],
)
def test_a_check_that_does_not_end_is_not_waited_for_longer_than_its_bound(
    one_bed: Bed, verdict: str, stale: str, code: int, why: str
) -> None:
    bed = one_bed
    line = verdict_line(verdict, "checking", checking="wait", wait_s=1, stale=stale)
    replace(bed.verdict, line)
    answer = bed.run()
    assert answer.code == code
    assert (bed.records()[-1].why, bed.records()[-1].waited_s in {1, 2, 3}) == (why, True)
    assert 1 <= answer.took_s < 6


def test_a_check_that_finds_a_fault_waits_for_its_confirmation(bed: Bed) -> None:
    replace(bed.verdict, checking())
    later(lambda: replace(bed.verdict, confirming(wait_s=20)), 0.2)
    later(lambda: replace(bed.verdict, verdict_line("FAULT")), 0.6)
    answer = bed.run()
    assert answer.code == 1
    assert bed.records()[-1].why == "fault"
    assert 0.5 < answer.took_s < 6


def test_an_agent_that_dies_while_checking_is_answered_by_the_policy(bed: Bed) -> None:
    replace(bed.verdict, checking())
    later(lambda: replace(bed.verdict, stale_line()))
    assert bed.answer() == (0, "stale")


class TestSleep:
    """The only program ever started: what if it is odd, or not there."""

    @staticmethod
    def script(bed: Bed, sleep: str | None, **bounds: int) -> str:
        programs = bed.root / "bin"
        programs.mkdir()
        if sleep is not None:
            executable(programs / "sleep", f"#!{bed.shell[0]} {' '.join(bed.shell[1:])}\n{sleep}\n")
        text = (DEPLOY / "prolog").read_text()
        changed = text.replace("PATH=/usr/bin:/bin:/usr/sbin:/sbin", f"PATH={programs}")
        for name, value in bounds.items():
            changed = changed.replace(f"{name}=60", f"{name}={value}")
        assert changed != text
        return str(executable(bed.root / "prolog", changed))

    def test_a_sleep_that_takes_whole_seconds_only_still_waits(self, plain_bed: Bed) -> None:
        bed = plain_bed
        mark = bed.root / "slept"
        fussy = f'case $1 in *.*) exit 1 ;; esac; PATH=/usr/bin:/bin; echo $1 >>{mark}; sleep "$1"'
        replace(bed.verdict, confirming(wait_s=1))
        answer = bed.run(self.script(bed, fussy))
        assert answer.code == 1
        assert set(mark.read_text().split()) == {"1"}
        assert answer.took_s < 8

    def test_without_any_sleep_the_bound_has_run_out_at_once(self, plain_bed: Bed) -> None:
        bed = plain_bed
        replace(bed.verdict, confirming(wait_s=30))
        answer = bed.run(self.script(bed, None))
        assert answer.code == 1
        assert bed.records()[-1].why == "confirm-timeout"
        assert answer.took_s < 5

    def test_a_bound_that_is_too_long_is_bounded(self, bed: Bed) -> None:
        replace(bed.verdict, confirming(wait_s=9_999_999))
        began = time.monotonic()
        answer = bed.run(self.script(bed, 'PATH=/usr/bin:/bin; sleep "$1"', longest_wait=1))
        assert answer.code == 1
        assert time.monotonic() - began < 6


def test_waiting_is_told_by_the_clock_that_no_one_sets(bed: Bed) -> None:
    replace(bed.verdict, confirming(wait_s=1))
    before = uptime()
    bed.run()
    assert bed.records()[-1].uptime_s >= before + 1
