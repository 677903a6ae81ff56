"""A server process for the crash test: real code, SQLite, and a scheduler kept in a file.

    python -m tests.server.crash_site DATABASE SCHEDULER PORT

The scheduler's file is replaced atomically, so it lives on when this process is killed; it also
counts the drains of each node, which is what the test looks at.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import structlog

from komainu.config import ClusterConfig, Config, ServerConfig
from komainu.core.names import ClusterName, JobId, NodeName
from komainu.core.node import SchedulerJob, SchedulerNode
from komainu.core.policy import GuardPolicy, Policy
from komainu.server.app import build
from komainu.server.run import serving
from komainu.store import open_store

C = ClusterName("c")
POLICY = Policy(guard=GuardPolicy(max_nodes=1000, max_share=1.0, max_in_window=1000))


class Kept(msgspec.Struct, frozen=True):
    """The scheduler's file."""

    nodes: list[SchedulerNode]
    drains: dict[str, int] = {}

    @classmethod
    def read(cls, path: Path) -> Kept:
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def write(self, path: Path) -> None:
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(self))
        new.replace(path)


class FileScheduler:
    """Nodes in a file; a drain of a node that is drained already is counted all the same."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def nodes(self) -> Sequence[SchedulerNode]:
        return Kept.read(self.path).nodes

    async def node(self, node: NodeName) -> SchedulerNode | None:
        return next((one for one in await self.nodes() if one.node == node), None)

    async def jobs(self) -> Sequence[SchedulerJob]:
        return ()

    async def drain(self, nodes: Collection[NodeName], reason: str) -> None:
        for node in nodes:
            self._set(node, frozenset({"DRAIN"}), reason, drains=1)

    async def resume(self, nodes: Collection[NodeName]) -> None:
        for node in nodes:
            self._set(node, frozenset(), "", drains=0)

    async def release_job(self, job: JobId) -> None:
        del job

    async def started(self) -> datetime | None:
        return None

    def _set(self, name: NodeName, flags: frozenset[str], reason: str, drains: int) -> None:
        kept = Kept.read(self.path)
        nodes = [
            msgspec.structs.replace(one, flags=flags, reason=reason) if one.node == name else one
            for one in kept.nodes
        ]
        count = kept.drains.get(name, 0) + drains
        Kept(nodes, {**kept.drains, name: count}).write(self.path)


class _Clock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def uptime_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _main(database: str, scheduler: Path, port: int) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    config = Config(
        policy=POLICY,
        server=ServerConfig(listen=f"127.0.0.1:{port}"),
        clusters=(ClusterConfig(name="c", scheduler_poll_s=1),),
    )
    store = open_store(database)
    app = build(config, store=store, schedulers={C: FileScheduler(scheduler)}, clock=_Clock())
    await serving(app, config.server, asyncio.Event())


if __name__ == "__main__":
    os.environ.pop("PYTHONDEVMODE", None)
    asyncio.run(_main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
