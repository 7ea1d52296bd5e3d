"""Short addresses: a region's text with its form, kept under the first characters of a hash of them."""

from __future__ import annotations

import hashlib
import json
import string

import sqlalchemy as sa

from app.objects.link import Link, LinkFields
from app.storage.database import Database, now
from app.storage.tables import links

SHORTEST = 8
"""Characters of an id: 62^8 of them are 2.2e14. Where another text has the same, one more."""

DIGITS = string.digits + string.ascii_letters


def digest_of(fields: LinkFields) -> str:
    """A hash of what an address stands for, as digits and letters."""
    text = json.dumps(fields, sort_keys=True, ensure_ascii=True)
    rest, characters = int.from_bytes(hashlib.sha256(text.encode()).digest()), ""
    while rest:
        rest, digit = divmod(rest, len(DIGITS))
        characters += DIGITS[digit]
    return characters.ljust(43, "0")


def put(database: Database, fields: LinkFields) -> str:
    """The id of these fields; what is there already is kept from now on again."""
    digest = digest_of(fields)
    with database.write() as connection:
        for length in range(SHORTEST, len(digest) + 1):
            link_id = digest[:length]
            known = connection.scalar(sa.select(links.c.digest).where(links.c.id == link_id))
            if known == digest:
                connection.execute(links.update().where(links.c.id == link_id).values(created_at=now()))
                return link_id
            if known is None:
                row = {"id": link_id, "digest": digest, "created_at": now(), "body": fields}
                connection.execute(links.insert().values(row))
                return link_id
    raise AssertionError("two texts of one SHA-256")


def get(database: Database, link_id: str) -> Link | None:
    """What an id stands for; None for one that nothing has."""
    if not SHORTEST <= len(link_id) <= 64 or not set(link_id) <= set(DIGITS):
        return None
    with database.read() as connection:
        row = connection.execute(sa.select(links).where(links.c.id == link_id)).mappings().first()
    if row is None:
        return None
    fields: LinkFields = row["body"]
    return {**fields, "id": row["id"], "path": f"/r/{row['id']}", "created_at": row["created_at"]}
