"""What the agent must not forget, in one SQLite file.

One transaction keeps what a kernel line led to *together with* the cursor that has passed it: killed
anywhere, the agent either acts on the line again under the same ids or has acted on it once. A
transaction survives a kill when it returns, and a power cut once `sync` has returned: the agent calls
that at once, aside, because a busy disk takes 50 ms over it and the server need not wait for that.

The spool is bounded. Debug observations are dropped first, in chunks, and counted; when nothing but
real data is left `full` says so, and the agent stops reading until the server has taken some.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from komainu.core.errors import StorageError
from komainu.core.observation import Finding, Observation, ObservationKind

Kept = TypeVar("Kept", bound=msgspec.Struct)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS active (id TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spool (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    rank INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS spool_rank ON spool (rank, n);
"""
_FINDING, _GATE, _OBSERVATION, _DEBUG = range(4)
"""Ranks, shipped in this order: a flood of lines never delays a finding or a refused job."""
_ASIDE = 10
"""Added to the rank of what the server refuses."""
MOST_ASIDE = 100
_DROP_SHARE = 0.1
"""Share of the bound freed at once when debug data must go: one note a chunk, not one a line."""


class Active(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that has not been released, and when this node first concluded it (its own clock)."""

    finding: Finding
    known_since: datetime


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """The next things to ship."""

    observations: tuple[Observation, ...] = ()
    findings: tuple[Finding, ...] = ()
    left: int = 0
    """Items waiting behind these."""

    @property
    def ids(self) -> list[str]:
        return [f.id for f in self.findings] + [o.id for o in self.observations]


class _Count(msgspec.Struct, frozen=True):
    n: int = 0


class Spool:
    """The agent's memory on disk. Every method raises StorageError, naming the file."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._bytes = 0
        with self._guarded("opened"):
            self._db = _connect(str(path))
            self._take_back()
            self._weigh()

    @classmethod
    def in_memory(cls, copied_from: Path, max_bytes: int) -> Spool:
        """A spool that lives as long as the process, begun as a copy of what the file still tells:
        for a disk that is full, read-only or gone.
        """
        spool = cls(Path(":memory:"), max_bytes)
        source = _readable(copied_from)
        if source is not None:
            with contextlib.closing(source), contextlib.suppress(sqlite3.Error):
                source.backup(spool._db)
        with spool._guarded("opened"):
            spool._db.executescript(_SCHEMA)
            spool._weigh()
        return spool

    def _take_back(self) -> None:
        """What was set aside is shipped again; a disk that cannot be written is not touched over it."""
        aside = self._db.execute("SELECT 1 FROM spool WHERE rank >= ? LIMIT 1", (_ASIDE,))
        if aside.fetchone() is not None:
            self._db.execute("UPDATE spool SET rank = rank - ? WHERE rank >= ?", (_ASIDE, _ASIDE))

    def _weigh(self) -> None:
        row = self._db.execute("SELECT coalesce(sum(length(body)), 0) FROM spool").fetchone()
        self._bytes = int(row[0])

    @property
    def full(self) -> bool:
        """Whether the bound is reached and no debug data is left to drop."""
        return self._bytes > self._max_bytes

    def close(self) -> None:
        self._db.close()

    def sync(self) -> None:
        """Make everything kept so far safe against a power cut. Blocking; for another thread."""
        with self._guarded("written"), contextlib.suppress(FileNotFoundError):
            # SQLite's locks are on the other two files, so opening this one takes none away.
            fd = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    # ── state ────────────────────────────────────────────────────────────────────────────────────

    def get(self, key: str, kind: type[Kept]) -> Kept | None:
        """A value put earlier; None when there is none."""
        with self._guarded("read"):
            row = self._db.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
        return None if row is None else self._decoded(row[0], kind, key)

    def active(self) -> dict[str, Active]:
        with self._guarded("read"):
            rows = self._db.execute("SELECT id, value FROM active").fetchall()
        return {id_: self._decoded(value, Active, id_) for id_, value in rows}

    def keep(
        self,
        *,
        observations: Sequence[Observation] = (),
        findings: Sequence[Finding] = (),
        active: Sequence[Active] = (),
        closed: Collection[str] = (),
        put: Mapping[str, msgspec.Struct] = {},
    ) -> int:
        """Keep all of it or nothing. `findings` and `observations` are queued for shipping, `active`
        and `closed` change the open findings, `put` replaces values. Returns how many debug
        observations were dropped to make room.
        """
        encode = msgspec.json.encode
        queue = [(f.id, _FINDING, encode(f)) for f in findings]
        queue += [(o.id, _rank(o), encode(o)) for o in observations]
        with self._transaction():
            self._db.executemany(
                "INSERT OR REPLACE INTO kept VALUES (?, ?)",
                [(key, encode(value)) for key, value in put.items()],
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO active VALUES (?, ?)",
                [(one.finding.id, encode(one)) for one in active],
            )
            self._db.executemany("DELETE FROM active WHERE id = ?", [(id_,) for id_ in closed])
            added = 0
            for row in queue:
                inserted = self._db.execute(
                    "INSERT OR IGNORE INTO spool (id, rank, body) VALUES (?, ?, ?)", row
                )
                added += len(row[2]) if inserted.rowcount == 1 else 0
            dropped, freed = self._make_room(added)
        self._bytes += added - freed
        return dropped

    def _make_room(self, added: int) -> tuple[int, int]:
        """Drop the oldest debug data when the bound is passed; returns rows and bytes dropped."""
        over = self._bytes + added - self._max_bytes
        if over <= 0:
            return 0, 0
        wanted, freed, doomed = over + int(self._max_bytes * _DROP_SHARE), 0, []
        rows = self._db.execute(
            "SELECT n, length(body) FROM spool WHERE rank = ? ORDER BY n", (_DEBUG,)
        )
        for number, size in rows:
            if freed >= wanted:
                break
            doomed.append((number,))
            freed += size
        self._db.executemany("DELETE FROM spool WHERE n = ?", doomed)
        self._count("dropped", len(doomed))
        return len(doomed), freed

    # ── shipping ─────────────────────────────────────────────────────────────────────────────────

    def parcel(self, at_most: int) -> Parcel:
        """The next `at_most` things to ship: findings first, then by rank and age."""
        with self._guarded("read"):
            rows = self._db.execute(
                "SELECT n, rank, body FROM spool WHERE rank < ? ORDER BY rank, n LIMIT ?",
                (_ASIDE, at_most),
            ).fetchall()
            count = "SELECT count(*) FROM spool WHERE rank < ?"
            waiting = int(self._db.execute(count, (_ASIDE,)).fetchone()[0])
        return Parcel(
            observations=tuple(
                self._decoded(body, Observation, str(n))
                for n, rank, body in rows
                if rank != _FINDING
            ),
            findings=tuple(
                self._decoded(body, Finding, str(n)) for n, rank, body in rows if rank == _FINDING
            ),
            left=waiting - len(rows),
        )

    def set_aside(self, ident: str) -> None:
        """Ship the rest without this one, which the server refuses. It is tried again when the agent
        starts, as after an upgrade of either side; the newest MOST_ASIDE are kept.
        """
        with self._transaction():
            self._db.execute(
                "UPDATE spool SET rank = rank + ? WHERE id = ? AND rank < ?",
                (_ASIDE, ident, _ASIDE),
            )
            self._db.execute(
                "DELETE FROM spool WHERE rank >= ? AND n NOT IN "
                "(SELECT n FROM spool WHERE rank >= ? ORDER BY n DESC LIMIT ?)",
                (_ASIDE, _ASIDE, MOST_ASIDE),
            )
        with self._guarded("read"):
            self._weigh()

    def dropped(self) -> int:
        """Debug observations dropped and not yet told to the server."""
        return (self.get("dropped", _Count) or _Count()).n

    def shipped(self, ids: Sequence[str], dropped_told: int) -> None:
        """The server has made these durable; forget them."""
        freed = 0
        with self._transaction():
            for id_ in ids:
                row = self._db.execute(
                    "DELETE FROM spool WHERE id = ? RETURNING length(body)", (id_,)
                ).fetchone()
                freed += row[0] if row else 0
            self._count("dropped", -dropped_told)
        self._bytes -= freed

    # ── the file ─────────────────────────────────────────────────────────────────────────────────

    def _count(self, key: str, change: int) -> None:
        if change:
            row = self._db.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
            before = self._decoded(row[0], _Count, key).n if row else 0
            value = msgspec.json.encode(_Count(max(0, before + change)))
            self._db.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (key, value))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._guarded("written"):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                # SQLite itself rolls back on some errors (a full disk), and then there is nothing to.
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _guarded(self, what: Literal["opened", "read", "written"]) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StorageError(
                f"spool {self._path} cannot be {what}: {error}. Free the disk, or make its folder "
                f"writable; if the file is damaged, move it away and restart the agent."
            ) from error

    def _decoded(self, raw: bytes, kind: type[Kept], where: str) -> Kept:
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.DecodeError as error:
            raise StorageError(
                f"spool {self._path} holds {where} in another form than this version's "
                f"{kind.__name__}: {error}. Move the file away and restart the agent."
            ) from error


