"""The command line where only a node's part is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from komainu import cli

ROOT = Path(__file__).parents[1]


def _on_a_node(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command where no package of the server's part can be imported."""
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({sorted(cli.SERVER_PART)}));"
        f"sys.argv = {['komainu', *arguments]}; from komainu.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("command", ["server", "demo"])
def test_a_command_that_is_not_installed_says_how_to_install_it(command: str) -> None:
    done = _on_a_node(command)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"Error: komainu {command} needs ")
    assert f"{sys.executable} -m pip install 'komainu-" in done.stderr
    assert "[server]" in done.stderr


def test_what_a_node_needs_runs_without_the_servers_part() -> None:
    assert _on_a_node("catalogue", "79").returncode == 0
    assert _on_a_node("--help").returncode == 0


def test_the_servers_part_is_the_extra_of_that_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extra = project["optional-dependencies"]["server"]
    assert {re.split(r"[>=\[<]", one)[0] for one in extra} == cli.SERVER_PART


def _komainu(arguments: str, redirections: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell, with its standard streams as the shell can make them."""
    return subprocess.run(
        ["bash", "-c", f"exec {sys.executable} -m komainu {arguments} {redirections}"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments", ["--help", "catalogue", "catalogue --json", "explain", "catalogue nosuch --json"]
)
def test_output_that_cannot_be_written_is_said_in_one_line(
    arguments: str, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    done = _komainu(arguments, ">/dev/full")
    assert done.returncode == 2
    said = done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    assert said[-1] == "Error: cannot write: No space left on device. Is standard output full?"


@pytest.mark.parametrize("arguments", ["--help", "catalogue", "catalogue --json"])
def test_a_reader_that_goes_away_is_no_fault(arguments: str) -> None:
    piped = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m komainu {arguments} | true; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert piped.returncode == 0
    assert not piped.stderr or piped.stderr.startswith("catalogue: ")


def test_closed_streams_end_in_one_line_or_in_none() -> None:
    done = _komainu("explain", "<&-")
    assert done.returncode == 2
    assert done.stderr == "komainu explain: standard input cannot be read: it is closed\n"
    assert _komainu("catalogue 79", ">&-").returncode == 0
    assert _komainu("catalogue nosuch", ">&-").returncode == 2
    assert _komainu("catalogue nosuch", ">&- 2>&-").returncode == 2


def test_a_server_that_is_no_address_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    config = tmp_path / "komainu.toml"
    config.write_text(f'[client]\nserver = "http://[::1"\ntoken_file = "{tmp_path}/token"\n')
    done = _komainu(f"--config {config} nodes", "")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: client.server 'http://[::1' is no address: ")
    assert done.stderr.count("\n") == 1
