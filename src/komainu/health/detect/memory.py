"""What correlation remembers: the recent findings of each place, and what is counted over a day."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from komainu.core.verdict import Severity

MAX_RECENT, MAX_PLACES, MAX_SEEN, MAX_TALLIES, MAX_TALLY = 32, 128, 1024, 256, 8
"""Bounds of Memory: under 1 MB however long a flood lasts."""
REPEAT = 86400.0
"""Repeats of 109 and of NVLink register faults are counted so far back. Seconds."""

_V = TypeVar("_V")


class Recent(msgspec.Struct, frozen=True, gc=False):
    """What correlation must remember of a finding."""

    id: str
    code: str
    xid: int
    """-1: not an Xid."""
    at: float
    """Seconds since the epoch: compared so often that datetimes would double the cost of a line."""
    severity: Severity
    detail: str | None = None
    """What must agree for two lines to be one error: link, record, process."""
    pid: int | None = None
    root: str | None = None
    """Id of the finding that stands for the incident; None: this one does."""


class Memory(msgspec.Struct, frozen=True):
    """What correlation remembers between calls and across restarts. Bounded, and plain JSON."""

    recent: dict[str, tuple[Recent, ...]] = {}
    """Place (GPU, switch, drive …) → its newest findings, oldest first."""
    tallies: dict[str, tuple[float, ...]] = {}
    """What is counted over a day: key → newest times."""
    seen: tuple[str, ...] = ()
    """Ids of the newest observations concluded: the same observation again concludes nothing."""


class Track:
    """The recent findings of one place, ordered by time, so that a window is two bisections.

    Nothing is dropped while a batch is worked on: it is worked on in causal order, not in time order.
    """

    def __init__(self, before: Iterable[Recent]) -> None:
        self.all = list(before)
        self._times = [r.at for r in self.all]

    def add(self, recent: Recent) -> None:
        at = bisect_right(self._times, recent.at)
        self._times.insert(at, recent.at)
        self.all.insert(at, recent)

    def near(self, at: float, within: float) -> list[Recent]:
        """Those at most `within` seconds from `at`, oldest first."""
        times = self._times
        if not times or times[-1] < at - within:
            return []  # the common case: nothing here lately
        return self.all[bisect_left(times, at - within) : bisect_right(times, at + within)]


class Desk:
    """A Memory opened for one call: only what this call touches is copied."""

    def __init__(self, memory: Memory) -> None:
        self._before = memory
        self._tracks: dict[str, Track] = {}
        self._tallies: dict[str, list[float]] = {}
        self._seen = dict.fromkeys(memory.seen)

    def first_sight(self, observation: str) -> bool:
        if observation in self._seen:
            return False
        self._seen[observation] = None
        return True

    def track(self, place: str) -> Track:
        found = self._tracks.get(place)
        if found is None:
            found = self._tracks[place] = Track(self._before.recent.get(place, ()))
        return found

    def near_anywhere(self, at: float, within: float) -> list[Recent]:
        for place in self._before.recent:
            self.track(place)
        return [r for track in self._tracks.values() for r in track.near(at, within)]

    def tally(self, key: str, at: float) -> list[float]:
        """Times under this key at most REPEAT from `at`, itself included."""
        times = self._tallies.setdefault(key, list(self._before.tallies.get(key, ())))
        if at not in times:
            insort(times, at)
        return [time for time in times if abs(at - time) <= REPEAT]

    def closed(self) -> Memory:
        recent = {k: v for k, v in self._before.recent.items() if k not in self._tracks}
        recent |= {k: tuple(t.all[-MAX_RECENT:]) for k, t in self._tracks.items() if t.all}
        tallies = {k: v for k, v in self._before.tallies.items() if k not in self._tallies}
        tallies |= {k: tuple(v[-MAX_TALLY:]) for k, v in self._tallies.items()}
        return Memory(
            recent=_newest(recent, MAX_PLACES),
            tallies=_newest(tallies, MAX_TALLIES),
            seen=tuple(self._seen)[-MAX_SEEN:],
        )


def _newest(mapping: dict[str, _V], bound: int) -> dict[str, _V]:
    return mapping if len(mapping) <= bound else dict(list(mapping.items())[-bound:])
