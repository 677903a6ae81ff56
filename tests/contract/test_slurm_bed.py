"""The bed itself: it must be real, alone, and gone afterwards; and two settings of Slurm that matter."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.beds import packages
from tests.beds.fixtures import bed_of
from tests.beds.packages import BedError
from tests.beds.processes import Ledger, alive, holders, until
from tests.beds.slurm import BedOptions, SlurmBed

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(150)]

SMALL = BedOptions(nodes=2, accounting=False)


def _held(bed: SlurmBed, job: str) -> bool:
    return "held" in bed.run("squeue", "-h", "-j", job, "-o", "%r")


def test_two_beds_at_once_do_not_see_each_other() -> None:
    with bed_of(SMALL) as one, bed_of(SMALL) as other:
        one.run("scontrol", "update", "nodename=n1", "state=drain", "reason=only here")
        assert "DRAIN" in one.run("scontrol", "-o", "show", "node", "n1")
        assert "DRAIN" not in other.run("scontrol", "-o", "show", "node", "n1")


def test_nothing_of_a_bed_outlives_it_not_even_a_running_job() -> None:
    with bed_of(SMALL) as bed:
        bed.run("sbatch", "--gres=gpu:8", "--wrap=sleep 600 & sleep 600")
        until(lambda: bool(holders(bed.at.root, "slurmstepd")), "a job step", within_s=20)
        started = Ledger(bed.at.root).read()
        assert {"munged", "slurmctld", "slurmd.n1", "slurmd.n2"} == set(started)
    assert not [name for name, process in started.items() if alive(process)]
    assert not holders(bed.at.root, "")


def test_the_wrapper_tells_a_hook_which_node_it_is_on(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.write_text(f'#!/bin/sh\necho "$KOMAINU_GATE_CONF $SLURM_CONF" >> {tmp_path}/$1said\n')
    hook.chmod(0o755)
    options = BedOptions(nodes=2, accounting=False, prolog=str(hook), healthcheck=str(hook))
    with bed_of(options) as bed:
        bed.run("srun", "-w", "n2", "true")
        said = tmp_path / "said"
        until(
            lambda: f"{bed.at.node('n2')}/gate.conf" in said.read_text(), "n2's hook", within_s=20
        )
        assert str(bed.at.conf) in said.read_text()


def test_with_nohold_a_refused_job_is_not_held_and_runs_elsewhere() -> None:
    options = BedOptions(nodes=2, accounting=False, nohold_on_prolog_fail=True)
    with bed_of(options) as bed:
        for name in bed.names:
            bed.set_failing("prolog", name, failing=name == "n1")
        job = bed.run("sbatch", "--parsable", "--gres=gpu:8", "--wrap=sleep 60").strip()
        began = time.monotonic()
        until(lambda: "DRAIN" in bed.run("scontrol", "show", "node", "n1"), "drain", within_s=10)
        assert not _held(bed, job)
        until(lambda: bed.run("squeue", "-h", "-j", job, "-o", "%N") == "n2\n", "n2", within_s=30)
        assert time.monotonic() - began < 25


def test_a_missing_package_fails_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "search_path", lambda: "/nonexistent")
    with pytest.raises(BedError, match="apt-get install --no-install-recommends -y slurmctld"):
        packages.require(["slurmctld"])


def test_a_bed_is_not_brought_up_twice_in_one_place(tmp_path: Path) -> None:
    (tmp_path / "bed.json").write_text("{}")
    with pytest.raises(BedError, match="already holds a bed"):
        SlurmBed.up(tmp_path, SMALL)
