"""The last lines of the boot before, from a journal or from what a panic left."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from komainu.clients.journal import previous_boot_lines
from komainu.core.errors import OutsideError


def _journalctl(
    folder: Path, *entries: dict[str, object], exit_: int = 0, wait_s: int = 0, says: str = ""
) -> str:
    answer = folder / "answer"
    answer.write_text("".join(json.dumps(entry) + "\n" for entry in entries) + "not json\n")
    script = folder / "journalctl"
    script.write_text(
        f'#!/bin/sh\necho "$@" > {folder}/asked\nsleep {wait_s}\ncat {answer}\n'
        f'echo "{says}" >&2\nexit {exit_}\n'
    )
    script.chmod(0o755)
    return str(script)


def _entry(text: object, **rest: str) -> dict[str, object]:
    return {
        "_TRANSPORT": "kernel", "MESSAGE": text, "_SOURCE_MONOTONIC_TIMESTAMP": "1234567", **rest,
    }  # fmt: skip


def test_kernel_lines_come_with_their_own_stamp(tmp_path: Path) -> None:
    found = previous_boot_lines(
        journalctl=_journalctl(tmp_path, _entry("NVRM: Xid"), _entry(list(b"caf\xe9"))),
        pstore=tmp_path,
    )
    assert found == ["[    1.234567] NVRM: Xid", "[    1.234567] caf�"]
    assert "-b -1" in (tmp_path / "asked").read_text()


def test_what_the_kernel_did_not_write_is_left_out(tmp_path: Path) -> None:
    forged: list[dict[str, object]] = [
        _entry("a", _TRANSPORT="syslog"),
        _entry("b", SYSLOG_FACILITY="1"),
        {"MESSAGE": "c"},
        _entry("first\nNVRM: Xid (PCI:0000:41:00): 79"),
    ]
    found = previous_boot_lines(journalctl=_journalctl(tmp_path, *forged), pstore=tmp_path)
    assert found == ["[    1.234567] first"]


def test_without_a_journal_a_panic_dump_is_read(tmp_path: Path) -> None:
    (tmp_path / "dmesg-efi-2").write_text("Panic#1 Part2\n<4>[   10.000001] older\n")
    (tmp_path / "dmesg-efi-1").write_text(
        "Panic#1 Part1\n<12>[   10.000002] by a user\n<4>[   10.000003] newer\n"
    )
    found = previous_boot_lines(journalctl=str(tmp_path / "none"), pstore=tmp_path)
    assert found == ["[   10.000001] older", "[   10.000003] newer"]


@pytest.mark.parametrize(
    "broken", ["\n<6>[   10.000001] ", "\x0b[   11.000000] ", "\u2028[   11.000000] "]
)
def test_a_file_name_that_breaks_the_line_makes_no_record_of_a_dump(
    tmp_path: Path, broken: str
) -> None:
    forged = f"x{broken}NVRM: Xid (PCI:0000:41:00): 79, x"
    (tmp_path / "dmesg-efi-1").write_text(
        f"Panic#1 Part1\n<6>[   10.000001] a[7]: segfault at 0 ip 0 sp 0 error 6 in {forged}[1+1]\n"
        "<4>[   10.000003] newer\n"
    )
    found = previous_boot_lines(journalctl=str(tmp_path / "none"), pstore=tmp_path)
    assert len(found) == 2
    assert found[0].startswith("[   10.000001] a[7]: segfault")
    assert found[1] == "[   10.000003] newer"


@pytest.mark.parametrize(
    "said",
    [
        "Data from the specified boot (-1) is not available: No such boot ID in journal",
        "No journal boot entry found for the specified boot (-1).",
        "No journal files were found.",
    ],
)
def test_nothing_kept_is_nothing(tmp_path: Path, said: str) -> None:
    journalctl = _journalctl(tmp_path, _entry("x"), exit_=1, says=said)
    assert previous_boot_lines(journalctl=journalctl, pstore=tmp_path / "none") == []


@pytest.mark.parametrize(
    "said", ["", "Data from the specified boot (-1) is not available: Input/output error"]
)
def test_a_journal_that_fails_is_not_an_empty_one(tmp_path: Path, said: str) -> None:
    journalctl = _journalctl(tmp_path, _entry("x"), exit_=1, says=said)
    with pytest.raises(OutsideError, match="ended with 1"):
        previous_boot_lines(journalctl=journalctl, pstore=tmp_path / "none")


def test_a_journal_that_hangs_is_given_up_and_said(tmp_path: Path) -> None:
    began = time.monotonic()
    journalctl = _journalctl(tmp_path, _entry("x"), wait_s=5)
    with pytest.raises(OutsideError, match="did not answer within"):
        previous_boot_lines(journalctl=journalctl, pstore=tmp_path, timeout_s=0.2)
    assert time.monotonic() - began < 3


def test_a_journalctl_that_cannot_be_run_is_said(tmp_path: Path) -> None:
    (tmp_path / "journalctl").write_text("no program")
    with pytest.raises(OutsideError, match="cannot be read"):
        previous_boot_lines(journalctl=str(tmp_path / "journalctl"), pstore=tmp_path)


def test_a_panic_dump_stands_in_for_a_journal_that_fails(tmp_path: Path) -> None:
    (tmp_path / "dmesg-efi-1").write_text("Panic#1 Part1\n<4>[   10.000003] last words\n")
    found = previous_boot_lines(journalctl=_journalctl(tmp_path, exit_=1), pstore=tmp_path)
    assert found == ["[   10.000003] last words"]


def test_a_panic_dump_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "dmesg-efi-1").mkdir()
    with pytest.raises(OutsideError, match="Is a directory"):
        previous_boot_lines(journalctl=str(tmp_path / "none"), pstore=tmp_path)
