"""The process on every node: wires kernel log, gate, checks and server to one Node.

    kernel log ──follow──┐                      ┌──▶ verdict files ──▶ gate
    gate records ─gate───┤                      │
    GPUs, disk … ─look───┼──▶ Node: detect, keep┤
    server ◀──── ship ───┘      (agent/node.py) └──▶ spool ──▶ ship

On start the kept state gives the verdict before anything is read. Each loop runs for ever; one that
fails on something nobody foresaw is logged, makes the node UNKNOWN, and is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from komainu import __version__
from komainu.agent.checks import CHECKS, CLOCK, GPUS, GpuBaseline, Look
from komainu.agent.disk import Disk
from komainu.agent.follow import Follower
from komainu.agent.gate import GateFollower
from komainu.agent.look import Looker
from komainu.agent.node import Node
from komainu.agent.place import Cursor, Place
from komainu.agent.previous_boot import PREVIOUS_BOOT, PreviousBoot
from komainu.agent.ship import Shipper
from komainu.config import AgentConfig
from komainu.core.errors import ConfigError, ServerError, StorageError
from komainu.core.names import NodeKey, cluster_name, node_name
from komainu.core.node import NodeVerdict
from komainu.core.verdict import Verdict
from komainu.ports import Clock, KernelLog, NodeProbe, ServerLink

RENEW_S = 1.0
UPKEEP_EVERY = 5
"""Renewals between two rounds of upkeep: keeping an idle cursor, trying a failed disk again."""
COPY_AFTER_S = 0.02
"""The copy syncs to disk, so what changed it is told to the server first."""
READY_S = 0.05
RESTART_S = 1.0
FORGIVE_S = 60.0
FAREWELL_S = 2.0
"""Longest time that stopping waits to ship what is left; the spool keeps it otherwise."""


@dataclass(frozen=True)
class AgentPorts:
    """What the agent needs from outside."""

    clock: Clock
    kernel: KernelLog
    probe: NodeProbe
    link: ServerLink | None
    """None: no server; the node decides alone."""
    ready: Callable[[], None] = lambda: None
    """Called once, when the first verdict that rests on a look has been published."""


def key_of(config: AgentConfig) -> NodeKey:
    """This node's name, checked: an empty setting means the host's short name."""
    short = socket.gethostname().partition(".")[0]
    return NodeKey(cluster_name(config.cluster), node_name(config.node or short))


class Agent:
    """One node's agent."""

    def __init__(
        self,
        config: AgentConfig,
        ports: AgentPorts,
        *,
        accept_gpus: bool = False,
        accept_state: bool = False,
    ) -> None:
        """`accept_gpus`: forget the GPUs seen before; the ones that are here now are the node's.
        `accept_state`: let go of a FAULT whose reasons were lost (agent/left.py).
        """
        unknown = set(config.checks_off) - {GPUS, CLOCK}
        if unknown:
            raise ConfigError(
                f"agent.checks_off names {sorted(unknown)}; only {GPUS!r} and {CLOCK!r} can be "
                f"switched off, of {CHECKS}. Correct it in komainu.toml."
            )
        self._config, self._ports = config, ports
        self._accept_gpus, self._accept_state = accept_gpus, accept_state
        self._node: Node | None = None
        self._failed_at = 0.0

    @property
    def verdict(self) -> NodeVerdict | None:
        """The node's verdict now; None before the agent runs."""
        return self._node.verdict if self._node else None

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`. Raises StorageError when another agent has the state directory."""
        with _alone_in(self._config.state_dir):
            node = self._node = self._take_up()
            node.publish()
            node.say("started", version=__version__)
            tasks = [
                asyncio.create_task(self._for_ever(name, loop))
                for name, loop in self._loops(node).items()
            ]
            try:
                await _until_stopped(stop, tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await self._farewell(node)
                await node.disk.sync()
                node.disk.close()

    async def once(self, timeout_s: float = 10.0) -> NodeVerdict:
        """One look: run until the log is read, the checks are made and the spool is empty."""
        stop = asyncio.Event()
        running = asyncio.create_task(self.run(stop))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not running.done() and not self._looked():  # noqa: ASYNC110  looks have no event
                    await asyncio.sleep(0.05)
        stop.set()
        await running
        return self.verdict or NodeVerdict(verdict=Verdict.UNKNOWN)

    def _looked(self) -> bool:
        node = self._node
        if node is None or not set(CHECKS) <= node.looks.keys():
            return False
        return not node.spool.parcel(1).ids

    def _take_up(self) -> Node:
        config, ports = self._config, self._ports
        with contextlib.suppress(OSError):  # shows when the verdict is written there
            config.run_dir.mkdir(parents=True, exist_ok=True)
        place = Place(
            state_dir=config.state_dir,
            run_dir=config.run_dir,
            spool_max_bytes=config.spool_max_mb * 1_000_000,
        )
        boot_id = ports.kernel.boot_id()
        node = Node(key_of(config), boot_id, place, ports.clock, alone=ports.link is None)
        if node.cursor.boot_id != boot_id:
            # A new boot restarts the numbers. What the old one said last is read once.
            node.learn([], cursor=Cursor(boot_id=boot_id), previous=node.cursor)
        if self._accept_gpus:
            node.learn([], baseline=GpuBaseline())
        if self._accept_state:
            node.accept_state()
        return node

    def _loops(self, node: Node) -> dict[str, Callable[[], Awaitable[None]]]:
        config, ports = self._config, self._ports
        follower = Follower(node, ports.kernel, ports.clock)
        looker = Looker(
            node,
            follower,
            kernel=ports.kernel,
            probe=ports.probe,
            clock=ports.clock,
            state_dir=config.state_dir,
            off=frozenset(config.checks_off),
            gpus_expected=config.gpus_expected,
        )
        loops: dict[str, Callable[[], Awaitable[None]]] = {
            "renew": lambda: self._renew(node),
            "ready": lambda: self._tell_ready(node),
            "copy": lambda: _copy(node),
            "sync": lambda: _sync(node.disk),
            "follow": follower.run,
            PREVIOUS_BOOT: PreviousBoot(node, ports.kernel, ports.clock).run,
            "look": looker.run,
            "gate": GateFollower(node, looker, ports.clock, config.run_dir).run,
        }
        if ports.link is not None:
            shipper = Shipper(node, ports.link, ports.clock, config.heartbeat_s)
            loops |= {"send": shipper.run_sending, "listen": shipper.run_listening}
        return loops

    async def _for_ever(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        node = self._node
        while node is not None:
            try:
                await loop()
            except Exception as error:  # the one broad except: nobody foresaw it
                node.log.exception("loop_failed", loop=name)
                why = f"{name} failed and was started again: {type(error).__name__}"
                node.see({"agent": Look(Verdict.UNKNOWN, why)})
                self._failed_at = self._ports.clock.uptime_s()
                await self._ports.clock.sleep(RESTART_S)
            else:
                return

    async def _renew(self, node: Node) -> None:
        rounds = 0
        while True:
            node.publish()
            if rounds % UPKEEP_EVERY == 0:
                node.save_cursor()
                node.recover()
                self._forgive(node)
            rounds += 1
            await self._ports.clock.sleep(RENEW_S)

    async def _tell_ready(self, node: Node) -> None:
        while node.starting:
            await self._ports.clock.sleep(READY_S)
        node.publish()
        self._ports.ready()

    def _forgive(self, node: Node) -> None:
        """A loop that has run for a while since it failed no longer makes the node UNKNOWN."""
        if "agent" in node.looks and self._ports.clock.uptime_s() > self._failed_at + FORGIVE_S:
            node.see({"agent": None})

    async def _farewell(self, node: Node) -> None:
        node.say("stopping", version=__version__)
        node.copy()
        if self._ports.link is None:
            return
        shipper = Shipper(node, self._ports.link, self._ports.clock, self._config.heartbeat_s)
        with contextlib.suppress(TimeoutError, ServerError):
            async with asyncio.timeout(FAREWELL_S):
                while await shipper.send_once():
                    pass


async def _until_stopped(stop: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
    """Wait for `stop`; raises what ended a loop for good, should anything."""
    stopping = asyncio.create_task(stop.wait())
    waiting = {stopping, *tasks}
    try:
        while not stopping.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        stopping.cancel()


async def _sync(disk: Disk) -> None:
    while True:
        await disk.sync_due.wait()
        await disk.sync()


async def _copy(node: Node) -> None:
    while True:
        await node.copy_due.wait()
        await asyncio.sleep(COPY_AFTER_S)
        node.copy()


@contextlib.contextmanager
def _alone_in(state_dir: Path) -> Iterator[None]:
    """Hold the state directory's lock. A directory that cannot even be opened locks nobody out: the
    agent then runs from memory and says so in its verdict.
    """
    fd = None
    with contextlib.suppress(OSError):
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if fd is not None:
            _lock(fd, state_dir)
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _lock(fd: int, state_dir: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StorageError(
            f"state directory {state_dir} is in use by another agent; expected to be its only user. "
            f"Stop that one (systemctl status komainu-agent), or give this one another state_dir."
        ) from error
