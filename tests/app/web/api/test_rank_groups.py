"""The traces of one job's ranks, uploaded under one group: side by side in the API and on the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.objects.trace import Ranks, Trace
from tests.app.objects.exact import differences
from tests.app.web.conftest import Serving, serving
from tests.processes import wait_for
from tests.profiler.trace.analyze.test_ranks import rank_file
from tests.profiler.trace.files import SMALL, TRACES
from tests.profiler.trace.read.test_archive import archive
from tests.profiler.trace.read.test_members import zipped


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


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_an_archive_of_a_jobs_ranks_reads_as_their_group(real: Serving, tmp_path: Path, kind: str) -> None:
    files = {
        f"{rank}.json": rank_file(tmp_path, rank, compute).read_bytes() for rank, compute in ((5, 500.0), (6, 850.0))
    }
    data = archive(files) if kind == "tar.gz" else zipped(files)
    kept = set(real.files())
    response = real.client.post(f"/api/v1/traces?wait=60&name=job.{kind}", content=data)
    assert response.status_code in (200, 201), response.text
    first = response.json()
    assert (first["rank"], first["status"]) == (5, "ready")

    def side_by_side() -> dict[str, Any]:
        answer: dict[str, Any] = real.client.get(f"/api/v1/traces/{first['id']}/ranks").json()
        return answer

    wait_for(lambda: len(side_by_side()["ranks"]) == 2, 60, side_by_side)
    assert [r["rank"] for r in side_by_side()["ranks"]] == [5, 6]
    assert side_by_side()["slowest"] == 6
    assert len(set(real.files()) - kept) <= 2, "the archive itself is not kept"


def test_an_archive_that_unpacks_to_too_much_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with serving(tmp_path / "small", max_uncompressed_bytes=100_000) as server:
        data = zipped({f"rank{i}.json": b"[" + b" " * 60_000 for i in range(3)})
        response = server.client.post("/api/v1/traces", content=data)
        assert (response.status_code, response.json()["code"]) == (413, "trace-too-large")
        assert server.files() == []


def test_a_zip_of_one_trace_is_that_trace_under_the_archives_name(real: Serving, tmp_path: Path) -> None:
    data = zipped({"inner.json": rank_file(tmp_path, 7, 640.0).read_bytes()})
    form = {"file": ("step.zip", data, "application/zip")}
    trace = real.client.post("/api/v1/traces?wait=60", files=form).json()
    assert (trace["name"], trace["rank"], trace["group"]) == ("step.zip", 7, None)


def test_a_damaged_gzip_trace_is_answered_with_what_is_wrong_with_it(real: Serving) -> None:
    whole = (TRACES / SMALL).read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2 : len(whole) // 2 + 8] = bytes(8)
    heads = (b"\x1f\x8b", b"\x1f\x8b" + b"\xff" * 100, whole[:10] + b"\xff" * 500)
    for data, code in ((bytes(damaged), "trace-truncated"), *((head, "trace-bad-gzip") for head in heads)):
        answer = real.client.post("/api/v1/traces?wait=60&fresh=true", content=data)
        assert (answer.status_code, answer.json()["code"]) == (422, code), answer.text