def told_apart(seen: Sequence[Observation], concluded: Sequence[Finding]) -> list[Observation]:
    """Kernel lines that no finding rests on (a GPU's serial number, the fortieth line of one error)
    are debug data: shipped like the rest, and the first to go when the spool is full.
    """
    evidence = {one.observation for finding in concluded for one in finding.evidence}
    return [
        msgspec.structs.replace(one, debug=True)
        if one.kind is ObservationKind.KERNEL_LINE and one.id not in evidence
        else one
        for one in seen
    ]


def _rank(observation: Observation) -> int:
    if observation.debug:
        return _DEBUG
    return _GATE if observation.kind is ObservationKind.GATE else _OBSERVATION


def _connect(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")  # see sync()
    db.execute("PRAGMA cache_size = -1024")  # KiB; the default 2 MB buys nothing here
    db.executescript(_SCHEMA)
    return db


def _readable(path: Path) -> sqlite3.Connection | None:
    """The file without writing anything beside it. While a write-ahead log is there (an agent runs,
    or was killed) it is read like any reader does; else `immutable` reads the file alone, where even
    a reader would leave a new log behind, or could not make one (a read-only file system).
    """
    beside = Path(f"{path}-wal").exists()
    for how in ("mode=ro", "mode=ro&immutable=1") if beside else ("mode=ro&immutable=1",):
        try:
            db = sqlite3.connect(f"file:{path}?{how}", uri=True)
            db.execute("SELECT count(*) FROM kept").fetchone()
        except sqlite3.Error:
            continue
        return db
    return None
