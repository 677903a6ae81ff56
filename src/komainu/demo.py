"""`komainu demo`: a whole cluster in one process, and the real product watching it.

The lab makes nodes, kernel logs, scheduler, jobs and faults. Everything else is what runs on a real
cluster: one agent per node, the gate's scripts for every job, the server with its store and console,
and people who ask the server over HTTP. This file only wires them, and tells what happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.lab import house
from komainu.lab.house import HOST, free_port, way_in

if TYPE_CHECKING:
    from komainu.agent.agent import Agent
    from komainu.clients.server_link import HttpLink
    from komainu.config import Config
    from komainu.lab.cluster import LabCluster, Release
    from komainu.server.lab import OfferedFault
    from komainu.store import SqlStore

CLUSTER = ClusterName("lab")
SETTINGS = "komainu.toml"
PEOPLE = {"demo": "admin", "viewer": "viewer", "technician": "operator"}
GUARD_WINDOW_S = 60
"""The guard's window, compressed like the rest of the lab: ten minutes by default on a real cluster."""
TELL_PROGRESS_S = 1.0


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command."""

    nodes: int
    gpus: int
    speed: float
    seed: int
    port: int
    faults: bool
    log: Path | None = None


@click.command("demo")
@click.option("--nodes", default=100, show_default=True, type=click.IntRange(2, 1000))
@click.option("--gpus", default=8, show_default=True, type=click.IntRange(1, 16), help="Per node.")
@click.option(
    "--speed",
    default=120.0,
    show_default=True,
    type=click.FloatRange(1, 10_000),
    help="Seconds of a job's life per second.",
)
@click.option("--seed", default=40, show_default=True, help="Another seed is another story.")
@click.option(
    "--port", default=8470, show_default=True, help="Of the console; the next free one if taken."
)
@click.option("--faults/--no-faults", default=True, help="Whether faults strike by themselves.")
@click.option(
    "--log",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the log of agents and server there; without it only errors are shown.",
)
def demo(**given: Any) -> None:
    """A make-believe cluster with the real agent, gate, server and console. Ctrl-C ends it."""
    with _logging_to(given["log"]), house.home() as home:
        asyncio.run(_Demo(Wishes(**given), home).run())
    click.echo("ended; nothing is left behind")


COMMANDS: tuple[click.Command, ...] = (demo,)


class _Strings:
    """What a visitor can pull from the page (server.lab.LabControls)."""

    def __init__(self, lab: LabCluster) -> None:
        self._lab = lab

    def faults(self) -> Sequence[OfferedFault]:
        from komainu.lab.faults import TOLD
        from komainu.server.lab import OfferedFault

        parts = {fault: told.partition(": ") for fault, told in TOLD.items()}
        return [
            OfferedFault(id=fault.value, title=title, text=text)
            for fault, (title, _, text) in parts.items()
        ]

    async def inject(self, cluster: ClusterName, node: NodeName, gpu: int, fault: str) -> None:
        from komainu.lab.faults import Fault

        self._known(cluster, node)
        if fault not in set(Fault):
            raise KeyError(f"fault {fault}")
        await self._lab.inject(node, Fault(fault), gpu)

    async def repair(self, cluster: ClusterName, node: NodeName) -> None:
        self._known(cluster, node)
        self._lab.mend(node)

    def _known(self, cluster: ClusterName, node: NodeName) -> None:
        if cluster != CLUSTER or node not in self._lab.nodes:
            raise KeyError(f"node {cluster}/{node}")


class _Demo:
    """One run."""

    def __init__(self, wishes: Wishes, home: Path) -> None:
        self._wishes, self._home = wishes, home
        self._began = time.monotonic()
        self._stop = asyncio.Event()
        self._lines: list[str] | None = []
        """What is told before the address is shown comes after it."""

    async def run(self) -> None:
        """Until Ctrl-C, SIGTERM, or something that runs has failed."""
        from komainu.lab.cluster import LabCluster, LabShape

        for sign in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(sign, self._stop.set)
        wishes = self._wishes
        self._progress(f"making {wishes.nodes} nodes with {wishes.gpus} GPUs each")
        lab = LabCluster(
            LabShape(
                cluster=CLUSTER,
                nodes=wishes.nodes,
                gpus=wishes.gpus,
                speed=wishes.speed,
                seed=wishes.seed,
                faults=wishes.faults,
            ),
            self._home / "nodes",
            self._tell,
        )
        port = free_port(wishes.port)
        config = _config(self._home, port)
        async with _store(config) as store:
            passwords = _people(store, self._home)
            (self._home / SETTINGS).write_text(_settings(config, self._home), "utf-8")
            await self._live(lab, config, store, passwords)

    async def _live(
        self, lab: LabCluster, config: Config, store: SqlStore, passwords: dict[str, str]
    ) -> None:
        from komainu.lab import story
        from komainu.server.app import build
        from komainu.server.run import serving

        self._progress("starting the server")
        app = build(
            config,
            store=store,
            schedulers={CLUSTER: lab.scheduler},
            clock=lab.clock,
            lab=_Strings(lab),
        )
        serve_until = asyncio.Event()
        server = asyncio.create_task(serving(app, config.server, serve_until))
        await _listening(config, server)
        self._progress("starting an agent on every node")
        agents, links = _agents(lab, config, self._home)
        running = [asyncio.create_task(agent.run(self._stop)) for agent in agents]
        players = [
            asyncio.create_task(lab.run(_technician(config, self._home))),
            asyncio.create_task(story.follow(store, CLUSTER, self._tell)),
            asyncio.create_task(self._welcome(lab, store, config, passwords)),
        ]
        try:
            await self._until_stopped([server, *running, *players])
        finally:
            self._stop.set()
            click.echo("\nending …")
            await _gone(players)
            for link in links:
                link.close()
            await asyncio.gather(*running, return_exceptions=True)
            serve_until.set()
            await asyncio.gather(server, return_exceptions=True)

    async def _until_stopped(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait for the end; a task that fails ends everything and is told."""
        stopped = asyncio.create_task(self._stop.wait())
        waiting: set[asyncio.Task[Any]] = {*tasks, stopped}
        while not stopped.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped}:
                task.result()
        stopped.cancel()

    async def _welcome(
        self, lab: LabCluster, store: SqlStore, config: Config, passwords: dict[str, str]
    ) -> None:
        """Show the way in as soon as every agent has been heard, then tell the story."""
        while True:
            heard = await asyncio.to_thread(_heard, store)
            if heard >= self._wishes.nodes:
                break
            self._progress(f"{heard} of {self._wishes.nodes} agents have reported")
            await asyncio.sleep(TELL_PROGRESS_S)
        took = time.monotonic() - self._began
        click.echo(way_in(config.client.server, passwords, self._home / SETTINGS, took))
        lab.watched.set()
        held, self._lines = self._lines or [], None
        for line in held:
            click.echo(line)

    def _progress(self, text: str) -> None:
        click.echo(f"{time.monotonic() - self._began:5.1f} s  {text}")

    def _tell(self, text: str) -> None:
        line = f"{time.strftime('%H:%M:%S')}  {text}"
        if self._lines is None:
            click.echo(line)
        else:
            self._lines.append(line)


