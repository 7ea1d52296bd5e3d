"""Tables. Portable SQL only: SQLite today, PostgreSQL by its URL. Times are ISO 8601 UTC text, so both sort alike."""

from __future__ import annotations

import sqlalchemy as sa

VERSION = 1
"""Raised with every change of a table; `migrations` in app.store brings older databases up to it."""

metadata = sa.MetaData()

schema_version = sa.Table("schema_version", metadata, sa.Column("version", sa.Integer, nullable=False))

# A trace has no status of its own: its job (of the same id) says whether it is being read, ready or failed.
traces = sa.Table(
    "traces",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("file", sa.Text, nullable=False),  # file name inside the uploads folder; never the client's
    sa.Column("body", sa.JSON(none_as_null=True)),  # the API's trace without regions, once it is read
    sa.Index("traces_newest", "created_at", "id"),
)

regions = sa.Table(
    "regions",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("trace_id", sa.String(26), sa.ForeignKey("traces.id", ondelete="CASCADE")),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("body", sa.JSON, nullable=False),  # the API's region
    sa.Index("regions_of_trace", "trace_id", "position"),
    sa.Index("regions_newest", "created_at", "id"),
)

validations = sa.Table(
    "validations",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("created_at", sa.String(32), nullable=False),
    # A measurement outlives the trace that it was asked for.
    sa.Column("region_id", sa.String(26), sa.ForeignKey("regions.id", ondelete="SET NULL")),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("region", sa.Text, nullable=False),
    sa.Column("outcome", sa.String(16)),
    sa.Column("device", sa.Text),
    sa.Column("body", sa.JSON(none_as_null=True)),  # the API's validation, once there is one
    sa.Index("validations_of_region", "region_id", "created_at"),
    sa.Index("validations_newest", "created_at", "id"),
)

landscapes = sa.Table(
    "landscapes",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("validation_id", sa.String(26), sa.ForeignKey("validations.id", ondelete="CASCADE"), nullable=False),
    sa.Column("candidate", sa.Text, nullable=False),
    sa.Column("binding", sa.JSON, nullable=False),
    sa.Column("body", sa.JSON(none_as_null=True)),  # the API's landscape, once there is one
    sa.Index("landscapes_of_validation", "validation_id", "created_at"),
)

checks = sa.Table(
    "checks",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("outcome", sa.String(16)),
    sa.Column("body", sa.JSON(none_as_null=True)),  # the report, once there is one
    sa.Index("checks_newest", "created_at", "id"),
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),  # the id of what it makes: trace, validation, ...
    sa.Column("kind", sa.String(16), nullable=False),  # read, validate, landscape, check
    sa.Column("state", sa.String(16), nullable=False),  # queued, running, done, failed, cancelled
    sa.Column("request", sa.JSON, nullable=False),
    sa.Column("progress", sa.JSON(none_as_null=True)),
    sa.Column("error", sa.JSON(none_as_null=True)),
    sa.Column("attempt", sa.Integer, nullable=False, default=0),
    sa.Column("cancel_requested", sa.Boolean, nullable=False, default=False),
    sa.Column("owner", sa.Text),  # host/pid/boot of the server that runs it
    sa.Column("lease_until", sa.Float),  # Unix time; renewed by the heartbeat
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("started_at", sa.String(32)),
    sa.Column("finished_at", sa.String(32)),
    sa.Index("jobs_waiting", "kind", "state", "created_at"),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("job_id", sa.String(26), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("event", sa.String(16), nullable=False),
    sa.Column("data", sa.JSON, nullable=False),
)
