"""A make-believe Slurm with the real one's habits, as far as quarantine meets them.

A failed prolog drains its node and requeues *and holds* the innocent job; a failed epilog drains
the node and lets the job stand; a drain lets running jobs finish; a dead slurmd is noticed late;
resuming a node that is in service is refused to a person. tests/contract/ holds this file against
a real slurmctld. Not modelled: partitions, priorities, CPUs and memory, reservations, steps.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from komainu.core.errors import SchedulerError
from komainu.core.names import ClusterName, JobId, NodeName
from komainu.core.node import HELD_BY_PROLOG, SchedulerJob, SchedulerNode
from komainu.lab.machines import Hook, Job, JobSpec, LabRules, Node
from komainu.lab.placement import Room, Wish, place
from komainu.ports import Clock

SLURM = "root"
"""Who Slurm says it is when it drains a node itself."""


class LabScheduler:
    """Satisfies `ports.Scheduler`; the rest is what users, persons and misfortune do to Slurm.

    `run` must be running for anything to happen by itself.
    """

    def __init__(
        self,
        cluster: ClusterName,
        nodes: Mapping[NodeName, int],
        *,
        clock: Clock,
        prolog: Hook | None = None,
        epilog: Hook | None = None,
        rules: LabRules | None = None,
    ) -> None:
        """`nodes`: each with its number of GPUs."""
        self._cluster, self._clock, self._rules = cluster, clock, rules or LabRules()
        self._prolog, self._epilog = prolog, epilog
        self._started = clock.now().replace(microsecond=0)
        self._nodes = {name: Node(cluster, name, gpus) for name, gpus in nodes.items()}
        self._jobs: dict[JobId, Job] = {}
        self._waiting: dict[JobId, Job] = {}
        self._ended: deque[Job] = deque()
        self._numbers = itertools.count(1)
        self._later: list[tuple[datetime, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._dirty = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None

    # ── ports.Scheduler ──────────────────────────────────────────────────────────────────────────

    async def nodes(self) -> Sequence[SchedulerNode]:
        return [node.view() for node in self._nodes.values()]

    async def node(self, node: NodeName) -> SchedulerNode | None:
        found = self._nodes.get(node)
        return found.view() if found else None

    async def drain(self, nodes: Collection[NodeName], reason: str) -> None:
        for name in nodes:
            self.person_drain(name, SLURM, reason)

    async def resume(self, nodes: Collection[NodeName]) -> None:
        for name in nodes:
            if not self._known(name).usable:
                self._known(name).clear()
        self._dirty.set()

    async def jobs(self) -> Sequence[SchedulerJob]:
        now = self._clock.now()
        self._forget(now)
        return [job.view(now) for job in self._jobs.values()]

    async def release_job(self, job: JobId) -> None:
        found = self._job(job)
        if found.held:
            found.held = ""
            found.changed()
            self._dirty.set()

    async def started(self) -> datetime | None:
        return self._started

    # ── users ────────────────────────────────────────────────────────────────────────────────────

    def submit(self, spec: JobSpec) -> JobId:
        number = JobId(str(next(self._numbers)))
        job = Job(number, spec, self._clock.now())
        self._jobs[number] = self._waiting[number] = job
        self._dirty.set()
        return number

    def cancel(self, job: JobId) -> None:
        found = self._job(job)
        if found.running:
            self._end(found, "CANCELLED")
        elif found.state == "PENDING":
            self._settle(found, "CANCELLED")

    def fail(self, job: JobId) -> None:
        """Its program crashes."""
        found = self._job(job)
        if found.running:
            self._end(found, "FAILED")

    def job_on(self, node: NodeName, gpu: int) -> JobId | None:
        """Which job has this GPU."""
        jobs = self._known(node).jobs
        return next((job for job, gpus in jobs.items() if gpu in gpus), None)

    def hold(self, job: JobId) -> None:
        found = self._job(job)
        if found.state == "PENDING":
            found.held = "JobHeldUser"
            found.changed()

    # ── persons ──────────────────────────────────────────────────────────────────────────────────

    def person_drain(self, node: NodeName, who: str, reason: str) -> None:
        """`scontrol update state=drain`: overwrites whatever reason there was, as Slurm does."""
        found = self._known(node)
        found.drain = True
        found.say(reason, who, self._clock.now())

    def person_resume(self, node: NodeName, who: str) -> None:
        """`scontrol update state=resume`: refused when there is nothing to resume from."""
        found = self._known(node)
        if not found.drain and not found.down:
            raise SchedulerError(
                f"lab scheduler: {who} cannot resume {node}: found it in service, expected it "
                "drained or down (Slurm: Invalid node state specified). Nothing to do."
            )
        found.clear()
        self._dirty.set()

    def person_down(self, node: NodeName, who: str, reason: str) -> None:
        """`scontrol update state=down`: its jobs fail at once."""
        found = self._known(node)
        found.down = True
        found.say(reason, who, self._clock.now())
        self._fail_jobs(found)

    # ── misfortune ───────────────────────────────────────────────────────────────────────────────

    def kill_node(self, node: NodeName) -> None:
        """Its slurmd dies. slurmctld notices after a while and declares it DOWN after a longer one."""
        found = self._known(node)
        found.alive = False
        found.life += 1
        life = found.life
        self._in(self._rules.not_responding_s, lambda: self._miss(found, life))
        self._in(self._rules.down_s, lambda: self._declare_down(found, life))

    def return_node(self, node: NodeName) -> None:
        """Its slurmd starts again: back in service by itself (ReturnToService=1), drained or not."""
        found = self._known(node)
        found.alive = found.responding = True
        found.life += 1
        if found.lost:
            found.down = found.lost = False
            if not found.drain:
                found.clear()
        for job in [self._jobs[number] for number in found.jobs]:
            if job.state == "CONFIGURING":  # its launch was lost with the old slurmd
                self._requeue(job, held="")
        self._dirty.set()

    def _miss(self, node: Node, life: int) -> None:
        if node.life == life:
            node.responding = False

    def _declare_down(self, node: Node, life: int) -> None:
        if node.life != life:
            return
        node.down = node.lost = True
        if not node.drain:
            node.say("Not responding", "slurm", self._clock.now())
        self._fail_jobs(node)

    def _fail_jobs(self, node: Node) -> None:
        for job in [self._jobs[number] for number in node.jobs]:
            if job.state == "COMPLETING":
                node.give_back(job.id)
            elif job.spec.requeue:
                self._requeue(job, held="")
            else:
                self._end(job, "NODE_FAIL")

    # ── time ─────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Let time pass until cancelled: jobs start and end, hooks run, dead nodes are noticed."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                while True:
                    self._advance()
                    await self._until_something()
            finally:
                self._tasks = None

    def _in(self, seconds: float, what: Callable[[], None]) -> None:
        at = self._clock.now() + timedelta(seconds=seconds)
        heapq.heappush(self._later, (at, next(self._order), what))
        self._dirty.set()

    def _advance(self) -> None:
        now = self._clock.now()
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2]()
        self._dirty.clear()
        self._place(now)

    async def _until_something(self) -> None:
        """Sleep until the next event is due or something has changed."""
        changed = asyncio.ensure_future(self._dirty.wait())
        waits: list[asyncio.Future[Any]] = [changed]
        if self._later:
            ahead = (self._later[0][0] - self._clock.now()).total_seconds()
            waits.append(asyncio.ensure_future(self._clock.sleep(max(0.0, ahead))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _place(self, now: datetime) -> None:
        ready = (job for job in self._waiting.values() if not job.held and job.eligible <= now)
        wishes = [
            Wish(job.id, len(s.on) or s.nodes, s.gpus_per_node, s.duration_s, s.on)
            for job in itertools.islice(ready, self._rules.backfill_depth)
            if (s := job.spec)
        ]
        if not wishes:
            return
        far = now + timedelta(days=365)
        rooms = {
            node.name: Room(
                len(node.free),
                [(self._jobs[n].ends or far, len(gpus)) for n, gpus in node.jobs.items()],
            )
            for node in self._nodes.values()
            if node.usable
        }
        for number, names in place(wishes, rooms, now):
            self._start(self._waiting.pop(number), names, now)

    # ── a job's life ─────────────────────────────────────────────────────────────────────────────

    def _start(self, job: Job, names: Sequence[NodeName], now: datetime) -> None:
        gpus = job.spec.gpus_per_node
        job.where = {name: self._nodes[name].take(job.id, gpus) for name in names}
        job.life += 1
        job.state, job.started = "CONFIGURING", now
        job.ends = now + timedelta(seconds=job.spec.duration_s)
        job.changed()
        if not all(self._nodes[name].alive for name in names):
            return  # the launch goes nowhere; the node's death or return settles the job
        if self._prolog:
            self._spawn(self._run_prologs(job, self._prolog, job.life))
        else:
            self._go(job)

    def _go(self, job: Job) -> None:
        job.state, life = "RUNNING", job.life
        job.changed()
        self._in(job.spec.duration_s, lambda: self._complete(job, life))

    def _complete(self, job: Job, life: int) -> None:
        if job.life == life and job.state == "RUNNING":
            self._end(job, "COMPLETED")

    async def _run_prologs(self, job: Job, prolog: Hook, life: int) -> None:
        """All nodes' prologs at once; one failure sends the job back and drains that node only."""
        codes = await asyncio.gather(
            *(self._run_prolog(job, prolog, name, gpus) for name, gpus in job.where.items())
        )
        if job.life != life or job.state != "CONFIGURING":
            return
        if not any(codes):
            self._go(job)
        else:
            self._requeue(job, held="" if self._rules.nohold_on_prolog_fail else HELD_BY_PROLOG)

    async def _run_prolog(self, job: Job, prolog: Hook, name: NodeName, gpus: Sequence[int]) -> int:
        code = await prolog(job.id, name, job.spec.user, gpus)
        if code:
            self._drain_by_itself(name, "Prolog error")
        return code

    def _end(self, job: Job, state: str) -> None:
        """Stop a running job; its nodes are free when their epilogs have run."""
        job.life += 1
        job.ended = self._clock.now()
        if self._epilog is None:
            self._free(job)
            self._settle(job, state)
        else:
            job.state = "COMPLETING"
            job.changed()
            self._spawn(self._run_epilogs(job, self._epilog, state))

    async def _run_epilogs(self, job: Job, epilog: Hook, state: str) -> None:
        await asyncio.gather(
            *(
                self._run_epilog(job, epilog, self._nodes[name])
                for name in tuple(job.where)
                if self._nodes[name].alive
            )
        )
        self._free(job)
        self._settle(job, state)

    async def _run_epilog(self, job: Job, epilog: Hook, node: Node) -> None:
        code = await epilog(job.id, node.name, job.spec.user, job.where[node.name])
        if code:
            self._drain_by_itself(node.name, "Epilog error")
        node.give_back(job.id)
        self._dirty.set()

    def _free(self, job: Job) -> None:
        for name in job.where:
            self._nodes[name].give_back(job.id)
        self._dirty.set()

    def _settle(self, job: Job, state: str) -> None:
        """The job is over."""
        job.state, job.ends, job.held = state, None, ""
        job.ended = job.ended or self._clock.now()
        job.changed()
        self._waiting.pop(job.id, None)
        self._ended.append(job)
        self._forget(job.ended)

    def _requeue(self, job: Job, held: str) -> None:
        """Back into the queue under the same number, at the end, after a while."""
        now = self._clock.now()
        self._free(job)
        job.life += 1
        job.state, job.held = "PENDING", held
        job.submitted, job.started, job.ends, job.where = now, None, None, {}
        job.eligible = now + timedelta(seconds=self._rules.requeue_wait_s)
        job.changed()
        self._waiting[job.id] = job
        self._in(self._rules.requeue_wait_s, self._dirty.set)

    def _drain_by_itself(self, name: NodeName, reason: str) -> None:
        """Slurm's own drain; a node already drained keeps its reason."""
        node = self._nodes[name]
        if not node.drain:
            node.drain = True
            node.say(reason, SLURM, self._clock.now())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        if self._tasks is None:
            raise SchedulerError(
                "lab scheduler: a hook is due, but `run` is not running. Start it."
            )
        self._tasks.create_task(work)

    def _forget(self, now: datetime) -> None:
        oldest = now - timedelta(seconds=self._rules.min_job_age_s)
        while self._ended and (
            len(self._ended) > self._rules.history or (self._ended[0].ended or now) < oldest
        ):
            self._jobs.pop(self._ended.popleft().id, None)

    def _known(self, name: NodeName) -> Node:
        node = self._nodes.get(name)
        if node is None:
            raise SchedulerError(
                f"lab scheduler: no node {name!r} in cluster {self._cluster}: found none, expected "
                f"one of its {len(self._nodes)} (Slurm: Invalid node name specified). Check the name."
            )
        return node

    def _job(self, number: JobId) -> Job:
        job = self._jobs.get(number)
        if job is None:
            raise SchedulerError(
                f"lab scheduler: no job {number!r} in cluster {self._cluster} (Slurm: Invalid job "
                "id specified). It may have ended long ago; look at its history."
            )
        return job