# ── the parts ────────────────────────────────────────────────────────────────────────────────────


def _config(home: Path, port: int) -> Config:
    from komainu.config import ClientConfig, ClusterConfig, Config, ServerConfig
    from komainu.core.policy import GuardPolicy, Policy

    return Config(
        server=ServerConfig(listen=f"{HOST}:{port}", database=f"sqlite:///{home}/komainu.db"),
        client=ClientConfig(server=f"http://{HOST}:{port}", cluster=CLUSTER),
        clusters=(ClusterConfig(name=CLUSTER, scheduler="none", scheduler_poll_s=2),),
        policy=Policy(guard=GuardPolicy(max_share=0.25, window_s=GUARD_WINDOW_S)),
    )


@contextlib.asynccontextmanager
async def _store(config: Config) -> AsyncIterator[SqlStore]:
    from komainu.store import open_store

    store = await asyncio.to_thread(open_store, config.server.database)
    try:
        yield store
    finally:
        store.close()


def _people(store: SqlStore, home: Path) -> dict[str, str]:
    """Make the accounts, API tokens for two of them, and the nodes' join token; the passwords to show."""
    from komainu.lab.clock import LabClock
    from komainu.server import secrets

    now, passwords = LabClock().now(), {}
    for name, role in PEOPLE.items():
        passwords[name] = secrets.new_password()
        store.put_user(name, role, secrets.password_hash(passwords[name]), now)
    kept = {name: secrets.new_token() for name in ("demo", "technician", "join")}
    for name in ("demo", "technician"):
        store.put_api_token(secrets.token_hash(kept[name]), name, now)
    join = secrets.token_hash(kept["join"])
    store.put_join_token(join, CLUSTER, 10_000, now + timedelta(days=1), now)
    for name, secret in kept.items():
        path = home / f"{name}.token"
        path.touch(mode=0o600)
        path.write_text(secret, "ascii")
    return passwords


