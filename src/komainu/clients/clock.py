"""The real time: the one clock of agent and server (ports.Clock)."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime


class RealClock:
    """This host's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def uptime_s(self) -> float:
        """CLOCK_BOOTTIME: what /proc/uptime shows, which is what the gate compares with."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
