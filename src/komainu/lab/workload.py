"""Jobs as they arrive on a real cluster, scaled to the lab's size.

Arrival times, durations and sizes are a real trace's (traces/README.md); the gaps between arrivals
are stretched or squeezed by one factor, so that the lab's GPUs are about as busy as asked.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec

TRACE = Path(__file__).parent / "traces" / "jobs.csv.gz"
USERS = ("amari", "bjorn", "chiyo", "dara", "emeka", "fumiko", "goran", "hana", "ines", "jun")
NAMES = (
    "pretrain-7b",
    "pretrain-70b",
    "sft",
    "rlhf",
    "eval",
    "tokenize",
    "diffusion",
    "notebook",
    "sweep[3]; rm -rf /",
    "<b>bold plans</b>",
)
"""Job names are tenants' text, some of it hostile: the pages must show it and mind nothing."""


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the trace, in lab seconds since the lab's start."""

    at_s: float
    duration_s: float
    gpus: int
    user: str
    name: str


def arrivals(seed: int, *, gpus_total: int, busy: float = 0.88) -> Iterator[Arrival]:
    """Jobs in the order of their arrival, round and round; those already running come at 0.

    No job is larger than half the cluster: one that never fits would hold up the queue for good.
    """
    rows = _rows()
    chance = random.Random(seed)  # noqa: S311 (a lab is repeatable, not secret)
    largest = max(1, gpus_total // 2)
    fitting = [row for row in rows if row.gpus <= largest]
    length = max(row.arrival_s for row in fitting)
    load = sum(row.duration_s * row.gpus for row in fitting if row.arrival_s >= 0) / length
    squeeze = load / (busy * gpus_total)
    running, wanted = 0, busy * gpus_total
    for row in sorted((r for r in fitting if r.arrival_s < 0), key=lambda r: r.arrival_s):
        left = row.duration_s + row.arrival_s
        if running + row.gpus > wanted or left <= 0:
            continue
        running += row.gpus
        yield _arrival(0.0, left, row.gpus, chance)
    coming = [row for row in fitting if row.arrival_s >= 0]
    begins = 0.0
    while True:
        for row in coming:
            yield _arrival(begins + row.arrival_s * squeeze, row.duration_s, row.gpus, chance)
        begins += length * squeeze


def _arrival(at_s: float, duration_s: float, gpus: int, chance: random.Random) -> Arrival:
    return Arrival(
        at_s=at_s,
        duration_s=duration_s,
        gpus=gpus,
        user=chance.choice(USERS),
        name=chance.choice(NAMES),
    )


class _Row(msgspec.Struct, frozen=True):
    arrival_s: float
    duration_s: float
    gpus: int


def _rows() -> list[_Row]:
    text = gzip.decompress(TRACE.read_bytes()).decode("ascii")
    return [
        _Row(float(row["arrival_s"]), float(row["duration_s"]), int(row["gpus"]))
        for row in csv.DictReader(io.StringIO(text))
    ]
