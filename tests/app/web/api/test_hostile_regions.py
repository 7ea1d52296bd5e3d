"""The corpus of hostile texts, sent to the API: 422 with the place, and a server that goes on answering.

None is refused for its limits (`advice-limit`), whose processor time is the bound; benchmarks/server/hostile.py times
each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.web.conftest import Serving, serving
from tests.profiler.region.hostile.corpus import CORPUS

GOOD = "x: f32[64, 64]\ny = relu(x + 1.0)\nreturn y\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One server, its advice warm."""
    with serving(tmp_path_factory.mktemp("data"), "trace") as app_server:
        app_server.client.post("/api/v1/advice", json={"region": GOOD, "oracle": "off"})
        yield app_server


def speakable(text: str) -> bool:
    """JSON carries a lone surrogate only as an escape, and none of it means a character."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


@pytest.mark.parametrize("name", CORPUS)
def test_hostile_text_gets_422_with_its_place(server: Serving, name: str) -> None:
    text, line = CORPUS[name]
    body = json.dumps({"region": text, "oracle": "off"})  # ASCII, with escapes, as json.dumps of a client writes it
    answer = server.client.post("/api/v1/advice", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text[:300]
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    if text and speakable(text):
        assert problem["code"].startswith("region-")
        assert problem["line"] == line
        assert problem["column"] >= 1
        assert problem["detail"]
    assert len(answer.content) < 10_000


def test_server_still_advises(server: Serving) -> None:
    answer = server.client.post("/api/v1/advice", json={"region": GOOD, "oracle": "off"})
    assert answer.status_code == 200
    assert server.client.get("/healthz").status_code == 200
    assert not Path("owned").exists()
