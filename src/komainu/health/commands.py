"""`komainu explain` and `komainu catalogue`: what a kernel line means, asked on a command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import IO, NoReturn

import click
import msgspec

from komainu.core.verdict import FaultClass, Severity
from komainu.core.views import SEVERITY_WORDS
from komainu.health.catalogue import catalogue as read_catalogue
from komainu.health.detect.reading import Transcript
from komainu.health.model import OUR_ACTION, SEVERITY, Catalogue, Reading
from komainu.health.runbooks import runbook_of

MAX_LINE = 65536
"""Bytes of one input line that are looked at; a kernel record is at most about 1 KB."""

FORGEABLE = (
    "Note: pasted lines have lost the facility that tells the kernel's records from a program's, "
    "so they can be forged. The agent reads /dev/kmsg, where they cannot."
)


def _input_lines() -> Iterator[str]:
    """Lines, however long, however encoded; never more than MAX_LINE bytes in memory."""
    if sys.stdin is None:
        _unreadable("it is closed")
    source = sys.stdin.buffer
    while piece := _piece(source):
        text, rest = piece, piece
        while len(rest) == MAX_LINE and not rest.endswith(b"\n"):
            rest = _piece(source)
        yield text.decode("utf-8", "replace").rstrip("\r\n")


def _piece(source: IO[bytes]) -> bytes:
    try:
        return source.readline(MAX_LINE)
    except OSError as error:
        _unreadable(str(error))


def _unreadable(why: str) -> NoReturn:
    click.echo(f"komainu explain: standard input cannot be read: {why}", err=True)
    sys.exit(2)


def _escaped(json: bytes) -> bytes:
    """JSON in which no character acts on the terminal that shows it: of those that do, JSON itself escapes
    only the first 32, not the ones that turn the direction of writing.
    """
    text = json.decode()
    if text.isascii() and "\x7f" not in text:
        return json
    return "".join(c if c.isprintable() else _escape(c) for c in text).encode()


def _escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(
        f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True)
    )


def _as_json(reading: Reading | None, number: int) -> bytes:
    if reading is None:
        return b"null"
    known = msgspec.json.encode(
        {
            "line_number": number,
            "component": reading.line.component,
            "code": reading.line.code,
            "class": reading.fault_class,
            "action": reading.vendor_action,
            "our_action": reading.our_action,
            "severity": SEVERITY_WORDS[reading.severity],
            "finding": reading.finding or None,
            "driver_action": reading.driver_action,
            "summary": reading.summary,
            "runbook": runbook_of(reading.finding) if reading.finding else None,
            "fields": reading.line.fields,
        }
    )
    return _escaped(known)


_COLUMNS = ("LINE", "COMPONENT", "CODE", "CLASS", "NVIDIA SAYS", "WE DO", "MEANING")


def _row(reading: Reading, number: int) -> tuple[str, ...]:
    return (
        str(number),
        str(reading.line.component),
        reading.line.code,
        reading.fault_class.value,
        reading.vendor_action or "-",
        reading.our_action,
        reading.summary,
    )


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        sys.stdout.write("  ".join([*cells, row[-1]]).rstrip() + "\n")


_COULD_NOT_TELL = frozenset(
    {FaultClass.UNKNOWN, FaultClass.OBEY_ACTION_CODE, FaultClass.DECODE_NVL5}
)
"""No catalogue grades the code, or the part of the line that would decide is missing."""


def _exit_code(worst: Severity, *, unknown: bool) -> int:
    """0 nothing condemning, 1 something condemns, 2 a code nobody could tell the meaning of."""
    if worst >= Severity.DEGRADED:
        return 1
    return 2 if unknown else 0


@click.command()
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON value per input line; null: means nothing."
)
def explain(*, as_json: bool) -> None:
    """Explain kernel log lines from standard input (`dmesg | komainu explain`).

    Exit status: 0 nothing condemning, 1 something takes the node out, 2 could not tell.
    """
    transcript, worst, unknown, total = Transcript(), Severity.INFO, False, 0
    rows: list[tuple[str, ...]] = [_COLUMNS]
    try:
        for total, line in enumerate(_input_lines(), 1):
            reading = transcript.read(line)
            if reading is not None:
                worst = max(worst, reading.severity)
                unknown = unknown or reading.graded in _COULD_NOT_TELL
                if not as_json:
                    rows.append(_row(reading, total))
            if as_json:
                sys.stdout.buffer.write(_as_json(reading, total) + b"\n")
                sys.stdout.buffer.flush()
        if not as_json:
            _say(rows, total)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`| head`). Python would complain again while closing: give it a sink.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(_exit_code(worst, unknown=unknown))


def _say(rows: list[tuple[str, ...]], total: int) -> None:
    if len(rows) > 1:
        _print_table(rows)
    else:
        sys.stdout.write(f"None of {total} lines means anything to Komainu.\n")
    click.echo(FORGEABLE, err=True)


def _catalogue_rows(known: Catalogue) -> Iterator[dict[str, object]]:
    """Every code, with NVIDIA's words and ours in separate columns."""
    for xid in known.xids.values():
        yield {
            "finding": f"GPU-XID-{xid.code}",
            "component": xid.component,
            "code": str(xid.code),
            "class": xid.fault_class,
            "severity": SEVERITY_WORDS[xid.severity],
            "action": xid.immediate or None,
            "investigate": xid.investigate or None,
            "our_action": OUR_ACTION[xid.fault_class],
            "means": xid.means,
            "name": xid.driver,
            "source": xid.source,
            "date": xid.date,
        }
    for line in known.lines.values():
        yield {
            "finding": line.finding or None,
            "component": line.component,
            "code": line.code,
            "class": line.fault_class,
            "severity": SEVERITY_WORDS[line.severity],
            "action": line.vendor or None,
            "investigate": None,
            "our_action": OUR_ACTION[line.fault_class],
            "means": line.means,
            "name": None,
            "source": line.source,
            "date": line.date,
        }
    for sxid in known.sxids.values():
        alone = sxid.alone or FaultClass.WATCH
        yield {
            "finding": f"NVSWITCH-SXID-{sxid.code}",
            "component": "nvswitch",
            "code": f"SXid {sxid.code}",
            "class": alone,
            "severity": SEVERITY_WORDS[SEVERITY[alone]],
            "action": None,
            "investigate": None,
            "our_action": "by the severity word of the line",
            "means": f"{sxid.what}{f'; {sxid.was} in older drivers' if sxid.was else ''}",
            "name": sxid.name or None,
            "source": "driver header",
            "date": None,
        }


