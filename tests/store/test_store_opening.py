from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import msgspec
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from tests.store.samples import GRADES, NOW, C, batch, finding

from komainu.core.errors import StorageError
from komainu.core.verdict import Severity, Verdict
from komainu.store import SqlStore, open_store
from komainu.store.connect import connect
from komainu.store.tables import metadata


def test_the_migrations_make_the_tables_the_queries_expect(url: str) -> None:
    engine = connect(url)
    with engine.begin() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_a_database_of_a_newer_version_is_refused(url: str) -> None:
    engine = connect(url)
    with engine.execution_options(writes=True).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(StorageError, match="written by a newer Komainu: found schema 9999"):
        open_store(url)


def test_findings_of_an_older_schema_get_their_weight(url: str) -> None:
    store = open_store(url)
    watched = msgspec.structs.replace(finding("F-2", node="n2"), severity=Severity.WATCH)
    blind = msgspec.structs.replace(
        finding("F-3", node="n3"), severity=Severity.INFO, verdict=Verdict.UNKNOWN
    )
    for one in (finding(), watched, blind):
        store.receive(batch(one, node=one.node), NOW)
    store.close()
    engine = connect(url)
    with engine.execution_options(writes=True).begin() as connection:
        for column in ("severity", "verdict"):
            connection.execute(text(f"ALTER TABLE findings DROP COLUMN {column}"))
        connection.execute(text("ALTER TABLE join_tokens DROP COLUMN node"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    engine.dispose()
    again = open_store(url)
    assert [key.node for key in again.unsettled(C, NOW, GRADES)] == ["n1", "n3"]
    again.close()


def _open(url: str) -> None:
    open_store(url).close()


def test_two_processes_may_open_an_empty_database_at_once(url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    both = [spawn.Process(target=_open, args=(url,)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    store = open_store(url)
    assert store.last_seq() == 0
    store.close()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nonsense", "is not a database address"),
        ("sqlite://", "names no file"),
        ("mysql://host/name", "of a kind we do not know"),
        ("sqlite:////proc/nowhere/komainu.db", "cannot be opened"),
    ],
)
def test_an_address_that_cannot_be_used_says_why(address: str, said: str) -> None:
    with pytest.raises(StorageError, match=said):
        open_store(address)


def test_a_password_in_an_address_is_never_told() -> None:
    with pytest.raises(StorageError) as caught:
        open_store("mysql://user:hunter2@host/name")
    assert "hunter2" not in str(caught.value)


def test_nobody_else_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "komainu.db"
    open_store(f"sqlite:///{path}").close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_sqlite_keeps_what_it_has_answered_through_a_power_cut(tmp_path: Path) -> None:
    engine = connect(f"sqlite:///{tmp_path}/komainu.db")
    with engine.begin() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
    engine.dispose()


def test_a_file_that_is_no_database_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "komainu.db").write_text("this is not a database, whatever its name says " * 40)
    with pytest.raises(StorageError, match="cannot be opened"):
        open_store(f"sqlite:///{tmp_path}/komainu.db")


def test_every_table_has_its_cluster() -> None:
    without = {name for name, table in metadata.tables.items() if "cluster" not in table.c}
    people = {"users", "sessions", "api_tokens"}
    assert without == people | {"feed_counter", "clusters"}


def test_a_store_may_be_used_from_a_closed_and_opened_file(store: SqlStore, url: str) -> None:
    store.close()
    again = open_store(url)
    assert again.clusters() == []
    again.close()
