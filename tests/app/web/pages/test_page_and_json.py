"""A page and its `.json` twin are one view: the twin needs no more than the page, and nothing that only pages take."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access
from app.web.server.contract import audit
from tests.app.web.conftest import Serving
from tests.app.web.routes import ACCESS

LONG = "a" * 65


def test_what_only_a_page_takes_cannot_make_its_twin_refuse(web: Serving) -> None:
    assert web.client.get("/checks", params={"trace": LONG}).status_code == 422
    twin = web.client.get("/checks.json", params={"trace": LONG})
    assert (twin.status_code, twin.json()["items"]) == (200, [])
    assert web.client.get("/checks.json", params={"after": LONG}).status_code == 422


def test_a_twin_is_reached_however_its_suffix_is_spelt(web: Serving) -> None:
    region = web.client.post("/regions", data={"text": "x: f32[8]\nreturn exp(x)"}).headers["location"]
    for address in (f"{region}.json", f"{region}%2ejson"):
        assert web.client.get(address).json()["id"] == region.removeprefix("/regions/")


def test_every_twin_has_its_page_and_works_no_more_than_it() -> None:
    twins = [path for method, path in ACCESS if method == "GET" and path.endswith(".json") and path != "/openapi.json"]
    assert len(twins) > 20
    for path in twins:
        page = ACCESS["GET", path.removesuffix(".json")]
        assert ACCESS["GET", path] in (page, Access.READ), path


def test_each_of_the_two_declares_its_own_access() -> None:
    router = APIRouter()

    @page_and_json(router, "/x", Access.COMPUTE, json_access=Access.READ)
    def x(request: Request) -> Response:
        return JSONResponse({}) if wants_json(request) else PlainTextResponse("")

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.include_router(router)
    assert audit(app.routes).access == {("GET", "/x.json"): Access.READ, ("GET", "/x"): Access.COMPUTE}
