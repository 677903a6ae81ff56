"""What failed in the scheduler is tried again, later each time: a missing right or a broken
slurmctld must not be asked ten times a second, and everyone else's decisions must not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from komainu.core.decision import Decision, Outcome, Result

FIRST_S, MOST_S = 2.0, 60.0
"""From a scheduler call that timed out once to a night in which a right is missing."""


class Retry:
    """When each failed decision may be tried again. Forgotten with the process: a restart tries all."""

    def __init__(self, uptime_s: Callable[[], float]) -> None:
        self._uptime_s = uptime_s
        self._waits: dict[str, tuple[float, float]] = {}
        """Decision → when it may be tried again, and how long it then waits next time."""
        self._asked: set[str] = set()

    def ripe(self, decision: Decision) -> bool:
        """Asked of every decision that is to do, in each round."""
        self._asked.add(decision.id)
        at, _ = self._waits.get(decision.id, (0.0, 0.0))
        return self._uptime_s() >= at

    def note(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            _, wait = self._waits.pop(outcome.decision, (0.0, FIRST_S))
            if outcome.result is Result.FAILED:
                again = self._uptime_s() + wait
                self._waits[outcome.decision] = (again, min(2 * wait, MOST_S))

    def due_in_s(self) -> float | None:
        """Until the first one is ripe; None when nothing waits. Ends a round: what was not asked
        about in it has ended otherwise (expired, overtaken) and is forgotten.
        """
        self._waits = {id_: wait for id_, wait in self._waits.items() if id_ in self._asked}
        self._asked.clear()
        now = self._uptime_s()
        return min((max(0.0, at - now) for at, _ in self._waits.values()), default=None)
