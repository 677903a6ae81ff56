"""What the agent and the gate say to each other: the verdict file and the gate's records.

The gate (deploy/slurm/prolog, epilog) is POSIX shell that reads and writes these with built-ins
only, so both are single lines of space-separated words, the free text last.

Verdict file, one line, at most 512 bytes, final newline required (a missing one reads as garbled):

    komainu1 VERDICT PHASE BOOT_ID UPTIME_S TTL_S STALE CHECKING WAIT_S MESSAGE…

Gate record, one line appended by one write:

    gate1 WHERE ANSWER WHY UPTIME_S BOOT_ID JOB USER UID GPUS WAITED_S

It lives twice: renewed every second in the run directory (a tmpfs: works with a full disk, costs no
disk writes), and on change in the state directory (survives a reboot). The gate reads the first,
and the second when the first is missing or unreadable.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

import msgspec

from komainu.core.errors import InputError
from komainu.core.node import NodePolicy, NodeVerdict, Phase
from komainu.core.observation import Scalar
from komainu.core.verdict import Verdict

MAGIC = "komainu1"
RECORD_MAGIC = "gate1"
MAX_BYTES = 512
_NOT_PLAIN = re.compile(r"[^ -~]+")
_BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class VerdictFile(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict file, read back."""

    verdict: Verdict
    phase: Phase
    boot_id: str
    uptime_s: int
    ttl_s: int
    stale: str
    checking: str
    wait_s: int
    message: str

    def fresh(self, boot_id: str, uptime_s: int) -> bool:
        """Whether it was written in this boot, not in the future, and at most `ttl_s` ago."""
        return self.boot_id == boot_id and 0 <= uptime_s - self.uptime_s <= self.ttl_s


def write_verdict(verdict: NodeVerdict, policy: NodePolicy, boot_id: str, uptime_s: int) -> str:
    """The verdict file's content."""
    wait_s = policy.confirm_s if verdict.phase is Phase.CONFIRMING else policy.check_s
    head = (
        f"{MAGIC} {verdict.verdict} {verdict.phase} {boot_id} {uptime_s} {policy.ttl_s} "
        f"{policy.stale} {policy.checking} {wait_s} "
    )
    message = " ".join(_NOT_PLAIN.sub("?", verdict.message).split()) or "-"
    return (head + message)[: MAX_BYTES - 1] + "\n"


def read_verdict(text: str) -> VerdictFile:
    """Read a verdict file's content; raises InputError when it is not exactly what we write."""
    words = text[:-1].split(" ", 9)
    if not text.endswith("\n") or len(text) > MAX_BYTES or len(words) != 10 or words[0] != MAGIC:
        raise InputError(
            f"verdict file is garbled: found {text[:60]!r}. The agent rewrites it within 1 s."
        )
    numbers = (words[4], words[5], words[8])
    if not _BOOT_ID.fullmatch(words[3]) or not all(re.fullmatch(r"\d{1,10}", n) for n in numbers):
        raise InputError(f"verdict file is garbled: bad boot id or number in {text[:100]!r}")
    try:
        verdict, phase = Verdict(words[1]), Phase(words[2])
    except ValueError as error:
        raise InputError(f"verdict file is garbled: {error}") from error
    return VerdictFile(
        verdict=verdict,
        phase=phase,
        boot_id=words[3],
        uptime_s=int(words[4]),
        ttl_s=int(words[5]),
        stale=words[6],
        checking=words[7],
        wait_s=int(words[8]),
        message=words[9],
    )


class Why(enum.StrEnum):
    """Why the gate answered so."""

    OK = "ok"
    FAULT = "fault"
    CONFIRM_TIMEOUT = "confirm-timeout"
    """Local fault, and nobody confirmed or lifted it within the bound: refused."""
    STALE = "stale"
    MISSING = "missing"
    GARBLED = "garbled"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"
    CHECKING = "checking"
    """The post-job check had not ended (admitted by policy, or the bound ran out)."""
    END = "end"
    """Epilog: the job ended."""


UNSURE = frozenset({Why.STALE, Why.MISSING, Why.GARBLED, Why.UNKNOWN, Why.SKIPPED})
"""No fresh OK and no FAULT: policy answers, and nobody knows whether the node is well."""


class GateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the gate."""

    where: str
    """`prolog` or `epilog`."""
    answer: str
    """`admit`, `refuse`, or `end` (epilog)."""
    why: Why
    uptime_s: int
    boot_id: str
    job: str
    user: str
    uid: int
    gpus: tuple[str, ...]
    """Indices or UUIDs, as Slurm gave them."""
    waited_s: int

    @property
    def unsure(self) -> bool:
        """Whether a job was let in though nobody knew whether the node is well."""
        return self.answer == "admit" and self.why in UNSURE


def read_record(line: str) -> GateRecord:
    """Read one gate record; raises InputError on anything else (a torn or foreign line)."""
    words = line.split(" ")
    if len(words) != 11 or words[0] != RECORD_MAGIC:
        raise InputError(
            f"gate record is garbled: found {line[:100]!r}, expected 11 words after 'gate1'"
        )
    try:
        return GateRecord(
            where=words[1],
            answer=words[2],
            why=Why(words[3]),
            uptime_s=int(words[4]),
            boot_id=words[5],
            job=words[6],
            user=words[7],
            uid=int(words[8]),
            gpus=() if words[9] == "-" else tuple(words[9].split(",")),
            waited_s=int(words[10]),
        )
    except ValueError as error:
        raise InputError(f"gate record is garbled: {error} in {line[:100]!r}") from error


def record_data(record: GateRecord) -> dict[str, Scalar]:
    """A record as the data of an Observation of kind GATE; `gpus` as one comma-separated text."""
    return {**msgspec.structs.asdict(record), "gpus": ",".join(record.gpus)}


def record_of_data(data: Mapping[str, Scalar]) -> GateRecord:
    """A record back from an Observation's data; raises InputError when it does not hold one."""
    gpus = str(data.get("gpus") or "")
    try:
        return msgspec.convert({**data, "gpus": tuple(gpus.split(",")) if gpus else ()}, GateRecord)
    except msgspec.ValidationError as error:
        raise InputError(f"gate observation is garbled: {error} in {data!r:.200}") from error
