"""Decisions become the scheduler's state: read, act, read again. Safe to repeat at any point.

One drain costs three scheduler calls. Whose state a node bears is judged in decide/ownership.py,
before and after; between the two reads nothing but our own call happens here, though another's may
(the scheduler has no compare-and-set), and the second read then says so. A node's newer decision
overtakes the older ones. Jobs are released last, when their node is out or back as decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

import structlog

from komainu.core.decision import Action, Decision, Outcome, Result
from komainu.core.errors import SchedulerError
from komainu.core.names import JobId, NodeName
from komainu.core.node import HELD_BY_PROLOG, SchedulerJob, SchedulerNode
from komainu.ports import Scheduler
from komainu.quarantine.decide.ownership import after, before

FEW = 4
"""Up to so many nodes are read one by one, at the same time; beyond, one call for all is cheaper.
Also how many scheduler calls we make at one time: slurmctld serves everyone else as well."""

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


async def act(decisions: Sequence[Decision], scheduler: Scheduler, now: datetime) -> list[Outcome]:
    """Carry out `decisions` (oldest first) and say what came of each, in the same order.

    A scheduler that refuses or does not answer makes FAILED outcomes, never an exception: what
    failed is tried again while it has not expired.
    """
    nodes = [d for d in decisions if d.action is not Action.RELEASE_JOB]
    newest = {d.key: d for d in nodes}
    found = [_overtaken(d, newest[d.key], now) for d in nodes if newest[d.key] is not d]
    found += await _on_nodes(list(newest.values()), scheduler, now)
    found += await _on_jobs(
        [d for d in decisions if d.action is Action.RELEASE_JOB], scheduler, now
    )
    by_decision = {outcome.decision: outcome for outcome in found}
    outcomes = [by_decision[d.id] for d in decisions]
    for decision, outcome in zip(decisions, outcomes, strict=True):
        failed = outcome.result is Result.FAILED
        (_log.warning if failed else _log.info)(
            "decision_failed" if failed else "decision_carried_out",
            decision=decision.id,
            node=str(decision.key),
            action=decision.action.value,
            result=outcome.result.value,
            detail=outcome.detail,
        )
    return outcomes


async def _on_nodes(
    decisions: Sequence[Decision], scheduler: Scheduler, now: datetime
) -> list[Outcome]:
    if not decisions:
        return []
    try:
        seen = await _read(scheduler, [d.node for d in decisions])
    except SchedulerError as error:
        return [_outcome(d, Result.FAILED, now, str(error)) for d in decisions]
    outcomes: list[Outcome] = []
    due: list[Decision] = []
    for decision in decisions:
        found = before(decision, seen.get(decision.node))
        if found is None:
            due.append(decision)
        else:
            outcomes.append(_outcome(decision, found.result, now, found.detail))
    failed = await _write(due, scheduler, now)
    done = [d for d in due if d.id not in failed]
    outcomes += failed.values()
    return outcomes + await _read_back(done, seen, scheduler, now)


async def _write(
    decisions: Sequence[Decision], scheduler: Scheduler, now: datetime
) -> dict[str, Outcome]:
    """Make the calls: one for all resumes, one per distinct reason for drains. Gives the failures."""
    calls: dict[str, list[Decision]] = {}
    for decision in decisions:
        reason = "" if decision.action is Action.RESUME else decision.scheduler_reason
        calls.setdefault(reason, []).append(decision)

    async def call(reason: str, same: list[Decision]) -> list[Outcome]:
        names = [d.node for d in same]
        try:
            await (scheduler.drain(names, reason) if reason else scheduler.resume(names))
        except SchedulerError as error:
            return [_outcome(d, Result.FAILED, now, str(error)) for d in same]
        return []

    failures = await _few_at_a_time(partial(call, reason, same) for reason, same in calls.items())
    return {outcome.decision: outcome for some in failures for outcome in some}


async def _read_back(
    decisions: Sequence[Decision],
    was: dict[NodeName, SchedulerNode],
    scheduler: Scheduler,
    now: datetime,
) -> list[Outcome]:
    if not decisions:
        return []
    try:
        seen = await _read(scheduler, [d.node for d in decisions])
    except SchedulerError as error:
        detail = f"done, but not read back: {error}"
        return [_outcome(d, Result.FAILED, now, detail) for d in decisions]
    found = [(d, after(d, was.get(d.node), seen.get(d.node))) for d in decisions]
    return [_outcome(d, f.result, now, f.detail) for d, f in found]


async def _read(scheduler: Scheduler, nodes: Collection[NodeName]) -> dict[NodeName, SchedulerNode]:
    if len(nodes) > FEW:
        return {node.node: node for node in await scheduler.nodes()}
    seen = await asyncio.gather(*(scheduler.node(node) for node in nodes))
    return {node.node: node for node in seen if node is not None}


async def _on_jobs(
    decisions: Sequence[Decision], scheduler: Scheduler, now: datetime
) -> list[Outcome]:
    """Release jobs that are held for a failed prolog and for nothing else; a person's hold stays."""
    if not decisions:
        return []
    try:
        held = _held_by_prolog(await scheduler.jobs())
        # Two refusals of one job (two bad nodes) are one release.
        due = {d.job: d for d in reversed(decisions) if d.job is not None and d.job in held}
        failed = await _few_at_a_time(partial(_release, job, scheduler) for job in due)
        still = _held_by_prolog(await scheduler.jobs()) if due else frozenset()
    except SchedulerError as error:
        return [_outcome(d, Result.FAILED, now, str(error)) for d in decisions]
    errors = {job: error for job, error in failed if error}
    return [_job_outcome(d, now, due=due, errors=errors, still=still) for d in decisions]


async def _release(job: JobId, scheduler: Scheduler) -> tuple[JobId, str]:
    try:
        await scheduler.release_job(job)
    except SchedulerError as error:
        return job, str(error)
    return job, ""


def _job_outcome(
    decision: Decision,
    now: datetime,
    *,
    due: Mapping[JobId, Decision],
    errors: Mapping[JobId, str],
    still: Collection[JobId],
) -> Outcome:
    job = decision.job
    if job is not None and job in errors:
        return _outcome(decision, Result.FAILED, now, errors[job])
    if job is not None and job in still:
        return _outcome(decision, Result.FAILED, now, f"job {job} is still held after release")
    if job is not None and due.get(job) is decision:
        return _outcome(decision, Result.DONE, now, f"job {job} released")
    return _outcome(decision, Result.ALREADY, now, f"job {job} is not held for a failed prolog")


def _held_by_prolog(jobs: Iterable[SchedulerJob]) -> frozenset[JobId]:
    return frozenset(job.id for job in jobs if job.held and job.reason == HELD_BY_PROLOG)


def _overtaken(decision: Decision, newer: Decision, now: datetime) -> Outcome:
    return _outcome(decision, Result.EXPIRED, now, f"overtaken by {newer.id}")


def _outcome(decision: Decision, result: Result, now: datetime, detail: str) -> Outcome:
    return Outcome(
        decision=decision.id,
        cluster=decision.cluster,
        node=decision.node,
        result=result,
        at=now,
        detail=detail,
    )


async def _few_at_a_time(calls: Iterable[Callable[[], Awaitable[_T]]]) -> list[_T]:
    """Each call is begun only in its turn: a server that ends meanwhile leaves none half begun."""
    gate = asyncio.Semaphore(FEW)

    async def one(call: Callable[[], Awaitable[_T]]) -> _T:
        async with gate:
            return await call()

    return list(await asyncio.gather(*(one(call) for call in calls)))
