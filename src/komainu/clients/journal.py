"""The last kernel lines of the boot before this one, where something kept them.

The ring does not survive a reboot. journald's copy is asked first (kernel transport only: anything
else may be written by users), then pstore, where the firmware keeps what a panic left. Lines come as
`[seconds.microseconds] text`, the kernel's own stamp first, so that what the agent had already read
before the reboot can be told from what it missed.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from komainu.core.errors import OutsideError

LINES_MAX = 5000
"""A whole default ring holds about so many."""
BYTES_MAX = 8 << 20
TIMEOUT_S = 20.0
"""A journal on a failing disk may take forever; the check of this boot matters more."""
_NOTHING_KEPT = re.compile(
    r"No such boot ID|No journal (?:files|boot entry)|no persistent journal|No data available"
)
"""How journalctl of systemd 247 to 257 says, with a status of 1, that it has nothing of that boot."""
PSTORE = Path("/sys/fs/pstore")
_PSTORE_LINE = re.compile(r"(?s)(?:<(\d+)>)?((\[ *\d+\.\d{6}\])(?:\[[^\]]*\])? .*)")


def previous_boot_lines(
    *, journalctl: str = "journalctl", pstore: Path = PSTORE, timeout_s: float = TIMEOUT_S
) -> Sequence[str]:
    """Kernel lines of the previous boot, oldest first; empty when nothing kept any. Blocking.

    Raises OutsideError when there may be some and they cannot be read. A panic's dump ends with the
    last thing that boot said, so where there is one it stands in for a journal that fails.
    """
    try:
        lines = _from_journal(journalctl, timeout_s)
    except OutsideError:
        lines = _from_pstore(pstore)
        if not lines:
            raise
    return lines or _from_pstore(pstore)


def _from_journal(journalctl: str, timeout_s: float) -> list[str]:
    command = [
        journalctl, "--no-pager", "--quiet", "-b", "-1", "-k", "-o", "json",
        "-n", str(LINES_MAX), "_TRANSPORT=kernel",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        return []  # no journald here: nothing kept by it
    except subprocess.TimeoutExpired:
        raise _unread(f"{journalctl} did not answer within {timeout_s} s") from None
    except OSError as error:
        raise _unread(f"{journalctl}: {error.strerror}") from error
    if done.returncode == 0:
        return list(_journal_lines(done.stdout[-BYTES_MAX:].splitlines()))
    said = done.stderr.decode("utf-8", "replace").strip()
    if _NOTHING_KEPT.search(said):
        return []
    raise _unread(f"{journalctl} ended with {done.returncode}: {said[:300]!a}")


def _unread(what: str) -> OutsideError:
    return OutsideError(
        f"kernel log of the boot before cannot be read: {what}; expected its lines, or that none "
        f"are kept. Try `journalctl -b -1 -k` by hand."
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
    """Panic dumps are split in parts, the newest text in part 1; each has its own header line.

    The kernel puts a record's level and time in front of each line of it. A record may hold the name of a
    file, and that a newline and whatever a tenant likes: lines with the time of the one before are left out.
    """
    try:
        parts = sorted(folder.glob("dmesg-*"), reverse=True)
        texts = [part.read_bytes()[:BYTES_MAX].decode("utf-8", "replace") for part in parts[:64]]
    except OSError as error:
        raise _unread(f"{folder}: {error.strerror}") from error
    found = (_PSTORE_LINE.fullmatch(line) for text in texts for line in text.split("\n"))
    records = (next(lines) for _, lines in itertools.groupby(filter(None, found), _stamp))
    kernel = (match[2] for match in records if int(match[1] or 0) >> 3 == 0)
    return list(itertools.islice(kernel, LINES_MAX))


def _stamp(line: re.Match[str]) -> str:
    return line[3]
