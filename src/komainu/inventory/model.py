"""What a node looks like from outside: one word for it and for each of its GPUs, and why.

Absence is visible: a node the scheduler names and no agent speaks for is UNSEEN, and so are its GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from komainu.core.node import NodePolicy, SchedulerNode, graded
from komainu.core.observation import Finding
from komainu.core.record import GateSeen, NodeRecord, Standing
from komainu.core.verdict import Severity, Verdict
from komainu.core.views import Column, Columns, GpuView, NodeRow
from komainu.core.views import Standing as Word
from komainu.core.wire import GpuSeen

STANDINGS = tuple(Word)
"""The order in which the columnar map numbers them."""

_Told = tuple[Word, str, datetime | None]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known of one node, taken together at one moment."""

    record: NodeRecord
    findings: tuple[Finding, ...] = ()
    """Open ones, oldest first."""
    standing: Standing | None = None
    admitted: tuple[GateSeen, ...] = ()
    """Jobs its gate let in, whose end it has not seen."""


def node_row(seen: Seen, policy: NodePolicy, unseen_after: timedelta, now: datetime) -> NodeRow:
    """The node as the map and the lists show it."""
    record = seen.record
    findings = tuple(graded(finding, policy) for finding in seen.findings)
    heard = record.seen is not None and now - record.seen <= unseen_after
    verdict = record.verdict.verdict if record.verdict and heard else Verdict.UNKNOWN
    word, why, since = _standing(seen, findings, verdict, heard=heard)
    scheduler = record.scheduler
    return NodeRow(
        cluster=record.cluster,
        node=record.node,
        rack=record.rack,
        standing=word,
        verdict=verdict,
        why=why,
        since=since,
        seen=record.seen,
        scheduler=scheduler_words(scheduler),
        jobs=len(scheduler.jobs) if scheduler else len(seen.admitted),
        gpus=_gpus(seen, findings, word),
        open_findings=len(findings),
    )


def scheduler_words(node: SchedulerNode | None) -> str:
    """`IDLE+DRAIN`; empty when the scheduler does not know the node."""
    return "" if node is None else "+".join([node.state, *sorted(node.flags)])


def _standing(seen: Seen, findings: Sequence[Finding], verdict: Verdict, *, heard: bool) -> _Told:
    """The node's word, why, and since when. What takes it out is told before what is wrong with it,
    and what is wrong before what was not looked at.
    """
    told = _taken_out(seen) or _condemned(seen, findings, verdict)
    told = told or _not_looked_at(seen.record, verdict, heard=heard)
    if told is not None:
        return told
    # What is only recorded (a cable was plugged) is no reason to watch a node.
    if telling := [finding for finding in findings if finding.severity > Severity.INFO]:
        return Word.WATCHED, _why(telling), telling[0].at
    return Word.HEALTHY, "", seen.record.verdict_since


def _taken_out(seen: Seen) -> _Told | None:
    standing, scheduler = seen.standing, seen.record.scheduler
    out = scheduler is not None and scheduler.out
    ours = scheduler is not None and scheduler.ours
    if standing is not None and (standing.done or (out and ours)):
        return Word.QUARANTINED, standing.decision.reason, standing.decision.at
    if scheduler is None or not out:
        return None
    by = f" (by {scheduler.reason_by})" if scheduler.reason_by else ""
    why = f"{scheduler.reason or scheduler.state}{by}"
    return Word.QUARANTINED if ours else Word.FOREIGN, why, scheduler.reason_at


def _condemned(seen: Seen, findings: Sequence[Finding], verdict: Verdict) -> _Told | None:
    record, standing = seen.record, seen.standing
    if bad := [finding for finding in findings if finding.condemns]:
        return Word.FAULTY, _why(bad), bad[0].at
    if standing is not None:
        return Word.FAULTY, standing.decision.reason, standing.decision.at
    if verdict is Verdict.FAULT and record.verdict is not None:
        return Word.FAULTY, record.verdict.message, record.verdict_since
    return None


def _not_looked_at(record: NodeRecord, verdict: Verdict, *, heard: bool) -> _Told | None:
    if record.seen is None:
        return Word.UNSEEN, "no agent has been heard", None
    if not heard:
        return Word.UNSEEN, "its agent is silent", record.seen
    if verdict is not Verdict.OK:
        said = record.verdict.message if record.verdict else ""
        return Word.UNSEEN, said or f"its verdict is {verdict}", record.verdict_since
    return None


def _why(findings: Sequence[Finding]) -> str:
    worst = max(findings, key=lambda finding: finding.severity)
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{finding_words(worst)}{more}"


