"""A real server process is killed again and again while a client resends until it is answered."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import msgspec
import pytest
from tests.server.crash_site import C, Kept

from komainu.core.decision import OrderKind
from komainu.core.names import NodeKey, NodeName
from komainu.core.node import SchedulerNode
from komainu.core.observation import Component, Finding
from komainu.core.verdict import FaultClass, Severity
from komainu.core.wire import Batch, Reply
from komainu.server import secrets
from komainu.store import SqlStore, open_store

KILLS = int(os.environ.get("KOMAINU_KILLS", "30"))
PER_LIFE = 8
"""Batches accepted in one life of the server; then it only acts until it is killed."""
PER_NODE = 2
NODES = (KILLS + 3) * PER_LIFE // PER_NODE
PER_BATCH = 3


class Victim:
    """The server process, its database and its scheduler."""

    def __init__(self, home: Path) -> None:
        self.database = f"sqlite:///{home}/komainu.db"
        self.scheduler = home / "scheduler.json"
        nodes = [SchedulerNode(cluster=C, node=_node(n), state="IDLE") for n in range(NODES)]
        Kept(nodes).write(self.scheduler)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        ask = [self.database, str(self.scheduler), str(self.port)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.crash_site", *ask],
            cwd=Path(__file__).parents[2],
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def drains(self) -> dict[str, int]:
        return Kept.read(self.scheduler).drains


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    made = Victim(tmp_path)
    yield made
    made.kill()


def _node(number: int) -> NodeName:
    return NodeName(f"n{number:04}")


def _batch(number: int) -> Batch:
    node = _node(number // PER_NODE)
    findings = [
        Finding(
            id=f"F-{number}-{part}",
            cluster=C,
            node=node,
            code="GPU-XID-79",
            component=Component("gpu", f"0000:4{part}:00"),
            severity=Severity.FATAL,
            fault_class=FaultClass.QUARANTINE_NOW,
            summary="fell off the bus",
            at=datetime.now(UTC),
        )
        for part in range(PER_BATCH)
    ]
    return Batch(
        id=f"B-{number}",
        cluster=C,
        node=node,
        boot_id="b",
        agent_version="0",
        sent_at=datetime.now(UTC),
        findings=findings,
    )


def _tokens(store: SqlStore) -> dict[str, str]:
    now = datetime.now(UTC)
    store.put_join_token("join", C, NODES, now + timedelta(hours=1), now)
    tokens = {_node(number): secrets.new_token() for number in range(NODES)}
    for node, token in tokens.items():
        assert store.enrol("join", NodeKey(C, NodeName(node)), secrets.token_hash(token), now)
    return {str(node): token for node, token in tokens.items()}


def _send(victim: Victim, client: httpx2.Client, batch: Batch, token: str) -> Reply | None:
    """The reply, or None when the server was not there or died over it."""
    url = f"http://127.0.0.1:{victim.port}/api/v1/batches"
    head = {"Authorization": f"Bearer {token}"}
    try:
        answer = client.post(url, content=msgspec.json.encode(batch), headers=head)
    except httpx2.TransportError:
        return None
    if answer.status_code == 503:
        return None
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=Reply)


@pytest.mark.chaos
@pytest.mark.timeout(60 + 10 * KILLS)
def test_a_server_killed_at_any_moment_loses_and_repeats_nothing(victim: Victim) -> None:
    chance = random.Random(20261130)
    with closing(open_store(victim.database)) as store:
        tokens = _tokens(store)
    accepted = 0
    with httpx2.Client(timeout=5, trust_env=False) as client:
        for _ in range(KILLS):
            victim.start()
            lives_s = chance.uniform(0.0, 0.3)
            if chance.random() < 0.2:  # while it starts, or is only just up
                time.sleep(chance.uniform(0.0, 1.5))
            else:
                accepted = _resend(victim, client, accepted, tokens, lives_s)
            victim.kill()
        victim.start()
        accepted = _resend(victim, client, accepted, tokens, 1.0, last=True)
        _settle(victim, accepted)
    victim.kill()
    with closing(open_store(victim.database)) as store:
        _check(store, victim, accepted)


def _resend(
    victim: Victim,
    client: httpx2.Client,
    accepted: int,
    tokens: dict[str, str],
    lives_s: float,
    *,
    last: bool = False,
) -> int:
    """Send batches in order, each until it is answered, for `lives_s` from the server's first
    answer on; the caller then kills it. How many are accepted now.
    """
    deadline = time.monotonic() + 30
    ends, most = None, accepted + PER_LIFE
    if last:  # whole nodes only, so that every node heard of is heard twice
        most -= most % PER_NODE
    while ends is None or time.monotonic() < ends or (last and accepted < most):
        assert time.monotonic() < deadline, "the server did not answer within 30 s"
        batch = _batch(min(accepted, most - 1))
        reply = _send(victim, client, batch, tokens[batch.node])
        if reply is None:
            time.sleep(0.01)
            continue
        assert reply.batch == batch.id
        ends = ends or time.monotonic() + lives_s
        accepted = min(accepted + 1, most)
    return accepted


def _settle(victim: Victim, accepted: int) -> None:
    """Until every node is drained: what was decided before any of the crashes gets done."""
    deadline = time.monotonic() + 30
    while len(victim.drains()) < accepted // PER_NODE:
        assert time.monotonic() < deadline, victim.drains()
        time.sleep(0.05)
    time.sleep(2.5)  # more looks, which must find nothing to do


def _check(store: SqlStore, victim: Victim, accepted: int) -> None:
    nodes = [_node(number) for number in range(accepted // PER_NODE)]
    assert len(nodes) > KILLS
    found = Counter(one.id for one in store.findings(C, open_only=False))
    assert found == {
        f"F-{number}-{part}": 1 for number in range(accepted) for part in range(PER_BATCH)
    }
    decisions = store.decision_records(C, limit=10_000)
    assert Counter(record.decision.node for record in decisions) == dict.fromkeys(nodes, 1)
    results = Counter(record.outcomes[-1].result.value for record in decisions)
    assert set(results) <= {"done", "already"}
    assert victim.drains() == dict.fromkeys(nodes, 1)
    for node in nodes:
        orders = store.orders_after(NodeKey(C, node), 0)
        assert [order.number for order in orders] == list(range(1, len(orders) + 1))
        kinds = Counter(order.kind for order in orders)
        assert (kinds[OrderKind.HOLD], kinds[OrderKind.POLICY]) == (1, 1)
    seqs = [change.seq for change in store.changes(0, limit=1_000_000)]
    assert seqs == list(range(1, len(seqs) + 1))
    assert store.last_seq() == len(seqs)
