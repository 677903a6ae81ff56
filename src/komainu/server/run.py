"""Running the server: ports connected from komainu.toml, uvicorn in front, a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import structlog
import uvicorn
from starlette.applications import Starlette

from komainu.clients.clock import RealClock
from komainu.config import Config, ServerConfig
from komainu.core.errors import ConfigError
from komainu.core.names import ClusterName
from komainu.core.policy import Policy
from komainu.health.runbooks import can_exist
from komainu.ports import Scheduler
from komainu.server.app import build
from komainu.store import open_store

log = structlog.get_logger()
LAST_ANSWERS_S = 5
"""How long requests under way may still take once the server is told to end."""


class _Uvicorn(uvicorn.Server):
    """uvicorn without its own signals: whoever runs it says when to end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serving(app: Starlette, config: ServerConfig, stop: asyncio.Event) -> None:
    """Serve `app` until `stop` is set; returns when the last answer is given. Raises ConfigError
    when the address cannot be had.
    """
    listener = await asyncio.to_thread(_listen, config.listen)
    server = _Uvicorn(
        uvicorn.Config(
            app,
            ssl_certfile=config.tls_cert or None,
            ssl_keyfile=config.tls_key or None,
            timeout_graceful_shutdown=LAST_ANSWERS_S,
            timeout_keep_alive=75,
            server_header=False,
            log_config=None,
            access_log=False,
            lifespan="on",
        )
    )
    task = asyncio.create_task(server.serve(sockets=[listener]))
    waiting = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        app.state.desk.stop()
        server.should_exit = True
        waiting.cancel()
        try:
            await task
        finally:
            listener.close()


def _listen(listen: str) -> socket.socket:
    """A listening socket, made by us: uvicorn would end the whole process where it cannot."""
    host, port = address(listen)
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(
            f"the server cannot listen on {listen}: {error}. Change [server] listen in "
            "komainu.toml, or stop the program that has the address."
        ) from error


def address(listen: str) -> tuple[str, int]:
    """Host and port of `[server] listen`."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 65536:
        raise ConfigError(
            f"[server] listen = {listen!r} cannot be used: expected ADDRESS:PORT, for example "
            "127.0.0.1:8470 or [::]:8470"
        )
    return host.strip("[]"), int(port)


def schedulers(config: Config) -> dict[ClusterName, Scheduler]:
    """The schedulers komainu.toml names."""
    from komainu.clients.slurm import Slurm

    return {
        ClusterName(cluster.name): Slurm(
            ClusterName(cluster.name),
            slurm_conf=cluster.slurm_conf,
            slurm_bin=cluster.slurm_bin,
            timeout_s=cluster.scheduler_timeout_s,
        )
        for cluster in config.clusters
        if cluster.scheduler == "slurm"
    }


def serve(config: Config) -> None:
    """Run the server of `config` until SIGTERM or SIGINT."""
    for name in ("tls_cert", "tls_key"):
        path = getattr(config.server, name)
        if path and not Path(path).is_file():
            raise ConfigError(f"[server] {name} = {path!r} is not a readable file")
    if bool(config.server.tls_cert) != bool(config.server.tls_key):
        raise ConfigError("[server] tls_cert and tls_key belong together: set both, or neither")
    asyncio.run(_serve(config))


def unknown_codes(policy: Policy) -> list[str]:
    """Finding codes the policy names that no finding can have: misspelt, they would do nothing."""
    named = {*policy.severity, *policy.guard.fatal_when_tripped}
    return sorted(code for code in named if not can_exist(code))


async def _serve(config: Config) -> None:
    for code in unknown_codes(config.policy):
        log.warning(
            "policy_code_unknown",
            code=code,
            why="no finding has it, so the policy does nothing here; see `komainu catalogue`",
        )
    store = await asyncio.to_thread(open_store, config.server.database)
    try:
        app = build(config, store=store, schedulers=schedulers(config), clock=RealClock())
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sign, stop.set)
        log.info("server_listens", address=config.server.listen, tls=bool(config.server.tls_cert))
        await serving(app, config.server, stop)
    finally:
        store.close()
