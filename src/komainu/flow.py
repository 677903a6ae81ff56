"""The whole product on one page.

What the world says becomes observations; what Komainu concludes, findings; what should happen,
decisions; what happened, outcomes; and what is learnt, lessons. Each step is a file of that name in
a room, and this file is the order in which they run.

    node:    kernel log … ──collect──▶ observations ──detect──▶ findings ──▶ verdict file ──▶ gate
                                          │ batches, at least once                ▲ orders
    centre:                               ▼                                       │
             store ◀── receive ── think: decide → guard → orders ──remember───────┘
               ▲                                     │
               └────────── note ◀── outcomes ◀── act ┘ (scheduler)

Thinking is pure and remembered before anything is done, so the server may die between any two lines
here: `to_do` finds what was decided and not done, and acting is safe to repeat.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
import structlog

from komainu.core.decision import Decision, Outcome
from komainu.core.names import ClusterName, NodeKey
from komainu.core.policy import Policy
from komainu.core.situation import ClusterSituation, NodeSituation, Thought
from komainu.ports import Clock, Scheduler, Store

log = structlog.get_logger()
Think = Callable[[Sequence[NodeSituation], ClusterSituation, Policy, datetime], Thought]
Act = Callable[[Sequence[Decision], Scheduler, datetime], Awaitable[Sequence[Outcome]]]
Aside = Callable[[Callable[[], Any]], Awaitable[Any]]


async def in_place(work: Callable[[], Any]) -> Any:
    """Blocking work done where it stands: right for tests and one-off commands."""
    return work()


class Rooms(msgspec.Struct, frozen=True, kw_only=True):
    """The steps the rooms lend to the flow."""

    think: Think
    """quarantine.decide.think: situations → decisions, guarded, with the orders that follow."""
    act: Act
    """quarantine.act.act: decisions → outcomes, safe to repeat."""


class Centre(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster's share of the server: its ports, rooms and policy."""

    cluster: ClusterName
    policy: Policy
    rooms: Rooms
    store: Store
    scheduler: Scheduler
    clock: Clock
    ripe: Callable[[Decision], bool] = lambda _: True
    """Whether a decision may be tried now: the server lets what failed wait, longer each time."""
    aside: Aside = in_place
    """How blocking work (the store) is done: the server does it in a thread, one piece at a time per
    cluster, so that the guard counts truly and the event loop never waits for a disk."""


class Looked(msgspec.Struct, frozen=True):
    """What a look at the scheduler told besides its nodes and jobs."""

    started: datetime | None
    """Since when the scheduler runs; None when it cannot be told."""


def consider(
    centre: Centre, nodes: Sequence[NodeKey], now: datetime, looked: Looked | None = None
) -> Thought:
    """Think about `nodes` and remember the thought. Blocking (the store), and nothing is done yet.
    `looked`: `nodes` are all that is unsettled, right after a look at the scheduler.

    The caller runs one at a time per cluster, so that the guard counts truly.
    """
    store, policy = centre.store, centre.policy
    whole = store.cluster_situation(centre.cluster, now, policy.guard.window_s)
    whole = msgspec.structs.replace(
        whole,
        looked=looked is not None,
        scheduler_started=None if looked is None else looked.started,
    )
    thought = _think(centre, nodes, whole, now)
    thought = msgspec.structs.replace(thought, cluster=centre.cluster)
    store.remember(thought, now)
    return thought


def _think(
    centre: Centre, nodes: Sequence[NodeKey], whole: ClusterSituation, now: datetime
) -> Thought:
    """Think of all together; where that fails, of those that can be thought of, so that what one
    node has sent does not keep the cluster's faults in service.
    """
    store, think, policy = centre.store, centre.rooms.think, centre.policy
    try:
        return think([store.situation(key, now) for key in nodes], whole, policy, now)
    except (TypeError, ValueError):
        sound = (_alone(centre, key, whole, now) for key in nodes)
        return think([one for one in sound if one is not None], whole, policy, now)


def _alone(
    centre: Centre, key: NodeKey, whole: ClusterSituation, now: datetime
) -> NodeSituation | None:
    """The node's situation; None, and said loudly, when it cannot be read or thought of."""
    try:
        situation = centre.store.situation(key, now)
        centre.rooms.think([situation], whole, centre.policy, now)
    except (TypeError, ValueError):
        log.exception("node_not_considered", cluster=key.cluster, node=key.node)
        return None
    return situation


async def carry_out(centre: Centre) -> Sequence[Outcome]:
    """Do everything decided, allowed and not yet done; note what came of it. One at a time."""
    now, told_within_s = centre.clock.now(), centre.policy.confirm_s
    due = await centre.aside(lambda: centre.store.to_do(centre.cluster, now, told_within_s))
    due = [decision for decision in due if centre.ripe(decision)]
    outcomes = await centre.rooms.act(due, centre.scheduler, now) if due else []
    if outcomes:
        await centre.aside(lambda: centre.store.note(outcomes))
    return outcomes


async def look(centre: Centre) -> Thought:
    """Look at the scheduler and think about all that is unsettled."""
    scheduler = centre.scheduler
    # Slurm drains a node before it holds the job its gate refused: read the other way round, a held
    # job never comes without its node's drain.
    jobs, nodes, started = (
        await scheduler.jobs(),
        await scheduler.nodes(),
        await scheduler.started(),
    )
    now, grades = centre.clock.now(), centre.policy.for_node()

    def think_all() -> Thought:
        centre.store.mirror(centre.cluster, nodes, jobs, now)
        unsettled = centre.store.unsettled(centre.cluster, now, grades)
        return consider(centre, unsettled, now, Looked(started))

    thought: Thought = await centre.aside(think_all)
    return thought


async def turn(centre: Centre) -> Sequence[Outcome]:
    """One full round: look at the scheduler, think about all that is unsettled, act."""
    await look(centre)
    return await carry_out(centre)
