"""`komainu demo` as a visitor meets it: a process, an address, a login, and a clean end."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from komainu.lab import house

NODE = "gpu-005"


class Visitor:
    """The demo's process, its terminal and a browser's session with its server."""

    def __init__(
        self, process: subprocess.Popen[str], terminal: Path, browser: httpx2.Client
    ) -> None:
        self.process, self._terminal, self.browser = process, terminal, browser
        self.wait_until(lambda: "Ctrl-C ends it" in self.shown() and "└" in self.shown())
        address = re.search(r"http://\S+", self.shown())
        password = re.search(r"log in as +demo +(\S+)", self.shown())
        assert address is not None
        assert password is not None
        browser.base_url = address[0]
        me = self.post("/login", user="demo", password=password[1])
        self.browser.headers["X-Komainu-Csrf"] = me["csrf"]

    def shown(self) -> str:
        return self._terminal.read_text("utf-8")

    def get(self, path: str) -> Any:
        answer = self.browser.get("/api/v1" + path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: object) -> Any:
        answer = self.browser.post("/api/v1" + path, json=body)
        assert answer.status_code in {200, 204}, answer.text
        return answer.json() if answer.content else None

    def view(self) -> Any:
        return self.get(f"/nodes/lab/{NODE}")

    def standing(self) -> str:
        return str(self.view()["row"]["standing"])

    def wait_until(self, true: Callable[[], bool], within_s: float = 60) -> None:
        until = time.monotonic() + within_s
        while not true():
            assert self.process.poll() is None, self.shown()
            assert time.monotonic() < until, self.shown()
            time.sleep(0.2)


@pytest.fixture
def visitor(tmp_path: Path) -> Iterator[Visitor]:
    terminal = tmp_path / "terminal"
    command = [sys.executable, "-m", "komainu", "demo", "--nodes", "12", "--no-faults"]
    with terminal.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [*command, "--port", "18470", "--speed", "600"],
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        )
    browser = httpx2.Client(trust_env=False)
    try:
        yield Visitor(process, terminal, browser)
    finally:
        browser.close()
        process.kill()
        process.wait()


@pytest.mark.timeout(180)
def test_a_visitor_breaks_a_node_watches_it_go_and_sees_it_come_back(
    visitor: Visitor, tmp_path: Path
) -> None:
    assert list(tmp_path.glob("komainu-demo-*"))
    visitor.wait_until(lambda: visitor.get("/clusters")[0]["jobs_running"] > 0)
    visitor.post("/lab/inject", cluster="lab", node=NODE, gpu=3, fault="gpu-lost")
    visitor.wait_until(lambda: visitor.standing() == "quarantined")
    struck = time.time()

    visitor.wait_until(lambda: "DRAIN" in visitor.view()["scheduler"]["flags"])
    view = visitor.view()
    assert view["standing_decision"]["decision"]["by"] == "policy"
    assert any(found["finding"]["code"] == "GPU-XID-79" for found in view["findings"])

    settings = re.search(r"export KOMAINU_CONFIG=(\S+)", visitor.shown())
    assert settings is not None
    asked = subprocess.run(
        [sys.executable, "-m", "komainu", "why", NODE],
        env={"PATH": "/usr/bin:/bin", "KOMAINU_CONFIG": settings[1]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 1, asked.stderr
    assert "GPU-XID-79" in asked.stdout

    visitor.post("/lab/repair", cluster="lab", node=NODE)
    quiet = visitor.view()["jobs"]
    assert all(_seconds(job["started"]) < struck for job in quiet if job["started"])
    visitor.wait_until(lambda: visitor.standing() == "healthy", 90)
    decisions = visitor.get(f"/decisions?cluster=lab&node={NODE}")["decisions"]
    assert decisions[0]["decision"]["by"] == "person:technician"
    assert "repaired" in decisions[0]["decision"]["reason"]

    visitor.process.send_signal(signal.SIGINT)
    assert visitor.process.wait(20) == 0
    assert "Traceback" not in visitor.shown()
    assert visitor.shown().rstrip().endswith("nothing is left behind")
    assert not list(tmp_path.glob("komainu-demo-*"))


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def test_the_next_free_port_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind((house.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert house.free_port(port) > port
