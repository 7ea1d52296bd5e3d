"""The traces of one job's ranks, uploaded under one group: side by side in the API and on the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.objects.trace import Ranks, Trace
from tests.app.objects.exact import differences
from tests.app.web.conftest import Serving, serving
from tests.profiler.trace.analyze.test_ranks import rank_file
from tests.profiler.trace.files import TRACES


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("ranks")) as server:
        yield server


def upload(real: Serving, path: Path, query: str) -> dict[str, Any]:
    response = real.client.post(f"/api/v1/traces?wait=60&name={path.name}{query}", content=path.read_bytes())
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    assert differences(Trace, answer) == []
    return answer


def test_ranks_of_a_group_stand_side_by_side_and_other_traces_do_not(real: Serving, tmp_path: Path) -> None:
    ids = {}
    for rank, compute in ((2, 500.0), (1, 880.0)):
        trace = upload(real, rank_file(tmp_path, rank, compute), "&group=job")
        assert (trace["group"], trace["rank"]) == ("job", rank)
        ids[rank] = trace["id"]
    alone = upload(real, rank_file(tmp_path, 0, 600.0), "")
    response = real.client.get(f"/api/v1/traces/{ids[2]}/ranks")
    assert response.status_code == 200
    assert differences(Ranks, response.json()) == []
    assert [(r["rank"], r["id"], r["wait_us"]) for r in response.json()["ranks"]] == [
        (1, ids[1], 0.0),
        (2, ids[2], 380.0),
    ]
    assert response.json()["slowest"] == 1
    page = real.client.get(f"/traces/{ids[2]}").text
    assert "Ranks side by side" in page
    assert f'href="/traces/{ids[1]}"' in page
    assert real.client.get(f"/api/v1/traces/{alone['id']}/ranks").json()["ranks"] == []
    assert "Ranks side by side" not in real.client.get(f"/traces/{alone['id']}").text
    assert real.client.get("/api/v1/traces/nothing/ranks").status_code == 404


def test_the_step_of_a_stored_trace_has_its_parts_and_shares_that_add_up(real: Serving, tmp_path: Path) -> None:
    stored = upload(real, rank_file(tmp_path, 4, 700.0), "")
    assert stored["step_parts"]["kernels_us"] == 700.0
    assert stored["critical"]["resource"] == "gpu"
    parts = [*stored["regions"], *stored["rests"]]
    assert sum(p["share_of_step"] for p in parts) == pytest.approx(1.0, abs=1e-6)


def test_a_graph_borrows_from_a_trace_that_was_uploaded_before(real: Serving) -> None:
    eager = upload(real, TRACES / "handrolled_blocks_bf16_eager.json.gz", "")
    graph = TRACES / "handrolled_blocks_bf16_cudagraph.json.gz"
    alone, lent = upload(real, graph, ""), upload(real, graph, f"&companion={eager['id']}")
    assert (alone["linked_share"], lent["linked_share"]) == (0.0, 1.0)
    assert alone["regions"] == []
    assert {r["text"] for r in lent["regions"]} == {r["text"] for r in eager["regions"]}
    assert real.client.post("/api/v1/traces?companion=nothing", content=b"{}").status_code == 404
