"""What a node checks of itself besides its kernel log: short functions, each one Look.

They get what was read and the time as arguments; agent/look.py and agent/look_now.py (`komainu
check`) do the reading. A check that is switched off is SKIPPED, and one that could not look is UNKNOWN: neither is
ever OK.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from komainu.core.names import NodeKey, stable_id
from komainu.core.node import NodePolicy
from komainu.core.observation import (
    Component,
    Evidence,
    Finding,
    Observation,
    ObservationKind,
    Scalar,
)
from komainu.core.verdict import FaultClass, Severity, Verdict
from komainu.core.wire import GpuSeen, Hardware

KERNEL_LOG, GPUS, STATE_DIR, CLOCK = "kernel-log", "gpus", "state-dir", "clock"
CHECKS = (KERNEL_LOG, GPUS, STATE_DIR, CLOCK)
GPU_MISSING = "GPU-MISSING"
CLOCK_TOLERANCE = timedelta(seconds=60)
"""Schedulers and TLS fail from minutes of difference on; NTP keeps well under a second."""
EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)
"""Before this program existed: a clock that says so has lost its battery."""
FREE_BYTES_MIN = 1 << 20
NEVER_SEEN = ""
"""Stands for the GPUs this node should have and has never been seen with: they have no address."""


class Look(msgspec.Struct, frozen=True):
    """What one check found."""

    verdict: Verdict
    detail: str = ""


class GpuBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs this node has been seen with, and those of them that are gone. Kept durably."""

    gpus: tuple[GpuSeen, ...] = ()
    """Every GPU ever seen, by PCI address."""
    gone: dict[str, str] = {}
    """PCI address → id of the finding that says it is gone; under NEVER_SEEN, fewer than expected."""


class GpuLook(msgspec.Struct, frozen=True, kw_only=True):
    """What looking at the GPUs came to."""

    look: Look
    baseline: GpuBaseline
    observations: tuple[Observation, ...] = ()
    findings: tuple[Finding, ...] = ()


def gpus(
    key: NodeKey,
    seen: Hardware | None,
    baseline: GpuBaseline,
    now: datetime,
    *,
    policy: NodePolicy,
    released: frozenset[str],
    expected: int = 0,
) -> GpuLook:
    """Compare the GPUs listed now with those of the baseline, and how many were ever seen with how
    many there should be (`expected`, 0: nobody said). One that is gone is a finding, and its absence
    stays a FAULT until it is back or policy grades it down. A release does not bring it back: what is
    still gone then is a finding anew, so that no job meets a node known to lack a GPU.
    """
    if seen is None:
        detail = "the driver lists no GPU and may not be loaded; see lsmod, dmesg"
        return GpuLook(look=Look(Verdict.UNKNOWN, detail), baseline=baseline)
    here = {gpu.pci: gpu for gpu in seen.gpus}
    known = {gpu.pci: gpu for gpu in baseline.gpus} | here
    back = [pci for pci in baseline.gone if pci in here]
    told = {pci for pci, id_ in baseline.gone.items() if id_ not in released}
    lost = [pci for pci in known if pci not in here and pci not in told]
    unseen = max(0, expected - len(known))
    if unseen and NEVER_SEEN not in told:
        lost.append(NEVER_SEEN)
    elif not unseen and NEVER_SEEN in baseline.gone:
        back.append(NEVER_SEEN)
    words = {NEVER_SEEN: f"{unseen} never seen"}
    observation = _told(
        key,
        GPUS,
        now,
        f"gone: {' '.join(words.get(one, one) for one in lost)} "
        f"back: {' '.join(one or 'all expected' for one in back)}",
    )
    findings = tuple(
        _gone(key, known[pci], observation)
        if pci
        else _too_few(key, len(known), unseen, observation)
        for pci in lost
    )
    gone = {pci: id_ for pci, id_ in baseline.gone.items() if pci not in back}
    gone |= {finding.component.id: finding.id for finding in findings}
    named = [words.get(pci, pci) for pci in gone]
    return GpuLook(
        look=_gpu_look(named, len(here), len(known) + unseen, policy),
        baseline=GpuBaseline(gpus=tuple(known.values()), gone=gone),
        observations=(observation,) if back or lost else (),
        findings=findings,
    )


def with_the_gone(seen: Hardware, baseline: GpuBaseline) -> Hardware:
    """What the server is told: the GPUs of the baseline, those that are gone marked so. Without
    them the others would move up a number; all keep the one their PCI address gave them.
    """
    here = {gpu.pci for gpu in seen.gpus}
    gone = [msgspec.structs.replace(g, here=False) for g in baseline.gpus if g.pci not in here]
    if not gone:
        return seen
    known = sorted([*seen.gpus, *gone], key=lambda gpu: gpu.pci)
    gpus = (msgspec.structs.replace(gpu, index=index) for index, gpu in enumerate(known))
    return msgspec.structs.replace(seen, gpus=tuple(gpus))


