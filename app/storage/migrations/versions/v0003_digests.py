"""What was uploaded, by its content: the same once more is answered with what is here already."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Rows of before have no digest: they are never found again, and a second upload of them is a new one."""
    for table in ("traces", "checks"):
        op.add_column(table, sa.Column("digest", sa.String(64)))
        op.create_index(f"{table}_by_digest", table, ["digest"])
