"""Opening the database: which dialect, how it behaves, and bringing its tables up to date.

SQLite runs in WAL mode with synchronous=FULL: a reply to an agent promises that its batch survives a
power cut, which NORMAL does not. Whoever writes says BEGIN IMMEDIATE, so that a writer never has to
be told halfway through that another was first.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from komainu.core.errors import StorageError

BUSY_MS = 15_000
"""How long a writer waits for another process's write: far above any of ours, below any deadline."""
_MIGRATING = 0x6B6F6D61
"""Key of the PostgreSQL advisory lock under which one process at a time migrates ("koma")."""


def connect(url: str) -> Engine:
    """An engine for `url` with tables up to date. Raises StorageError."""
    parsed = _parse(url)
    try:
        engine = _sqlite(parsed) if parsed.get_backend_name() == "sqlite" else _postgres(parsed)
    except OSError as error:
        raise _unopened(parsed, error) from error
    try:
        _migrate(engine, parsed)
    except BaseException as error:
        engine.dispose()
        if isinstance(error, SQLAlchemyError):
            raise _unopened(parsed, error) from error
        raise
    return engine


def _unopened(url: URL, error: Exception) -> StorageError:
    return StorageError(
        f"database {shown(url)} cannot be opened: {error}. Check [server] database in "
        "komainu.toml, and that this user may read and write it."
    )


def shown(url: URL) -> str:
    """The address without its password."""
    return url.render_as_string(hide_password=True)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StorageError(
            "[server] database is not a database address: expected sqlite:////path/komainu.db or "
            "postgresql+psycopg://user@host/name"
        ) from error
    if parsed.get_backend_name() == "sqlite" and not parsed.database:
        raise StorageError(
            "database sqlite:// names no file: memory would be lost with the process. "
            "Use sqlite:////path/komainu.db."
        )
    if parsed.get_backend_name() == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() != "sqlite":
        raise StorageError(
            f"database {shown(parsed)} is of a kind we do not know: expected sqlite:///… or "
            "postgresql+psycopg://…"
        )
    return parsed


def _sqlite(url: URL) -> Engine:
    path = Path(str(url.database))
    path.parent.mkdir(parents=True, exist_ok=True)
    # It holds password and token hashes: nobody else reads it, whatever the umask.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    engine = create_engine(url, connect_args={"timeout": BUSY_MS / 1000}, pool_size=8)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver must not begin on its own
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgres(url: URL) -> Engine:
    try:
        return create_engine(url, pool_size=8, pool_pre_ping=True)
    except ImportError as error:
        raise StorageError(
            "PostgreSQL needs its driver, psycopg, which is not installed here. Install the wheel "
            "with '[server,postgres]', as docs/start/install.md says."
        ) from error


def _migrate(engine: Engine, url: URL) -> None:
    """Bring the tables up to date, one process at a time; refuse a newer database."""
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    known = ScriptDirectory.from_config(config)
    with engine.execution_options(writes=True).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATING})
        found = MigrationContext.configure(connection).get_current_heads()
        if set(found) == set(known.get_heads()):
            return
        ours = {script.revision for script in known.walk_revisions()}
        if not set(found) <= ours:
            raise StorageError(
                f"database {shown(url)} was written by a newer Komainu: found schema "
                f"{', '.join(found)}, this version knows up to {', '.join(known.get_heads())}. "
                "Install the newer version again, or restore the backup made before it."
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
