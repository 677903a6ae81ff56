"""Lines as people paste them: dmesg in its forms, syslog, journalctl, raw /dev/kmsg.

From the agent a record comes straight from the kernel, with its facility, and never passes here. A pasted
line has lost the facility, so its prefix is all there is: a tag other than `kernel:` (or a facility other
than kern, where one is shown) means that a program wrote it, and then it says nothing about the hardware.
"""

from __future__ import annotations

import enum
import re

import msgspec


class Writer(enum.Enum):
    """Who wrote a pasted line, as far as its prefix tells."""

    KERNEL = "kernel"
    NETWORKD = "systemd-networkd"
    FABRIC_MANAGER = "nv-fabricmanager"


class Pasted(msgspec.Struct, frozen=True):
    writer: Writer
    text: str


_KMSG = re.compile(r"(\d{1,6}),\d+,\d+,[^;\s]{1,80};")
_PRIORITY = re.compile(r"<(\d{1,4})>(?:1 (?=\d{4}-))?")
_FACILITY = r"kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7]"
_DECODED = re.compile(rf"({_FACILITY}) *:[a-z]+ *: ?")
_BRACKET_TEXT = (
    r"\[ *(?:\d+(?:\.\d+)?(?:[ ,]*<? *\d+\.\d+ *>?)?|\.\.\.|[+\-] *\d+\.\d+"
    r"|[^\s\]]{1,9} +[^\s\]]{1,9} +\d{1,2} +\d{2}:\d{2}:\d{2}(?:\.\d+)? +\d{4}(?: *< *[+\-]? *\d+\.\d+>)?"
    r"|[A-Z][a-z]{2} *\d{1,2} +\d{2}:\d{2}(?::\d{2})?"
    # Serial console loggers put their own clock in front: [2023-06-22 21:55:31.778747][5975154.296056].
    r"|\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(?:[.,]\d+)?(?:Z|[+\-]\d{2}:?\d{2})?(?:\]\[ *\d+\.\d+)?"
    r")\] ?(?:\[ *[TC]\d+\] ?)?"
)
_BRACKET = re.compile(_BRACKET_TEXT)
_DMESG_ISO = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2},\d+(?:Z|[+\-]\d{2}:?\d{2}) ")
_SYSLOG_TIME = re.compile(
    # Months and days are printed in the locale's language: 6月 28, févr. 28.
    r"(?:(?:\d{1,2}月|[^\W\d_]{2,9}\.?) +\d{1,2} +(?:\d{4} +)?\d{2}:\d{2}:\d{2}(?:\.\d+)?"
    r"|(?:[A-Z][a-z]{2} )?\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d+)?(?: ?(?:Z|[+\-]\d{2}:?\d{2}| [A-Z]{2,5}|[A-Z]{3,4}))?"
    r"|\d{9,10}\.\d{1,9}) +"
)
# A tag is the last word before the first colon; a host name never ends in one, so that the tag of
# `python3[7]: kernel: NVRM: …` is python3.
_TAGGED = re.compile(
    r"(?:\S*[^\s:] +)?(?P<tag>[^\s:\[\]]{1,64})(?P<pid>\[[^\]\s]{0,32}\])?: ?"
    r"|\S+ (?P<tag5424>kernel|systemd-networkd|nv-fabricmanager) - - (?:-|\[.{0,200}?\]) "
)
_KNOWN_TAG = re.compile(
    r"(?:\S*[^\s:] +)?(?P<tag>kernel|systemd-networkd|nv-fabricmanager)(?P<pid>\[\d{0,10}\])?: ?"
)
_FABRIC = re.compile(r"\[[A-Z][a-z]{2} \d{2} \d{4} \d{2}:\d{2}:\d{2}\] \[[A-Z]+\]")


def unwrap(line: str) -> Pasted | None:
    """Take a pasted line out of its prefix; None when a program, not the kernel, wrote it."""
    line = line.rstrip("\r\n")
    if _FABRIC.match(line):
        return Pasted(Writer.FABRIC_MANAGER, line)
    if found := _KMSG.match(line):
        return Pasted(Writer.KERNEL, line[found.end() :]) if int(found[1]) < 8 else None
    text, kernel = _without_facility(line)
    text, tag, has_pid = _without_time(text)
    if tag in {"", "kernel"}:
        # The kernel has no process id: `kernel[7]:` is somebody else.
        return Pasted(Writer.KERNEL, text) if kernel and not has_pid else None
    return next((Pasted(w, text) for w in Writer if w.value == tag and tag != "kernel"), None)


def _without_facility(line: str) -> tuple[str, bool]:
    """The line without `<4>` or `kern  :warn  :`, and whether these name the kernel (or nobody)."""
    if found := _PRIORITY.match(line):
        return line[found.end() :], int(found[1]) < 8
    if found := _DECODED.match(line):
        return line[found.end() :], found[1] == "kern"
    return line, True


def _without_time(text: str) -> tuple[str, str, bool]:
    """The message, the tag in front of it, and whether the tag carried a process id."""
    if (found := _SYSLOG_TIME.match(text)) and not _DMESG_ISO.match(text):
        tagged = _TAGGED.match(text, found.end())
        if tagged is None:
            return "", "?", False
        return _untagged(text, tagged, tagged["tag"] or tagged["tag5424"])
    start = _BRACKET.match(text) or _DMESG_ISO.match(text)
    at = start.end() if start else 0
    if tagged := _KNOWN_TAG.match(text, at):
        return _untagged(text, tagged, tagged["tag"])
    return text[at:], "", False


def _untagged(text: str, tagged: re.Match[str], tag: str) -> tuple[str, str, bool]:
    rest = text[tagged.end() :]
    inner = _BRACKET.match(rest)
    return rest[inner.end() if inner else 0 :], tag, tagged["pid"] is not None
