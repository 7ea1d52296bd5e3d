"""Advice in place: what the forms of a region send back to htmx, and the addresses that stand for it."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from tests.app.web.conftest import Serving

TEXT = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"
OTHER = "x: f32[64, 256]\ny = gelu(x) * 2 + 1\nreturn y\n"
WRONG = "x: f32[64, 128]\ny = gelo(x)\nreturn y\n"
HTMX = {"HX-Request": "true"}
PAGE = {"Accept": "text/html"}


def advise(web: Serving, text: str, **headers: str) -> httpx.Response:
    return web.client.post("/regions", data={"text": text, "share_percent": "12"}, headers=headers)


def preview(web: Serving, **data: Any) -> httpx.Response:
    return web.client.post("/regions/preview", data=data, headers=HTMX)


def headline(page: str) -> str:
    match = re.search(r'<section class="card verdict.*?<h2>(.*?)</h2>', page, re.DOTALL)
    assert match
    return match[1]


def test_advice_on_a_text_comes_into_the_page_under_an_address_of_its_own(web: Serving) -> None:
    answer = advise(web, TEXT, **HTMX)
    assert answer.status_code == 200
    assert "hx-redirect" not in answer.headers
    assert answer.headers["hx-retarget"] == "#main"
    assert answer.text.lstrip().startswith("<title>")
    path = answer.headers["hx-push-url"]
    page = web.client.get(path, headers=PAGE).text
    assert "<html" in page
    assert headline(answer.text) == headline(page)
    assert "12 %" in answer.text


def test_without_a_script_it_is_a_page_as_ever(web: Serving) -> None:
    answer = advise(web, TEXT, **PAGE)
    assert (answer.status_code, answer.headers["location"][:9]) == (303, "/regions/")


def test_a_mistake_is_shown_in_the_form_with_its_place(web: Serving) -> None:
    answer = advise(web, WRONG, **HTMX)
    assert (answer.status_code, answer.headers["hx-retarget"]) == (422, "#region-error")
    assert "hx-push-url" not in answer.headers
    assert "Line 2" in answer.text
    assert "    ^^^^" in answer.text


def test_an_edit_is_in_the_address_which_opens_it_again(web: Serving) -> None:
    kept = advise(web, TEXT, **PAGE).headers["location"]
    region_id = kept.rsplit("/", 1)[1]
    stored = web.client.get(f"{kept}.json").json()
    use = {"share_percent": "12", "calls_per_step": "1", "device": stored["advice"]["device"]}
    assert preview(web, text=TEXT, region_id=region_id, **use).headers["hx-replace-url"] == kept
    for change in ({"text": OTHER, **use}, {"text": TEXT, **use, "share_percent": "30"}):
        answer = preview(web, region_id=region_id, **change)
        address = answer.headers["hx-replace-url"]
        assert address.startswith("/region?text=")
        page = web.client.get(address, headers=PAGE).text
        assert headline(page) == headline(answer.text)
        assert f'value="{change["share_percent"]}"' in page
    long = TEXT.replace("return", "# " + "long " * 1500 + "\nreturn")
    assert "hx-replace-url" not in preview(web, text=long).headers


@pytest.mark.parametrize("text", [TEXT, OTHER])
def test_a_validation_on_the_page_stays_while_its_own_text_stands_there(web: Serving, text: str) -> None:
    begun = web.client.post("/validations", data={"text": TEXT}, headers=HTMX)
    assert begun.status_code == 202
    job = re.findall(r'name="job" value="(\w{26})"', begun.text)[0]
    shown = preview(web, text=text, job=job).text
    assert f'data-job="{job}"' in shown
    assert (f'name="job" value="{job}"' in shown) is (text == TEXT)
    assert 'data-job=""' in preview(web, text=text).text, "one that knew of no validation says so"
