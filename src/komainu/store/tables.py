"""The tables. Every one has its cluster, since one server watches many.

What is asked for by value is a column of its own; the whole Struct stands beside it as JSON in
`body`, so a field added to a Struct needs no migration until something searches by it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)
from sqlalchemy.engine import Dialect


class Utc(TypeDecorator[datetime]):
    """Aware UTC going in and coming out, also where the database forgets the zone (SQLite)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        del dialect
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        del dialect
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)
NAME = String(128)
NUMBER = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite numbers rows by itself only where the type is exactly INTEGER."""
ID = String(128)


def _of_node() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["cluster", "node"], ["nodes.cluster", "nodes.node"])


feed_counter = Table(
    "feed_counter",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("seq", NUMBER, nullable=False),
)
"""One row. Whoever writes takes it first, so that the feed has no gap and no order but one."""

changes = Table(
    "changes",
    metadata,
    Column("seq", NUMBER, primary_key=True, autoincrement=False),
    Column("at", Utc, nullable=False),
    Column("cluster", NAME, nullable=False),
    Column("node", NAME, nullable=False),
    Column("what", String(16), nullable=False),
    Column("ref", ID, nullable=False),
)

clusters = Table(
    "clusters",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("scheduler_seen", Utc),
    Column("scheduler_error", Text, nullable=False, default=""),
    Column("tripped_at", Utc),
)

nodes = Table(
    "nodes",
    metadata,
    Column("cluster", NAME, ForeignKey("clusters.name"), primary_key=True),
    Column("node", NAME, primary_key=True),
    Column("token_hash", String(64), unique=True),
    Column("seen", Utc),
    Column("agent_version", String(64), nullable=False, default=""),
    Column("boot_id", String(64), nullable=False, default=""),
    Column("rack", NAME, nullable=False, default=""),
    Column("hardware", Text),
    Column("verdict", Text),
    Column("verdict_since", Utc),
    Column("scheduler", Text),
    Column("last_order", Integer, nullable=False, default=0),
    Column("orders_seen", Integer, nullable=False, default=0),
    Column("policy_seen", String(64), nullable=False, default=""),
    Column("policy_told", String(64), nullable=False, default=""),
    Column("advise_only", Boolean, nullable=False, default=False),
    Column("dropped_debug", Integer, nullable=False, default=0),
)

observations = Table(
    "observations",
    metadata,
    Column("cluster", NAME, primary_key=True),
    Column("node", NAME, primary_key=True),
    Column("id", ID, primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("at", Utc, nullable=False),
    Column("received", Utc, nullable=False),
    Column("body", Text, nullable=False),
    _of_node(),
    Index(None, "cluster", "node", "kind", "received"),
    Index(None, "received"),
)

findings = Table(
    "findings",
    metadata,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("cluster", NAME, nullable=False),
    Column("node", NAME, nullable=False),
    Column("id", ID, nullable=False),
    Column("code", String(64), nullable=False),
    Column("at", Utc, nullable=False),
    Column("received", Utc, nullable=False),
    Column("cause", ID),
    Column("open", Boolean, nullable=False),
    Column("released_by", ID),
    Column("severity", Integer, nullable=False),
    Column("verdict", String(16), nullable=False),
    Column("body", Text, nullable=False),
    _of_node(),
    Index("uq_findings_cluster_node_id", "cluster", "node", "id", unique=True),
    Index(None, "id"),
    Index(None, "cause"),
    Index(None, "cluster", "open", "node"),
)

gate = Table(
    "gate",
    metadata,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("cluster", NAME, nullable=False),
    Column("node", NAME, nullable=False),
    Column("observation", ID, nullable=False),
    Column("at", Utc, nullable=False),
    Column("received", Utc, nullable=False),
    Column("state", String(16), nullable=False),
    Column("job", String(64), nullable=False),
    Column("held", Boolean, nullable=False, default=False),
    Column("settled_by", ID),
    Column("body", Text, nullable=False),
    _of_node(),
    Index("uq_gate_cluster_node_observation", "cluster", "node", "observation", unique=True),
    Index(None, "cluster", "state", "node"),
)
"""The gates' answers. `state`: `refused` (not settled), `settled`, `running` (admitted, no end seen),
`ended`, `stray` (an end of a job whose start was not seen)."""

decisions = Table(
    "decisions",
    metadata,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("id", ID, nullable=False, unique=True),
    Column("cluster", NAME, nullable=False),
    Column("node", NAME, nullable=False),
    Column("action", String(16), nullable=False),
    Column("at", Utc, nullable=False),
    Column("remembered", Utc, nullable=False),
    Column("expires", Utc),
    Column("allowed", Boolean, nullable=False),
    Column("allowed_at", Utc),
    Column("guard_limit", Text, nullable=False, default=""),
    Column("result", String(16)),
    Column("final", Boolean, nullable=False, default=False),
    Column("undone_by", ID),
    Column("body", Text, nullable=False),
    _of_node(),
    Index(None, "cluster", "node"),
    Index(None, "cluster", "final", "allowed"),
)
"""`undone_by`: the decision after which a DRAIN or ADOPT no longer stands: a RESUME, or a newer one. `allowed_at` is when the
guard let it pass, which is what the guard's window counts."""

outcomes = Table(
    "outcomes",
    metadata,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("cluster", NAME, nullable=False),
    Column("decision", ID, ForeignKey("decisions.id"), nullable=False),
    Column("result", String(16), nullable=False),
    Column("at", Utc, nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "decision"),
)

orders = Table(
    "orders",
    metadata,
    Column("cluster", NAME, primary_key=True),
    Column("node", NAME, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("decision", ID),
    Column("body", Text, nullable=False),
    _of_node(),
)

jobs = Table(
    "jobs",
    metadata,
    Column("cluster", NAME, ForeignKey("clusters.name"), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("state", String(32), nullable=False),
    Column("body", Text, nullable=False),
)
"""A mirror of the scheduler's queue: what it has forgotten leaves this table."""

users = Table(
    "users",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("role", String(16), nullable=False),
    Column("password", Text, nullable=False),
    Column("created", Utc, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("token_hash", String(64), primary_key=True),
    Column("user", NAME, ForeignKey("users.name", ondelete="CASCADE"), nullable=False),
    Column("csrf", String(64), nullable=False),
    Column("expires", Utc, nullable=False),
)

api_tokens = Table(
    "api_tokens",
    metadata,
    Column("token_hash", String(64), primary_key=True),
    Column("user", NAME, ForeignKey("users.name", ondelete="CASCADE"), nullable=False),
    Column("created", Utc, nullable=False),
    Column("expires", Utc),
)

join_tokens = Table(
    "join_tokens",
    metadata,
    Column("token_hash", String(64), primary_key=True),
    Column("cluster", NAME, ForeignKey("clusters.name"), nullable=False),
    Column("uses_left", Integer, nullable=False),
    Column("expires", Utc, nullable=False),
    Column("node", NAME),
)
"""`node`: the one it was made for, and which may be enrolled already; empty: any that is not."""
