"""Waiting for something or for a time, by the agent's own clock."""

from __future__ import annotations

import asyncio

from komainu.ports import Clock


async def woken(event: asyncio.Event, clock: Clock, seconds: float) -> bool:
    """Wait for `event`, at most `seconds`; whether it came. Does not clear it."""
    if event.is_set():
        return True
    waits = {asyncio.ensure_future(event.wait()), asyncio.ensure_future(clock.sleep(seconds))}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return event.is_set()
