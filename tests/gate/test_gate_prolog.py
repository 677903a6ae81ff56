"""The prolog's answer in every state, under every policy, whatever is in its way."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.gate.gatebed import (
    DEPLOY,
    MESSAGE,
    OTHER_BOOT,
    Bed,
    closed_descriptors,
    executable,
    replace,
    stale_line,
    uptime,
    verdict_line,
)

OK = verdict_line()


def test_a_fresh_ok_admits_and_is_recorded(any_bed: Bed) -> None:
    replace(any_bed.verdict, verdict_line())
    answer = any_bed.run()
    assert (answer.code, answer.said) == (0, "")
    (record,) = any_bed.records()
    assert (record.where, record.answer, record.why) == ("prolog", "admit", "ok")
    assert (record.job, record.user, record.uid, record.gpus) == ("4711", "alice", 1001, ("0", "1"))
    assert abs(record.uptime_s - uptime()) < 30
    assert any_bed.records_path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("age", [0, 20])
@pytest.mark.parametrize("stale", ["open", "closed"])
def test_a_fault_refuses_with_one_line_however_old(any_bed: Bed, age: int, stale: str) -> None:
    replace(any_bed.verdict, verdict_line("FAULT", age=age, ttl=5, stale=stale))
    answer = any_bed.run()
    assert answer.code == 1
    assert answer.said == (f"komainu: node gpu-017 refused: {MESSAGE}; see: komainu why gpu-017\n")
    assert any_bed.records()[-1].why == "fault"


def test_a_fault_of_an_older_boot_refuses(any_bed: Bed) -> None:
    replace(any_bed.verdict, verdict_line("FAULT", boot=OTHER_BOOT))
    assert any_bed.answer() == (1, "fault")


@pytest.mark.parametrize("policy", ["open", "closed"])
@pytest.mark.parametrize(
    ("line", "why"),
    [
        (verdict_line("UNKNOWN"), "unknown"),
        (verdict_line("SKIPPED"), "skipped"),
        (stale_line(), "stale"),
        (verdict_line("OK", boot=OTHER_BOOT), "stale"),
        (verdict_line("OK", "confirming"), "unknown"),
        (verdict_line("UNKNOWN", "checking"), "unknown"),
        (verdict_line("OK", age=-100_000), "stale"),
    ],
    ids=["unknown", "skipped", "old", "other-boot", "ok-confirming", "unknown-checking", "future"],
)
def test_what_is_neither_ok_nor_fault_is_answered_by_the_policy_in_the_file(
    bed: Bed, line: str, why: str, policy: str
) -> None:
    bed.settings["stale"] = "open" if policy == "closed" else "closed"
    replace(bed.verdict, line.replace(" open open ", f" {policy} open "))
    answer = bed.run()
    assert answer.code == (policy == "closed")
    assert bed.records()[-1].why == why
    assert answer.said.count("\n") == answer.code
    assert bed.records()[-1].answer == ("refuse" if answer.code else "admit")


@pytest.mark.parametrize("policy", ["open", "closed", "nonsense", None])
@pytest.mark.parametrize("text", [None, "", "garbage\n", OK.rstrip("\n"), "komainu1 OK\n"])
def test_without_a_readable_verdict_the_policy_of_gate_conf_answers(
    bed: Bed, text: str | None, policy: str | None
) -> None:
    if text is not None:
        replace(bed.verdict, text)
    if policy is not None:
        bed.settings["stale"] = policy
    code, why = bed.answer()
    assert code == (policy == "closed")
    assert why == ("missing" if text is None else "garbled")


def test_without_any_gate_conf_nothing_breaks(bed: Bed) -> None:
    answer = bed.run(env={"KOMAINU_GATE_CONF": "/nonexistent/gate.conf"})
    assert answer.code == 0


def test_settings_are_read_and_never_run(bed: Bed, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    conf = tmp_path / "odd.conf"
    conf.write_text(
        f"# a remark\n\n  run_dir = {bed.run_dir}\nstate_dir={bed.state_dir}\n"
        f"evil=$(touch {mark})\n`touch {mark}`\nPATH=/evil\nrun_dir=relative\nstale=closed"
    )
    answer = bed.run(env={"KOMAINU_GATE_CONF": str(conf)})
    assert answer.code == 1, "the last line counts though its newline is missing"
    assert not mark.exists()
    assert bed.records()[-1].why == "missing"


@pytest.mark.parametrize("ending", ["\r\n", " \r\n", "\t\r\n", "\r\r\n", "\r"])
def test_a_gate_conf_with_the_line_ends_of_windows_means_the_same(
    any_bed: Bed, ending: str
) -> None:
    replace(any_bed.verdict, verdict_line("FAULT"))
    conf = any_bed.root / "windows.conf"
    # The last line may lack its end.
    text = f"state_dir={any_bed.state_dir}\r\nrun_dir={any_bed.run_dir}{ending}"
    conf.write_bytes(text.encode())
    for script in ("prolog", "epilog"):
        answer = any_bed.run(script, env={"KOMAINU_GATE_CONF": str(conf)})
        assert answer.code == (script == "prolog")
    assert [record.why for record in any_bed.records()] == ["fault", "end"]


def test_a_setting_with_a_control_character_in_it_changes_nothing(any_bed: Bed) -> None:
    replace(any_bed.verdict, verdict_line("FAULT"))
    conf = any_bed.root / "odd.conf"
    settings = f"run_dir={any_bed.run_dir}\nstate_dir={any_bed.state_dir}\n"
    conf.write_bytes(f"{settings}run_dir=/a\x1bb\nstate_dir=/a\rb\nstale=cl\x07osed\n".encode())
    assert any_bed.run(env={"KOMAINU_GATE_CONF": str(conf)}).code == 1


def test_a_verdict_stamped_in_the_future_does_not_undo_a_fault(any_bed: Bed) -> None:
    replace(any_bed.verdict, verdict_line("OK", age=-100_000))
    replace(any_bed.remembered, verdict_line("FAULT", age=30))
    assert any_bed.answer() == (1, "fault")


def test_several_slurmd_on_one_machine_have_their_own_directories(bed: Bed) -> None:
    bed.settings["run_dir"] = f"{bed.root}/%n/run"
    (bed.root / "gpu-017" / "run" / "gate").mkdir(parents=True)
    replace(bed.root / "gpu-017" / "run" / "verdict", verdict_line("FAULT"))
    assert bed.run().code == 1


class TestTheSecondFile:
    """state_dir/verdict, which survives a reboot and a full tmpfs."""

    @pytest.mark.parametrize("first", [None, "garbage\n", verdict_line(boot=OTHER_BOOT)])
    @pytest.mark.parametrize("boot", [None, OTHER_BOOT])
    def test_a_remembered_fault_refuses(
        self, bed: Bed, first: str | None, boot: str | None
    ) -> None:
        if first is not None:
            replace(bed.verdict, first)
        replace(bed.remembered, verdict_line("FAULT", age=20, **({"boot": boot} if boot else {})))
        assert bed.answer() == (1, "fault")

    def test_a_fresh_ok_before_it_counts(self, bed: Bed) -> None:
        replace(bed.verdict, verdict_line("OK"))
        replace(bed.remembered, verdict_line("FAULT", age=20))
        assert bed.answer() == (0, "ok")

    def test_a_newer_fault_counts_when_the_first_is_no_longer_renewed(self, bed: Bed) -> None:
        replace(bed.verdict, stale_line())
        replace(bed.remembered, verdict_line("FAULT", age=10))
        assert bed.answer() == (1, "fault")

    def test_an_older_fault_does_not_undo_a_release(self, bed: Bed) -> None:
        replace(bed.verdict, stale_line())
        replace(bed.remembered, verdict_line("FAULT", age=30))
        assert bed.answer() == (0, "stale")
        replace(bed.remembered, verdict_line("FAULT", boot=OTHER_BOOT))
        assert bed.answer() == (0, "stale")

    def test_a_release_in_this_boot_undoes_a_fault_of_the_last(self, bed: Bed) -> None:
        replace(bed.verdict, verdict_line("FAULT", boot=OTHER_BOOT))
        replace(bed.remembered, verdict_line("OK"))
        assert bed.answer() == (0, "ok")

    def test_its_policy_counts_when_the_first_is_missing(self, bed: Bed) -> None:
        replace(bed.remembered, verdict_line("OK", boot=OTHER_BOOT, stale="closed"))
        assert bed.answer() == (1, "missing")

    def test_a_fault_in_this_boot_is_not_undone_by_it(self, bed: Bed) -> None:
        replace(bed.verdict, stale_line("FAULT"))
        replace(bed.remembered, verdict_line("OK"))
        assert bed.answer() == (1, "fault")


class TestNumbers:
    """Bad numbers inside arithmetic end a shell script; and that would drain the node."""

    @pytest.mark.parametrize(
        "number", ["08", "0000000009", "00", "12.5", "-1", "+1", "99999999999999999999999", "1e3",
                   "0x10", "1 ", "a[0]", "up", "$(touch x)", "9999999999", ""],
    )  # fmt: skip
    @pytest.mark.parametrize("place", [4, 5, 8])
    def test_no_number_ends_the_script(self, bed: Bed, number: str, place: int) -> None:
        words = verdict_line().split(" ", 9)
        words[place] = number
        replace(bed.verdict, " ".join(words))
        answer = bed.run()
        assert answer.code == 0
        assert answer.said == ""
        assert bed.records()[-1].why in {"ok", "stale", "garbled"}

    def test_leading_zeros_are_decimal(self, bed: Bed) -> None:
        words = verdict_line().split(" ", 9)
        words[4] = words[4].zfill(10)
        words[5] = "0099"
        replace(bed.verdict, " ".join(words))
        assert bed.answer() == (0, "ok")

    def test_a_stamp_of_the_future_is_not_fresh(self, bed: Bed) -> None:
        words = verdict_line().split(" ", 9)
        words[4] = "9999999999"
        replace(bed.verdict, " ".join(words))
        assert bed.answer() == (0, "stale")


class TestWhatIsNoVerdict:
    @pytest.mark.parametrize("kind", ["fifo", "directory", "link", "dangling", "socket"])
    @pytest.mark.parametrize("policy", ["open", "closed"])
    def test_what_is_no_regular_file_neither_hangs_nor_counts(
        self, bed: Bed, kind: str, policy: str
    ) -> None:
        bed.settings["stale"] = policy
        if kind == "fifo":
            os.mkfifo(bed.verdict)
        elif kind == "directory":
            bed.verdict.mkdir()
        elif kind == "link":
            replace(bed.root / "elsewhere", verdict_line())
            bed.verdict.symlink_to(bed.root / "elsewhere")
        elif kind == "dangling":
            bed.verdict.symlink_to(bed.root / "nowhere")
        else:
            os.mknod(bed.verdict, 0o140600)
        answer = bed.run()
        assert answer.code == (policy == "closed")
        assert bed.records()[-1].why == "garbled"
        assert answer.took_s < 5

    @pytest.mark.parametrize(
        "text",
        [
            b"x" * 400_000,
            b"komainu1 OK settled " + b"x" * 600 + b"\n",
            verdict_line().encode()[:-1] + b"x" * 500 + b"\n",
            b"\0" * 300,
            b"\x81\x82\x88\xff\n",
            verdict_line().encode().replace(b"\n", b""),
            b"\n" + verdict_line().encode(),
            verdict_line().encode().replace(b" ", b"  "),
            verdict_line().encode().replace(b" ", b"\t"),
            b" " + verdict_line().encode(),
            b"* * * * * * * * * *\n",
            b" ".join([b"komainu1"] * 250) + b"\n",
            b"-n -e -- $IFS `id` $(id) ~ \\ \\\\ ' \" \n",
        ],
    )
    def test_garbage_is_garbled_and_quickly_told(self, bed: Bed, text: bytes) -> None:
        replace(bed.verdict, text)
        answer = bed.run()
        assert (answer.code, answer.said) == (0, "")
        assert bed.records()[-1].why == "garbled"
        assert answer.took_s < 5

    def test_a_long_garbled_file_does_not_hide_a_remembered_fault(self, bed: Bed) -> None:
        replace(bed.verdict, b"x" * 400_000)
        replace(bed.remembered, verdict_line("FAULT"))
        assert bed.answer() == (1, "fault")

    def test_a_message_with_odd_bytes_is_not_shown(self, bed: Bed) -> None:
        replace(bed.verdict, verdict_line("FAULT", message="\x1b[2J\x07 clear"))
        answer = bed.run()
        assert answer.code == 1
        assert "\x1b" not in answer.said
        assert "(unprintable message)" in answer.said


HOSTILE = {
    "IFS": "0123456789komainu ",
    "ENV": "/dev/stdin",
    "BASH_ENV": "/nonexistent",
    "PATH": "/nonexistent:%builtin",
    "LC_ALL": "tr_TR.UTF-8",
    "CDPATH": "/tmp",
    "PS4": "$(exit 9)",
    "POSIXLY_CORRECT": "1",
    "SHELLOPTS": "errexit:nounset",
    "verdict": "FAULT",
    "action": "refuse",
    "suspected": "yes",
    "policy": "closed",
    "line": "komainu1",
    "fresh": "",
    "why": "fault",
    "run_dir": "/nonexistent",
    "number": "08",
    "BASH_FUNC_printf%%": "() { exit 7; }",
    "BASH_FUNC_read%%": "() { exit 7; }",
    "SLURM_JOB_NAME": "$(exit 9)",
    "SPANK_X": "a\nb",
}


def test_a_hostile_environment_changes_nothing(any_bed: Bed) -> None:
    replace(any_bed.verdict, verdict_line())
    assert any_bed.run(env=HOSTILE).code == 0
    assert any_bed.records()[-1].why == "ok"
    replace(any_bed.verdict, verdict_line("FAULT"))
    assert any_bed.run(env={**HOSTILE, "verdict": "OK", "policy": "open"}).code == 1
    assert any_bed.run("epilog", env=HOSTILE).code == 0


@pytest.mark.parametrize(
    "text",
    ["a b; rm -rf /", "$(id)", "`id`", "a\nb", "*", "a" * 2000, "gate1 x", "ä", "'", '"', "\\",
     "%s%n", "", ",", "0,", ",0", "0,,1", "NoDevFiles", "\x1b[2J", "a|b", "a&b", "../../x?"],
)  # fmt: skip
def test_text_the_jobs_owner_may_choose_is_written_safely_or_not_at_all(
    bed: Bed, text: str
) -> None:
    replace(bed.verdict, verdict_line())
    odd = dict.fromkeys(["SLURM_JOB_ID", "SLURM_JOB_USER", "SLURM_JOB_UID", "SLURM_JOB_GPUS"], text)
    assert bed.run(env=odd).code == 0
    assert bed.run("epilog", env=odd).code == 0
    for record in bed.records():
        assert (record.user, record.uid, record.gpus) in {("-", -1, ()), (text, -1, ())}
        assert record.user == "-" or text == "../../x?"


@pytest.mark.parametrize(
    ("env", "gpus"),
    [
        ({"SLURM_JOB_GPUS": "", "GPU_DEVICE_ORDINAL": "2,3"}, ("2", "3")),
        ({"SLURM_JOB_GPUS": "", "CUDA_VISIBLE_DEVICES": "GPU-8f-1,MIG-9a"}, ("GPU-8f-1", "MIG-9a")),
        ({"SLURM_JOB_GPUS": "; id", "GPU_DEVICE_ORDINAL": "4"}, ("4",)),
        ({"SLURM_JOB_GPUS": "", "CUDA_VISIBLE_DEVICES": "NoDevFiles"}, ()),
        ({"SLURM_JOB_GPUS": ""}, ()),
        ({"SLURM_JOB_GPUS": "MIG-GPU-8f/1/0"}, ("MIG-GPU-8f/1/0",)),
    ],
)
def test_the_gpus_come_from_what_slurm_sets(
    bed: Bed, env: dict[str, str], gpus: tuple[str, ...]
) -> None:
    replace(bed.verdict, verdict_line())
    bed.run(env=env)
    assert bed.records()[-1].gpus == gpus


def test_a_node_name_that_could_be_an_option_or_worse_is_not_used(bed: Bed) -> None:
    replace(bed.verdict, verdict_line("FAULT"))
    assert "node this-node refused" in bed.run(env={"SLURMD_NODENAME": "x; id"}).said


class TestRecordsThatCannotBeWritten:
    """The answer stands all the same, and one line says so."""

    @pytest.mark.parametrize("verdict", ["OK", "FAULT"])
    @pytest.mark.parametrize("how", ["missing", "fifo", "full", "directory", "limit"])
    def test_the_answer_stands(self, bed: Bed, how: str, verdict: str) -> None:
        replace(bed.verdict, verdict_line(verdict))
        preexec = None
        if how == "missing":
            bed.records_path.parent.rmdir()
        elif how == "fifo":
            os.mkfifo(bed.records_path)
        elif how == "full":
            bed.records_path.symlink_to("/dev/full")
        elif how == "directory":
            bed.records_path.mkdir()
        else:
            preexec = no_file_may_grow
        done = subprocess.run(
            [*bed.shell, str(DEPLOY / "prolog")],
            env=bed.environment(), preexec_fn=preexec, capture_output=True, timeout=20, check=False,
        )  # fmt: skip
        assert done.returncode == (verdict == "FAULT")
        assert b"could not be recorded" in done.stderr
        done = subprocess.run(
            [*bed.shell, str(DEPLOY / "epilog")],
            env=bed.environment(), preexec_fn=preexec, capture_output=True, timeout=20, check=False,
        )  # fmt: skip
        assert done.returncode == 0


def no_file_may_grow() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("verdict", ["OK", "FAULT"])
def test_closed_descriptors_change_nothing(bed: Bed, closed: tuple[int, ...], verdict: str) -> None:
    replace(bed.verdict, verdict_line(verdict))
    done = subprocess.run(
        [*bed.shell, str(DEPLOY / "prolog")],
        env=bed.environment(),
        preexec_fn=lambda: closed_descriptors(*closed),
        timeout=20,
        check=False,
    )
    assert done.returncode == (verdict == "FAULT")
    assert len(bed.records()) == 1
    assert bed.verdict.read_text().count("\n") == 1


def test_a_reader_that_is_gone_does_not_kill_it(bed: Bed) -> None:
    replace(bed.verdict, verdict_line("FAULT"))
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as gone:
        done = subprocess.run(
            [*bed.shell, str(DEPLOY / "prolog")],
            env=bed.environment(), stdout=gone, stderr=gone, timeout=20, check=False,
        )  # fmt: skip
    assert done.returncode == 1


def test_a_working_directory_that_is_gone_changes_nothing(bed: Bed) -> None:
    replace(bed.verdict, verdict_line())
    gone = bed.root / "gone"
    gone.mkdir()
    command = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", command, "sh", str(gone), *bed.shell, str(DEPLOY / "prolog")],
        env={**bed.environment(), "PATH": os.environ["PATH"]},
        capture_output=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert bed.records()[-1].why == "ok"


@pytest.mark.parametrize(
    ("verdict", "policy", "code"), [("OK", "open", 0), ("OK", "closed", 1), ("FAULT", "open", 1)]
)
def test_a_failure_inside_ends_in_the_policys_answer(
    any_bed: Bed, verdict: str, policy: str, code: int
) -> None:
    any_bed.settings["stale"] = policy
    replace(any_bed.verdict, verdict_line(verdict))
    text = (DEPLOY / "prolog").read_text()
    broken = text.replace("\nlook\njudge\n", '\nlook\n: "${no_such_thing?}"\njudge\n')
    assert broken != text
    script = executable(any_bed.root / "broken", broken)
    assert any_bed.run(script).code == code


def test_the_block_the_scripts_share_is_the_same_in_both() -> None:
    rule = "# " + "-" * 96
    shared = [(DEPLOY / name).read_text().split(rule)[1] for name in ("prolog", "epilog")]
    assert shared[0] == shared[1]
    assert "record()" in shared[0]


@pytest.mark.parametrize("script", ["prolog", "epilog", "healthcheck"])
def test_slurm_can_run_the_script_as_it_is_shipped(script: str) -> None:
    path = DEPLOY / script
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/bin/sh\n")
