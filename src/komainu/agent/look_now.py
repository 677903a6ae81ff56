"""One look at this node, now: what `komainu check` tells. Changes nothing anywhere.

It reads the kernel log from its oldest record and judges it afresh, so it needs no running agent and
does not disturb one. What the agent has kept (orders, released findings, the GPUs seen before) is
read where it is there; without it, everything in the log counts.
"""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import msgspec

from komainu.agent import checks
from komainu.agent.agent import key_of
from komainu.agent.checks import GpuBaseline, Look
from komainu.agent.left import LEFT, left_by
from komainu.agent.look import skipped, state_dir_now
from komainu.agent.spool import Spool
from komainu.config import AgentConfig
from komainu.core.errors import OutsideError
from komainu.core.names import NodeKey
from komainu.core.node import NodeVerdict
from komainu.core.observation import Finding, Observation
from komainu.core.verdict import Verdict
from komainu.health.collect import observation_of
from komainu.health.detect import Memory, detect
from komainu.ports import Clock, KernelLog, KernelRecord, NodeProbe
from komainu.quarantine.decide.verdict import OrdersState, node_verdict


class LookNow(msgspec.Struct, frozen=True, kw_only=True):
    """What one look came to."""

    cluster: str
    node: str
    verdict: NodeVerdict
    checks: dict[str, Look]
    findings: list[Finding]
    """Not released; also those that are only watched."""
    agent_state: bool
    """Whether an agent's memory was there to be used."""


async def look_now(
    config: AgentConfig, kernel: KernelLog, probe: NodeProbe, clock: Clock
) -> LookNow:
    """Look at everything once."""
    key, now = key_of(config), clock.now()
    with closing(Spool.in_memory(config.state_dir / "agent.db", 1)) as kept:
        orders = kept.get("orders", OrdersState)
        baseline = kept.get("baseline", GpuBaseline) or GpuBaseline()
        active = kept.active()
        left = left_by(kept, config.run_dir, config.state_dir)
    standing = orders or OrdersState()
    seen, read = await _kernel_log(kernel, key, clock)
    gpus = checks.gpus(
        key, await probe.hardware(), baseline, now,
        policy=standing.policy, released=standing.released, expected=config.gpus_expected,
    )  # fmt: skip
    missing = () if checks.GPUS in config.checks_off else gpus.findings
    _, concluded = detect(Memory(), seen)
    findings = {f.id: f for f in (*concluded, *missing)}
    findings |= {id_: one.finding for id_, one in active.items()}
    open_ = [f for id_, f in findings.items() if id_ not in standing.released]
    looks = {
        checks.KERNEL_LOG: read,
        checks.GPUS: gpus.look,
        checks.STATE_DIR: state_dir_now(config.state_dir),
        checks.CLOCK: checks.clock(now, None),
    } | {name: skipped() for name in config.checks_off}
    if left.fault:
        looks[LEFT] = Look(Verdict.FAULT, left.detail)
    verdict = node_verdict(
        open_, standing, msgspec.structs.replace(standing.policy, confirm_s=0),
        {name: look.verdict for name, look in looks.items()}, False, now,
        details={name: look.detail for name, look in looks.items()},
    )  # fmt: skip
    return LookNow(
        cluster=key.cluster,
        node=key.node,
        verdict=verdict,
        checks=looks,
        findings=sorted(open_, key=lambda f: (-f.severity, f.at)),
        agent_state=orders is not None,
    )


async def _kernel_log(
    kernel: KernelLog, key: NodeKey, clock: Clock
) -> tuple[list[Observation], Look]:
    """All that the log holds at this moment and that means something."""
    seen: list[Observation] = []
    count, boot_at = 0, clock.now() - timedelta(seconds=clock.uptime_s())
    try:
        wanted = await kernel.drained()
        records = kernel.follow(None)
        while wanted is not None:
            record = await anext(records)
            if not isinstance(record, KernelRecord):
                continue
            count += 1
            at = boot_at + timedelta(microseconds=record.mono_us)
            found = observation_of(record, key=key, boot_id=kernel.boot_id(), at=at)
            if found is not None:
                seen.append(found)
            if record.seq >= wanted:
                break
    except OutsideError as error:
        return seen, Look(Verdict.UNKNOWN, str(error))
    return seen, Look(Verdict.OK, f"{count} records read")
