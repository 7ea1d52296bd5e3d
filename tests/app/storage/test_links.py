"""Short addresses: the same text has the same one on every database, another never; a clash gets a longer one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from app.objects.link import LinkFields
from app.storage import links
from app.storage.database import Database
from app.storage.tables import links as table

TEXT = "x: bf16[8192, 4096]\ny = gelu(x) * 2  # é \U0001f642\nreturn y\n"


def fields(**more: object) -> LinkFields:
    return {"region": TEXT, "share_of_step": 0.2, "calls_per_step": 1.0, "device": None, **more}  # type: ignore[typeddict-item]


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    yield opened
    opened.close()


def test_what_is_put_is_got_and_has_one_address(database: Database) -> None:
    link_id = links.put(database, fields())
    assert len(link_id) == links.SHORTEST
    assert link_id.isalnum() and link_id.isascii()
    got = links.get(database, link_id)
    assert got is not None
    assert {name: got[name] for name in fields()} == fields()  # type: ignore[literal-required]
    assert got["path"] == f"/r/{link_id}"
    assert links.put(database, fields()) == link_id


@pytest.mark.parametrize("change", [{"region": TEXT + "\n"}, {"share_of_step": None}, {"device": "NVIDIA H100"}])
def test_other_fields_have_another_address(database: Database, change: dict[str, object]) -> None:
    assert links.put(database, fields()) != links.put(database, fields(**change))


def test_a_text_whose_first_characters_are_anothers_has_a_longer_address(database: Database) -> None:
    digest = links.digest_of(fields())
    taken = {"id": digest[: links.SHORTEST], "digest": digest[: links.SHORTEST] + "other", "created_at": "2026"}
    with database.write() as connection:
        connection.execute(table.insert().values({**taken, "body": fields(region="another")}))
    assert links.put(database, fields()) == digest[: links.SHORTEST + 1]
    assert links.put(database, fields()) == digest[: links.SHORTEST + 1]
    assert links.get(database, digest[: links.SHORTEST])["region"] == "another"  # type: ignore[index]


def test_an_address_that_is_asked_for_again_is_kept_from_then_on(database: Database) -> None:
    link_id = links.put(database, fields())
    with database.write() as connection:
        connection.execute(table.update().values(created_at="2020-01-01T00:00:00.000000Z"))
    links.put(database, fields())
    with database.read() as connection:
        assert connection.scalar(sa.select(table.c.created_at).where(table.c.id == link_id)) > "2026"


@pytest.mark.parametrize("unknown", ["", "short", "a" * 8, "a" * 65, "'; DROP --", "éééééééé", "a\0bcdefg"])
def test_an_unknown_address_stands_for_nothing(database: Database, unknown: str) -> None:
    assert links.get(database, unknown) is None
