"""The gate behind an agent that lost its state: a node known to be bad stays closed."""

from __future__ import annotations

from tests.agent.fakes import XID_79, FakeProbe
from tests.gate.gatebed import Bed

from komainu.agent.agent import Agent, AgentPorts
from komainu.clients.clock import RealClock
from komainu.clients.kmsg import KmsgFile
from komainu.config import AgentConfig
from komainu.core.verdict import Verdict


async def test_the_gate_refuses_though_the_state_behind_the_fault_is_gone(one_bed: Bed) -> None:
    log = one_bed.root / "kmsg"
    config = AgentConfig(
        cluster="c1", node="gpu-017", state_dir=one_bed.state_dir, run_dir=one_bed.run_dir
    )

    async def looks(*, accept_state: bool = False) -> Verdict:
        ports = AgentPorts(clock=RealClock(), kernel=KmsgFile(log), probe=FakeProbe(), link=None)
        return (await Agent(config, ports, accept_state=accept_state).once()).verdict

    log.write_text(f"3,1,1,-;{XID_79}\n")
    assert await looks() is Verdict.FAULT
    assert one_bed.answer() == (1, "fault")

    log.write_text("")
    for state in (b"no database" * 1000, b""):
        (config.state_dir / "agent.db").write_bytes(state)
        assert await looks() is Verdict.FAULT
        assert one_bed.answer() == (1, "fault")

    assert await looks(accept_state=True) is Verdict.OK
    assert one_bed.answer() == (0, "ok")
