"""One agent on one make-believe node."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from tests.agent.fakes import FakeKernel, FakeLink, FakeProbe, HandClock, until

from komainu.agent.agent import Agent, AgentPorts
from komainu.agent.node import Node
from komainu.config import AgentConfig
from komainu.core.gate import VerdictFile, read_verdict
from komainu.core.node import NodeVerdict
from komainu.core.verdict import Verdict


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    structlog.configure(processors=[_drop])
    yield
    structlog.reset_defaults()


def _drop(*_: object) -> str:
    raise structlog.DropEvent


class Bed:
    """A node with an agent that can be started, stopped and killed, and what it left on disk."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.kernel = FakeKernel(self.clock)
        self.link: FakeLink | None = FakeLink(self.clock)
        self.probe = FakeProbe()
        self.config = AgentConfig(
            cluster="c1", node="n1", state_dir=folder / "state", run_dir=folder / "run"
        )
        self.accept_gpus = self.accept_state = False
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.agent: Agent | None = None

    @property
    def server(self) -> FakeLink:
        assert self.link is not None
        return self.link

    def made(self) -> Agent:
        ports = AgentPorts(clock=self.clock, kernel=self.kernel, probe=self.probe, link=self.link)
        return Agent(
            self.config, ports, accept_gpus=self.accept_gpus, accept_state=self.accept_state
        )

    def start(self) -> None:
        self.agent = self.made()
        self._stop = asyncio.Event()
        self._running = asyncio.create_task(self.agent.run(self._stop))

    async def started(self) -> None:
        """Start, and wait until everything has been looked at."""
        self.start()
        await until(lambda: len(self.verdict.checks) >= 4, "looking")

    async def stop(self) -> None:
        self._stop.set()
        if self._running is not None:
            await self._running
            self._running = None

    async def kill(self) -> None:
        """End without any farewell."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
            self._running = None

    @property
    def verdict(self) -> NodeVerdict:
        found = self.agent.verdict if self.agent else None
        return found or NodeVerdict(verdict=Verdict.UNKNOWN, message="does not run")

    @property
    def node(self) -> Node:
        assert self.agent is not None
        assert self.agent._node is not None
        return self.agent._node

    @property
    def word(self) -> str:
        """Verdict and phase, in one word."""
        return f"{self.verdict.verdict}/{self.verdict.phase}"

    def file(self, *, kept: bool = False) -> VerdictFile:
        folder = self.config.state_dir if kept else self.config.run_dir
        return read_verdict((folder / "verdict").read_text("ascii"))

    async def becomes(self, word: str) -> None:
        try:
            await until(lambda: self.word == word)
        except AssertionError:
            raise AssertionError(f"expected {word}, found {self.word}: {self.verdict}") from None


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    one = Bed(tmp_path)
    yield one
    await one.kill()
