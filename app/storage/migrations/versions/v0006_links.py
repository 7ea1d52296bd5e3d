"""Short addresses of texts: what each stands for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """A table of its own: servers of before know nothing of it."""
    op.create_table(
        "links",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
    )
    op.create_index("links_newest", "links", ["created_at"])
