"""Other tools' files and packings, uploaded: by what they hold, whatever they are called."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.objects.trace import Trace
from tests.app.objects.exact import differences
from tests.app.web.conftest import Serving, serving
from tests.profiler.trace.files import SMALL, TRACES, loaded, plain
from tests.profiler.trace.nsys_export import Export, export
from tests.profiler.trace.read.formats.test_unzstd import zstd
from tests.profiler.trace.read.test_members import zipped
from tests.profiler.trace.rocprofv3_file import recorded

FIGURES = ("step_time_us", "kernel_time_us", "kernels", "steps", "step_source", "gpu_busy_share", "linked_share",
           "device", "step_times", "step_parts", "critical", "pace")  # fmt: skip


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("kinds")) as server:
        yield server


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return export(loaded(SMALL), tmp_path_factory.mktemp("export") / "run.sqlite").read_bytes()


def upload(web: Serving, content: bytes, name: str = "trace.json.gz") -> dict[str, Any]:
    response = web.client.post("/api/v1/traces?wait=60", files={"file": (name, content)})
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    assert differences(Trace, answer) == []
    return answer


def test_an_nsys_export_has_the_figures_and_parts_of_its_torch_trace_in_every_packing(
    web: Serving, exported: bytes
) -> None:
    ours = upload(web, (TRACES / SMALL).read_bytes())
    packed = (exported, gzip.compress(exported, 1), zstd.compress(exported), zipped({"run.sqlite": exported}))
    for number, content in enumerate(packed):
        theirs = upload(web, content)  # by the wrong name: what it holds decides
        for figure in FIGURES:
            assert theirs[figure] == ours[figure], (number, figure)
        by_title = [
            {r["title"]: round(r["time_us_per_step"], 3) for r in t["regions"] if r["title"] != "GEMM"}
            for t in (ours, theirs)
        ]
        for title in ("attention by hand", "RMSNorm by hand", "GEMM with GELU and mask tail"):
            assert by_title[0][title] == by_title[1][title]
        assert sum(r["time_us_per_step"] for r in theirs["regions"]) == pytest.approx(
            sum(r["time_us_per_step"] for r in ours["regions"])
        )
    page = web.client.get(f"/traces/{theirs['id']}")
    assert page.status_code == 200
    assert "attention by hand" in page.text


def test_rocprofv3_and_zstd_are_read(web: Serving) -> None:
    ours = upload(web, zstd.compress(plain(SMALL)), "step.json.zst")
    theirs = upload(web, zstd.compress(json.dumps(recorded(loaded(SMALL))).encode()), "results.json.zst")
    for figure in ("step_time_us", "kernel_time_us", "kernels", "linked_share", "device"):
        assert theirs[figure] == ours[figure]


def test_ranks_of_a_zip_may_be_of_any_kind(web: Serving, exported: bytes) -> None:
    content = zipped({"rank0.sqlite": exported, "rank1.json.zst": zstd.compress(plain(SMALL)), "config.json": b"{}"})
    first = upload(web, content, "job.zip")
    assert first["name"] == "rank0.sqlite"
    assert first["group"]


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda data: data[: len(data) // 2], "trace-bad-sqlite"),
        (lambda data: data[:100] + bytes(len(data) - 100), "trace-bad-sqlite"),
        (lambda data: gzip.compress(data)[:-4000], "trace-bad-sqlite"),
        (lambda data: zstd.compress(data)[:40], "trace-bad-zstd"),
        (lambda data: b"\x28\xb5\x2f\xfd" + b"\xff" * 400, "trace-bad-zstd"),
        (lambda data: b'{"rocprofiler-sdk-tool": [{"agents": [', "trace-not-json"),
        (lambda data: zipped({"run.sqlite": data})[:-30], "trace-truncated"),
    ],
    ids=["cut", "zeroed", "cut gzip", "cut zstd", "no zstd", "cut rocprofv3", "cut zip"],
)
def test_a_damaged_one_is_refused_in_words(damage: Any, code: str, web: Serving, exported: bytes) -> None:
    response = web.client.post("/api/v1/traces?wait=60", content=damage(exported))
    assert (response.status_code, response.json()["code"]) == (422, code), response.text
    assert response.json()["detail"]
    assert response.json()["remedy"]


def test_a_database_of_another_program_and_an_export_without_kernels_say_what_to_do(
    web: Serving, tmp_path: Path
) -> None:
    made = Export(tmp_path / "run.sqlite")
    made.push_pop(0, 100, "aten::add", 5)
    made.close()
    for content, code, remedy in (
        ((tmp_path / "run.sqlite").read_bytes(), "trace-no-kernels", ""),
        (_bookmarks(tmp_path), "trace-not-a-trace", "nsys export --type sqlite"),
        (b"a report of nsys" + bytes(2000), "trace-not-json", "nsys export --type sqlite FILE"),
    ):
        response = web.client.post("/api/v1/traces?wait=60", content=content)
        assert (response.status_code, response.json()["code"]) == (422, code)
        assert remedy in response.json()["remedy"]


def _bookmarks(tmp_path: Path) -> bytes:
    made = Export(tmp_path / "b.sqlite", {"moz_places": "id INTEGER, url TEXT"})
    made.db.execute("INSERT INTO moz_places VALUES (1, 'x')")
    made.close()
    return (tmp_path / "b.sqlite").read_bytes()


def test_the_form_of_the_start_page_takes_the_kinds_that_are_read(web: Serving) -> None:
    page = web.client.get("/").text
    accepted = page.split('name="file" accept="')[1].split('"')[0].split(",")
    assert {".json", ".gz", ".zst", ".zip", ".sqlite", ".tar"} <= set(accepted)
