"""The agent as a process: configuration, log, signals, and the real outside.

Ends cleanly on SIGTERM and SIGINT. Started by agent/__main__.py.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from pathlib import Path

import structlog

from komainu.agent.agent import Agent, AgentPorts, key_of
from komainu.agent.probe import SysProbe
from komainu.clients.clock import RealClock
from komainu.clients.kmsg import kernel_log
from komainu.clients.server_link import HttpLink
from komainu.config import AgentConfig, load
from komainu.core.errors import KomainuError
from komainu.core.verdict import Verdict

EXIT = {Verdict.OK: 0, Verdict.FAULT: 1, Verdict.UNKNOWN: 2, Verdict.SKIPPED: 2}


def main(arguments: list[str]) -> int:
    """Run the agent; returns the exit status."""
    _log_to_stderr()
    paths = [Path(one) for one in arguments if not one.startswith("--")]
    try:
        config = load(paths[0] if paths else None).agent
        return asyncio.Runner().run(_run(config, frozenset(arguments)))
    except KomainuError as error:
        sys.stderr.write(f"komainu agent: {error}\n")
        return 2


async def _run(config: AgentConfig, flags: frozenset[str]) -> int:
    link = link_of(config)
    agent = Agent(
        config,
        AgentPorts(
            clock=RealClock(),
            kernel=kernel_log(config.kernel_log),
            probe=SysProbe(config.rack),
            link=link,
            ready=tell_systemd,
        ),
        accept_gpus="--accept-gpus" in flags,
        accept_state="--accept-state" in flags,
    )
    gc.freeze()
    try:
        if "--once" in flags:
            return EXIT[(await agent.once()).verdict]
        await agent.run(_stop_on_signals())
    finally:
        if link is not None:
            link.close()
    return 0


def link_of(config: AgentConfig) -> HttpLink | None:
    """The link `agent.server` names; None when it is empty."""
    if not config.server:
        return None
    key = key_of(config)
    return HttpLink(
        config.server,
        cluster=key.cluster,
        node=key.node,
        token_file=config.token_file,
        join_token_file=config.join_token_file,
        ca_file=config.ca_file,
    )


def tell_systemd(address: str | None = None) -> None:
    """Tell systemd (Type=notify) that this service is ready, and so start what waits for it: slurmd.

    One datagram to the socket that $NOTIFY_SOCKET names, as sd_notify(3) sends it; nothing without.
    """
    address = os.environ.get("NOTIFY_SOCKET", "") if address is None else address
    if not address:
        return
    where = f"\0{address[1:]}" if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1", where)
    except OSError as error:
        structlog.get_logger().warning("systemd_not_told", address=address, why=error.strerror)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _log_to_stderr() -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "event"], bool_as_flag=False
            ),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