def _is(row: dict[str, object], asked: str) -> bool:
    names = {str(row["finding"]), str(row["code"]), str(row["code"]).removeprefix("SXid ")}
    return asked.upper() in {name.upper() for name in names}


@click.command()
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="A JSON array instead of a table.")
def catalogue(code: str | None, *, as_json: bool) -> None:
    """Show what Komainu knows of fault codes: all, or CODE (79, GPU-XID-79, 20034, NIC-HEALTH).

    Exit status: 0 shown, 2 no such code (lines with it are watched and alerted, never drained).
    """
    known = read_catalogue()
    rows = [row for row in _catalogue_rows(known) if code is None or _is(row, code)]
    if as_json:
        sys.stdout.write(msgspec.json.encode(rows).decode() + "\n")
    elif rows:
        table = [("FINDING", "CODE", "CLASS", "NVIDIA SAYS", "WE DO", "MEANING")]
        keys = ("finding", "code", "class", "action", "our_action", "means")
        _print_table(table + [tuple(str(row[key] or "-") for key in keys) for row in rows])
        click.echo(f"catalogue: {known.version}", err=True)
    if not rows:
        click.echo(
            f"No code {code!r} in the catalogue ({known.version}). A line with such a code is watched "
            "and alerted, and never drains a node. Codes: komainu catalogue",
            err=True,
        )
        sys.exit(2)


COMMANDS: tuple[click.Command, ...] = (explain, catalogue)
