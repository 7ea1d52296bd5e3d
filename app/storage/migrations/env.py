"""What Alembic runs for each of its commands: on the connection that `upgrade` holds, or for a developer on our own."""

from __future__ import annotations

from typing import Any, Literal

import sqlalchemy as sa
from alembic import context

from app.settings import Settings
from app.storage.database import make_engine
from app.storage.tables import Words, metadata


def plain(kind: str, item: Any, _context: Any) -> str | Literal[False]:
    """How a written step names our own types: by what they are in the database."""
    return f"sa.{item.impl!r}" if kind == "type" and isinstance(item, Words) else False


def run(connection: sa.Connection) -> None:
    """The command's steps, in the transaction that there is."""
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True, render_item=plain)
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    with make_engine(Settings().url).connect() as connection:
        run(connection)
