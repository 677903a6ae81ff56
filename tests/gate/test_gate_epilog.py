"""The epilog: one record that wakes the agent, and exit 0 whatever happens."""

from __future__ import annotations

import pytest
from tests.gate.gatebed import DEPLOY, Bed, executable


def test_the_end_of_a_job_is_recorded(any_bed: Bed) -> None:
    answer = any_bed.run("epilog")
    assert (answer.code, answer.said) == (0, "")
    (record,) = any_bed.records()
    assert (record.where, record.answer, record.why) == ("epilog", "end", "end")
    assert (record.job, record.gpus, record.waited_s) == ("4711", ("0", "1"), 0)


def test_without_anything_from_slurm_it_still_exits_0(bed: Bed) -> None:
    nothing = dict.fromkeys(
        ["SLURM_JOB_ID", "SLURM_JOB_USER", "SLURM_JOB_UID", "SLURM_JOB_GPUS", "SLURMD_NODENAME"], ""
    )
    assert bed.run("epilog", env=nothing).code == 0
    assert bed.records()[-1].job == "-"


@pytest.mark.parametrize(
    "broken", [': "${no_such_thing?}"', "cd /nonexistent || return 3", "false"]
)
def test_broken_inside_it_still_exits_0(any_bed: Bed, broken: str) -> None:
    text = (DEPLOY / "epilog").read_text()
    changed = text.replace("\nrecord end end\n", f"\n{broken}\n")
    assert changed != text
    assert any_bed.run(executable(any_bed.root / "broken", changed)).code == 0
