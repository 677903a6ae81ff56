"""Reading what scontrol and squeue print. Written for Slurm 22.05 to 25.11, tried on 22.05.8 only.

Nothing here talks to Slurm. Job names are the tenants' own text and may hold anything, line breaks
and our separators included, so a job's line starts with the name in a field of fixed width and
everything after it was written by Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from komainu.core.errors import InputError, SchedulerError
from komainu.core.names import ClusterName, JobId, NodeName, node_name
from komainu.core.node import SchedulerJob, SchedulerNode
from komainu.core.nodeset import expand

NAME_BYTES = 64
"""Bytes of a job's name that are read."""

JOB_FORMAT = (
    f"Name:{NAME_BYTES},JobID:|,State:|,UserName:|,tres-alloc:|,SubmitTime:|,StartTime:|,EndTime:|,"
    "NodeList:|,Reason:"
)
"""For `squeue -O`. `JobID` is the number a prolog sees in SLURM_JOB_ID, unlike `123_4`."""

TASK_FORMAT = "JobID:|,ArrayJobID:|,ArrayTaskID:"
"""For `squeue --array -O`: which task of which array a job is. No word of it is a tenant's."""

_FIELDS = 9
_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
    "$": "MAINT",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
_ONE_NODE = re.compile(r"NodeName=(\S+) ")
_BOOT_TIME = re.compile(r"^BOOT_TIME\s*=\s*(\S+)", re.MULTILINE)
_STATE = re.compile(r" State=(\S+) ")
_GRES = re.compile(r" Gres=(\S*) ")
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)")
_TRES_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)")
_TRES_TYPED = re.compile(r"(?:^|,)gres/gpu:[^=,]+=(\d+)")
STAMP = re.compile(r" \[([^\[\]@\s]+)@([0-9T:.\-]+)\]")
_NEXT_FIELD = re.compile(r" (?:Comment|Extra|ReservationName|Topology)=")
_AFTER_STAMP = re.compile(rf" {{8}}|{_NEXT_FIELD.pattern}")
_ON_NODES = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING"})
_ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)
_HELD = frozenset({"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue"})


# ── nodes ────────────────────────────────────────────────────────────────────────────────────────


def read_nodes(
    text: str, cluster: ClusterName, jobs: Mapping[NodeName, Sequence[JobId]]
) -> list[SchedulerNode]:
    """Nodes from `scontrol -o show node`. `jobs`: what runs where, from the queue."""
    lines = [line for line in text.split("\n") if line.strip()]
    return [_node(line, cluster, jobs) for line in lines]


def _node(
    line: str, cluster: ClusterName, jobs: Mapping[NodeName, Sequence[JobId]]
) -> SchedulerNode:
    named, stated = _ONE_NODE.match(line), _STATE.search(line)
    if named is None or stated is None:
        raise SchedulerError(
            f"slurm: cannot read `scontrol -o show node` of cluster {cluster}: found "
            f"{line[:120]!r}, expected NodeName=… and State=…. Is this Slurm 22.05 or newer?"
        )
    state, flags = read_state(stated[1])
    reason, by, at = read_reason(line[stated.end() :])
    node, gres = node_name(named[1]), _GRES.search(line, 0, stated.start())
    return SchedulerNode(
        cluster=cluster,
        node=node,
        state=state,
        flags=flags,
        reason=reason,
        reason_by=by,
        reason_at=at,
        jobs=tuple(jobs.get(node, ())),
        gpus=sum(int(n) for n in _GPUS.findall(gres[1])) if gres else 0,
    )


def read_state(text: str) -> tuple[str, frozenset[str]]:
    """`IDLE*+DRAIN` → IDLE and {DRAIN, NOT_RESPONDING}: flags are spelt out or a trailing sign."""
    flags = set()
    words = []
    for word in text.upper().split("+"):
        bare = word.rstrip("".join(_SUFFIXES))
        flags |= {_SUFFIXES[sign] for sign in word[len(bare) :]}
        words.append(bare)
    flags |= {word for word in words[1:] if word}
    if words[0] in {"DRAINING", "DRAINED"}:  # compact spelling; the full one says IDLE+DRAIN
        return ("IDLE" if words[0] == "DRAINED" else "MIXED"), frozenset(flags | {"DRAIN"})
    return words[0], frozenset(flags)


