"""What a node checks of itself besides its kernel log: short functions, each one Look.

They get what was read and the time as arguments; agent/post_job.py and `komainu check` do the
reading. A check that is switched off is SKIPPED, and one that could not look is UNKNOWN: neither is
ever OK.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from komainu.core.names import NodeKey, stable_id
from komainu.core.node import NodePolicy
from komainu.core.observation import Component, Evidence, Finding, Observation, ObservationKind
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


class Look(msgspec.Struct, frozen=True):
    """What one check found."""

    verdict: Verdict
    detail: str = ""


class GpuBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs this node has been seen with, and those of them that are gone. Kept durably."""

    gpus: tuple[GpuSeen, ...] = ()
    """Every GPU ever seen, by PCI address."""
    gone: dict[str, str] = {}
    """PCI address → id of the finding that says it is gone."""


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
) -> GpuLook:
    """Compare the GPUs listed now with those of the baseline. One that is gone is a finding, and its
    absence stays a FAULT until it is back or policy grades it down. A release does not bring it back:
    what is still gone then is a finding anew, so that no job meets a node known to lack a GPU.
    """
    if seen is None:
        detail = "the driver lists no GPU and may not be loaded; see lsmod, dmesg"
        return GpuLook(look=Look(Verdict.UNKNOWN, detail), baseline=baseline)
    here = {gpu.pci: gpu for gpu in seen.gpus}
    known = {gpu.pci: gpu for gpu in baseline.gpus} | here
    back = [pci for pci in baseline.gone if pci in here]
    told = {pci for pci, id_ in baseline.gone.items() if id_ not in released}
    lost = [pci for pci in known if pci not in here and pci not in told]
    observation = _told(key, GPUS, now, f"gone: {' '.join(lost)} back: {' '.join(back)}")
    findings = tuple(_gone(key, known[pci], observation) for pci in lost)
    gone = {pci: id_ for pci, id_ in baseline.gone.items() if pci not in here}
    gone |= {finding.component.id: finding.id for finding in findings}
    return GpuLook(
        look=_gpu_look(gone, len(known), policy),
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


def _gpu_look(gone: dict[str, str], known: int, policy: NodePolicy) -> Look:
    tolerated = policy.severity.get(GPU_MISSING, Severity.FATAL) < Severity.DEGRADED
    if gone and not tolerated:
        return Look(Verdict.FAULT, f"{len(gone)} of {known} GPUs gone: {' '.join(gone)}")
    accepted = f", {len(gone)} gone, accepted by policy: {' '.join(gone)}" if gone else ""
    return Look(Verdict.OK, f"{known - len(gone)} of {known} GPUs{accepted}")


def _gone(key: NodeKey, gpu: GpuSeen, observation: Observation) -> Finding:
    text = f"GPU {gpu.index} at {gpu.pci} was seen before and is not listed now"
    return Finding(
        id=stable_id(key.cluster, key.node, GPU_MISSING, gpu.pci, observation.id, prefix="F-"),
        cluster=key.cluster,
        node=key.node,
        code=GPU_MISSING,
        component=Component("gpu", gpu.pci),
        severity=Severity.FATAL,
        fault_class=FaultClass.QUARANTINE_NOW,
        summary="a GPU seen earlier is no longer listed by the driver",
        at=observation.at,
        evidence=(Evidence(observation=observation.id, at=observation.at, text=text),),
        fields={"pci": gpu.pci, "uuid": gpu.uuid, "index": gpu.index},
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
    """`server_ahead`: server's clock minus ours, None when no server has been heard."""
    if now < EARLIEST:
        return Look(Verdict.UNKNOWN, f"clock says {now:%Y-%m-%d}, it has never been set; check NTP")
    if server_ahead is not None and abs(server_ahead) > CLOCK_TOLERANCE:
        seconds = server_ahead.total_seconds()
        return Look(
            Verdict.UNKNOWN, f"clock differs from the server's by {seconds:.0f} s; check NTP"
        )
    return Look(Verdict.OK, "" if server_ahead is not None else "no server heard to compare with")


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
