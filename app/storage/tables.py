"""Tables. Portable SQL only: SQLite, or PostgreSQL by its URL. Times are ISO 8601 UTC text, so both sort alike.

A change here needs a step in app/storage/migrations/versions, and REVISION raised to it: a test compares the two.
"""

from __future__ import annotations

import sqlalchemy as sa

REVISION = "0008"
"""The newest step of app/storage/migrations."""

VERSION = 2
"""What `schema_version` holds for programs that do not know Alembic: more than their 1, so they refuse. It stays."""


class Words(sa.TypeDecorator[str]):
    """Text from anywhere. PostgreSQL takes no NUL, and neither database half of a surrogate pair."""

    impl: type[sa.String] = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        if value is None:
            return None
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


class Word(Words):
    """The same, of limited length."""

    impl = sa.String
    cache_ok = True


metadata = sa.MetaData()

schema_version = sa.Table("schema_version", metadata, sa.Column("version", sa.Integer, nullable=False))

# A trace has no status of its own: its job (of the same id) says whether it is being read, ready or failed.
traces = sa.Table(
    "traces",
    metadata,
    sa.Column("id", Word(26), primary_key=True),
    sa.Column("created_at", Word(32), nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("sha256", Word(64), nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("file", Words, nullable=False),  # file name inside the uploads folder; never the client's
    sa.Column("body", sa.JSON(none_as_null=True)),  # the API's trace without regions, once it is read
    sa.Column("group_name", Words),  # the body's `group`
    sa.Column("digest", Word(64)),  # of all that was sent; app.requests.request_fingerprint
    sa.Index("traces_of_group", "group_name"),
    sa.Index("traces_by_digest", "digest"),
    sa.Index("traces_newest", "created_at", "id"),
)

regions = sa.Table(
    "regions",
    metadata,
    sa.Column("id", Word(26), primary_key=True),
    sa.Column("trace_id", Word(26), sa.ForeignKey("traces.id", ondelete="CASCADE")),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("created_at", Word(32), nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("text", Words, nullable=False),
    sa.Column("body", sa.JSON, nullable=False),  # the API's region
    sa.Column("inputs", sa.JSON(none_as_null=True)),  # what its advice was issued on; app.analysis.advice_inputs
    sa.Index("regions_of_trace", "trace_id", "position"),
    sa.Index("regions_newest", "created_at", "id"),
)

validations = sa.Table(
    "validations",
    metadata,
    sa.Column("id", Word(26), primary_key=True),
    sa.Column("created_at", Word(32), nullable=False),
    # A measurement outlives the trace that it was asked for.
    sa.Column("region_id", Word(26), sa.ForeignKey("regions.id", ondelete="SET NULL")),
    sa.Column("name", Words, nullable=False),
    sa.Column("region", Words, nullable=False),
    sa.Column("outcome", Word(16)),
    sa.Column("device", Words),
    sa.Column("body", sa.JSON(none_as_null=True)),  # the API's validation, once there is one
    sa.Column(
        "digest", Word(64)
    ),  # of all that was asked, and of the versions that answer; app.requests.request_fingerprint
    sa.Column("program", Word(16)),  # what is computed, whatever its sizes and names; app.archive.program_fingerprint
    sa.Index("validations_of_region", "region_id", "created_at"),
    sa.Index("validations_by_digest", "digest"),
    sa.Index("validations_of_program", "program", "created_at"),
    sa.Index("validations_newest", "created_at", "id"),
)

landscapes = sa.Table(
    "landscapes",
    metadata,
    sa.Column("id", Word(26), primary_key=True),
    sa.Column("created_at", Word(32), nullable=False),
    sa.Column("validation_id", Word(26), sa.ForeignKey("validations.id", ondelete="CASCADE"), nullable=False),
    sa.Column("candidate", Words, nullable=False),
    sa.Column("binding", sa.JSON, nullable=False),
    sa.Column("body", sa.JSON(none_as_null=True)),  # the API's landscape, once there is one
    sa.Index("landscapes_of_validation", "validation_id", "created_at"),
)

# A region's text with its form, by a hash of both: what a short address stands for. Nothing refers to it.
links = sa.Table(
    "links",
    metadata,
    sa.Column("id", Word(64), primary_key=True),  # the first characters of the digest, as many as it takes
    sa.Column("digest", Word(64), nullable=False),  # all of it
    sa.Column("created_at", Word(32), nullable=False),  # or asked for again: kept from then on
    sa.Column("body", sa.JSON, nullable=False),  # app.objects.link.LinkFields
    sa.Index("links_newest", "created_at"),
)

checks = sa.Table(
    "checks",
    metadata,
    sa.Column("id", Word(26), primary_key=True),
    sa.Column("created_at", Word(32), nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("outcome", Word(16)),
    sa.Column("body", sa.JSON(none_as_null=True)),  # the report, once there is one
    sa.Column("digest", Word(64)),  # of all that was asked; app.requests.request_fingerprint
    sa.Index("checks_by_digest", "digest"),
    sa.Index("checks_newest", "created_at", "id"),
)

# What checks measured, run after run (app.history): a run, the series that its values belong to, and the values.
history_runs = sa.Table(
    "history_runs",
    metadata,
    sa.Column("id", Word(64), primary_key=True),  # the entry's own: the same run is kept once
    sa.Column("created_at", Word(32), nullable=False),  # when it came here
    sa.Column("at", Word(32), nullable=False),  # when it was measured, as app.storage.database.iso writes it
    sa.Column("device", Words, nullable=False),
    sa.Column("check_id", Word(26), sa.ForeignKey("checks.id", ondelete="SET NULL")),  # that was made here
    sa.Column("body", sa.JSON, nullable=False),  # the entry without its measures
    sa.Index("history_runs_oldest", "created_at"),
    sa.Index("history_runs_of_check", "check_id"),
)

history_series = sa.Table(
    "history_series",
    metadata,
    sa.Column("id", Word(26), primary_key=True),  # of all that a series is of
    sa.Column("created_at", Word(32), nullable=False),  # when its newest run came: lists begin with it
    sa.Column("check_name", Words, nullable=False),
    sa.Column("branch", Words, nullable=False),
    sa.Column("subject", Words, nullable=False),
    sa.Column("metric", Words, nullable=False),
    sa.Column("unit", Words, nullable=False),
    sa.Index("history_series_newest", "created_at", "id"),
)

history_values = sa.Table(
    "history_values",
    metadata,
    sa.Column("series_id", Word(26), sa.ForeignKey("history_series.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("run_id", Word(64), sa.ForeignKey("history_runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("at", Word(32), nullable=False),  # the run's
    sa.Column("value", sa.Float, nullable=False),
    sa.Column("samples", sa.BigInteger, nullable=False),
    sa.Column("spread", sa.Float),
    sa.Index("history_values_of_run", "run_id"),
    sa.Index("history_values_newest", "series_id", "at", "run_id"),
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", Word(26), primary_key=True),  # the id of what it makes: trace, validation, ...
    sa.Column("kind", Word(16), nullable=False),  # read, validate, landscape, check
    sa.Column("state", Word(16), nullable=False),  # queued, running, done, failed, cancelled
    sa.Column("request", sa.JSON, nullable=False),
    sa.Column("progress", sa.JSON(none_as_null=True)),
    sa.Column("error", sa.JSON(none_as_null=True)),
    sa.Column("attempt", sa.Integer, nullable=False, default=0),
    sa.Column("cancel_requested", sa.Boolean, nullable=False, default=False),
    sa.Column("accelerator", Words),  # the kind of GPU that it has to run on; NULL: any, or none
    sa.Column("client", Words),  # who asked for it, where clients are told apart; app.rate_limit
    sa.Column("owner", Words),  # the server that runs it
    sa.Column("lease_until", sa.Float),  # Unix time; renewed by the heartbeat
    sa.Column("created_at", Word(32), nullable=False),
    sa.Column("started_at", Word(32)),
    sa.Column("finished_at", Word(32)),
    sa.Index("jobs_waiting", "kind", "state", "created_at"),
    sa.Index("jobs_by_state", "state"),  # who runs, among hundreds of thousands that have ended
)

# Deleted traces for as long as deleting can be undone; app.storage.trash.
trash = sa.Table(
    "trash",
    metadata,
    sa.Column("id", Word(26), primary_key=True),
    sa.Column("deleted_at", Word(32), nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("file", Words, nullable=False),  # as traces.file
    sa.Column("kept", sa.JSON, nullable=False),  # by table, as they were
    sa.Index("trash_oldest", "deleted_at", "id"),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("job_id", Word(26), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("event", Word(16), nullable=False),
    sa.Column("data", sa.JSON, nullable=False),
)
