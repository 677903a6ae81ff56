"""Slowing down whoever guesses passwords: by the name that is tried, and by the address it comes from.

Both are asked and counted in one step before the password is looked at, so that a hundred tries at
once are not a hundred tries for the price of one.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timedelta

FREE_TRIES = 5
"""Wrong passwords in a row before each further one has to wait."""
LONGEST_WAIT_S = 300
FORGOTTEN_AFTER = timedelta(hours=1)
"""Wrong passwords so long ago no longer count."""
ADDRESS_TRIES = 60
"""Wrong passwords an address has at once: a proxy, or a whole site behind one address, has many
people. Guessing at names one by one comes to a few a minute all the same."""
ADDRESS_AGAIN_S = 5
"""Seconds after which an address has one more: the longest that one guesser keeps others waiting."""
REMEMBERED = 10_000
"""Names and addresses kept for the wait; the oldest is forgotten first."""


class Patience:
    """For a name: after some failures, each next try waits twice as long."""

    def __init__(self) -> None:
        self._failed: OrderedDict[str, tuple[int, datetime]] = OrderedDict()

    def wait_s(self, name: str, now: datetime) -> int:
        """Seconds until `name` may be tried again."""
        tries, at = self._recent(name, now)
        if tries < FREE_TRIES:
            return 0
        wait = min(1 << (tries - FREE_TRIES), LONGEST_WAIT_S)
        left = int((at + timedelta(seconds=wait) - now).total_seconds() + 0.999)
        return min(max(0, left), wait)

    def failed(self, name: str, now: datetime) -> None:
        tries, _ = self._recent(name, now)
        self._failed.pop(name, None)
        self._failed[name] = (min(tries + 1, FREE_TRIES + 10), now)
        while len(self._failed) > REMEMBERED:
            self._failed.popitem(last=False)

    def _recent(self, name: str, now: datetime) -> tuple[int, datetime]:
        """How often `name` has failed of late, and when last. A clock set back forgets as well."""
        tries, at = self._failed.get(name, (0, now))
        return (tries, at) if abs(now - at) < FORGOTTEN_AFTER else (0, now)

    def forget(self, name: str) -> None:
        self._failed.pop(name, None)


class Allowance:
    """For an address: a stock of tries that fills up again one by one, so that nobody waits long."""

    def __init__(self) -> None:
        self._used: OrderedDict[str, tuple[float, datetime]] = OrderedDict()

    def wait_s(self, address: str, now: datetime) -> int:
        """Seconds until a try from `address` may be made."""
        over = self._left_used(address, now) - (ADDRESS_TRIES - 1)
        return 0 if over <= 0 else min(int(over * ADDRESS_AGAIN_S + 0.999), ADDRESS_AGAIN_S)

    def use(self, address: str, now: datetime) -> None:
        self._set(address, min(self._left_used(address, now) + 1, ADDRESS_TRIES), now)

    def give_back(self, address: str, now: datetime) -> None:
        """The try was no guess."""
        self._set(address, max(self._left_used(address, now) - 1, 0), now)

    def _set(self, address: str, used: float, now: datetime) -> None:
        self._used.pop(address, None)
        self._used[address] = (used, now)
        while len(self._used) > REMEMBERED:
            self._used.popitem(last=False)

    def _left_used(self, address: str, now: datetime) -> float:
        """How much of the stock is used by now. A clock set back fills nothing and empties nothing."""
        used, at = self._used.get(address, (0.0, now))
        return max(0.0, used - max(0.0, (now - at).total_seconds()) / ADDRESS_AGAIN_S)
