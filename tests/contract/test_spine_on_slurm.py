"""The whole thread on a real Slurm: a fault in a kernel log, and no job starts there any more.

Real slurmctld and slurmd, real agents, server, prolog and epilog; only the GPUs are make-believe.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.beds.fixtures import bed_of
from tests.beds.processes import until
from tests.beds.site import XID_79, Site, site_on, states, with_gate

from komainu.core.names import NodeName
from komainu.core.node import HELD_BY_PROLOG
from komainu.core.verdict import Verdict

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


@pytest.fixture
def site() -> Iterator[Site]:
    with bed_of(with_gate(8)) as bed, site_on(bed) as whole:
        yield whole


def _node(site: Site, node: NodeName) -> str:
    return site.bed.run("scontrol", "-o", "show", "node", node)


def _all(site: Site, jobs: list[str], state: str, *, within_s: float) -> None:
    until(
        lambda: all(seen[0] == state for seen in states(site, jobs).values()),
        f"{len(jobs)} jobs {state}",
        within_s=within_s,
        every_s=0.3,
    )


def test_a_fault_keeps_every_waiting_job_off_the_node_until_it_is_released(site: Site) -> None:
    bad, other = site.names[:2]
    running = site.submit("--nodelist=n1,n2", "--nodes=2", "--wrap=exec sleep 600")
    fillers = [site.submit(f"--nodelist={n}", "--wrap=exec sleep 8") for n in site.names[2:]]
    _all(site, [running, *fillers], "RUNNING", within_s=20)
    waiting = [site.submit("--wrap=exec sleep 0.2") for _ in range(20)]
    assert {seen[0] for seen in states(site, waiting).values()} == {"PENDING"}

    site.logs[bad].write(XID_79)
    until(lambda: "DRAIN" in _node(site, bad), "the drain", within_s=10)
    assert "Reason=komainu:D-" in _node(site, bad)
    assert "GPU-XID-79" in _node(site, bad)
    assert "DRAIN" not in _node(site, other)
    assert states(site, [running])[running][0] == "RUNNING"

    until(
        lambda: (seen := site.verdict(bad)) is not None and seen.verdict is Verdict.FAULT,
        "a closed gate",
        within_s=5,
    )
    code, said = site.komainu("why", bad)
    assert code == 1
    assert "GPU-XID-79" in said

    site.bed.run("scancel", running)
    _all(site, [running], "CANCELLED", within_s=20)
    _all(site, waiting, "COMPLETED", within_s=60)
    seen = states(site, waiting)
    assert len(seen) == 20
    assert {nodes for _, nodes, _ in seen.values()} <= {str(name) for name in site.names[1:]}

    wants_it = site.submit(f"--nodelist={bad}", "--wrap=true")
    later = site.submit(f"--nodelist={other}", "--wrap=true")
    _all(site, [later], "COMPLETED", within_s=30)  # so the scheduler has considered both
    assert states(site, [wants_it])[wants_it][0] == "PENDING"
    code, said = site.komainu("release", bad, "--because", "GPU reseated, bench test passed")
    assert code == 0, said
    _all(site, [wants_it], "COMPLETED", within_s=30)
    assert "Reason=" not in _node(site, bad)


def test_a_refusal_while_the_server_is_away_is_adopted_and_its_job_released(site: Site) -> None:
    bad, good = site.names[:2]
    for name in site.names[1:]:
        site.bed.run("scontrol", "update", f"nodename={name}", "state=drain", "reason=kept away")
    site.kill("server")
    site.logs[bad].write(XID_79)
    until(
        lambda: (
            (seen := site.verdict(bad)) is not None
            and (seen.verdict, seen.phase.value) == (Verdict.FAULT, "settled")
        ),
        "the node to decide alone",
        within_s=15,
    )
    job = site.submit("--wrap=exec sleep 0.2")
    until(lambda: "Reason=Prolog error" in _node(site, bad), "Slurm's own drain", within_s=10)
    until(lambda: "held" in states(site, [job])[job][2], "the job held", within_s=10)

    site.start_server()
    until(lambda: "Reason=komainu:D-" in _node(site, bad), "the adoption", within_s=30)
    site.bed.run("scontrol", "update", f"nodename={good}", "state=resume")
    _all(site, [job], "COMPLETED", within_s=60)
    assert states(site, [job])[job][1] == good
    assert "Reason=kept away" in _node(site, site.names[2]), "a person's drain was touched"


def test_of_20_nodes_falsely_condemned_at_once_few_leave_service_and_no_job_stays_held() -> None:
    # Nodes decide alone when the server stays silent for confirm_s. The default, 3 s, is meant for a
    # server with a machine of its own, not for one that shares two cores with 24 agents and slurmd.
    patient = "[policy]\nconfirm_s = 15"
    with bed_of(with_gate(24, accounting=False)) as bed, site_on(bed, patient) as site:
        room = site.api.node(site.key(site.names[0])).guard.limit
        assert room == 2  # 10 % of 24
        jobs = [site.submit("--wrap=exec sleep 1") for _ in range(24)]
        for name in site.names[:20]:
            site.logs[name].write(XID_79)
        most, end = 0, time.monotonic() + 12
        while time.monotonic() < end:
            jobs += [site.submit("--wrap=exec sleep 0.5") for _ in range(4)]
            out = site.bed.run("sinfo", "-h", "-N", "-o", "%N %T").count("drain")
            most = max(most, out)
            time.sleep(0.7)
        assert 1 <= most <= room
        _all(site, jobs, "COMPLETED", within_s=90)
        assert not [why for _, _, why in states(site, jobs).values() if HELD_BY_PROLOG in why]
        assert site.api.node(site.key(site.names[0])).guard.tripped_at is not None