def read_reason(rest: str) -> tuple[str, str, datetime | None]:
    """Reason, who set it, when: `Reason=text [root@2026-11-30T10:02:12]`.

    A reason of several lines carries the stamp after the first one, and one-line output puts the
    others behind a margin of blanks. The text is free, so otherwise the last stamp counts.
    """
    _, found, text = rest.partition(" Reason=")
    if not found:
        return "", "", None
    stamps = list(STAMP.finditer(text))
    if not stamps:
        return _NEXT_FIELD.split(text)[0].strip(), "", None
    ends = (one for one in stamps if _AFTER_STAMP.match(text, one.end()))
    stamp = next(ends, stamps[-1])
    more = "" if _NEXT_FIELD.match(text, stamp.end()) else text[stamp.end() :]
    reason = " ".join((text[: stamp.start()] + " " + _NEXT_FIELD.split(more)[0]).split())
    return reason, stamp[1], read_time(stamp[2])


def read_time(text: str) -> datetime | None:
    """A time as Slurm prints it with TZ=UTC; None for `N/A`, `Unknown`, `None`."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


def read_start(text: str) -> datetime | None:
    """When slurmctld started, from `scontrol show config`: `BOOT_TIME = 2026-11-30T10:02:12`."""
    found = _BOOT_TIME.search(text)
    return read_time(found[1]) if found else None


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────


def read_jobs(output: bytes, cluster: ClusterName) -> list[SchedulerJob]:
    """Jobs from `squeue -h -a -t all -O JOB_FORMAT`: bytes, since a name may be any."""
    jobs, at = [], 0
    while at < len(output):
        end = output.find(b"\n", at + NAME_BYTES)
        end = len(output) if end < 0 else end
        jobs.append(_job(output[at : at + NAME_BYTES], output[at + NAME_BYTES : end], cluster))
        at = end + 1
    return jobs


def read_task(output: bytes, job: JobId) -> JobId:
    """What to call `job` so that it alone is meant, from `squeue --array -O TASK_FORMAT`.

    An array's own number is also that of the task started last, and `scontrol release` of it would
    release every task of the array, those too that a person holds. `7_3` is one task.
    """
    lines = (line.strip().split("|") for line in output.decode("ascii", "replace").splitlines())
    tasks = [words for words in lines if len(words) == 3 and words[0] == job]
    if len(tasks) != 1 or not tasks[0][2].isdecimal() or not tasks[0][1].isdecimal():
        return job
    return JobId(f"{tasks[0][1]}_{tasks[0][2]}")


def _job(name: bytes, rest: bytes, cluster: ClusterName) -> SchedulerJob:
    words = rest.decode("utf-8", "replace").split("|", _FIELDS - 1)
    if len(words) != _FIELDS or not words[0].isdecimal():
        raise SchedulerError(
            f"slurm: cannot read `squeue -O` of cluster {cluster}: found {rest[:120]!r} after the "
            f"name, expected {_FIELDS} fields and a job number first. Is this Slurm 22.05 or newer?"
        )
    job, state, user, tres, submitted, started, ended, nodes, reason = words
    reason = "_".join(reason.split())  # `launch failed requeued held`: scontrol's own spelling
    waiting = state == "PENDING"
    return SchedulerJob(
        id=JobId(job),
        state=state,
        user=user,
        name=name.decode("utf-8", "replace").rstrip(" "),
        nodes=() if waiting else _nodes(nodes),
        gpus=_tres_gpus(tres),
        held=state == "SPECIAL_EXIT" or (waiting and _is_held(reason)),
        reason="" if reason == "None" else reason,
        submitted=read_time(submitted),
        started=None if waiting else read_time(started),  # of a waiting job: Slurm's guess
        ended=read_time(ended) if state in _ENDED else None,  # of a running job: its limit
    )


def _is_held(reason: str) -> bool:
    return reason in _HELD or reason.endswith("held")


def _nodes(text: str) -> tuple[NodeName, ...]:
    try:
        return () if text in {"", "(null)", "None assigned"} else expand(text)
    except InputError as error:
        raise SchedulerError(
            f"slurm: squeue shows a node list Komainu cannot read: {error}"
        ) from error


def _tres_gpus(tres: str) -> int:
    """`cpu=2,gres/gpu=16,gres/gpu:h100=16` → 16: the untyped number counts all."""
    untyped = _TRES_GPUS.search(tres)
    return int(untyped[1]) if untyped else sum(int(n) for n in _TRES_TYPED.findall(tres))


def by_node(jobs: Iterable[SchedulerJob]) -> dict[NodeName, list[JobId]]:
    """What runs where."""
    found: dict[NodeName, list[JobId]] = {}
    for job in jobs:
        if job.state in _ON_NODES:
            for node in job.nodes:
                found.setdefault(node, []).append(job.id)
    return found
