from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result
from tests.health.health_lines import benign, labelled, xid

from komainu.health.commands import COMMANDS, MAX_LINE, catalogue, explain

OFF = xid(79, "GPU has fallen off the bus.")
RUN = "from komainu.health.commands import explain; explain()"


def run(text: str | bytes, *options: str) -> Result:
    return CliRunner().invoke(explain, options, input=text)


def values(result: Result) -> list[dict[str, object] | None]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_json_has_one_value_per_input_line() -> None:
    lines = [line for line, _, _ in labelled()]
    mixed = [line for pair in zip(lines, benign(), strict=False) for line in pair]
    result = run("\n".join(mixed), "--json")
    shown = values(result)
    assert len(shown) == len(mixed)
    for number, (line, component, code) in enumerate(labelled()):
        value = shown[2 * number]
        assert value is not None, line
        assert (value["component"], value["code"]) == (component, code)
        assert value["line_number"] == 2 * number + 1
        assert shown[2 * number + 1] is None


def test_json_keeps_nvidias_action_and_ours_apart() -> None:
    (value,) = values(run(OFF, "--json"))
    assert value is not None
    assert value["class"] == "QUARANTINE_NOW"
    assert value["action"] == "RESTART_BM"
    assert value["our_action"] == "take the node out now"
    assert value["severity"] == "fatal"
    assert value["finding"] == "GPU-XID-79"
    assert value["fields"] == {"pci": "0000:41:00", "xid": 79}


def test_an_action_nvidia_does_not_give_is_null() -> None:
    for line in (xid(171), xid(4711), "EDAC MC3: 1 UE memory read error on X (c:1)"):
        (value,) = values(run(line, "--json"))
        assert value is not None
        assert value["action"] is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("usb 1-1: new device\n", 0),
        (xid(13), 0),
        (xid(92), 0),
        (OFF, 1),
        (xid(63), 1),
        (xid(4711), 2),
        (xid(4711) + "\n" + OFF, 1),
        (xid(154, "GPU recovery action changed from 0x0 (None) to 0x9 (Dance)"), 2),
        (xid(149, "words of a later driver"), 2),
    ],
)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_exit_status_0_fine_1_findings_2_could_not_tell(
    text: str, code: int, options: tuple[str, ...]
) -> None:
    assert run(text, *options).exit_code == code


def test_empty_input_gives_no_json_and_says_so_in_words() -> None:
    assert run("", "--json").stdout == ""
    assert "None of 0 lines" in run("").stdout


def test_the_table_shows_the_lines_that_mean_something() -> None:
    result = run(f"usb 1-1: new device\n{OFF}\n")
    rows = result.stdout.splitlines()
    assert rows[0].split()[:4] == ["LINE", "COMPONENT", "CODE", "CLASS"]
    assert rows[1].split()[:4] == ["2", "gpu", "79", "QUARANTINE_NOW"]
    assert len(rows) == 2


def test_it_says_that_pasted_lines_can_be_forged() -> None:
    assert "forged" in run(OFF).stderr
    assert run(OFF, "--json").stderr == ""


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe\x00\n" + OFF.encode(),
        b"\r\n" + OFF.encode() + b"\r\n",
        b"x" * (3 * MAX_LINE + 7) + b"\n" + OFF.encode(),
        b"x" * MAX_LINE + b"\n" + OFF.encode(),
        b"x" * (MAX_LINE - 1) + b"\n" + OFF.encode() + b"\n",
        b"\x00\n" + OFF.encode() + b"\xf0\x28\x8c\x28",
    ],
)
def test_any_bytes_can_be_pasted(text: bytes) -> None:
    shown = values(run(text, "--json"))
    assert len(shown) == 2
    assert shown[0] is None
    assert shown[1] is not None
    assert shown[1]["code"] == "79"


def test_control_characters_never_reach_the_terminal() -> None:
    result = run("NVRM: Xid (PCI:0000:41:00): 79, pid=7, name=\x1b[31mred\x1b[0m, \x07bell")
    assert "\x1b" not in result.stdout
    assert "\x07" not in result.stdout


def test_three_lines_of_one_record_are_one_meaning() -> None:
    text = (
        "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
    )
    shown = values(run(text, "--json"))
    assert [value and value["code"] for value in shown] == [None, None, "79"]
    assert shown[2] is not None
    assert shown[2]["fields"] == {"pci": "0000:b3:00"}


def test_a_reader_that_goes_away_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN, "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        try:
            process.stdin.write((OFF + "\n").encode() * 10_000)
            process.stdin.close()
        except BrokenPipeError:
            pass
        error = process.stderr.read()
        code = process.wait(timeout=20)
    assert error == b""
    assert code == 1


def test_the_catalogue_shows_one_code_by_any_of_its_names() -> None:
    for asked in ("79", "GPU-XID-79", "gpu-xid-79"):
        result = CliRunner().invoke(catalogue, [asked])
        assert result.exit_code == 0
        assert "RESTART_BM" in result.stdout
    assert "LTSSM" in CliRunner().invoke(catalogue, ["20034", "--json"]).stdout
    assert "firmware has stopped" in CliRunner().invoke(catalogue, ["NIC-HEALTH"]).stdout


def test_the_whole_catalogue_as_json() -> None:
    rows = json.loads(CliRunner().invoke(catalogue, ["--json"]).stdout)
    assert len(rows) > 177 + 420


def test_a_code_the_catalogue_lacks_exits_2_and_says_what_happens_to_it() -> None:
    result = CliRunner().invoke(catalogue, ["4711"])
    assert result.exit_code == 2
    assert "never drains" in result.stderr


def test_both_commands_are_offered() -> None:
    assert {command.name for command in COMMANDS} == {"explain", "catalogue"}


@pytest.mark.parametrize(
    "odd", ["\u202e", "\u2066", "\u200f", "\u2028", "\x7f", "\x9b31m", "\U000e0041"]
)
def test_json_holds_no_character_that_acts_on_a_terminal(odd: str) -> None:
    result = run(f"{xid(79, f'pid=7, name=a{odd}é, x')}\n", "--json")
    assert result.stdout.rstrip("\n").isprintable()
    (value,) = values(result)
    assert value is not None
    fields = value["fields"]
    assert isinstance(fields, dict)
    assert fields["name"] == f"a{odd}é", "and it means the same"
