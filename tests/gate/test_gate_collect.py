"""The agent's reader loses no line and reads none twice, whatever happens to the files."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from komainu.core.errors import StorageError
from komainu.quarantine import collect
from komainu.quarantine.collect import GateOffset, GateRecords

BOOT = "11111111-2222-3333-4444-555555555555"


def line(job: int, uptime: int = 100) -> str:
    return f"gate1 prolog admit ok {uptime} {BOOT} {job} alice 1001 0,1 0\n"


def jobs(found: collect.Found) -> list[str]:
    return [record.job for _, record in found]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "ROTATE_BYTES", 400)
    monkeypatch.setattr(collect, "SETTLE_S", -1)


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_without_a_file_there_is_nothing(path: Path) -> None:
    assert GateRecords(path).read_new(GateOffset()) == ([], GateOffset())


def test_each_line_is_read_once(path: Path) -> None:
    reader = GateRecords(path)
    append(path, line(1) + line(2))
    found, state = reader.read_new(GateOffset())
    assert jobs(found) == ["1", "2"]
    assert found[0][1].gpus == ("0", "1")
    append(path, line(3))
    found, state = reader.read_new(state)
    assert jobs(found) == ["3"]
    assert reader.read_new(state) == ([], state)


def test_the_state_survives_as_json_and_the_ids_are_the_same_again(path: Path) -> None:
    append(path, line(1) + line(1) + line(2))
    first, state = GateRecords(path).read_new(GateOffset())
    assert msgspec.json.decode(msgspec.json.encode(state), type=GateOffset) == state
    again, _ = GateRecords(path).read_new(GateOffset())
    assert first == again
    assert len({one for one, _ in first}) == 3, "equal lines of one second are two records"


def test_a_torn_last_line_waits_for_its_end(path: Path) -> None:
    reader = GateRecords(path)
    append(path, line(1) + line(2)[:20])
    found, state = reader.read_new(GateOffset())
    assert jobs(found) == ["1"]
    append(path, line(2)[20:])
    found, state = reader.read_new(state)
    assert jobs(found) == ["2"]
    assert state.garbled == 0


def test_a_garbled_line_is_counted_and_the_next_one_read(path: Path) -> None:
    append(path, "nonsense\n" + line(1) + "\n" + "\x00\xff\n" + line(2))
    found, state = GateRecords(path).read_new(GateOffset())
    assert jobs(found) == ["1", "2"]
    assert state.garbled == 3


def test_a_record_behind_a_write_cut_short_is_saved(path: Path) -> None:
    append(path, line(1)[:30] + line(2))
    found, state = GateRecords(path).read_new(GateOffset())
    assert jobs(found) == ["2"]
    assert state.garbled == 1


def test_a_line_longer_than_any_of_ours_is_passed_over(path: Path) -> None:
    reader = GateRecords(path)
    append(path, "x" * 5000)
    _, state = reader.read_new(GateOffset())
    append(path, "\n" + line(7))
    found, state = reader.read_new(state)
    assert jobs(found) == ["7"]


@pytest.mark.usefixtures("small")
def test_a_grown_file_is_renamed_and_a_late_writer_is_still_read(path: Path) -> None:
    reader = GateRecords(path)
    append(path, "".join(line(n) for n in range(6)))
    with path.open("a") as late:
        found, state = reader.read_new(GateOffset())
        assert len(found) == 6
        assert not path.exists()
        assert state.generation == 1
        late.write(line(6))
    append(path, line(7))
    found, state = reader.read_new(state)
    assert jobs(found) == ["6", "7"]


@pytest.mark.usefixtures("small")
def test_a_line_written_just_before_the_second_rename_is_read(path: Path) -> None:
    reader = GateRecords(path)
    append(path, "".join(line(n) for n in range(6)))
    _, state = reader.read_new(GateOffset())
    append(path.with_name("records.1"), line(50))
    append(path, "".join(line(n) for n in range(10, 16)))
    found, state = reader.read_new(state)
    assert jobs(found) == ["50", *map(str, range(10, 16))]
    assert state.generation == 2


@pytest.mark.usefixtures("small")
def test_a_renamed_file_is_not_replaced_while_a_gate_may_still_write_into_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = GateRecords(path)
    append(path, "".join(line(n) for n in range(6)))
    _, state = reader.read_new(GateOffset())
    monkeypatch.setattr(collect, "SETTLE_S", 30)
    append(path, "".join(line(n) for n in range(10, 16)))
    found, state = reader.read_new(state)
    assert len(found) == 6
    assert (path.exists(), state.generation) == (True, 1)
    os.utime(path.with_name("records.1"))  # any touch counts; only time passing settles it
    monkeypatch.setattr(collect, "SETTLE_S", -1)
    assert reader.read_new(state)[1].generation == 2


@pytest.mark.usefixtures("small")
def test_killed_between_the_rename_and_keeping_the_state_nothing_is_lost(path: Path) -> None:
    reader = GateRecords(path)
    append(path, line(0))
    _, kept = reader.read_new(GateOffset())
    append(path, "".join(line(n) for n in range(1, 7)))
    first, _ = reader.read_new(kept)  # renames; the new state is lost with the process
    append(path, line(7))
    again, state = GateRecords(path).read_new(kept)
    assert again[:6] == first
    assert jobs(again)[6:] == ["7"]
    assert state.generation == 1


@pytest.mark.usefixtures("small")
def test_an_agent_that_lost_its_state_reads_the_renamed_file_too(path: Path) -> None:
    append(path, "".join(line(n) for n in range(6)))
    first, _ = GateRecords(path).read_new(GateOffset())
    append(path, line(6))
    again, _ = GateRecords(path).read_new(GateOffset())
    assert again[:6] == first
    assert jobs(again) == [str(n) for n in range(7)]


def test_a_file_begun_anew_by_a_boot_is_read_from_its_start(path: Path) -> None:
    reader = GateRecords(path)
    append(path, line(1))
    _, state = reader.read_new(GateOffset())
    # In place, so that the inode number is the same: what a fresh tmpfs may well give.
    path.write_text(line(2, uptime=7) + line(3, uptime=8))
    found, state = reader.read_new(state)
    assert jobs(found) == ["2", "3"]
    assert state.generation == 1


def test_a_large_backlog_takes_several_calls(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "READ_BYTES", 4096)
    append(path, "".join(line(n) for n in range(200)))
    reader, state, seen = GateRecords(path), GateOffset(), []
    for _ in range(10):
        found, state = reader.read_new(state)
        assert len(found) < 60
        seen += jobs(found)
    assert seen == [str(n) for n in range(200)]


@pytest.mark.parametrize("kind", ["fifo", "directory", "link"])
def test_what_is_no_regular_file_is_an_error_that_says_what_to_do(path: Path, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(StorageError, match="belongs to root"):
        GateRecords(path).read_new(GateOffset())


@given(cuts=st.lists(st.integers(1, 60), max_size=40))
def test_however_the_bytes_arrive_the_records_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("cut") / "records"
    text = "".join(line(n) for n in range(12))
    reader, state, seen, at = GateRecords(path), GateOffset(), [], 0
    for cut in [*cuts, len(text)]:
        append(path, text[at : at + cut])
        at += cut
        found, state = reader.read_new(state)
        seen += jobs(found)
    assert seen == [str(n) for n in range(12)]
    assert state.garbled == 0
