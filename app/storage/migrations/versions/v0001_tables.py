"""The tables as programs made them before there was Alembic (schema_version 1)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _id() -> sa.String:
    return sa.String(26)


def _body() -> sa.JSON:
    return sa.JSON(none_as_null=True)


def upgrade() -> None:
    """All of them: nothing is there."""
    version = op.create_table("schema_version", sa.Column("version", sa.Integer, nullable=False))
    op.bulk_insert(version, [{"version": 1}])
    _traces_and_regions()
    _measurements()
    _jobs()


def _traces_and_regions() -> None:
    op.create_table(
        "traces",
        sa.Column("id", _id(), primary_key=True),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("body", _body()),
    )
    op.create_index("traces_newest", "traces", ["created_at", "id"])
    op.create_table(
        "regions",
        sa.Column("id", _id(), primary_key=True),
        sa.Column("trace_id", _id(), sa.ForeignKey("traces.id", ondelete="CASCADE")),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
    )
    op.create_index("regions_of_trace", "regions", ["trace_id", "position"])
    op.create_index("regions_newest", "regions", ["created_at", "id"])


def _measurements() -> None:
    op.create_table(
        "validations",
        sa.Column("id", _id(), primary_key=True),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("region_id", _id(), sa.ForeignKey("regions.id", ondelete="SET NULL")),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("region", sa.Text, nullable=False),
        sa.Column("outcome", sa.String(16)),
        sa.Column("device", sa.Text),
        sa.Column("body", _body()),
    )
    op.create_index("validations_of_region", "validations", ["region_id", "created_at"])
    op.create_index("validations_newest", "validations", ["created_at", "id"])
    op.create_table(
        "landscapes",
        sa.Column("id", _id(), primary_key=True),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("validation_id", _id(), sa.ForeignKey("validations.id", ondelete="CASCADE"), nullable=False),
        sa.Column("candidate", sa.Text, nullable=False),
        sa.Column("binding", sa.JSON, nullable=False),
        sa.Column("body", _body()),
    )
    op.create_index("landscapes_of_validation", "landscapes", ["validation_id", "created_at"])
    op.create_table(
        "checks",
        sa.Column("id", _id(), primary_key=True),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("outcome", sa.String(16)),
        sa.Column("body", _body()),
    )
    op.create_index("checks_newest", "checks", ["created_at", "id"])


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", _id(), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("progress", _body()),
        sa.Column("error", _body()),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("lease_until", sa.Float),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("started_at", sa.String(32)),
        sa.Column("finished_at", sa.String(32)),
    )
    op.create_index("jobs_waiting", "jobs", ["kind", "state", "created_at"])
    op.create_table(
        "events",
        sa.Column("job_id", _id(), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("event", sa.String(16), nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
    )
