"""The autotune landscape over the web and from a shell: asked for, stored, shown; without a GPU a clear no."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from app import cli
from app.cli.landscape import landscape_text
from app.jobs.result_checks import check_landscape
from app.storage.store import finite
from app.web.charts import landscape
from kernels.host import Host
from tests.app.requests.landscape_sample import DEVICE, NAME, REGION, sample
from tests.app.web.conftest import Serving, serving

CHILD = Path(__file__).with_name("landscape_child.py")
CANDIDATE = "triton:matmul_epilogue"
HTMX = {"HX-Request": "true"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("landscapes")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Serving]:
    with serving(folder, "hang") as app_server:
        children(app_server, "good")
        yield app_server


def children(server: Serving, mode: str, gpu: str | None = "NVIDIA H200") -> None:
    """Jobs are done by landscape_child.py from now on, on a server that believes in this GPU."""
    server.state.queue.command = lambda _: [sys.executable, str(CHILD), mode, "{fd}"]
    found: Future[Host] = Future()
    found.set_result(Host(gpu=gpu))
    server.state.host.probe = found


def settled(server: Serving, job_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while True:
        job: dict[str, Any] = server.client.get(f"/api/v1/jobs/{job_id}").json()
        if job["state"] in ("done", "failed", "cancelled"):
            return job
        assert time.monotonic() < deadline, job
        time.sleep(0.05)


@pytest.fixture(scope="module")
def validation(server: Serving) -> str:
    made = server.client.post("/api/v1/validations", json={"region": REGION})
    assert made.status_code == 202, made.text
    number = str(made.json()["id"])
    assert settled(server, number)["state"] == "done"
    return number


def ask(server: Serving, validation: str, **body: Any) -> Any:
    return server.client.post(
        f"/api/v1/validations/{validation}/landscape", json={"candidate": CANDIDATE, "budget_s": 7, **body}
    )


@pytest.fixture(scope="module")
def measured(server: Serving, validation: str) -> str:
    """The id of a validation whose landscape stands."""
    answer = ask(server, validation)
    assert answer.status_code == 202, answer.text
    job = settled(server, answer.json()["id"])
    assert (job["kind"], job["state"]) == ("landscape", "done"), job
    return validation


def test_what_the_child_measured_is_answered_and_kept(server: Serving, measured: str) -> None:
    answer = server.client.get(f"/api/v1/validations/{measured}/landscape")
    assert answer.status_code == 200
    reply = answer.json()
    told = finite({**sample(), "binding": {}})
    assert {key: reply[key] for key in told} == told
    assert (reply["validation_id"], reply["candidate"], reply["state"]) == (measured, CANDIDATE, "done")
    assert server.client.get(f"/validations/{measured}/landscape.json").json() == reply
    assert server.client.get(f"/api/v1/jobs/{reply['id']}").json()["result"] == reply
    request = server.state.store.job_request(reply["id"])
    assert request == {"region": REGION, "candidate": CANDIDATE, "binding": {}, "budget_s": 7.0}


def test_it_survives_a_restart(server: Serving, measured: str, folder: Path) -> None:
    with serving(folder, "hang") as again:
        answer = again.client.get(f"/api/v1/validations/{measured}/landscape").json()
    assert answer["best"] == sample()["best"]


def test_the_page_has_every_point_and_why_one_was_left_out(server: Serving, measured: str) -> None:
    page = server.client.get(f"/validations/{measured}/landscape", headers={"Accept": "text/html"})
    assert page.status_code == 200
    assert NAME not in page.text, "markup in a name"
    text = html.unescape(page.text)
    made = sample()
    assert text.count("<tr") == 1 + len(made["points"])
    for reason in {p["reason"] for p in made["points"]} - {""}:
        assert reason in text
    assert "The slowest of 49 points takes 67.0 times as long as the fastest." in text
    assert "in plain order 100 µs: 0.940 of its time" in text
    assert DEVICE in text
    assert '"type":"heatmap"' in text


def test_the_validations_page_offers_it_and_shows_it(server: Serving, measured: str) -> None:
    page = server.client.get(f"/validations/{measured}", headers={"Accept": "text/html"}).text
    assert f'action="/validations/{measured}/landscape"' in page
    assert "Measure it again" in page
    assert "heatmap" in page
    assert "triton:generated</option>" not in page, "it was wrong"


def test_the_form_works_with_and_without_javascript(server: Serving, measured: str) -> None:
    plain = server.client.post(f"/validations/{measured}/landscape", data={"candidate": CANDIDATE})
    assert (plain.status_code, plain.headers["location"]) == (303, f"/validations/{measured}/landscape")
    part = server.client.post(f"/validations/{measured}/landscape", data={"candidate": CANDIDATE}, headers=HTMX)
    assert part.status_code == 202
    assert part.text.lstrip().startswith('<section class="card stack" id="landscape">')
    number = server.client.get(f"/api/v1/validations/{measured}/landscape").json()["id"]
    assert settled(server, number)["state"] == "done"
    panel = server.client.get(f"/validations/{measured}/landscape/panel", headers=HTMX).text
    assert "heatmap" in panel
    assert "<html" not in panel


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"candidate": "triton:generated"}, 422, "candidate-unknown"),
        ({"candidate": "eager"}, 422, "candidate-unknown"),
        ({"shape": 1}, 422, "invalid-request"),
        ({"budget_s": 0.5}, 422, "invalid-request"),
        ({"more": 1}, 422, "invalid-request"),
    ],
)
def test_what_cannot_be_asked_for(server: Serving, measured: str, body: dict[str, Any], status: int, code: str) -> None:
    answer = ask(server, measured, **body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_unknown_ids_are_not_found(server: Serving) -> None:
    assert ask(server, "a" * 26).status_code == 404
    assert server.client.get(f"/api/v1/validations/{'a' * 26}/landscape").status_code == 404
    assert server.client.get(f"/validations/{'a' * 26}/landscape").status_code == 404


def test_without_a_gpu_it_is_refused_and_not_offered(server: Serving, validation: str) -> None:
    children(server, "good", gpu=None)
    try:
        answer = ask(server, validation)
        assert (answer.status_code, answer.json()["code"]) == (409, "needs-gpu")
        page = server.client.get(f"/validations/{validation}", headers={"Accept": "text/html"}).text
        assert "needs a GPU. This server has none." in page
        assert f'action="/validations/{validation}/landscape"' not in page
    finally:
        children(server, "good")


def test_a_running_one_shows_its_progress_and_can_be_cancelled(server: Serving, measured: str) -> None:
    children(server, "slow")
    try:
        number = ask(server, measured).json()["id"]
        deadline = time.monotonic() + 120
        while "BM=64" not in server.client.get(f"/validations/{measured}/landscape/progress").text:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        page = server.client.get(f"/validations/{measured}/landscape", headers={"Accept": "text/html"}).text
        assert 'http-equiv="refresh"' in page
        assert f'sse-connect="/api/v1/jobs/{number}/events"' in page
        assert server.client.post(f"/validations/{measured}/landscape/cancel").status_code == 303
        assert settled(server, number)["state"] == "cancelled"
        page = server.client.get(f"/validations/{measured}/landscape", headers={"Accept": "text/html"}).text
        assert "Cancelled" in page
        assert "Measure it again" in page
    finally:
        children(server, "good")


def test_an_answer_that_makes_no_sense_is_not_kept(server: Serving, measured: str) -> None:
    children(server, "nonsense")
    try:
        job = settled(server, ask(server, measured).json()["id"])
        assert (job["state"], job["error"]["code"]) == ("failed", "bad-output")
        assert server.client.get(f"/api/v1/validations/{measured}/landscape").json()["points"] == []
    finally:
        children(server, "good")


def test_the_check_of_an_answer_finds_what_is_wrong() -> None:
    good = sample()
    assert check_landscape(good) == ""
    assert check_landscape({**good, "outcome": "splendid"}) == "unknown outcome"
    assert "none of the points" in check_landscape({**good, "chosen": "other"})
    assert "not a landscape" in check_landscape({**good, "more": 1})
    broken = [{**p, "time_us": {"median": -1.0, "low": -1.0, "high": -1.0}} for p in good["points"]]
    assert "time_us" in check_landscape({**good, "points": broken})
    assert check_landscape([]) == "not an object"


def test_the_heat_map_has_each_time_in_its_cell_and_marks_the_chosen() -> None:
    answer = sample()
    drawn = landscape.heat_map(answer)
    assert drawn is not None
    traces = {t.get("name") or t["type"]: t for t in drawn["figure"]["data"]}
    cells = traces["heatmap"]
    by_cell = {(landscape.name_column(p), p["tile"]): p for p in answer["points"]}
    seen = 0
    for label, line in zip(cells["y"], cells["z"], strict=True):
        for name, value in zip(cells["x"], line, strict=True):
            point = by_cell[name, label]
            assert (value is not None) == (point["time_us"] is not None)
            if value is not None:
                seen += 1
                assert 10**value == pytest.approx(point["time_us"]["median"])
    assert seen == sum(p["time_us"] is not None for p in answer["points"])
    chosen = next(p for p in answer["points"] if p["key"] == answer["chosen"])
    assert (traces["chosen"]["x"], traces["chosen"]["y"]) == ([landscape.name_column(chosen)], [chosen["tile"]])
    crosses = traces["pruned, refused or wrong"]
    assert len(crosses["x"]) == sum(p["status"] in ("pruned", "refused", "wrong") for p in answer["points"])


def test_a_name_with_markup_is_shown_as_it_is() -> None:
    answer = sample()
    other = {**answer["points"][0], "key": "other", "kernel": "plain"}
    drawn = landscape.heat_map({**answer, "points": [*answer["points"], other]})
    assert drawn is not None
    assert all("<b>" not in label for label in drawn["figure"]["data"][0]["y"])


def test_words_of_a_choice_that_cannot_be_told_from_the_fastest() -> None:
    answer = sample()
    assert "68 % longer" in landscape.describe_choice(answer)
    same = {"median": 1.01, "low": 0.99, "high": 1.02}
    assert "cannot be distinguished" in landscape.describe_choice({**answer, "chosen_to_best": same})
    assert "is the fastest point" in landscape.describe_choice({**answer, "chosen": answer["best"]})


def test_the_shells_text_has_both_ends_and_the_reasons() -> None:
    text = landscape_text(sample())
    assert "49 points timed; the slowest takes 67 times the fastest" in text
    assert "(chosen)" in text
    assert "101,376" in text


def test_the_shell_compiles_for_a_gpu_that_is_not_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "region.txt"
    file.write_text("x: f32[4, 8]\nb: f32[8]\nreturn F.gelu(x + b)\n")
    asked = ["landscape", str(file), "--candidate", "triton:generated", "--target", "sm_90", "--points", "1"]
    assert cli.main(asked) == 0
    text = capsys.readouterr().out
    assert "unmeasured: compiled for sm_90" in text
    assert "µs" not in text


def test_the_shell_without_a_gpu_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    file = tmp_path / "region.txt"
    file.write_text("x: f32[4, 8]\nreturn F.softmax(x, dim=-1)\n")
    assert cli.main(["landscape", str(file), "--candidate", "triton:softmax"]) == 2
    assert "needs a GPU" in capsys.readouterr().out
    file.write_text("x: f32[4, 8]\nreturn y\n")
    assert cli.main(["landscape", str(file), "--candidate", "triton:softmax"]) == 1
    assert cli.main(["landscape", str(file), "--candidate", "triton:softmax", "--binding", "[]"]) == 1