def _settings(config: Config, home: Path) -> str:
    """The komainu.toml with which a visitor's command line finds this demo."""
    quoted = {
        "server": config.client.server,
        "cluster": CLUSTER,
        "token_file": str(home / "demo.token"),
    }
    return "[client]\n" + "".join(f'{key} = "{value}"\n' for key, value in quoted.items())


def _agents(lab: LabCluster, config: Config, home: Path) -> tuple[list[Agent], list[HttpLink]]:
    """One real agent per node, each with its own token and its own connections."""
    from komainu.agent.agent import Agent, AgentPorts
    from komainu.clients.server_link import HttpLink
    from komainu.config import AgentConfig

    agents, links = [], []
    for node in lab.nodes.values():
        settings = AgentConfig(
            cluster=CLUSTER,
            node=node.key.node,
            server=config.client.server,
            state_dir=node.state_dir,
            run_dir=node.run_dir,
            token_file=node.home / "node.token",
            join_token_file=home / "join.token",
            rack=node.rack,
        )
        link = HttpLink(
            settings.server,
            cluster=settings.cluster,
            node=settings.node,
            token_file=settings.token_file,
            join_token_file=settings.join_token_file,
        )
        links.append(link)
        ports = AgentPorts(clock=lab.clock, kernel=node.kernel, probe=node, link=link)
        agents.append(Agent(settings, ports))
    return agents, links


async def _listening(config: Config, server: asyncio.Task[None]) -> None:
    """Wait until the server accepts connections; raises what made it fail instead."""
    from komainu.server.run import address

    while not server.done():
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(*address(config.server.listen))
            writer.close()
            await writer.wait_closed()
            return
        await asyncio.sleep(0.05)
    server.result()


def _technician(config: Config, home: Path) -> Release:
    """The technician's way to Komainu: the same API that `komainu release` asks."""
    from komainu.clients.api import Api
    from komainu.core.views import Ask

    api = Api(msgspec.structs.replace(config.client, token_file=home / "technician.token"))

    async def release(node: NodeName, reason: str) -> None:
        ask = Ask(reason=reason)
        await asyncio.to_thread(api.release, NodeKey(CLUSTER, node), ask)

    return release


def _heard(store: SqlStore) -> int:
    return sum(record.seen is not None for record in store.node_records(CLUSTER))


@contextlib.contextmanager
def _logging_to(path: Path | None) -> Iterator[None]:
    """Structlog's events into `path`; without it only errors, on the terminal."""
    import structlog

    before = structlog.get_config()
    with contextlib.ExitStack() as stack:
        where = None if path is None else stack.enter_context(path.open("a", encoding="utf-8"))
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(
                logging.ERROR if path is None else logging.INFO
            ),
            logger_factory=structlog.PrintLoggerFactory(where),
            cache_logger_on_first_use=False,
        )
        try:
            yield
        finally:
            structlog.configure(**before)


async def _gone(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
