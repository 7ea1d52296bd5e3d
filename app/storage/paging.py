"""Pages of a table's rows, newest first: what every list of the API is cut into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from app.objects.common import Item, Page
from app.storage.database import Database

MAX_ROWS = 200
"""Rows of one page, whatever is asked for."""


def page_of(
    database: Database,
    query: sa.Select[Any],
    table: sa.Table,
    limit: int,
    after: str | None,
    decode: Callable[[sa.RowMapping], Item],
) -> Page[Item]:
    """At most `limit` rows of a query, each as `decode` gives it, and where the next page starts.

    table: its `created_at` and `id` order the rows. after: the `next` of the page before; None for the first page.
    `next` is None on the last page.
    """
    limit = max(1, min(limit, MAX_ROWS))
    # One row more than asked tells whether there is a next page.
    query = query.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit + 1)
    if after is not None:
        created_at, _, row_id = after.partition("~")
        older = table.c.created_at < created_at
        query = query.where(sa.or_(older, sa.and_(table.c.created_at == created_at, table.c.id < row_id)))
    with database.read() as connection:
        rows = connection.execute(query).mappings().all()
    last = rows[limit - 1] if len(rows) > limit else None
    return {
        "items": [decode(row) for row in rows[:limit]],
        "next": None if last is None else f"{last['created_at']}~{last['id']}",
    }
