"""Reasons, as they stand in the scheduler and in the record.

A policy's reason is made from codes, components and catalogue summaries; a person's reason is the
person's own words. Neither carries control characters, and nothing a tenant wrote comes here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from komainu.core.observation import Finding

REASON_MAX = 200
"""With `komainu:D-<20 hex>: ` before it a reason stays below the 250 the scheduler is given."""
_ODD = re.compile(r"[^ -~]+")


def plain(text: str) -> str:
    """A person's words on one line: no control, format or bidirectional characters, bounded."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(shown.split())[:REASON_MAX].rstrip()


def reason_of(findings: Sequence[Finding]) -> str:
    """`GPU-XID-79 on gpu 0000:41:00: GPU has fallen off the bus (+1 more)`: the worst first cause."""
    worst = min(findings, key=lambda f: (-f.severity, f.cause is not None, f.at, f.id))
    known = {f.id for f in findings}
    others = [f for f in findings if f.id != worst.id and f.cause not in known]
    more = f" (+{len(others)} more)" if others else ""
    said = f"{worst.code} on {worst.component}: {_without_place(worst)}"
    ascii_only = " ".join(_ODD.sub("?", said).split())
    return ascii_only[: REASON_MAX - len(more)].rstrip() + more


def _without_place(finding: Finding) -> str:
    """The summary without `Xid 79 on GPU 0000:41:00: `, which code and component have said."""
    _, named, after = finding.summary.partition(finding.component.id or "\n")
    _, colon, rest = after.partition(": ")
    return rest if named and colon and rest else finding.summary
