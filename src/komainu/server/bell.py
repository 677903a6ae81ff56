"""Waking whoever waits for news, without holding a thread for each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Hashable, Iterator


class Bell:
    """Rung for a key; those who wait for that key go on. One loop only."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, set[asyncio.Event]] = {}

    def ring(self, keys: Collection[Hashable]) -> None:
        for key in keys:
            for event in self._waiting.get(key, ()):
                event.set()

    def ring_all(self) -> None:
        self.ring(list(self._waiting))

    @contextlib.contextmanager
    def listening(self, key: Hashable) -> Iterator[asyncio.Event]:
        """An event that is set by the next ring: listen first, then look, then wait."""
        event = asyncio.Event()
        self._waiting.setdefault(key, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[key].discard(event)
            if not self._waiting[key]:
                del self._waiting[key]


async def wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Whether `event` was set within `seconds`."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
