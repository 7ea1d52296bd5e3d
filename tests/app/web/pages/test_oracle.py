"""The oracle behind the API and the pages: one server with it, asked for real; what is said where it is off or late."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest

from app.objects.kernel import Kernel
from app.objects.region import AdviceAnswer, Region, RegionList
from app.web.api.examples import calls
from profiler.oracle.process import UnansweredError
from tests.app.objects.exact import differences
from tests.app.web.api.test_api import code
from tests.app.web.conftest import Serving, serving
from tests.app.web.pages.test_pages import HTMX, run
from tests.conftest import ROOT
from tests.profiler.region.hostile.corpus import CORPUS

EXAMPLES = ROOT / "app" / "examples"
EXAMPLE = (EXAMPLES / "gemm_gelu_mask.txt").read_text(encoding="utf-8")
PAGE = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with the oracle, warm. Nothing of it stands in for anything. A trace's regions are asked about on their
    own pages alone: tests/app/requests/test_trace_oracle.py has one that asks behind the trace."""
    folder = tmp_path_factory.mktemp("asking")
    with serving(folder, oracle="auto", oracle_share=0, oracle_timeout_s=60, advice_timeout_s=60) as server:
        answer = server.client.post("/api/v1/advice", json={"region": EXAMPLE, "device": "H200"}, timeout=120)
        assert answer.status_code == 200, answer.text
        yield server


@pytest.fixture(scope="module")
def region(asking: Serving) -> str:
    """The id of the example, written down for an H200."""
    answer = asking.client.post("/regions", data={"text": EXAMPLE, "device": "NVIDIA H200"})
    return str(answer.headers["location"]).rsplit("/", 1)[1]


@pytest.fixture(scope="module")
def trace(asking: Serving) -> dict[str, Any]:
    content = (EXAMPLES / "handrolled_blocks.json.gz").read_bytes()
    answer: dict[str, Any] = asking.client.post("/api/v1/traces?wait=60", content=content).json()
    assert answer["status"] == "ready"
    return answer


def test_advice_has_what_inductor_said_unless_it_is_not_asked(asking: Serving) -> None:
    body = {"region": EXAMPLE, "device": "H200"}
    answer = asking.client.post("/api/v1/advice", json=body).json()
    assert differences(AdviceAnswer, answer) == []
    default, autotuned = answer["oracle"]
    assert (default["mode"], default["launches"]) == ("default", 2)
    assert [e["name"] for e in default["externs"]] == ["mm"]
    assert default["kernels"][0]["lines"] == [6, 7, 8]
    assert "@triton.jit" in default["kernels"][0]["source"]
    assert [k["kind"] for k in autotuned["kernels"]] == ["template"]
    fuses = next(c for c in answer["criteria"] if c["name"] == "compile-fuses")
    assert fuses["source"].startswith("Inductor's own kernels")
    off = asking.client.post("/api/v1/advice", json=body | {"oracle": "off"}).json()
    assert off["oracle"] == []
    assert "fusion rules" in next(c for c in off["criteria"] if c["name"] == "compile-fuses")["source"]
    wrong = asking.client.post("/api/v1/advice", json=body | {"oracle": "yes"})
    assert code(wrong) == (422, "invalid-request")


def test_what_a_prediction_rests_on_is_inductors_kernels_once_it_was_asked(asking: Serving) -> None:
    body = {"region": EXAMPLE, "device": "A100"}  # of which no record takes the prediction's place
    asked = asking.client.post("/api/v1/advice", json=body).json()
    unasked = asking.client.post("/api/v1/advice", json=body | {"oracle": "off"}).json()
    assert (asked["prediction"], unasked["prediction"]) == ("oracle", "rules")
    compiled = [p for p in asked["rests_on"]["parts"] if p["way"] == "compile"]
    assert {p["name"] for p in compiled} == {"mm", asked["oracle"][0]["kernels"][0]["name"]}
    (whole,) = (a["time_us"]["mid"] for a in asked["alternatives"] if a["candidate"] == "compile")
    assert sum(p["time_us"] for p in compiled) == pytest.approx(whole, rel=0.1)
    assert [p["way"] for p in unasked["rests_on"]["parts"]] == ["eager"] * 4
    assert "Inductor was not asked" in unasked["rests_on"]["sentence"]


