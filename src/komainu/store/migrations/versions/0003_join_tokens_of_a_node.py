"""A join token may be made for one node, which alone lets that node enrol again."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("join_tokens", sa.Column("node", sa.String(128), nullable=True))
