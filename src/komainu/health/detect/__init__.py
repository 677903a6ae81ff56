"""Observations of a node → Findings: what they say (xid, nvlink, sxid, lines) and what goes together
(correlate, memory).
"""

from __future__ import annotations

from komainu.health.detect.correlate import detect
from komainu.health.detect.memory import Memory

__all__ = ["Memory", "detect"]
