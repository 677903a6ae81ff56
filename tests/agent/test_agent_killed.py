"""A real agent process, killed again and again in a storm of kernel lines.

KOMAINU_KILLS and KOMAINU_SEED repeat it longer or exactly.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from komainu.clients.kmsg import host_boot_id, parse_record
from komainu.core.decision import Order, OrderKind
from komainu.core.gate import read_verdict
from komainu.core.names import ClusterName, NodeKey, NodeName
from komainu.core.node import Phase
from komainu.core.observation import Finding
from komainu.core.verdict import Verdict
from komainu.core.wire import Batch, Reply
from komainu.health.collect import observation_of
from komainu.health.detect import Memory, detect

KILLS = int(os.environ.get("KOMAINU_KILLS", "40"))
SEED = int(os.environ.get("KOMAINU_SEED", "20261130"))
KEY = NodeKey(ClusterName("c1"), NodeName("n1"))


class _Centre:
    """A server that keeps each finding under its id, and sometimes dies before it answers."""

    def __init__(self, chance: random.Random) -> None:
        self.findings: dict[str, list[Finding]] = defaultdict(list)
        self.spooled = -1
        self.orders_seen: list[int] = []
        self.ordered: list[Order] = []
        self._lock = threading.Lock()
        outer = self

        class _Peer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with outer._lock:
                    batch = msgspec.json.decode(body, type=Batch)
                    answer = outer._take(batch)
                    lost = chance.random() < 0.1
                if lost:
                    self.close_connection = True
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        class _Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """A peer that was killed is what this test does."""

        self._http = _Quiet(("127.0.0.1", 0), _Peer)
        self.address = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    def _take(self, batch: Batch) -> bytes:
        for finding in batch.findings:
            self.findings[finding.id].append(finding)
        if not batch.wait_s:
            self.spooled = batch.spooled
        self.orders_seen.append(batch.orders_seen)
        return msgspec.json.encode(
            Reply(
                batch=batch.id,
                orders=self.ordered[batch.orders_seen :],
                server_time=datetime.now(UTC),
            )
        )

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Storm:
    """Writes kernel records without a pause: faults, noise, and forgeries by users."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self._path, self._chance = path, chance
        self.faults = 0
        self._stop = threading.Event()
        path.touch()
        self._thread = threading.Thread(target=self._blow)
        self._thread.start()

    def _blow(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            for seq in itertools.count():
                file.write(self._record(seq))
                if self._stop.wait(self._chance.expovariate(80)):
                    return

    def _record(self, seq: int) -> bytes:
        kind = self._chance.random()
        us = int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1e6)
        bus = self._chance.randrange(8) + 0x41
        xid = f"NVRM: Xid (PCI:0000:{bus:02x}:00): 79, pid=1, name=x, GPU has fallen off the bus."
        if kind < 0.6:
            self.faults += 1
            return f"3,{seq},{us},-;{xid}\n".encode()
        if kind < 0.7:
            return f"12,{seq},{us},-;{xid}\n".encode()
        return f"6,{seq},{us},-;eth0: link is up {seq}\n SUBSYSTEM=net\n".encode()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def _expected(log: Path) -> set[str]:
    """Findings of the whole log, judged in one go."""
    now, boot = datetime.now(UTC), host_boot_id()
    records = (parse_record(line) for line in log.read_bytes().split(b"\n"))
    seen = (observation_of(one, key=KEY, boot_id=boot, at=now) for one in records if one)
    return {finding.id for finding in detect(Memory(), [one for one in seen if one])[1]}


@contextlib.contextmanager
def _agent(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "agent.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "komainu.agent", str(folder / "komainu.toml")], stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _configured(folder: Path, address: str) -> None:
    (folder / "token").write_text("t\n")
    (folder / "komainu.toml").write_text(
        f"""[agent]
cluster = "c1"
node = "n1"
server = "{address}"
state_dir = "{folder}/state"
run_dir = "{folder}/run"
token_file = "{folder}/token"
kernel_log = "file:{folder}/kmsg"
heartbeat_s = 1
"""
    )


@pytest.mark.chaos
@pytest.mark.timeout(30 + KILLS * 6)
def test_no_finding_is_lost_or_doubled_however_often_the_agent_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    centre = _Centre(random.Random(SEED + 1))
    _configured(tmp_path, centre.address)
    storm = _Storm(tmp_path / "kmsg", random.Random(SEED + 2))
    try:
        for kill in range(KILLS):
            with _agent(tmp_path):
                _wait_for_life(tmp_path, chance)
                time.sleep(chance.uniform(0, 0.4))
            if kill == KILLS // 3:
                now = datetime.now(UTC)
                centre.ordered.append(Order(number=1, kind=OrderKind.HOLD, at=now, reason="storm"))
        storm.close()
        expected = _expected(tmp_path / "kmsg")
        with _agent(tmp_path):
            _until(lambda: expected <= centre.findings.keys() and centre.spooled == 0)
            _until(lambda: centre.orders_seen[-1] == 1)
        verdicts = [
            read_verdict((tmp_path / where / "verdict").read_text("ascii"))
            for where in ("run", "state")
        ]
    finally:
        storm.close()
        centre.close()
    assert storm.faults > KILLS
    assert len(expected) == storm.faults
    assert set(centre.findings) == expected
    for sent in centre.findings.values():
        assert len({(one.code, one.component, one.fields["pci"]) for one in sent}) == 1
    assert [one.verdict for one in verdicts] == [Verdict.FAULT, Verdict.FAULT]
    assert [one.phase for one in verdicts] == [Phase.SETTLED, Phase.SETTLED]
    first_seen = centre.orders_seen.index(1)
    assert set(centre.orders_seen[first_seen + 2 :]) == {1}


def _wait_for_life(folder: Path, chance: random.Random) -> None:
    """Until the agent has begun to work, mostly; else until somewhere in its start."""
    log, before = folder / "agent.log", (folder / "agent.log").stat().st_size
    end = time.monotonic() + (20 if chance.random() < 0.9 else chance.uniform(0.05, 0.5))
    while log.stat().st_size == before and time.monotonic() < end:
        time.sleep(0.005)


def _until(true: object, timeout_s: float = 60) -> None:
    assert callable(true)
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "did not come to rest"
        time.sleep(0.05)