def test_hostile_text_is_refused_before_the_oracle_is_asked(asking: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    oracle = asking.state.service.oracle
    monkeypatch.setattr(type(oracle), "_wait", lambda *a, **_: asked.append("asked"))
    for name in list(CORPUS)[:12]:
        text = CORPUS[name][0].encode("utf-8", "replace").decode()
        assert asking.client.post("/api/v1/advice", json={"region": text}).status_code == 422, name
        typed = asking.client.post("/regions/preview", data={"text": text}, headers=HTMX)
        assert (typed.status_code, typed.headers["Problem-Status"]) == (200, "422"), name
    assert asked == []


def test_a_regions_page_has_the_kernels_and_each_its_machine_page(asking: Serving, region: str) -> None:
    page = asking.client.get(f"/regions/{region}?tab=all", headers=PAGE).text
    twin = asking.client.get(f"/api/v1/regions/{region}").json()
    assert differences(Region, twin) == []
    assert "4 launches → 2" in page
    assert html.escape(twin["rests_on"]["sentence"], quote=False) in html.unescape(page)
    parts = page[page.index('id="rests-on"') :].partition("</details>")[0]
    assert "as eager PyTorch runs it" in parts and "as Inductor makes them" in parts
    assert parts.count('<th scope="row">') == len(twin["rests_on"]["parts"]) == 6
    kernels = [k["name"] for p in twin["oracle"] for k in p["kernels"]]
    assert len(kernels) == 2
    for mode, name in zip(("default", "max-autotune"), kernels, strict=True):
        assert f'href="/regions/{region}/kernels/{mode}/{name}"' in page
    assert html.escape(twin["oracle"][0]["kernels"][0]["source"].strip(), quote=True).replace("&#x27;", "&#39;") in page

    path = f"/regions/{region}/kernels/default/{kernels[0]}"
    whole = asking.client.get(path, headers=PAGE).text
    answer = asking.client.get(f"{path}.json").json()
    assert differences(Kernel, answer) == []
    assert answer == asking.client.get(f"/api/v1/regions/{region}/kernels/{kernels[0]}?mode=default").json()
    assert answer["arch"] == "sm_90"
    assert answer["machine"]["registers"] > 0
    assert f".entry {kernels[0]}" in answer["machine"]["texts"]["ptx"]
    assert whole.rstrip().endswith("</html>")
    for finding in answer["findings"]:
        assert html.escape(finding["text"][1:20]) in whole
    for listing in ("TTIR", "TTGIR", "PTX", "SASS"):
        assert f"<summary>{listing}" in whole
    assert asking.client.get(f"{path}/ptx.txt").text == answer["machine"]["texts"]["ptx"]
    assert asking.client.get(f"{path}/nothing.txt", headers=PAGE).status_code == 404
    fragment = asking.client.get(path, headers=HTMX).text
    assert "<html" not in fragment
    assert "What it decided" in fragment


@pytest.mark.parametrize(
    "path", ["{id}/kernels/nope", "{id}/kernels/{kernel}?mode=fastest", "aaaaaaaaaaaaaaaaaaaaaaaaaa/kernels/{kernel}"]
)
def test_a_kernel_that_was_not_predicted_is_404(asking: Serving, region: str, path: str) -> None:
    twin = asking.client.get(f"/api/v1/regions/{region}").json()
    filled = path.format(id=region, kernel=twin["oracle"][0]["kernels"][0]["name"])
    assert code(asking.client.get(f"/api/v1/regions/{filled}")) == (404, "not-found")


def test_a_gpu_that_triton_has_no_target_for_is_said(asking: Serving, region: str) -> None:
    store = asking.state.store
    twin = store.region(region)
    old = [{**p, "device": "NVIDIA V100"} for p in twin["oracle"]]
    other = store.add_region({**twin, "oracle": old})
    name = old[0]["kernels"][0]["name"]
    refused = asking.client.get(f"/api/v1/regions/{other}/kernels/{name}")
    assert code(refused) == (422, "no-triton-target")
    assert "sm_90" in refused.json()["detail"]


def test_lists_leave_the_source_out(asking: Serving, region: str) -> None:
    listed = asking.client.get("/api/v1/regions").json()
    assert differences(RegionList, listed) == []
    kernels = [k for r in listed["items"] for p in r["oracle"] for k in p["kernels"]]
    assert kernels
    assert all("source" not in k for k in kernels)


def test_a_traces_region_is_asked_about_on_its_page_once(asking: Serving, trace: dict[str, Any]) -> None:
    known = {r["name"]: r for r in trace["regions"]}["GEMM with GELU and mask tail"]
    path = f"/regions/{known['id']}"
    page = asking.client.get(path, headers=PAGE).text
    assert f'hx-post="{path}/oracle" hx-include="#region-form" hx-trigger="load"' in page
    assert "By its fusion rules" in asking.client.get(f"{path}?tab=compiler", headers=PAGE).text

    fragment = asking.client.post(f"{path}/oracle", data={"tab": "all"}, headers=HTMX).text
    assert "<html" not in fragment
    # The archive measured this region on an H200: its compile stands next to the answer, here as on the page.
    assert "compiled and measured on NVIDIA H200" in fragment
    assert "compiled and measured on NVIDIA H200" in asking.client.get(f"{path}?tab=compiler").text
    for part in ("tab-panel", "oracle", "why", "operations"):
        assert f'id="{part}"' in fragment
    assert 'class="card verdict' in fragment
    answer = asking.client.get(f"{path}.json").json()
    assert [p["unavailable"] for p in answer["oracle"]] == ["", ""]
    # What the trace knew is still there: times, share, notes, and the advice but for the oracle's own criterion.
    assert [r["rests_on"]["prediction"] for r in (known, answer)] == ["rules", "oracle"]
    assert (known["prediction"], answer["prediction"]) == ("rules", "oracle")
    kept = {"advice", "oracle", "recompiles", "rests_on", "prediction"}
    assert {k: v for k, v in answer.items() if k not in kept} == {k: v for k, v in known.items() if k not in kept}
    # Its time is that of Inductor's own kernels now: another figure, the same tool.
    assert answer["advice"]["tool"] == known["advice"]["tool"]
    assert answer["advice"]["headline"] != known["advice"]["headline"]
    assert answer["advice"]["notes"] == known["advice"]["notes"]
    changed = [
        a["name"] for a, b in zip(answer["advice"]["criteria"], known["advice"]["criteria"], strict=True) if a != b
    ]
    assert changed == ["compile-fuses"]

    again = asking.client.get(path, headers=PAGE).text
    assert 'hx-trigger="load' not in again
    assert "Compiled into" in asking.client.get(f"{path}?tab=cost", headers=PAGE).text
    plain = asking.client.post(f"{path}/oracle")
    assert (plain.status_code, plain.headers["location"]) == (303, f"{path}?tab=compiler#oracle")
    assert asking.client.get(f"{path}.json").json() == answer


def test_a_region_without_text_is_not_asked_about(asking: Serving) -> None:
    store = asking.state.store
    made = store.add_region({"name": "n", "text": "", "advice": {}, "shapes": [], "cost": None, "source": None})
    assert code(asking.client.post(f"/api/v1/regions/{made}/oracle")) == (422, "region-without-text")
    assert code(asking.client.post("/api/v1/regions/nope/oracle")) == (404, "not-found")


def test_an_oracle_that_does_not_answer_in_time_costs_the_prediction_and_no_more(
    asking: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = asking.state.service.oracle
    limits: list[float] = []

    def late(_: Any, asked: Any, limit: float) -> Any:
        limits.append(limit)
        raise UnansweredError("no answer within the time")

    monkeypatch.setattr(type(oracle), "_wait", late)
    text = "x: f32[77, 128]\ny = gelu(x) * 3\nreturn y\n"
    form = {"text": text, "tab": "compiler"}
    preview = asking.client.post("/regions/preview", data=form, headers=HTMX).text
    assert limits == [], "the advice waits for no oracle"
    assert "By its fusion rules" in preview
    assert re.search('hx-post="/region/oracle"[^>]* hx-trigger="load"', preview)
    asked = asking.client.post("/region/oracle", data=form, headers=HTMX).text
    assert "The prediction is unavailable: no answer within the time." in asked
    assert 0 < max(limits) <= 60
    assert re.search('hx-post="/region/oracle"[^>]* hx-trigger="click"', asked)
    assert 'hx-trigger="load"' not in asked, "it is not asked for ever"
    limits.clear()
    begun = asking.client.post("/validations", data={"text": text}, headers=HTMX)
    asking.state.queue.cancel(re.findall(r"/validations/(\w{26})/", begun.text)[0])
    assert (begun.status_code, limits) == (202, []), "a validation shows its progress before the oracle is asked"
    kept = asking.client.post("/regions", data={"text": text}, headers=HTMX)
    assert re.search(f'hx-post="{kept.headers["hx-push-url"]}/oracle"[^>]* hx-trigger="load"', kept.text)
    answer = asking.client.post("/regions", data={"text": text})
    path = answer.headers["location"]
    page = asking.client.get(f"{path}?tab=compiler", headers=PAGE).text
    assert "Ask again" in page
    assert 'hx-trigger="submit"' in page
    monkeypatch.undo()
    assert asking.client.post(f"{path}/oracle").status_code == 303
    assert "1 launch" in asking.client.get(f"{path}?tab=compiler", headers=PAGE).text
    assert asking.client.get(f"{path}.json").json()["oracle"][0]["launches"] == 1


def test_the_compiler_that_does_not_answer_is_a_503(
    asking: Serving, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = asking.state.service.oracle

    def dead(*_: Any, **__: Any) -> Any:
        raise UnansweredError("the oracle's process ended (SIGKILL)")

    monkeypatch.setattr(type(oracle), "machine", dead)
    name = asking.client.get(f"/api/v1/regions/{region}").json()["oracle"][0]["kernels"][0]["name"]
    refused = asking.client.get(f"/api/v1/regions/{region}/kernels/{name}")
    assert code(refused) == (503, "oracle-unavailable")
    assert "SIGKILL" in refused.json()["detail"]
    page = asking.client.get(f"/regions/{region}/kernels/default/{name}", headers=PAGE)
    assert page.status_code == 503
    assert "SIGKILL" in html.unescape(page.text)


def test_the_oracles_commands_of_the_api_page_work(asking: Serving, region: str) -> None:
    name = asking.client.get(f"/api/v1/regions/{region}").json()["oracle"][0]["kernels"][0]["name"]
    shown = [c for c in calls(asking.url) if "/oracle" in c.path or "/kernels/" in c.path]
    assert len(shown) == 2
    for call in shown:
        command = call.curl.replace("REGION_ID", region).replace("KERNEL", name)
        answer = run(asking.client, command, {})
        assert answer.status_code == 200, (command, answer.text)
    schema = asking.client.get("/openapi.json").json()
    assert {"/api/v1/regions/{region_id}/oracle", "/api/v1/regions/{region_id}/kernels/{kernel}"} <= set(
        schema["paths"]
    )
    assert {"OraclePrediction", "OracleKernel", "Kernel", "Machine"} <= set(schema["components"]["schemas"])


def test_an_edited_text_has_its_advice_first_and_the_oracles_answer_after_it(asking: Serving) -> None:
    data = {"text": "x: f32[78, 128]\ny = gelu(x) * 5\nreturn y\n", "tab": "all"}
    first = asking.client.post("/regions/preview", data=data, headers=HTMX).text
    assert 'class="card verdict' in first
    assert "From Inductor" not in first
    answer = asking.client.post("/region/oracle", data=data, headers=HTMX).text
    assert "<html" not in answer
    for part in ("tab-panel", "oracle", "why", "operations"):
        assert f'id="{part}"' in answer
    assert 'class="card verdict' in answer
    assert re.search(r"2 launches → 1\b", answer)
    assert "Save the text as a region" in answer
    # What the oracle has said once is there at once, on every page of this text.
    for shown in (
        asking.client.post("/regions/preview", data=data, headers=HTMX).text,
        asking.client.get("/region", params=data, headers=PAGE).text,
    ):
        assert "From Inductor" in shown
        assert "oracle-asker" not in shown
        by_themselves = re.findall(r'<[^>]*hx-trigger="load[^>]*>', shown)
        assert all('="/region/changes"' in asks for asks in by_themselves), "what the edit changed is asked, no oracle"
    assert "oracle-asker" not in asking.client.post("/regions", data=data, headers=HTMX).text


def test_a_text_that_its_address_carries_is_asked_about_without_a_script(asking: Serving) -> None:
    data = {"text": "x: f32[79, 128]\ny = gelu(x) * 5\nreturn y\n"}
    page = asking.client.get("/region", params=data | {"tab": "compiler"}, headers=PAGE).text
    assert 'formaction="/region/oracle"' in page
    to = asking.client.post("/region/oracle", data=data, headers=PAGE).headers["location"]
    assert to.endswith("&oracle=wait&tab=compiler#oracle")
    assert "From Inductor" in asking.client.get(to, headers=PAGE).text


def test_where_the_oracle_is_off_the_page_says_so(web: Serving) -> None:
    answer = web.client.post("/regions", data={"text": "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"})
    path = answer.headers["location"]
    page = web.client.get(f"{path}?tab=compiler", headers=PAGE).text
    assert "the oracle is off" in page
    assert "By its fusion rules" in page
    assert code(web.client.post(f"/api/v1{path}/oracle")) == (503, "oracle-unavailable")
    assert web.client.get(f"{path}.json").json()["oracle"] == []
