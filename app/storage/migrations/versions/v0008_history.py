"""What checks measured, run after run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Tables of their own. Checks of before belong to no history: nobody said of which commit they are."""
    op.create_table(
        "history_runs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("check_id", sa.String(26), sa.ForeignKey("checks.id", ondelete="SET NULL")),
        sa.Column("body", sa.JSON, nullable=False),
    )
    op.create_index("history_runs_oldest", "history_runs", ["created_at"])
    op.create_index("history_runs_of_check", "history_runs", ["check_id"])
    op.create_table(
        "history_series",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("check_name", sa.Text, nullable=False),
        sa.Column("branch", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
    )
    op.create_index("history_series_newest", "history_series", ["created_at", "id"])
    op.create_table(
        "history_values",
        sa.Column("series_id", sa.String(26), sa.ForeignKey("history_series.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("run_id", sa.String(64), sa.ForeignKey("history_runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("value", sa.Float, nullable=False),
        sa.Column("samples", sa.BigInteger, nullable=False),
        sa.Column("spread", sa.Float),
    )
    op.create_index("history_values_of_run", "history_values", ["run_id"])
    op.create_index("history_values_newest", "history_values", ["series_id", "at", "run_id"])
