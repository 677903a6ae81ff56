"""Observations of a node → Findings: what they say (xid, nvlink, sxid, lines), what goes together (correlate)."""

from __future__ import annotations

from komainu.health.detect.correlate import Memory, detect

__all__ = ["Memory", "detect"]
