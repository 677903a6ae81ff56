"""The systemd units: what has to hold between them, and with the defaults of komainu.toml."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

from komainu.config import AgentConfig, ServerConfig

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"


def _unit(name: str) -> ConfigParser:
    found = ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    found.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    found.read(UNITS / name)
    return found


def test_agent_and_server_keep_their_state_apart_and_where_the_defaults_say() -> None:
    agent = _unit("komainu-agent.service")["Service"]["StateDirectory"]
    server = _unit("komainu-server.service")["Service"]["StateDirectory"]
    assert str(AgentConfig().state_dir) == f"/var/lib/{agent}"
    assert Path(ServerConfig().database.removeprefix("sqlite:///")).parent == Path(
        f"/var/lib/{server}"
    )
    assert not server.startswith(f"{agent}/")
    assert _unit("komainu-prune.service")["Service"]["StateDirectory"] == server


def test_slurmd_starts_after_the_first_verdict_and_the_agent_waits_for_no_network() -> None:
    unit = _unit("komainu-agent.service")
    assert unit["Unit"]["Before"] == "slurmd.service"
    assert unit["Service"]["Type"] == "notify"
    assert "network-online" not in unit["Unit"]["After"]
    assert "Wants" not in unit["Unit"]


def test_what_the_gate_wrote_outlives_a_stop_of_the_agent() -> None:
    agent = _unit("komainu-agent.service")["Service"]
    assert agent["RuntimeDirectoryPreserve"] == "yes"
    assert str(AgentConfig().run_dir) == f"/run/{agent['RuntimeDirectory']}"
