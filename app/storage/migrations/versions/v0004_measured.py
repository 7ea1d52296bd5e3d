"""Which program a validation measured, and what it was asked as one hash: evidence and duplicates are found by them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Rows of before have neither: they stay their own region's evidence, and are measured again when asked for."""
    op.add_column("validations", sa.Column("digest", sa.String(64)))
    op.add_column("validations", sa.Column("program", sa.String(16)))
    op.create_index("validations_by_digest", "validations", ["digest"])
    op.create_index("validations_of_program", "validations", ["program", "created_at"])
