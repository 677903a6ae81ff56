"""What we remember: SQLite by default, PostgreSQL in production, one suite of tests for both."""

from komainu.store.sql import SqlStore, open_store

__all__ = ["SqlStore", "open_store"]
