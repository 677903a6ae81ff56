"""The spine: clusters, nodes, observations, findings, decisions, orders, jobs, people, and the feed."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

UTC_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "changes",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("at", UTC_TIME, nullable=False),
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("node", sa.String(length=128), nullable=False),
        sa.Column("what", sa.String(length=16), nullable=False),
        sa.Column("ref", sa.String(length=128), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_changes")),
    )
    op.create_table(
        "clusters",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("scheduler_seen", UTC_TIME, nullable=True),
        sa.Column("scheduler_error", sa.Text(), nullable=False),
        sa.Column("tripped_at", UTC_TIME, nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_clusters")),
    )
    op.create_table(
        "feed_counter",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_feed_counter")),
    )
    op.create_table(
        "users",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("password", sa.Text(), nullable=False),
        sa.Column("created", UTC_TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_users")),
    )
    op.create_table(
        "api_tokens",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=128), nullable=False),
        sa.Column("created", UTC_TIME, nullable=False),
        sa.Column("expires", UTC_TIME, nullable=True),
        sa.ForeignKeyConstraint(
            ["user"], ["users.name"], name=op.f("fk_api_tokens_user_users"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_api_tokens")),
    )
    op.create_table(
        "jobs",
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster"], ["clusters.name"], name=op.f("fk_jobs_cluster_clusters")
        ),
        sa.PrimaryKeyConstraint("cluster", "id", name=op.f("pk_jobs")),
    )
    op.create_table(
        "join_tokens",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("uses_left", sa.Integer(), nullable=False),
        sa.Column("expires", UTC_TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster"], ["clusters.name"], name=op.f("fk_join_tokens_cluster_clusters")
        ),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_join_tokens")),
    )
    op.create_table(
        "nodes",
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("node", sa.String(length=128), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=True),
        sa.Column("seen", UTC_TIME, nullable=True),
        sa.Column("agent_version", sa.String(length=64), nullable=False),
        sa.Column("boot_id", sa.String(length=64), nullable=False),
        sa.Column("rack", sa.String(length=128), nullable=False),
        sa.Column("hardware", sa.Text(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("verdict_since", UTC_TIME, nullable=True),
        sa.Column("scheduler", sa.Text(), nullable=True),
        sa.Column("last_order", sa.Integer(), nullable=False),
        sa.Column("orders_seen", sa.Integer(), nullable=False),
        sa.Column("policy_seen", sa.String(length=64), nullable=False),
        sa.Column("policy_told", sa.String(length=64), nullable=False),
        sa.Column("advise_only", sa.Boolean(), nullable=False),
        sa.Column("dropped_debug", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster"], ["clusters.name"], name=op.f("fk_nodes_cluster_clusters")
        ),
        sa.PrimaryKeyConstraint("cluster", "node", name=op.f("pk_nodes")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_nodes_token_hash")),
    )
    op.create_table(
        "sessions",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=128), nullable=False),
        sa.Column("csrf", sa.String(length=64), nullable=False),
        sa.Column("expires", UTC_TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["user"], ["users.name"], name=op.f("fk_sessions_user_users"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_sessions")),
    )
    op.create_table(
        "decisions",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("node", sa.String(length=128), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("at", UTC_TIME, nullable=False),
        sa.Column("remembered", UTC_TIME, nullable=False),
        sa.Column("expires", UTC_TIME, nullable=True),
        sa.Column("allowed", sa.Boolean(), nullable=False),
        sa.Column("allowed_at", UTC_TIME, nullable=True),
        sa.Column("guard_limit", sa.Text(), nullable=False),
        sa.Column("result", sa.String(length=16), nullable=True),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.Column("undone_by", sa.String(length=128), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster", "node"],
            ["nodes.cluster", "nodes.node"],
            name=op.f("fk_decisions_cluster_node_nodes"),
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_decisions")),
        sa.UniqueConstraint("id", name=op.f("uq_decisions_id")),
    )
    op.create_index(
        op.f("ix_decisions_cluster_final_allowed"),
        "decisions",
        ["cluster", "final", "allowed"],
        unique=False,
    )
    op.create_index(
        op.f("ix_decisions_cluster_node"), "decisions", ["cluster", "node"], unique=False
    )
    op.create_table(
        "findings",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("node", sa.String(length=128), nullable=False),
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("code", sa.String(length=64), nullable=False),
        sa.Column("at", UTC_TIME, nullable=False),
        sa.Column("received", UTC_TIME, nullable=False),
        sa.Column("cause", sa.String(length=128), nullable=True),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("released_by", sa.String(length=128), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster", "node"],
            ["nodes.cluster", "nodes.node"],
            name=op.f("fk_findings_cluster_node_nodes"),
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_findings")),
    )
    op.create_index(op.f("ix_findings_cause"), "findings", ["cause"], unique=False)
    op.create_index(
        op.f("ix_findings_cluster_open_node"), "findings", ["cluster", "open", "node"], unique=False
    )
    op.create_index(op.f("ix_findings_id"), "findings", ["id"], unique=False)
    op.create_index(
        "uq_findings_cluster_node_id", "findings", ["cluster", "node", "id"], unique=True
    )
    op.create_table(
        "gate",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("node", sa.String(length=128), nullable=False),
        sa.Column("observation", sa.String(length=128), nullable=False),
        sa.Column("at", UTC_TIME, nullable=False),
        sa.Column("received", UTC_TIME, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("held", sa.Boolean(), nullable=False),
        sa.Column("settled_by", sa.String(length=128), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster", "node"],
            ["nodes.cluster", "nodes.node"],
            name=op.f("fk_gate_cluster_node_nodes"),
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_gate")),
    )
    op.create_index(
        op.f("ix_gate_cluster_state_node"), "gate", ["cluster", "state", "node"], unique=False
    )
    op.create_index(
        "uq_gate_cluster_node_observation", "gate", ["cluster", "node", "observation"], unique=True
    )
    op.create_table(
        "observations",
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("node", sa.String(length=128), nullable=False),
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("at", UTC_TIME, nullable=False),
        sa.Column("received", UTC_TIME, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster", "node"],
            ["nodes.cluster", "nodes.node"],
            name=op.f("fk_observations_cluster_node_nodes"),
        ),
        sa.PrimaryKeyConstraint("cluster", "node", "id", name=op.f("pk_observations")),
    )
    op.create_index(
        op.f("ix_observations_cluster_node_kind_received"),
        "observations",
        ["cluster", "node", "kind", "received"],
        unique=False,
    )
    op.create_index(op.f("ix_observations_received"), "observations", ["received"], unique=False)
    op.create_table(
        "orders",
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("node", sa.String(length=128), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("decision", sa.String(length=128), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster", "node"],
            ["nodes.cluster", "nodes.node"],
            name=op.f("fk_orders_cluster_node_nodes"),
        ),
        sa.PrimaryKeyConstraint("cluster", "node", "number", name=op.f("pk_orders")),
    )
    op.create_table(
        "outcomes",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("decision", sa.String(length=128), nullable=False),
        sa.Column("result", sa.String(length=16), nullable=False),
        sa.Column("at", UTC_TIME, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["decision"], ["decisions.id"], name=op.f("fk_outcomes_decision_decisions")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_outcomes")),
    )
    op.create_index(op.f("ix_outcomes_decision"), "outcomes", ["decision"], unique=False)
    op.execute("INSERT INTO feed_counter (id, seq) VALUES (1, 0)")
