"""One cluster's share of the server: looking at its scheduler, thinking, and acting.

Two loops, so that neither waits for the other: one looks at the scheduler every
`scheduler_poll_s` (sooner when a gate has refused a job), the other acts as soon as something is
decided. Thinking is one at a time under `thinking`, acting under `acting`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from typing import Any

import msgspec
import structlog

from komainu import flow
from komainu.core.errors import KomainuError, OutsideError, SchedulerError
from komainu.core.names import ClusterName, JobId, NodeKey, NodeName
from komainu.core.node import SchedulerJob, SchedulerNode
from komainu.core.observation import ObservationKind
from komainu.core.policy import Policy
from komainu.core.situation import Thought
from komainu.core.wire import Batch, Reply
from komainu.flow import Centre, Rooms
from komainu.ports import Clock, Received, Scheduler
from komainu.server.alerts import Alerts
from komainu.server.bell import Bell, wait_for
from komainu.server.retry import Retry
from komainu.store import SqlStore

log = structlog.get_logger()
LOOK_AT_MOST_S = 1.0
"""Shortest time between two looks at the scheduler, however many refusals come in."""
TAKEN_S = 0.1
"""How often it is asked whether a released node has taken its release."""
FEED = "feed"
"""The bell's key for the change feed."""


class WatchedCluster:
    """One cluster, watched. `scheduler` None: watch and tell, without acting."""

    def __init__(
        self,
        name: ClusterName,
        *,
        policy: Policy,
        rooms: Rooms,
        store: SqlStore,
        scheduler: Scheduler | None,
        clock: Clock,
        poll_s: float,
        bell: Bell,
    ) -> None:
        self.name = name
        self.policy = policy
        self.store = store
        self.bell = bell
        self._clock = clock
        self._poll_s = poll_s
        self._thinking = asyncio.Lock()
        self._acting = asyncio.Lock()
        self._act_now = asyncio.Event()
        self._look_now = asyncio.Event()
        self._retry = Retry(clock.uptime_s)
        self._retry_timer: asyncio.TimerHandle | None = None
        self.acts = scheduler is not None
        self._alerts = Alerts(name)
        self._guard_turns = 0
        self._considered: dict[NodeKey, int] = {}
        """Nodes that need no new thought while they report nothing new: an idle cluster's heartbeats
        would otherwise cost more than everything else. Every look thinks of all that is unsettled."""
        self._centre = Centre(
            cluster=name,
            policy=policy,
            rooms=rooms,
            store=store,
            scheduler=scheduler or Unwatched(),
            clock=clock,
            ripe=self._retry.ripe,
            aside=self.aside,
        )

    async def aside(self, work: Callable[[], Any]) -> Any:
        """Blocking work in a thread, one piece at a time. A caller that goes away does not let the
        next one in before its own work has ended.
        """
        async with self._thinking:
            task = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                await asyncio.wait([task])
                raise

    # ── an agent speaks ──────────────────────────────────────────────────────────────────────────

    async def take(self, batch: Batch, key: NodeKey) -> Reply:
        """Keep a batch, think about its node, and answer with its orders; the acting is woken, and
        not waited for. Waits up to `batch.wait_s` for an order when there is none.
        """

        def receive() -> tuple[Received, Thought]:
            now = self._clock.now()
            got = self.store.receive(batch, now)
            if self._considered.get(key) == self._guard_turns and got == Received():
                return got, Thought()
            thought = flow.consider(self._centre, [key], now)
            self._thought(thought, of_all=False)
            self._considered[key] = self._guard_turns
            return got, thought

        with self.bell.listening(key) as told:
            got, thought = await self.aside(receive)
            self._heard(batch, got, thought)
            orders = await asyncio.to_thread(self.store.orders_after, key, batch.orders_seen)
            if not orders and batch.wait_s > 0 and await wait_for(told, batch.wait_s):
                orders = await asyncio.to_thread(self.store.orders_after, key, batch.orders_seen)
        return Reply(
            batch=batch.id,
            orders=list(orders),
            resend=got.stranger,
            server_time=self._clock.now(),
        )

    def _heard(self, batch: Batch, got: Received, thought: Thought) -> None:
        self._alerts.heard(batch, got)
        if thought.decisions:
            self._act_now.set()
        new = set(got.observations)
        if any(o.kind is ObservationKind.GATE and o.id in new for o in batch.observations):
            self._look_now.set()
        self._tell(thought)
        if got.findings or got.observations or got.verdict_changed:
            self.bell.ring([FEED])

    def _thought(self, thought: Thought, *, of_all: bool) -> None:
        """Whatever was thought of a node before the guard tripped or recovered is out of date."""
        self._alerts.thought(thought, of_all=of_all)
        if thought.tripped is not None:
            self._guard_turns += 1

    def _tell(self, thought: Thought) -> None:
        self.told({order.key for order in thought.orders})

    def told(self, keys: Collection[NodeKey]) -> None:
        """Answer the agents that listen, and the pages."""
        if keys:
            self.bell.ring([*keys, FEED])

    # ── the two loops ────────────────────────────────────────────────────────────────────────────

    async def look_forever(self) -> None:
        while self.acts:
            await self._guarded("look", self.look)
            await asyncio.sleep(LOOK_AT_MOST_S)
            await wait_for(self._look_now, max(0.0, self._poll_s - LOOK_AT_MOST_S))
            self._look_now.clear()

    async def act_forever(self) -> None:
        while self.acts:
            await self._act_now.wait()
            self._act_now.clear()
            await self._guarded("act", self.carry_out)

    async def look(self) -> None:
        try:
            thought = await flow.look(self._centre)
        except OutsideError as error:
            why = str(error)
            log.warning("scheduler_unread", cluster=self.name, why=why)
            now = self._clock.now()
            await self.aside(lambda: self.store.scheduler_failed(self.name, why, now))
            self.bell.ring([FEED])
            return
        self._thought(thought, of_all=True)
        self._tell(thought)
        self.bell.ring([FEED])
        # What was decided before a crash, or failed, waits in to_do: every look tries it again.
        self._act_now.set()

    async def carry_out(self) -> None:
        """Act on all that is decided; what failed is tried again soon."""
        if not self.acts:
            return
        async with self._acting:
            outcomes = await flow.carry_out(self._centre)
            self._retry.note(outcomes)
            retry_in_s = self._retry.due_in_s()
        if outcomes:
            self.bell.ring([FEED])
            self._look_now.set()
        now = self._clock.now()
        untold = await self.aside(lambda: self.store.untold(self.name, now, self.policy.confirm_s))
        again = [s for s in (retry_in_s, TAKEN_S if untold else None) if s is not None]
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        loop = asyncio.get_running_loop()
        self._retry_timer = loop.call_later(min(again), self._act_now.set) if again else None

    async def scheduler_node(self, node: NodeName) -> SchedulerNode | None:
        """The node as the scheduler shows it now, with the jobs it was last seen with; as it was
        last seen when the scheduler does not answer.
        """
        record = await asyncio.to_thread(self.store.node_record, NodeKey(self.name, node))
        known = record.scheduler if record else None
        try:
            fresh = await self._centre.scheduler.node(node)
        except SchedulerError as error:
            log.warning("scheduler_unread", cluster=self.name, node=node, why=str(error))
            return known
        if fresh is None or known is None or fresh.jobs:
            return fresh
        return msgspec.structs.replace(fresh, jobs=known.jobs)

    async def _guarded(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        """A loop outlives what one round of it raises: the round is logged and comes again."""
        try:
            await step()
        except KomainuError as error:
            log.warning("round_failed", round=what, cluster=self.name, why=str(error))
            await asyncio.sleep(LOOK_AT_MOST_S)
        except Exception:  # the one broad except of this process's loops
            log.exception("round_failed", round=what, cluster=self.name)
            await asyncio.sleep(LOOK_AT_MOST_S)


class Unwatched:
    """The scheduler of a cluster that has none we may use: it shows nothing and does nothing."""

    async def nodes(self) -> Sequence[SchedulerNode]:
        return ()

    async def node(self, node: NodeName) -> SchedulerNode | None:
        del node
        return None

    async def jobs(self) -> Sequence[SchedulerJob]:
        return ()

    async def drain(self, nodes: Collection[NodeName], reason: str) -> None:
        raise self._refusal(f"drain {', '.join(nodes)} ({reason})")

    async def resume(self, nodes: Collection[NodeName]) -> None:
        raise self._refusal(f"resume {', '.join(nodes)}")

    async def release_job(self, job: JobId) -> None:
        raise self._refusal(f"release job {job}")

    async def started(self) -> datetime | None:
        return None

    @staticmethod
    def _refusal(what: str) -> SchedulerError:
        return SchedulerError(
            f'cannot {what}: this cluster is watched only (scheduler = "none" in komainu.toml)'
        )
