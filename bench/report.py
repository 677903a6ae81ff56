"""What every bench shares: its two options, and how it prints.

    python -m bench.NAME [--quick] [--json]

A short table; with --json the last line is one object `{"figures", "peers", "n", "bed"}`. `n` says how much
was measured, `bed` what it ran on. Exit status 2: the real system this bench needs is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn


@dataclass(frozen=True)
class Options:
    quick: bool
    """Finish within 50 s on two cores."""
    json: bool


@dataclass(frozen=True)
class Report:
    figures: Mapping[str, float]
    n: int
    peers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    bed: str = ""
    notes: tuple[str, ...] = ()
    """Printed under the table: what a reader must know to judge the figures."""


def options(doc: str | None) -> Options:
    """Read the command line; `doc` is the bench's own docstring."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="finish within 50 s on two cores")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    given = parser.parse_args()
    return Options(quick=given.quick, json=given.json)


def machine() -> str:
    """What this runs on, in words."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} x {_processor()}, {platform.system()} {platform.release()}, {python}"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as source:  # noqa: PTH123 - one line of a proc file
            names = (
                line.partition(":")[2].strip() for line in source if line.startswith("model name")
            )
            return next(names, platform.machine())
    except OSError:
        return platform.machine()


def show(report: Report, chosen: Options) -> None:
    """Print the report."""
    bed = report.bed or machine()
    rows = [("Komainu", name, value) for name, value in report.figures.items()]
    rows += [(peer, name, v) for peer, values in report.peers.items() for name, v in values.items()]
    wide, wider = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    for who, name, value in rows:
        print(f"{who:<{wide}}  {name:<{wider}}  {_number(value):>14}")
    print(f"n = {report.n}; {bed}")
    for note in report.notes:
        print(f"  {note}")
    if chosen.json:
        peers = {peer: dict(values) for peer, values in report.peers.items()}
        print(
            json.dumps({"figures": dict(report.figures), "peers": peers, "n": report.n, "bed": bed})
        )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def missing(what: str, *, do: str) -> NoReturn:
    """The real system is not there: say so and leave with 2; a bench never falls back to the lab."""
    print(f"cannot measure: {what} is missing. {do}", file=sys.stderr)
    sys.exit(2)
