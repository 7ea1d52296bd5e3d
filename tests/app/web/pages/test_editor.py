"""The form's text over HTTP: its names, its marks for the script, short links, and what an edit changed in the code."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from profiler.region.language.completion import completion
from tests.app.web.conftest import serving

TEXT = "x: bf16[4096, 1024]\nb: bf16[1024]\ny = gelu(x + b) * 2\nreturn y\n"
EDITED = TEXT.replace("gelu", "relu")
HTMX = {"HX-Request": "true"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("editor"), budget_s=5) as server:
        server.client.headers["Accept"] = "text/html"
        yield server.client


@pytest.fixture(scope="module")
def region(client: httpx.Client) -> str:
    return str(client.post("/regions", data={"text": TEXT, "share_percent": "20"}).headers["location"])


# ---------------------------------------------------------------------------------------------------------- vocabulary


def test_the_names_are_the_languages_and_kept_by_the_address_that_pages_have(client: httpx.Client, region: str) -> None:
    for path in ("/", region):
        page = html.unescape(client.get(path).text)
        address = re.search(r'data-vocabulary="([^"]+)"', page)
        assert address
        answer = client.get(address[1])
        assert answer.json() == json.loads(json.dumps(completion()))
        assert "immutable" in answer.headers["cache-control"]
    assert client.get("/editor/vocabulary?v=00000000").headers["cache-control"] == "no-cache"


def test_only_pages_with_a_text_to_type_load_the_editor_and_none_before_it_is_needed(
    client: httpx.Client, region: str
) -> None:
    for path in ("/", region):
        page = client.get(path).text
        assert "/static/editor.js" in page
        assert not re.search(r'<script[^>]*\bsrc="[^"]*codemirror', page)
    for path in ("/history", "/learn", "/device", f"{region}/report.html"):
        assert "editor.js" not in client.get(path).text


def test_an_error_says_its_place_to_the_script_and_a_pause_in_typing_logs_no_failed_request(
    client: httpx.Client,
) -> None:
    data = {"text": TEXT.replace("gelu", "gelo")}
    wrong = client.post("/regions/preview", data=data, headers=HTMX)
    assert (wrong.status_code, wrong.headers["problem-status"]) == (200, "422")
    assert (wrong.headers["hx-retarget"], wrong.headers.get("hx-replace-url")) == ("#region-error", None)
    assert 'data-line="3" data-column="5" data-end-column="9"' in wrong.text
    assert client.post("/regions/preview", data=data).status_code == 422
    number = client.post("/regions/preview", data={"text": TEXT, "calls_per_step": "many"}, headers=HTMX)
    assert (number.status_code, number.headers["problem-status"]) == (200, "422")
    assert "problem-status" not in client.post("/regions/preview", data={"text": TEXT}, headers=HTMX).headers


# --------------------------------------------------------------------------------------------------------------- lines


def test_the_title_after_an_edit_is_the_new_texts(client: httpx.Client, region: str) -> None:
    assert "<title>pointwise chain · " in client.get(region).text
    edited = client.post("/regions/preview", data={"text": "x: bf16[64]\ny = gelu(x)\nreturn y\n"}, headers=HTMX).text
    assert "<title>GELU · Tritonworthy</title>" in edited
    assert '<h1 id="region-name" hx-swap-oob="true">GELU</h1>' in edited


def test_code_and_text_say_which_lines_they_are_of(client: httpx.Client, region: str) -> None:
    columns = client.get(f"{region}/triton", headers=HTMX).text
    assert [int(n) for n in re.findall(r'<span data-lines="(\d+)">', columns)] == [1, 2, 3, 4]
    (own,) = re.findall(
        r'<span class="part" data-lines="([\d ]+)"[^>]*aria-label="generated_\w+: line 3 of the text"', columns
    )
    assert own == "3"
    assert '<tr data-lines="3"><td class="muted">3</td>' in client.get(f"{region}?tab=cost").text


# -------------------------------------------------------------------------------------------------------------- changes


def test_what_an_edit_changed_in_our_kernel_is_shown_line_by_line(client: httpx.Client) -> None:
    answer = client.post("/region/changes", data={"text": EDITED, "before": TEXT}, headers=HTMX)
    assert answer.status_code == 200
    assert re.search(r'<span class="removed">-.*gelu', answer.text)
    assert re.search(r'<span class="added">\+.*relu', answer.text)
    assert "not written for both texts yet" in answer.text  # the oracle is off here


def test_nothing_is_compared_where_nothing_was_edited(client: httpx.Client) -> None:
    for before in ("", TEXT + "\n"):
        assert client.post("/region/changes", data={"text": TEXT, "before": before}).status_code == 204


def test_a_text_that_cannot_be_read_is_compared_with_nothing(client: httpx.Client) -> None:
    assert client.post("/region/changes", data={"text": TEXT, "before": "x ="}).status_code == 422


# --------------------------------------------------------------------------------------------------------- short links


def test_a_short_link_leads_to_the_text_with_its_fields(client: httpx.Client) -> None:
    form = {"text": TEXT.replace("\n", "\r\n"), "share_percent": "12.5", "device": "NVIDIA L4"}
    made = client.post("/links", data=form)
    assert made.status_code == 303
    path = made.headers["location"]
    assert re.fullmatch(r"/r/[0-9A-Za-z]{8}", path)
    page = client.get(path).text
    assert '<span class="small muted">for NVIDIA L4</span>' in page
    assert "<option selected>NVIDIA L4</option>" in page
    assert 'value="12.5"' in page
    assert f'href="{path}.json"' in page
    long = client.get("/region.json", params={**form, "text": TEXT}).json()
    short = client.get(f"{path}.json").json()
    assert short["advice"]["headline"] == long["advice"]["headline"]
    assert (short["text"], short["share_of_step"]) == (TEXT, 0.125)


def test_page_and_api_make_the_same_short_link(client: httpx.Client) -> None:
    by_api = client.post("/api/v1/links", json={"region": TEXT, "share_of_step": 0.2}).json()
    by_page = client.post("/links", data={"text": TEXT, "share_percent": "20"}).headers["location"]
    assert by_api["path"] == by_page
    assert client.get(f"/api/v1/links/{by_api['id']}").json()["region"] == TEXT


def test_in_place_the_short_link_is_shown_whole_and_becomes_the_address(client: httpx.Client) -> None:
    answer = client.post("/links", data={"text": TEXT}, headers=HTMX)
    path = answer.headers["hx-replace-url"]
    assert str(client.base_url).rstrip("/") + path in answer.text
    assert client.get(path).status_code == 200


def test_an_unknown_short_link_is_a_page_that_says_what_may_have_happened(client: httpx.Client) -> None:
    for path in ("/r/aaaaaaaa", "/r/x", "/r/aaaaaaaa.json"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "This short link leads to no text" in answer.text
    refused = client.get("/api/v1/links/aaaaaaaa", headers={"Accept": "application/json"})
    assert (refused.status_code, refused.json()["code"]) == (404, "not-found")


@pytest.mark.parametrize(("text", "status"), [("", 422), ("x = ", 422), ("x: f32[8]\n" + "#" * 70_000, 413)])
def test_what_cannot_be_read_or_is_too_long_has_no_short_link(client: httpx.Client, text: str, status: int) -> None:
    assert client.post("/links", data={"text": text}).status_code == status


def test_the_what_if_of_a_short_link_keeps_its_address(client: httpx.Client) -> None:
    path = client.post("/links", data={"text": TEXT}).headers["location"]
    answer = client.get("/what-if", params={"of": "0.25", "faster": "2", "page": path}, headers=HTMX)
    assert urlsplit(answer.headers["hx-replace-url"]).path == path