def finding_words(finding: Finding) -> str:
    """Code, part and summary in one line; a summary that begins with its code says it alone."""
    if finding.summary.startswith(finding.code):
        return finding.summary
    return f"{finding.code} {finding.component}: {finding.summary}"


# ── GPUs ─────────────────────────────────────────────────────────────────────────────────────────


def _gpus(seen: Seen, findings: Sequence[Finding], word: Word) -> tuple[GpuView, ...]:
    hardware, scheduler = seen.record.hardware, seen.record.scheduler
    gpus = hardware.gpus if hardware else ()
    if not gpus and scheduler is not None:
        return tuple(GpuView(index=index) for index in range(scheduler.gpus))
    words = {gpu.index: _gpu_word(gpu, findings) for gpu in gpus}
    if word is Word.FAULTY and Word.FAULTY in words.values():
        word = Word.HEALTHY  # the fault is one GPU's, and it is shown there
    return tuple(
        GpuView(
            index=gpu.index,
            pci=gpu.pci,
            uuid=gpu.uuid,
            model=gpu.model,
            standing=words[gpu.index] or (Word.HEALTHY if word is Word.WATCHED else word),
            job=_job(gpu, seen.admitted),
            here=gpu.here,
        )
        for gpu in gpus
    )


def _gpu_word(gpu: GpuSeen, findings: Sequence[Finding]) -> Word | None:
    """The worst that is said of this GPU by name; None when nothing is. What policy accepts of a GPU
    that is gone, or what nobody found, does not bring it back: it is not seen.
    """
    mine = [f for f in findings if f.severity > Severity.INFO and _is_about(f, gpu)]
    if any(finding.condemns for finding in mine):
        return Word.FAULTY
    if not gpu.here:
        return Word.UNSEEN
    return Word.WATCHED if mine else None


def _is_about(finding: Finding, gpu: GpuSeen) -> bool:
    if not finding.component.kind.startswith("gpu") or not finding.component.id:
        return False
    named = finding.component.id
    return named in {gpu.uuid, gpu.serial} - {""} or (
        gpu.pci != "" and _pci(named) == _pci(gpu.pci)
    )


def _pci(address: str) -> str:
    """`00000000:41:00.0`, `0000:41:00` and `0000:41:00.0` are one GPU."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain[-4:]}:{rest.partition('.')[0]}"


def _job(gpu: GpuSeen, admitted: Sequence[GateSeen]) -> str:
    """The job that was given this GPU last, as the gate recorded it by index or UUID."""
    for one in reversed(admitted):
        if str(gpu.index) in one.record.gpus or (gpu.uuid and gpu.uuid in one.record.gpus):
            return one.record.job
    return ""


# ── the map as columns ───────────────────────────────────────────────────────────────────────────


def map_columns(rows: Sequence[NodeRow], cluster: str, seq: int) -> Columns:
    """The map of many nodes: what drawing needs, and nothing else. `seq`: the feed's newest change
    before it was made, so that a page can tell whether it is behind.
    """
    number = {word: index for index, word in enumerate(STANDINGS)}
    gpus = [(at, gpu) for at, row in enumerate(rows) for gpu in row.gpus]
    return Columns(
        meta={"cluster": cluster, "seq": seq, "standings": [word.value for word in STANDINGS]},
        columns=(
            Column(name="node", type="json", values=[row.node for row in rows]),
            Column(name="rack", type="json", values=[row.rack for row in rows]),
            Column(name="node_standing", type="u8", values=[number[r.standing] for r in rows]),
            Column(name="node_since", type="u32", values=[_epoch(row.since) for row in rows]),
            Column(
                name="node_open", type="u16", values=[min(r.open_findings, 0xFFFF) for r in rows]
            ),
            Column(name="gpu_node", type="u32", values=[at for at, _ in gpus]),
            Column(name="gpu_index", type="u8", values=[min(gpu.index, 0xFF) for _, gpu in gpus]),
            Column(name="gpu_standing", type="u8", values=[number[g.standing] for _, g in gpus]),
            Column(name="gpu_busy", type="u8", values=[int(gpu.job != "") for _, gpu in gpus]),
            Column(name="gpu_here", type="u8", values=[int(gpu.here) for _, gpu in gpus]),
        ),
    )


def _epoch(at: datetime | None) -> int:
    """Seconds since 1970 within 32 bits; 0 for not known."""
    return 0 if at is None else min(max(int(at.timestamp()), 0), 0xFFFFFFFF)
