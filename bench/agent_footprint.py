"""What the agent costs a node: memory (PSS, with its children) and processor time while idle.

A real agent process, following a kernel log file in which nothing happens, renewing its verdict each
second, sending heartbeats to a small server and waiting there for orders. PSS is the agent's share of
memory as the kernel counts it; where other Python programs run beside it they carry part of the
common libraries, so RSS, which counts those whole, is shown too.

    python -m bench.agent_footprint [--quick] [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from komainu.core.wire import Batch, Reply

TICKS = os.sysconf("SC_CLK_TCK")
SETTLE_S = 3.0
"""Start-up is not idling."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 s instead of 120 s")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    seconds = 20 if arguments.quick else 120
    with tempfile.TemporaryDirectory() as folder:
        figures = _measure(Path(folder), seconds)
    print(f"{'figure':<18}{'found':>10}   goal")
    print(f"{'pss_mb':<18}{figures['pss_mb']:>10.1f}   ≤ 50")
    print(f"{'rss_mb':<18}{figures['rss_mb']:>10.1f}")
    print(f"{'idle_core_share':<18}{figures['idle_core_share']:>10.4f}   ≤ 0.01")
    print(f"{'start_s':<18}{figures['start_s']:>10.2f}   start to first verdict OK")
    if arguments.json:
        bed = f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores"
        print(json.dumps({"figures": figures, "peers": {}, "n": seconds, "bed": bed}))
    return 0


def _measure(folder: Path, seconds: int) -> dict[str, float]:
    with _server() as address:
        return _measured(folder, seconds, address)


def _measured(folder: Path, seconds: int, address: str) -> dict[str, float]:
    (folder / "kmsg").write_text("6,1,1,-;quiet\n")
    (folder / "token").write_text("token\n")
    config = folder / "komainu.toml"
    config.write_text(
        f'[agent]\nnode = "bench"\nserver = "{address}"\nstate_dir = "{folder}/state"\n'
        f'run_dir = "{folder}/run"\nkernel_log = "file:{folder}/kmsg"\n'
        f'token_file = "{folder}/token"\n'
    )
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "komainu.agent", str(config)], stderr=subprocess.DEVNULL
    ) as agent:
        try:
            start_s = _until_ok(folder / "run" / "verdict", began)
            time.sleep(SETTLE_S)
            before, at = _cpu_s(agent.pid), time.monotonic()
            time.sleep(seconds)
            used, wall = _cpu_s(agent.pid) - before, time.monotonic() - at
            pids = (agent.pid, *_children(agent.pid))
            pss, rss = (sum(_kb(pid, what) for pid in pids) for what in ("Pss", "Rss"))
        finally:
            agent.terminate()
    return {
        "pss_mb": round(pss / 1024, 1),
        "rss_mb": round(rss / 1024, 1),
        "idle_core_share": round(used / wall, 5),
        "start_s": round(start_s, 2),
    }


def _until_ok(verdict: Path, began: float) -> float:
    while time.monotonic() < began + 30:
        if verdict.exists() and " OK " in verdict.read_text("ascii"):
            return time.monotonic() - began
        time.sleep(0.01)
    raise SystemExit("the agent did not come to OK within 30 s")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(fields[i]) for i in (11, 12, 13, 14)) / TICKS


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in found.split()]


def _kb(pid: int, what: str) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith(f"{what}:"))


class _Answer(BaseHTTPRequestHandler):
    """Accepts everything; holds a long poll as long as it asks to be held."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        batch = msgspec.json.decode(
            self.rfile.read(int(self.headers["Content-Length"])), type=Batch
        )
        time.sleep(batch.wait_s)
        answer = msgspec.json.encode(Reply(batch=batch.id, server_time=datetime.now(UTC)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextlib.contextmanager
def _server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
