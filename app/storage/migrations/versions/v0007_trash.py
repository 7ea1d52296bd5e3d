"""Deleted traces wait for a while before they are gone: deleting can be undone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Nothing that was deleted before comes back."""
    op.create_table(
        "trash",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("deleted_at", sa.String(32), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("kept", sa.JSON, nullable=False),
    )
    op.create_index("trash_oldest", "trash", ["deleted_at", "id"])
