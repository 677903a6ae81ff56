"""A finding's severity and verdict as columns, so that those that weigh are found without reading all."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ROWS = 1000


def upgrade() -> None:
    # The defaults are the heaviest: what could not be filled in would be looked at, not passed over.
    op.add_column(
        "findings", sa.Column("severity", sa.Integer(), nullable=False, server_default="3")
    )
    op.add_column(
        "findings", sa.Column("verdict", sa.String(16), nullable=False, server_default="FAULT")
    )
    connection, last = op.get_bind(), 0
    while rows := connection.execute(_READ, {"last": last, "rows": ROWS}).all():
        connection.execute(_FILL, [_weight(row.number, row.body) for row in rows])
        last = rows[-1].number


_READ = sa.text(
    "SELECT number, body FROM findings WHERE number > :last ORDER BY number LIMIT :rows"
)
_FILL = sa.text(
    "UPDATE findings SET severity = :severity, verdict = :verdict WHERE number = :number"
)


def _weight(number: int, body: str) -> dict[str, object]:
    finding = json.loads(body)
    return {
        "number": number,
        "severity": finding["severity"],
        "verdict": finding.get("verdict", "FAULT"),
    }
