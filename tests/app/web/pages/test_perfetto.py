"""The page for Perfetto and its two files: what is kept is sent as it came, and what is gone is said to be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.web.conftest import Serving, serving
from tests.conftest import DATA

TRACE = DATA / "traces" / "handrolled_blocks_bf16_eager.json.gz"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("perfetto")) as running:
        yield running


@pytest.fixture(scope="module")
def trace_id(server: Serving) -> str:
    address = "/api/v1/traces?wait=60&name=../evil%22name.json.gz"
    reply = server.client.post(address, content=TRACE.read_bytes(), headers={"Content-Type": "application/gzip"})
    assert reply.json()["status"] == "ready"
    return str(reply.json()["id"])


def test_the_file_is_the_one_that_was_sent_under_a_plain_name(server: Serving, trace_id: str) -> None:
    reply = server.client.get(f"/traces/{trace_id}/perfetto/file")
    assert reply.content == TRACE.read_bytes()
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["content-disposition"] == 'attachment; filename="evil-name.json.gz"'


def test_only_this_page_lets_its_windows_keep_their_opener(server: Serving, trace_id: str) -> None:
    policy = "cross-origin-opener-policy"
    assert server.client.get(f"/traces/{trace_id}/perfetto").headers[policy] == "same-origin-allow-popups"
    for other in (f"/traces/{trace_id}", f"/traces/{trace_id}/perfetto/file", "/traces/none/perfetto"):
        assert server.client.get(other).headers[policy] == "same-origin", other


def test_what_is_not_there_is_404_and_the_page_offers_the_step_alone(server: Serving, trace_id: str) -> None:
    for path in ("perfetto", "perfetto/file", "perfetto/step"):
        assert server.client.get(f"/traces/{'z' * 26}/{path}").status_code == 404
    name = server.state.store.trace_file(trace_id)
    stored: Path = server.state.settings.uploads_dir / name
    content = stored.read_bytes()
    stored.unlink()
    try:
        page = server.client.get(f"/traces/{trace_id}/perfetto").text
        assert "no longer has the file" in page and "perfetto/file" not in page and "perfetto/step" in page
        assert server.client.get(f"/traces/{trace_id}/perfetto/file").status_code == 404
        assert server.client.get(f"/traces/{trace_id}/perfetto/step").json()["traceEvents"]
    finally:
        stored.write_bytes(content)