def _gpu_look(gone: Sequence[str], here: int, all_: int, policy: NodePolicy) -> Look:
    tolerated = policy.severity.get(GPU_MISSING, Severity.FATAL) < Severity.DEGRADED
    if gone and not tolerated:
        return Look(Verdict.FAULT, f"{all_ - here} of {all_} GPUs gone: {' '.join(gone)}")
    if not all_:
        return Look(Verdict.OK, "no GPU, and none is expected (agent.gpus_expected = 0)")
    accepted = f", {all_ - here} gone, accepted by policy: {' '.join(gone)}" if gone else ""
    return Look(Verdict.OK, f"{here} of {all_} GPUs{accepted}")


def _gone(key: NodeKey, gpu: GpuSeen, observation: Observation) -> Finding:
    return _missing(
        key,
        Component("gpu", gpu.pci),
        observation,
        summary="a GPU seen earlier is no longer listed by the driver",
        text=f"GPU {gpu.index} at {gpu.pci} was seen before and is not listed now",
        fields={"pci": gpu.pci, "uuid": gpu.uuid, "index": gpu.index},
    )


def _too_few(key: NodeKey, known: int, unseen: int, observation: Observation) -> Finding:
    return _missing(
        key,
        Component("gpu", NEVER_SEEN),
        observation,
        summary="fewer GPUs than this node should have have ever been listed by the driver",
        text=f"{known} GPUs ever listed, {known + unseen} expected (agent.gpus_expected)",
        fields={"known": known, "expected": known + unseen},
    )


def _missing(
    key: NodeKey,
    component: Component,
    observation: Observation,
    *,
    summary: str,
    text: str,
    fields: dict[str, Scalar],
) -> Finding:
    return Finding(
        id=stable_id(key.cluster, key.node, GPU_MISSING, component.id, observation.id, prefix="F-"),
        cluster=key.cluster,
        node=key.node,
        code=GPU_MISSING,
        component=component,
        severity=Severity.FATAL,
        fault_class=FaultClass.QUARANTINE_NOW,
        summary=summary,
        at=observation.at,
        evidence=(Evidence(observation=observation.id, at=observation.at, text=text),),
        fields=fields,
    )


def _told(key: NodeKey, check: str, now: datetime, detail: str) -> Observation:
    """Kept in one transaction with the baseline it changes, so the time is enough to name it."""
    return Observation(
        id=stable_id(key.cluster, key.node, "check", check, now.isoformat(), prefix="O-"),
        cluster=key.cluster,
        node=key.node,
        kind=ObservationKind.CHECK,
        at=now,
        data={"check": check, "detail": detail},
    )


def clock(now: datetime, server_ahead: timedelta | None) -> Look:
    """Whether this clock can be believed: within tolerance of the server's, and where no server has
    been heard, at least a date this program could run on. The detail says which of the two it was.

    `server_ahead`: server's clock minus ours, None when no server has been heard.
    """
    if now < EARLIEST:
        return Look(Verdict.UNKNOWN, f"clock says {now:%Y-%m-%d}, it has never been set; check NTP")
    if server_ahead is not None and abs(server_ahead) > CLOCK_TOLERANCE:
        seconds = server_ahead.total_seconds()
        return Look(
            Verdict.UNKNOWN, f"clock differs from the server's by {seconds:.0f} s; check NTP"
        )
    if server_ahead is None:
        return Look(Verdict.OK, "plausible; no server heard to compare it with")
    return Look(Verdict.OK, f"within {CLOCK_TOLERANCE.total_seconds():.0f} s of the server's")


def state_dir(path: str, *, writable: bool, free_bytes: int, trouble: str) -> Look:
    """`trouble`: what the last attempt to write there met; empty when it worked."""
    if trouble:
        return Look(Verdict.UNKNOWN, trouble)
    if not writable:
        return Look(Verdict.UNKNOWN, f"{path} is not writable; nothing would survive a reboot")
    if free_bytes < FREE_BYTES_MIN:
        return Look(Verdict.UNKNOWN, f"{path} has {free_bytes} bytes left, under {FREE_BYTES_MIN}")
    return Look(Verdict.OK)


def kernel_log(read_to: int | None, wanted: int | None, trouble: str) -> Look:
    """OK when all that was in the log at the moment of asking (`wanted`) has been judged."""
    if trouble:
        return Look(Verdict.UNKNOWN, trouble)
    if wanted is not None and (read_to is None or read_to < wanted):
        return Look(Verdict.UNKNOWN, f"read to record {read_to}, the newest is {wanted}")
    return Look(Verdict.OK)
