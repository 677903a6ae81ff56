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
