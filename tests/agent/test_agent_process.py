"""The agent as a process: signals, exit codes, what it imports, one per state directory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest
import structlog.testing
from tests.agent.fakes import XID_79

from komainu.agent.process import tell_systemd
from komainu.core.gate import read_verdict
from komainu.core.verdict import Verdict


def _config(folder: Path, **rest: str) -> Path:
    settings = {
        "cluster": "c1", "node": "n1", "server": "",
        "state_dir": f"{folder}/state", "run_dir": f"{folder}/run",
        "kernel_log": f"file:{folder}/kmsg",
    } | rest  # fmt: skip
    (folder / "kmsg").touch()
    path = folder / "komainu.toml"
    path.write_text(
        "[agent]\n" + "".join(f'{key} = "{value}"\n' for key, value in settings.items())
    )
    return path


def _start(config: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "komainu.agent", str(config), *arguments]
    env = {**os.environ, **environment}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)


def _verdict(folder: Path, wanted: Verdict) -> str:
    for _ in range(2000):
        try:
            text = (folder / "run" / "verdict").read_text("ascii")
        except FileNotFoundError:
            text = ""
        if text and read_verdict(text).verdict is wanted:
            return text
        time.sleep(0.01)
    raise AssertionError(f"verdict did not become {wanted}: {text!r}")


def test_it_renews_its_verdict_and_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    with _start(_config(tmp_path)) as process:
        first = read_verdict(_verdict(tmp_path, Verdict.OK))
        for _ in range(500):
            if read_verdict(_verdict(tmp_path, Verdict.OK)).uptime_s > first.uptime_s:
                break
            time.sleep(0.01)
        assert read_verdict(_verdict(tmp_path, Verdict.OK)).uptime_s > first.uptime_s
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 0, said


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_when_the_first_verdict_is_there(tmp_path: Path, abstract: bool) -> None:
    address = f"@komainu-{uuid4().hex}" if abstract else f"{tmp_path}/notify"
    config = _config(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{address[1:]}" if abstract else address)
        systemd.settimeout(20)
        with _start(config, NOTIFY_SOCKET=address) as process:
            told = systemd.recv(100)
            verdict = (tmp_path / "run" / "verdict").read_text("ascii")
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
    assert told == b"READY=1"
    assert read_verdict(verdict).verdict is Verdict.OK


def test_a_systemd_that_is_not_there_is_said_and_does_no_harm(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as said:
        tell_systemd(f"{tmp_path}/none")
        tell_systemd("")
    assert [one["event"] for one in said] == ["systemd_not_told"]


def test_once_tells_by_its_exit_code(tmp_path: Path) -> None:
    config = _config(tmp_path)
    with _start(config, "--once") as process:
        process.communicate(timeout=30)
    assert process.returncode == 0
    (tmp_path / "kmsg").write_text(f"3,1,1,-;{XID_79}\n")
    with _start(config, "--once") as process:
        _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "finding_concluded" in said
    assert read_verdict((tmp_path / "state" / "verdict").read_text()).verdict is Verdict.FAULT


def test_a_second_one_says_why_it_does_not_start(tmp_path: Path) -> None:
    config = _config(tmp_path)
    with _start(config) as first:
        _verdict(tmp_path, Verdict.OK)
        with _start(config) as second:
            _, said = second.communicate(timeout=30)
        assert second.returncode == 2
        assert "in use by another agent" in said
        assert "Traceback" not in said
        first.terminate()
        first.communicate(timeout=20)


def test_a_setting_it_does_not_know_stops_the_start(tmp_path: Path) -> None:
    with _start(_config(tmp_path, colour="red")) as process:
        _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "colour" in said
    assert "Traceback" not in said


def test_it_carries_nothing_of_the_command_line_or_the_server() -> None:
    code = (
        "import sys; sys.modules['rich'] = None; import komainu.agent.process; "
        "print(*{name.split('.')[0] for name, module in sys.modules.items() if module})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    unwanted = {
        "click", "rich", "httpx2", "httpx", "sqlalchemy", "starlette", "uvicorn", "jinja2",
        "alembic", "pynvml", "tomli",
    }  # fmt: skip
    assert not unwanted & set(done.stdout.split())
