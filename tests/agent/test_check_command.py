"""`komainu check`: this node, now, without a trace."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.agent.conftest import Bed
from tests.agent.fakes import XID_79, FakeProbe, until

from komainu.agent.commands import agent, check
from komainu.config import AgentConfig, Config
from komainu.core.decision import OrderKind


@pytest.fixture
def config(tmp_path: Path) -> AgentConfig:
    (tmp_path / "state").mkdir()
    (tmp_path / "kmsg").write_text("6,1,1,-;eth0: up\n12,2,2,-;" + XID_79 + "\n")
    return AgentConfig(
        cluster="c1", node="n1", state_dir=tmp_path / "state", run_dir=tmp_path / "run",
        kernel_log=f"file:{tmp_path / 'kmsg'}",
    )  # fmt: skip


def _check(config: AgentConfig, *arguments: str) -> Result:
    return CliRunner().invoke(check, arguments, obj={"config": Config(agent=config)})


def test_a_sound_node_exits_0_and_lists_what_was_looked_at(config: AgentConfig) -> None:
    done = _check(config)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("c1/n1 OK\n")
    for name in ("kernel-log", "gpus", "state-dir", "clock"):
        assert f"  {name}" in done.output


def test_a_fault_exits_1_and_names_it(config: AgentConfig, tmp_path: Path) -> None:
    with (tmp_path / "kmsg").open("a") as log:
        log.write(f"3,3,3,-;{XID_79}\n")
    done = _check(config)
    assert done.exit_code == 1
    assert "c1/n1 FAULT: GPU-XID-79 on gpu 0000:41:00" in done.output


def test_what_cannot_be_read_exits_2(config: AgentConfig, tmp_path: Path) -> None:
    (tmp_path / "kmsg").unlink()
    done = _check(config)
    assert done.exit_code == 2
    assert "kernel-log   UNKNOWN" in done.output


def test_json_is_one_object(config: AgentConfig) -> None:
    found = json.loads(_check(config, "--json").output)
    assert found["verdict"]["verdict"] == "OK"
    assert found["checks"]["kernel-log"] == {"verdict": "OK", "detail": "2 records read"}


def test_it_leaves_no_trace(config: AgentConfig, tmp_path: Path) -> None:
    before = _everything(tmp_path)
    _check(config)
    assert _everything(tmp_path) == before


async def test_it_leaves_no_trace_in_what_an_agent_has_kept(
    bed: Bed, config: AgentConfig, tmp_path: Path
) -> None:
    await bed.started()
    await bed.stop()
    before = _everything(tmp_path)
    assert "no agent" not in (await asyncio.to_thread(_check, config)).output
    assert _everything(tmp_path) == before


def _everything(folder: Path) -> list[tuple[Path, bytes]]:
    return [(one, one.read_bytes()) for one in sorted(folder.rglob("*")) if one.is_file()]


async def test_it_knows_what_the_agent_beside_it_was_told(
    bed: Bed, config: AgentConfig, tmp_path: Path
) -> None:
    bed.probe = FakeProbe(gpus=0)  # as many as the command will find on this machine
    bed.kernel.write(XID_79)
    await bed.started()
    await until(lambda: bed.server.findings)
    assert (await asyncio.to_thread(_check, config)).exit_code == 1
    bed.server.order(OrderKind.RELEASE, findings=tuple(bed.server.findings))
    await bed.becomes("OK/settled")
    done = await asyncio.to_thread(_check, config)
    assert done.exit_code == 0, done.output
    assert "no agent" not in done.output


def test_the_agent_command_becomes_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr("komainu.agent.commands.os.execv", lambda _, argv: became.append(argv))
    CliRunner().invoke(agent, ["--once"])
    assert became[0][1:] == ["-m", "komainu.agent", "--once"]
