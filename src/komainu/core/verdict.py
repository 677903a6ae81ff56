"""The four verdicts, and how several of them become one.

Unknown is never OK: `combine` keeps the worst known verdict, and what was not seen stays visible.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Verdict(enum.StrEnum):
    """What a check, or a node as a whole, says. Only OK is OK."""

    OK = "OK"
    """Looked, and found nothing wrong."""
    SKIPPED = "SKIPPED"
    """Did not look because it was told not to. Never OK."""
    UNKNOWN = "UNKNOWN"
    """Could not look. Never OK."""
    FAULT = "FAULT"
    """Looked, and found a fault."""


_RANK = {Verdict.OK: 0, Verdict.SKIPPED: 1, Verdict.UNKNOWN: 2, Verdict.FAULT: 3}


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of `verdicts`; of none at all, UNKNOWN (nobody looked)."""
    return max(verdicts, key=_RANK.__getitem__, default=Verdict.UNKNOWN)


class Severity(enum.IntEnum):
    """How much a finding matters to running and coming jobs. Ordered: more is worse."""

    INFO = 0
    """Recorded. Nobody is told."""
    WATCH = 1
    """Recorded and shown. Never takes a node out."""
    DEGRADED = 2
    """The node should take no further job; the running one may finish (drain after job)."""
    FATAL = 3
    """The node must take no further job, now."""


class FaultClass(enum.StrEnum):
    """Our class of a fault. Data: health/catalogue/*.toml; what each code means: docs/runbooks/."""

    QUARANTINE_NOW = "QUARANTINE_NOW"
    DRAIN_AFTER_JOB = "DRAIN_AFTER_JOB"
    APP_RESTART_DRAIN = "APP_RESTART_DRAIN"
    """The job must restart, and the node drains after it (Xid 94)."""
    APP_COUNT = "APP_COUNT"
    """Usually the user's doing: counted, attributed, never drains alone."""
    SYMPATHETIC = "SYMPATHETIC"
    """Follows another fault and says nothing by itself (Xid 45)."""
    OBEY_ACTION_CODE = "OBEY_ACTION_CODE"
    """The line carries the driver's own verdict (Xid 154): the number decides."""
    DECODE_REGS = "DECODE_REGS"
    """The registers in the line decide (Xid 74)."""
    DECODE_NVL5 = "DECODE_NVL5"
    """The unit, severity word and registers in the line decide (Xid 144-150)."""
    WATCH = "WATCH"
    INFO = "INFO"
    UNKNOWN = "UNKNOWN"
    """A code no catalogue grades: watched and alerted, never drained."""
