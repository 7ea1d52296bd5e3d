"""What a region's advice was issued on, kept with it: the advice can be issued again exactly."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Rows of before have none: what they were advised on is read back from what is shown of them."""
    op.add_column("regions", sa.Column("inputs", sa.JSON))
