"""A server for tests: one small cluster, a scheduler in memory, people and a node."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from starlette.applications import Starlette
from starlette.testclient import TestClient

from komainu.config import ClusterConfig, Config, ServerConfig
from komainu.core.errors import SchedulerError
from komainu.core.names import ClusterName, JobId, NodeName
from komainu.core.node import SchedulerJob, SchedulerNode
from komainu.core.policy import GuardPolicy, Policy
from komainu.core.wire import Batch, Enrolled
from komainu.server import secrets
from komainu.server.app import build
from komainu.server.lab import LabControls
from komainu.store import SqlStore

C = ClusterName("c")
PASSWORD = "correct horse battery"
HASHED = secrets.password_hash(PASSWORD)
ROLES = ("viewer", "operator", "admin")
POLICY = Policy(guard=GuardPolicy(max_nodes=2, max_share=1.0, max_in_window=2))


class Clock:
    """Real time, which a test may shift."""

    def __init__(self) -> None:
        self.shift = timedelta()
        self._stopped: datetime | None = None

    def stop(self) -> None:
        """Only shifts move it from here on."""
        self._stopped = datetime.now(UTC)

    def now(self) -> datetime:
        return (self._stopped or datetime.now(UTC)) + self.shift

    def uptime_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class MemoryScheduler:
    """Nodes that drain and resume; it can be made to fail."""

    def __init__(self, nodes: int = 4) -> None:
        names = [NodeName(f"n{number}") for number in range(nodes)]
        self.known = {n: SchedulerNode(cluster=C, node=n, state="IDLE", gpus=8) for n in names}
        self.queue: list[SchedulerJob] = []
        self.broken = False
        self.drains: list[str] = []

    async def nodes(self) -> Sequence[SchedulerNode]:
        self._answer()
        return list(self.known.values())

    async def node(self, node: NodeName) -> SchedulerNode | None:
        self._answer()
        return self.known.get(node)

    async def jobs(self) -> Sequence[SchedulerJob]:
        self._answer()
        return self.queue

    async def drain(self, nodes: Collection[NodeName], reason: str) -> None:
        self._answer()
        for node in nodes:
            self.set(node, "DRAIN", reason=reason)
            self.drains.append(node)

    async def resume(self, nodes: Collection[NodeName]) -> None:
        self._answer()
        for node in nodes:
            self.set(node)

    async def release_job(self, job: JobId) -> None:
        self._answer()

    async def started(self) -> datetime | None:
        self._answer()
        return None

    def set(self, node: str, *flags: str, reason: str = "", by: str = "") -> None:
        name = NodeName(node)
        self.known[name] = msgspec.structs.replace(
            self.known[name], flags=frozenset(flags), reason=reason, reason_by=by
        )

    def _answer(self) -> None:
        if self.broken:
            raise SchedulerError("scheduler of c did not answer in 10 s")


def application(
    store: SqlStore,
    scheduler: MemoryScheduler,
    clock: Clock,
    lab: LabControls | None = None,
    poll_s: int = 60,
) -> Starlette:
    config = Config(
        policy=POLICY,
        server=ServerConfig(session_hours=1),
        clusters=(ClusterConfig(name="c", scheduler_poll_s=poll_s), ClusterConfig(name="watched")),
    )
    return build(config, store=store, schedulers={C: scheduler}, clock=clock, lab=lab)


def people(store: SqlStore) -> None:
    """An account and an API token per role, named after it."""
    now = datetime.now(UTC)
    for role in ROLES:
        store.put_user(role, role, HASHED, now)
        store.put_api_token(secrets.token_hash(f"token-{role}"), role, now)


def bearer(role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer token-{role}"}


def node_token(client: TestClient, store: SqlStore, node: str = "n0", cluster: str = "c") -> str:
    now = datetime.now(UTC)
    hour = now + timedelta(hours=1)
    store.put_join_token(secrets.token_hash(f"join-{node}"), ClusterName(cluster), 1, hour, now)
    asked = {"join_token": f"join-{node}", "cluster": cluster, "node": node}
    answer = client.post("/api/v1/enrol", json=asked)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=Enrolled).node_token


def sent(client: TestClient, batch: Batch, token: str) -> object:
    answer = client.post(
        "/api/v1/batches",
        content=msgspec.json.encode(batch),
        headers={"Authorization": f"Bearer {token}"},
    )
    assert answer.status_code == 200, answer.text
    return answer.json()
