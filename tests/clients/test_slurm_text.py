"""Reading Slurm's text: real recordings, the spellings of other releases, and hostile names."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from komainu.clients.slurm import plain_reason
from komainu.clients.slurm_text import (
    NAME_BYTES,
    by_node,
    read_jobs,
    read_nodes,
    read_reason,
    read_start,
    read_state,
    read_task,
)
from komainu.core.errors import SchedulerError
from komainu.core.names import ClusterName, JobId, NodeName
from komainu.core.node import HELD_BY_PROLOG, SchedulerJob, SchedulerNode

RECORDED = Path(__file__).parents[1] / "data" / "slurm" / "22.05.8"
CLUSTER = ClusterName("hel")


def _nodes() -> dict[str, SchedulerNode]:
    text = (RECORDED / "scontrol_o_show_node.txt").read_text("utf-8")
    return {node.node: node for node in read_nodes(text, CLUSTER, {})}


def _jobs() -> dict[str, SchedulerJob]:
    return {j.id: j for j in read_jobs((RECORDED / "squeue_O.txt").read_bytes(), CLUSTER)}


def test_every_recorded_node_is_read_with_its_gpus() -> None:
    nodes = _nodes()
    assert sorted(nodes) == [f"n{i}" for i in range(1, 9)]
    assert {node.gpus for node in nodes.values()} == {8}
    assert not nodes["n4"].out


def test_a_drain_that_slurm_made_of_a_failed_prolog_is_told_apart() -> None:
    nodes = _nodes()
    assert nodes["n5"].gate_made
    assert nodes["n5"].reason == "Prolog error"
    assert nodes["n5"].reason_by == "root"
    assert nodes["n7"].reason == "Epilog error"
    assert not nodes["n7"].gate_made
    assert not nodes["n2"].gate_made


def test_a_hostile_reason_changes_neither_state_nor_owner() -> None:
    node = _nodes()["n3"]
    assert node.reason == 'GPU 3 says "bye" | 50% [x@y] State=IDLE'
    assert (node.state, node.reason_by) == ("IDLE", "root")
    assert node.flags == {"DRAIN"}
    assert node.reason_at is not None


def test_a_reason_of_two_lines_with_a_forged_stamp_keeps_its_true_owner() -> None:
    node = _nodes()["n2"]
    assert node.reason_by == "root"
    assert node.reason.startswith("two lines Reason=fake [x@2026-01-01T00:00:00]")
    assert node.drained


def test_a_hostile_job_name_hides_no_job_and_invents_none() -> None:
    jobs = _jobs()
    assert sorted(jobs) == ["1", "2", "3", "4", "5", "6", "7", "8"]
    assert jobs["1"].name == "evil\nname|x%y\x1f é \t -rf"
    assert (jobs["1"].state, jobs["1"].nodes, jobs["1"].gpus) == ("RUNNING", ("n1", "n2"), 16)


def test_a_job_held_because_its_prolog_failed_is_held_and_nowhere() -> None:
    job = _jobs()["7"]
    assert job.held
    assert job.reason == HELD_BY_PROLOG
    assert job.nodes == ()
    assert job.started is None


def test_a_running_job_has_not_ended_though_slurm_prints_its_limit() -> None:
    job = _jobs()["1"]
    assert job.started == datetime(2026, 11, 30, 11, 51, 25, tzinfo=UTC)
    assert job.ended is None
    assert _jobs()["8"].ended == datetime(2026, 11, 30, 11, 52, 20, tzinfo=UTC)


def test_jobs_are_found_on_the_nodes_they_run_on_only() -> None:
    assert by_node(_jobs().values()) == {NodeName("n1"): [JobId("1")], NodeName("n2"): [JobId("1")]}


@pytest.mark.parametrize(
    ("text", "state", "flags"),
    [
        ("IDLE", "IDLE", set()),
        ("IDLE+DRAIN", "IDLE", {"DRAIN"}),
        ("IDLE*+DRAIN", "IDLE", {"DRAIN", "NOT_RESPONDING"}),
        ("DOWN*", "DOWN", {"NOT_RESPONDING"}),
        ("DOWN+DRAIN+NOT_RESPONDING", "DOWN", {"DRAIN", "NOT_RESPONDING"}),
        ("IDLE+CLOUD+POWERED_DOWN", "IDLE", {"CLOUD", "POWERED_DOWN"}),
        ("IDLE~", "IDLE", {"POWERED_DOWN"}),
        ("IDLE#", "IDLE", {"POWERING_UP"}),
        ("MIXED@", "MIXED", {"REBOOT_REQUESTED"}),
        ("DOWN$+DRAIN", "DOWN", {"MAINT", "DRAIN"}),
        ("ALLOCATED-", "ALLOCATED", {"PLANNED"}),
        ("DRAINED*", "IDLE", {"DRAIN", "NOT_RESPONDING"}),
        ("IDLE+DRAIN+INVALID_REG", "IDLE", {"DRAIN", "INVALID_REG"}),
    ],
)
def test_a_state_is_read_in_every_spelling(text: str, state: str, flags: set[str]) -> None:
    assert read_state(text) == (state, frozenset(flags))


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:h100:8(S:0-1)", 8),
        ("gpu:8", 8),
        ("gpu:a100:4(S:0),gpu:v100:2(S:1)", 6),
        ("gpu:a100_1g.5gb:7(S:0)", 7),
        ("nic:2,gpu:h100:8", 8),
        ("(null)", 0),
        ("shard:64", 0),
    ],
)
def test_gpus_are_counted_in_every_form(gres: str, gpus: int) -> None:
    line = f"NodeName=n1 Arch=x86_64 Gres={gres} NodeAddr=n1 State=IDLE ThreadsPerCore=1\n"
    assert read_nodes(line, CLUSTER, {})[0].gpus == gpus


def test_a_comment_after_the_reason_is_not_part_of_it() -> None:
    at = datetime(2026, 11, 30, 10, 2, 12, tzinfo=UTC)
    stamped = (
        " X=1 Reason=dead fan [ann@2026-11-30T10:02:12] Comment=seen [bob@2026-11-30T11:00:00]"
    )
    assert read_reason(" X=1 Reason=dead fan Comment=no stamp") == ("dead fan", "", None)
    assert read_reason(stamped) == ("dead fan", "ann", at)


def test_the_numbers_of_array_and_typed_gpus_are_not_added_twice() -> None:
    line = b"x".ljust(NAME_BYTES) + (
        b"12|RUNNING|ann|cpu=8,gres/gpu=8,gres/gpu:h100=8|N/A|2026-11-30T10:00:00|Unknown|n[1-2]|None\n"
    )
    typed = line.replace(b"gres/gpu=8,", b"")
    assert read_jobs(line, CLUSTER)[0].gpus == read_jobs(typed, CLUSTER)[0].gpus == 8


@pytest.mark.parametrize(
    "output", [b"squeue: error", b"x" * 64 + b"a|b\n", b"x" * 64 + b"1|RUNNING\n"]
)
def test_text_that_is_not_squeues_is_an_error_and_not_an_empty_queue(output: bytes) -> None:
    with pytest.raises(SchedulerError, match="cannot read"):
        read_jobs(output, CLUSTER)


def test_text_that_is_not_scontrols_is_an_error_and_not_an_empty_cluster() -> None:
    with pytest.raises(SchedulerError, match="cannot read"):
        read_nodes("Slurm is updating\n", CLUSTER, {})


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_no_job_name_whatever_changes_what_else_is_read(names: list[bytes]) -> None:
    rest = b"|PENDING|ann|cpu=1,gres/gpu=1|2026-11-30T10:00:00|N/A|N/A||JobHeldUser\n"
    output = b"".join(
        name[:NAME_BYTES].ljust(NAME_BYTES) + str(number).encode() + rest
        for number, name in enumerate(names, 1)
    )
    jobs = read_jobs(output, CLUSTER)
    assert [job.id for job in jobs] == [str(number) for number in range(1, len(names) + 1)]
    assert all(job.held and job.user == "ann" and job.gpus == 1 for job in jobs)


def test_no_reason_of_ours_forges_its_owner() -> None:
    reason = plain_reason("komainu:D-1: x [ann@2020-01-01T00:00:00] Comment=y")
    shown = f" ThreadsPerCore=1 Reason={reason} [root@2026-11-30T10:02:12]"
    assert read_reason(shown)[:2] == (reason, "root")
    assert reason == "komainu:D-1: x (ann 2020-01-01T00:00:00) Comment=y"


@given(st.text() | st.from_regex(r"(x| \[a@1\]| Comment=|  ){1,6}", fullmatch=True))
def test_a_reason_we_write_comes_back_as_we_wrote_it(text: str) -> None:
    reason = plain_reason(text)
    shown = f" ThreadsPerCore=1 Reason={reason} [root@2026-11-30T10:02:12]"
    assert plain_reason(reason) == reason
    assert read_reason(shown)[:2] == (reason, "root")


@pytest.mark.parametrize(
    ("told", "meant"),
    [
        (b"7|7|2\n8|7|1\n", "7_2"),
        (b"7|N/A|N/A\n", "7"),
        (b"8|7|1\n", "7"),
        (b"", "7"),
        (b"7|7|2\n7|7|3\n", "7"),
        (b"7|7;reboot|2\n", "7"),
    ],
)
def test_a_task_of_an_array_is_called_so_that_it_alone_is_meant(told: bytes, meant: str) -> None:
    assert read_task(told, JobId("7")) == meant


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("2026-11-30T10:02:12", datetime(2026, 11, 30, 10, 2, 12, tzinfo=UTC)),
        ("N/A", None),
    ],
)
def test_the_controllers_start_is_read_from_its_configuration(
    said: str, expected: datetime | None
) -> None:
    shown = (
        f"Configuration data as of 2026-11-30T11:00:00\nBOOT_TIME               = {said}\nX = 1\n"
    )
    assert read_start(shown) == expected
    assert read_start("Configuration data as of 2026-11-30T11:00:00\n") is None
