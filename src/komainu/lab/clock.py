"""Time in the lab: jobs last hours of lab time, agents and server live in real time.

Verdicts, heartbeats and the guard's window are real seconds, since the real gate reads them; only
what jobs and technicians do is compressed.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

UPTIME = Path("/proc/uptime")


class LabClock:
    """Real time, and lab time that runs `speed` times as fast. Satisfies ports.Clock."""

    def __init__(self, speed: float = 60.0) -> None:
        self.speed = speed
        self._began = time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def uptime_s(self) -> float:
        return float(UPTIME.read_text("ascii").split()[0])

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def real_s(self) -> float:
        """Real seconds since the lab began."""
        return time.monotonic() - self._began

    def lab_s(self) -> float:
        """Lab seconds since the lab began."""
        return self.real_s() * self.speed

    async def until_lab(self, lab_s: float) -> None:
        await asyncio.sleep(max(0.0, lab_s / self.speed - self.real_s()))

    async def until_real(self, real_s: float) -> None:
        await asyncio.sleep(max(0.0, real_s - self.real_s()))
