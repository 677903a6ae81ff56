"""The watch for a dead agent: tells, and drains only where policy says so and nobody else has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.gate.gatebed import OTHER_BOOT, Bed, executable, replace, stale_line, verdict_line

SCONTROL = """#!/bin/sh
# Speaks as scontrol does on a pipe, where readline flushes after each command.
echo "conf ${SLURM_CONF-none}" >>DIR/said
printf 'scontrol: '
while read -r line; do
    echo "$line" >>DIR/said
    case $line in
    show*) printf 'NodeName=gpu-017 Arch=x86_64\\n   OS=Linux\\n   State=%s ThreadsPerCore=1\\n   Reason=Prolog error [x]\\n' "$(cat DIR/state)" ;;
    update*) cat DIR/error 2>/dev/null ;;
    esac
    printf 'scontrol: '
done
"""


class Watch:
    """A bed with a make-believe scontrol."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.programs = bed.root / "bin"
        self.programs.mkdir()
        executable(self.programs / "scontrol", SCONTROL.replace("DIR", str(self.programs)))
        bed.settings |= {
            "slurm_bin": str(self.programs),
            "dead_agent": "drain",
            "dead_agent_s": "5",
            "slurm_conf": "/etc/slurm/other.conf",
        }
        self.state("IDLE")

    def state(self, state: str) -> None:
        (self.programs / "state").write_text(state)

    def run(self) -> str:
        answer = self.bed.run("healthcheck")
        assert answer.code == 0
        assert answer.took_s < 15
        return answer.said

    def said(self) -> list[str]:
        path = self.programs / "said"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def watch(bed: Bed) -> Watch:
    return Watch(bed)


UPDATE = "update nodename=gpu-017 state=drain reason="


def test_a_living_agent_is_not_spoken_of(watch: Watch) -> None:
    replace(watch.bed.verdict, verdict_line())
    assert watch.run() == ""
    assert watch.said() == []


def test_a_silent_agent_is_told_of_in_one_line_and_nothing_else_by_default(watch: Watch) -> None:
    del watch.bed.settings["dead_agent"]
    replace(watch.bed.verdict, stale_line())
    said = watch.run()
    assert said.count("\n") == 1
    assert "the agent has not renewed the verdict for 2" in said
    assert watch.said() == []


def test_where_policy_says_so_the_node_is_drained_once(watch: Watch) -> None:
    replace(watch.bed.verdict, stale_line())
    assert "drained, reason komainu:agent-dead" in watch.run()
    conf, show, update = watch.said()
    assert conf == "conf /etc/slurm/other.conf"
    assert show == "show node gpu-017"
    assert update.startswith(f'{UPDATE}"komainu:agent-dead: no verdict for 2')
    watch.run()
    assert len(watch.said()) == 3, "once per silence: a person who resumes it is not overruled"


def test_a_gate_conf_with_the_line_ends_of_windows_means_the_same(watch: Watch) -> None:
    watch.bed.settings = {key: f"{value}\r" for key, value in watch.bed.settings.items()}
    replace(watch.bed.verdict, stale_line())
    assert "drained, reason komainu:agent-dead" in watch.run()
    assert watch.said()[0] == "conf /etc/slurm/other.conf"


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "MIXED+DRAIN", "DOWN*", "IDLE+MAINT", "IDLE+FAIL"])
def test_a_node_someone_took_out_is_left_alone(watch: Watch, state: str) -> None:
    watch.state(state)
    replace(watch.bed.verdict, stale_line())
    assert f"left alone, the node is out already: State={state}" in watch.run()
    assert not any(line.startswith("update") for line in watch.said())


def test_a_node_in_fault_is_left_to_the_gate(watch: Watch) -> None:
    replace(watch.bed.verdict, stale_line("FAULT"))
    assert "refuses jobs for a fault already" in watch.run()
    assert watch.said() == []


def test_an_agent_that_returns_and_dies_again_is_a_new_silence(watch: Watch) -> None:
    replace(watch.bed.verdict, stale_line())
    watch.run()
    replace(watch.bed.verdict, verdict_line())
    assert watch.run() == ""
    replace(watch.bed.verdict, stale_line())
    watch.run()
    assert sum(line.startswith("update") for line in watch.said()) == 2


def test_a_drain_that_failed_is_tried_again(watch: Watch) -> None:
    (watch.programs / "error").write_text("slurm_update error: Invalid user id\n")
    replace(watch.bed.verdict, stale_line())
    assert "not drained" in watch.run()
    (watch.programs / "error").unlink()
    assert "drained, reason" in watch.run()


@pytest.mark.parametrize("how", ["missing", "dumb", "dead"])
def test_a_scontrol_that_does_not_answer_changes_nothing(one_bed: Bed, how: str) -> None:
    watch = Watch(one_bed)
    if how == "missing":
        (watch.programs / "scontrol").unlink()
    elif how == "dumb":
        executable(watch.programs / "scontrol", "#!/bin/sh\nexec sleep 30\n")
    else:
        executable(watch.programs / "scontrol", "#!/bin/sh\nexit 1\n")
    replace(watch.bed.verdict, stale_line())
    assert "not drained" in watch.run()
    assert list((watch.bed.run_dir / "gate").glob("scontrol*")) == []


@pytest.mark.parametrize("content", [None, "garbage\n", verdict_line(boot=OTHER_BOOT), "fifo"])
def test_a_verdict_that_tells_no_time_is_silent_from_when_it_was_first_seen(
    watch: Watch, content: str | None
) -> None:
    watch.bed.settings["dead_agent_s"] = "0"
    if content == "fifo":
        os.mkfifo(watch.bed.verdict)
    elif content is not None:
        replace(watch.bed.verdict, content)
    assert watch.run() == "", "the agent may be starting"
    flag = watch.bed.run_dir / "gate" / "agent-dead"
    boot, first, state = flag.read_text().split()
    flag.write_text(f"{boot} {int(first) - 7} {state}\n")
    assert "the agent has not renewed the verdict for" in watch.run()


def test_a_run_directory_that_is_gone_is_made_for_the_memory(watch: Watch, tmp_path: Path) -> None:
    watch.bed.settings["run_dir"] = str(tmp_path / "gone")
    assert watch.run() == ""
    assert (tmp_path / "gone" / "gate" / "agent-dead").exists()
