"""The spool: all or nothing, bounded, and shipped in order of weight."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.agent.fakes import KEY

from komainu.agent.place import Cursor
from komainu.agent.spool import MOST_ASIDE, Active, Spool
from komainu.core.errors import StorageError
from komainu.core.observation import Component, Finding, Observation, ObservationKind
from komainu.core.verdict import FaultClass, Severity

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def _finding(id_: str) -> Finding:
    return Finding(
        id=id_, cluster=KEY.cluster, node=KEY.node, code="X", component=Component("gpu"),
        severity=Severity.FATAL, fault_class=FaultClass.QUARANTINE_NOW, summary="s", at=NOW,
    )  # fmt: skip


def _seen(
    id_: str,
    kind: ObservationKind = ObservationKind.KERNEL_LINE,
    *,
    debug: bool = False,
    size: int = 10,
) -> Observation:
    return Observation(
        id=id_, cluster=KEY.cluster, node=KEY.node, kind=kind, at=NOW,
        data={"text": "x" * size}, debug=debug,
    )  # fmt: skip


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    one = Spool(tmp_path / "agent.db", 20_000)
    yield one
    one.close()


def test_what_is_set_aside_is_tried_again_at_the_next_start(spool: Spool, tmp_path: Path) -> None:
    spool.keep(findings=[_finding("F-1")], observations=[_seen("O-1"), _seen("O-2", debug=True)])
    for ident in ("F-1", "O-2", "O-2"):
        spool.set_aside(ident)
    parcel = spool.parcel(10)
    assert (parcel.ids, parcel.left) == (["O-1"], 0)
    spool.keep(findings=[_finding("F-1")])
    assert spool.parcel(10).ids == ["O-1"]
    spool.close()
    again = Spool(tmp_path / "agent.db", 20_000)
    assert again.parcel(10).ids == ["F-1", "O-1", "O-2"]
    again.close()


def test_what_is_set_aside_does_not_fill_the_spool(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "agent.db", 50_000)
    for number in range(MOST_ASIDE + 50):
        spool.keep(observations=[_seen(f"O-{number}", ObservationKind.GATE, size=300)])
        spool.set_aside(f"O-{number}")
    spool.close()
    again = Spool(tmp_path / "agent.db", 50_000)
    assert again.parcel(500).ids == [f"O-{number}" for number in range(50, MOST_ASIDE + 50)]
    again.close()


def test_what_was_kept_is_there_after_reopening(spool: Spool, tmp_path: Path) -> None:
    spool.keep(
        observations=[_seen("O-1")],
        findings=[_finding("F-1")],
        active=[Active(finding=_finding("F-1"), known_since=NOW)],
        put={"cursor": Cursor(boot_id="b", seq=7)},
    )
    spool.close()
    again = Spool(tmp_path / "agent.db", 20_000)
    assert again.get("cursor", Cursor) == Cursor(boot_id="b", seq=7)
    assert again.active().keys() == {"F-1"}
    assert again.parcel(10).ids == ["F-1", "O-1"]
    again.close()


def test_findings_and_refused_jobs_overtake_a_flood_of_lines(spool: Spool) -> None:
    spool.keep(observations=[_seen(f"O-{n}") for n in range(20)])
    spool.keep(observations=[_seen("O-debug", debug=True), _seen("O-gate", ObservationKind.GATE)])
    spool.keep(findings=[_finding("F-1")])
    parcel = spool.parcel(3)
    assert parcel.ids == ["F-1", "O-gate", "O-0"]
    assert parcel.left == 20
    spool.shipped(parcel.ids, 0)
    assert spool.parcel(1).ids == ["O-1"]


def test_the_same_thing_kept_twice_is_shipped_once(spool: Spool) -> None:
    spool.keep(observations=[_seen("O-1")])
    spool.keep(observations=[_seen("O-1")])
    assert spool.parcel(10).ids == ["O-1"]


def test_a_failure_in_the_middle_keeps_nothing(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> tuple[int, int]:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(spool, "_make_room", fail)
    with pytest.raises(StorageError, match=r"agent\.db cannot be written: disk I/O error"):
        spool.keep(observations=[_seen("O-1")], put={"cursor": Cursor(seq=1)})
    monkeypatch.undo()
    assert spool.parcel(10).ids == []
    assert spool.get("cursor", Cursor) is None


def test_only_debug_data_is_dropped_oldest_first_and_counted(spool: Spool) -> None:
    for number in range(30):
        spool.keep(observations=[_seen(f"O-debug{number}", debug=True, size=400)])
    kept = [_seen(f"O-{number}", size=400) for number in range(10)]
    dropped = spool.keep(observations=kept)
    left = spool.parcel(100).ids
    assert dropped > 0
    assert spool.dropped() == 30 - sum(id_.startswith("O-debug") for id_ in left)
    assert [id_ for id_ in left if not id_.startswith("O-debug")] == [one.id for one in kept]
    assert left[-1] == "O-debug29"
    assert not spool.full


def test_when_only_real_data_is_left_it_says_so_until_some_is_taken(spool: Spool) -> None:
    spool.keep(observations=[_seen(f"O-{number}", size=900) for number in range(25)])
    assert spool.full
    assert len(spool.parcel(100).ids) == 25
    spool.shipped(spool.parcel(10).ids, 0)
    assert not spool.full


def test_what_was_dropped_is_told_once(spool: Spool) -> None:
    for number in range(60):
        spool.keep(observations=[_seen(f"O-{number}", debug=True, size=400)])
    told = spool.dropped()
    spool.shipped([], told)
    assert spool.dropped() == 0


def test_a_copy_in_memory_has_all_of_it_and_leaves_the_file_alone(
    spool: Spool, tmp_path: Path
) -> None:
    spool.keep(findings=[_finding("F-1")], put={"cursor": Cursor(seq=3)})
    copy = Spool.in_memory(tmp_path / "agent.db", 20_000)
    copy.keep(put={"cursor": Cursor(seq=4)})
    copy.shipped(["F-1"], 0)
    assert copy.parcel(1).ids == []
    assert spool.parcel(1).ids == ["F-1"]
    assert spool.get("cursor", Cursor) == Cursor(seq=3)
    copy.close()


def test_a_copy_of_nothing_is_empty(tmp_path: Path) -> None:
    copy = Spool.in_memory(tmp_path / "none.db", 20_000)
    assert copy.active() == {}
    assert not (tmp_path / "none.db").exists()
    copy.close()


def test_state_of_another_version_is_an_error_that_says_what_to_do(spool: Spool) -> None:
    spool.keep(put={"cursor": Active(finding=_finding("F"), known_since=NOW)})
    spool.keep(put={"active": Cursor(seq=1)})
    with pytest.raises(StorageError, match=r"another form.*Move the file away"):
        spool.get("active", Active)


def test_syncing_a_file_that_is_gone_is_no_error(spool: Spool, tmp_path: Path) -> None:
    spool.keep(put={"cursor": Cursor(seq=1)})
    spool.sync()
    (tmp_path / "agent.db-wal").unlink()
    spool.sync()
