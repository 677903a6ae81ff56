"""The last kernel lines of the boot before this one, where something kept them.

The ring does not survive a reboot. journald's copy is asked first (kernel transport only: anything
else may be written by users), then pstore, where the firmware keeps what a panic left. Lines come as
`[seconds.microseconds] text`, the kernel's own stamp first, so that what the agent had already read
before the reboot can be told from what it missed.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

LINES_MAX = 5000
"""A whole default ring holds about so many."""
BYTES_MAX = 8 << 20
TIMEOUT_S = 20.0
"""A journal on a failing disk may take forever; the check of this boot matters more."""
PSTORE = Path("/sys/fs/pstore")
_PSTORE_LINE = re.compile(r"(?:<(\d+)>)?(\[ *\d+\.\d{6}\](?:\[[^\]]*\])? .*)")


def previous_boot_lines(
    *, journalctl: str = "journalctl", pstore: Path = PSTORE, timeout_s: float = TIMEOUT_S
) -> Sequence[str]:
    """Kernel lines of the previous boot, oldest first; empty when nothing kept any. Blocking."""
    return _from_journal(journalctl, timeout_s) or _from_pstore(pstore)


def _from_journal(journalctl: str, timeout_s: float) -> list[str]:
    command = [
        journalctl, "--no-pager", "--quiet", "-b", "-1", "-k", "-o", "json",
        "-n", str(LINES_MAX), "_TRANSPORT=kernel",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return (
        list(_journal_lines(done.stdout[-BYTES_MAX:].splitlines())) if not done.returncode else []
    )


def _journal_lines(entries: Iterable[bytes]) -> Iterator[str]:
    for raw in entries:
        try:
            entry: dict[str, Any] = msgspec.json.decode(raw, type=dict)
        except msgspec.DecodeError:
            continue
        message = entry.get("MESSAGE")
        if isinstance(message, list):  # journald's form for text that is not UTF-8
            message = bytes(int(byte) & 255 for byte in message).decode("utf-8", "replace")
        if not isinstance(message, str) or entry.get("_TRANSPORT") != "kernel":
            continue
        if str(entry.get("SYSLOG_FACILITY", "0")) != "0":
            continue
        stamp = str(
            entry.get("_SOURCE_MONOTONIC_TIMESTAMP") or entry.get("__MONOTONIC_TIMESTAMP") or 0
        )
        micros = int(stamp) if stamp.isdecimal() else 0
        first_line = message.split("\n", 1)[0]
        yield f"[{micros // 1_000_000:5d}.{micros % 1_000_000:06d}] {first_line}"


def _from_pstore(folder: Path) -> list[str]:
    """Panic dumps are split in parts, the newest text in part 1; each has its own header line."""
    try:
        parts = sorted(folder.glob("dmesg-*"), reverse=True)
        texts = [part.read_bytes()[:BYTES_MAX].decode("utf-8", "replace") for part in parts[:64]]
    except OSError:
        return []
    found = (_PSTORE_LINE.fullmatch(line) for text in texts for line in text.splitlines())
    kernel = (match[2] for match in found if match and int(match[1] or 0) >> 3 == 0)
    return list(itertools.islice(kernel, LINES_MAX))
