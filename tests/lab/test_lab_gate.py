"""The lab runs the real gate scripts, each node with its own directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from komainu.core.gate import read_record, write_verdict
from komainu.core.names import JobId, NodeName
from komainu.core.node import NodePolicy, NodeVerdict
from komainu.core.verdict import Verdict
from komainu.lab.clock import LabClock
from komainu.lab.gate import LabGate
from komainu.lab.kernel_log import host_boot_id

NODES = (NodeName("gpu-001"), NodeName("gpu-002"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for node in NODES:
        (tmp_path / node / "run" / "gate").mkdir(parents=True)
        (tmp_path / node / "state").mkdir()
    return tmp_path


def tell(home: Path, node: NodeName, verdict: Verdict) -> None:
    text = write_verdict(
        NodeVerdict(verdict=verdict, message="GPU 3 fell off the bus"),
        NodePolicy(),
        host_boot_id(),
        int(LabClock().uptime_s()),
    )
    (home / node / "run" / "verdict").write_text(text, "ascii")


async def test_a_condemned_node_refuses_and_its_neighbour_does_not(home: Path) -> None:
    gate = LabGate(home)
    tell(home, NODES[0], Verdict.FAULT)
    tell(home, NODES[1], Verdict.OK)
    assert await gate.prolog(JobId("1"), NODES[0], "hana", (0, 1)) != 0
    assert await gate.prolog(JobId("2"), NODES[1], "hana", (2, 3)) == 0


async def test_the_gate_records_which_job_got_which_gpus(home: Path) -> None:
    gate = LabGate(home)
    tell(home, NODES[1], Verdict.OK)
    await gate.prolog(JobId("7"), NODES[1], "hana", (2, 3))
    await gate.epilog(JobId("7"), NODES[1], "hana", (2, 3))
    lines = (home / NODES[1] / "run" / "gate" / "records").read_text("ascii").splitlines()
    records = [read_record(line) for line in lines]
    assert [(r.where, r.job, r.user, r.gpus) for r in records] == [
        ("prolog", "7", "hana", ("2", "3")),
        ("epilog", "7", "hana", ("2", "3")),
    ]


async def test_a_gate_that_never_comes_back_is_ended_and_counts_as_failed(home: Path) -> None:
    script = home / "prolog"
    script.write_text("#!/bin/sh\nexec sleep 60\n", "ascii")
    script.chmod(0o755)
    gate = LabGate(home, folder=home, bound_s=0.2)
    assert await gate.prolog(JobId("7"), NODES[1], "hana", ()) == 124
