"""The client when Slurm is not there, hangs, or prints what it should not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.beds.processes import identify

from komainu.clients.slurm import Slurm
from komainu.core.errors import InputError, SchedulerError
from komainu.core.names import ClusterName, JobId, NodeName

CLUSTER = ClusterName("hel")
N1 = NodeName("n1")


def _fake(folder: Path, scontrol: str, squeue: str = "exit 0") -> Slurm:
    """A client whose commands are these shell lines."""
    for name, lines in (("scontrol", scontrol), ("squeue", squeue)):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)
    return Slurm(CLUSTER, slurm_bin=str(folder), slurm_conf="/etc/hel.conf", timeout_s=0.5)


async def test_a_missing_command_is_an_error_that_says_where_to_look(tmp_path: Path) -> None:
    client = Slurm(CLUSTER, slurm_bin=str(tmp_path))
    with pytest.raises(SchedulerError, match="slurm_bin") as caught:
        await client.node(N1)
    assert "hel" in str(caught.value)


async def test_a_call_that_hangs_is_killed_at_its_deadline(tmp_path: Path) -> None:
    client = _fake(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    began = time.monotonic()
    with pytest.raises(SchedulerError, match="scheduler_timeout_s"):
        await client.drain([N1], "komainu:D-1: x")
    assert time.monotonic() - began < 5
    pid = (tmp_path / "pid").read_text().strip()
    assert identify(int(pid)) is None


async def test_an_unreachable_controller_is_an_error_within_the_deadline(tmp_path: Path) -> None:
    said = "slurm_load_node error: Unable to contact slurm controller (connect failure)"
    client = _fake(tmp_path, f"echo '{said}' >&2; exit 1")
    with pytest.raises(SchedulerError, match="scontrol ping"):
        await client.nodes()
    with pytest.raises(SchedulerError, match="Unable to contact"):
        await client.node(N1)


async def test_an_empty_answer_is_an_error_and_not_an_empty_cluster(tmp_path: Path) -> None:
    client = _fake(tmp_path, "exit 0")
    with pytest.raises(SchedulerError, match="nothing"):
        await client.node(N1)
    with pytest.raises(SchedulerError, match="nothing"):
        await client.nodes()


async def test_a_node_slurm_does_not_know_is_none(tmp_path: Path) -> None:
    assert await _fake(tmp_path, "echo Node n1 not found; exit 1").node(N1) is None


async def test_garbage_with_exit_code_0_is_an_error(tmp_path: Path) -> None:
    client = _fake(tmp_path, "echo maintenance tonight")
    with pytest.raises(SchedulerError, match="cannot read"):
        await client.nodes()


async def test_many_nodes_are_one_folded_argument_of_one_call(tmp_path: Path) -> None:
    client = _fake(tmp_path, f"""echo "$#:$*" >> {tmp_path}/calls""")
    await client.drain([NodeName(f"n{i}") for i in range(1, 1001)], "komainu:D-1: x")
    calls = (tmp_path / "calls").read_text()
    assert calls == "4:update NodeName=n[1-1000] State=DRAIN Reason=komainu:D-1: x\n"


async def test_the_commands_see_our_configuration_and_nobodys_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    monkeypatch.setenv("SQUEUE_FORMAT2", "JobID")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    client = _fake(tmp_path, "exit 0", f"env > {tmp_path}/env")
    await client.jobs()
    seen = (tmp_path / "env").read_text().splitlines()
    assert {"SLURM_CONF=/etc/hel.conf", "TZ=UTC", "LC_ALL=C"} <= set(seen)
    assert not [line for line in seen if line.startswith(("SLURM_TIME", "SQUEUE_"))]


@pytest.mark.parametrize("job", ["", "12;reboot", "-1", "all", "1 2"])
async def test_what_is_no_job_id_never_reaches_slurm(tmp_path: Path, job: str) -> None:
    client = _fake(tmp_path, f"touch {tmp_path}/called")
    with pytest.raises(InputError):
        await client.release_job(JobId(job))
    assert not (tmp_path / "called").exists()


async def test_a_refused_resume_asks_again_only_for_what_is_still_ours(tmp_path: Path) -> None:
    """Somebody may have drained a node between the caller's look and Slurm's refusal."""
    shown = "\n".join(
        f"NodeName={node} State=IDLE+DRAIN ExtSensorsTemp=n/s Reason={reason} [root@2026-11-30T10:00:00]"
        for node, reason in (("n1", "komainu:D-1: x"), ("n2", "swapping a DIMM"))
    )
    (tmp_path / "shown").write_text(shown + "\n")
    client = _fake(
        tmp_path,
        f'echo "$*" >> {tmp_path}/calls\n'
        f'case "$*" in *show*) cat {tmp_path}/shown ;; *NodeName=n1\\ *) ;; '
        "*) echo 'slurm_update error: Invalid node state specified' >&2; exit 1 ;; esac",
    )
    await client.resume([N1, NodeName("n2"), NodeName("n3")])
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[-1] == "update NodeName=n1 State=RESUME"
