"""Groups of traces and kinds of GPU as columns of their own, and a version that programs without Alembic refuse."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

traces = sa.table("traces", sa.column("id"), sa.column("body", sa.JSON), sa.column("group_name", sa.Text))
schema_version = sa.table("schema_version", sa.column("version", sa.Integer))


def upgrade() -> None:
    """PostgreSQL cannot look into a JSON text that holds a NUL, and neither database could look fast."""
    op.add_column("traces", sa.Column("group_name", sa.Text))
    connection = op.get_bind()
    read = connection.execute(sa.select(traces.c.id, traces.c.body).where(traces.c.body.is_not(None)))
    groups = [(trace_id, group) for trace_id, body in read if body and (group := body.get("group"))]
    for trace_id, group in groups:
        clean = str(group).replace("\0", "\N{REPLACEMENT CHARACTER}")
        connection.execute(traces.update().where(traces.c.id == trace_id).values(group_name=clean))
    op.create_index("traces_of_group", "traces", ["group_name"])
    op.add_column("jobs", sa.Column("accelerator", sa.Text))
    op.add_column("jobs", sa.Column("client", sa.Text))
    op.create_index("jobs_by_state", "jobs", ["state"])
    # A program that knows version 1 only compares this number, and no other table.
    connection.execute(schema_version.update().values(version=2))
