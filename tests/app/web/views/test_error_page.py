"""Every error's page has a way on that leads somewhere."""

from __future__ import annotations

import pytest

from app.errors import TITLES
from app.web.views.error_page import BY_CODE, BY_STATUS, way_on
from tests.app.web.routes import ACCESS


@pytest.mark.parametrize("status", sorted(TITLES))
def test_every_status_that_has_a_title_has_a_way_on(status: int) -> None:
    way = way_on(status, "")
    assert way is BY_STATUS[status]
    assert way.advice.endswith(".")
    assert way.links


@pytest.mark.parametrize("way", [*BY_CODE.values(), *BY_STATUS.values()], ids=[*BY_CODE, *map(str, BY_STATUS)])
def test_ways_lead_to_pages_that_are_there(way: object) -> None:
    for _, address in way.links:  # type: ignore[attr-defined]
        assert ("GET", address.partition("#")[0]) in ACCESS


def test_a_code_says_more_than_its_status() -> None:
    assert way_on(413, "upload-too-large") is not way_on(413, "body-too-large")
    assert way_on(599, "no-such-code").links
