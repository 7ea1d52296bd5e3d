"""/api/v1/checks on a real server: by files and by ids, reports, what is refused, and that nothing is left behind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.check.formats import FORMATS
from app.objects.check import Check, CheckList
from tests.app.check.hostile_trace import EXAMPLE, write_hostile_trace
from tests.app.check.validators import VALIDATORS
from tests.app.objects.exact import differences
from tests.app.web.conftest import Serving, serving

Json = dict[str, Any]

REGION = "x: bf16[8192, 4096]\ny = silu(x) * 2\nreturn y\n"
CONFIG = '[check]\nname = "block"\ndevice = "H200"\n[assertions]\ncompile = "error"\n'


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server whose jobs are done for real."""
    with serving(tmp_path_factory.mktemp("data")) as server:
        yield server


def post(server: Serving, wait: int = 120, **body: Any) -> httpx.Response:
    return server.client.post(f"/api/v1/checks?wait={wait}", json=body, timeout=150)


def form(server: Serving, *files: tuple[str, Any], wait: int = 120) -> httpx.Response:
    return server.client.post(f"/api/v1/checks?wait={wait}", files=list(files), timeout=150)


def result(answer: httpx.Response) -> Json:
    assert answer.status_code == 202, answer.text
    job = answer.json()
    assert (job["kind"], job["state"]) == ("check", "done"), job
    assert differences(Check, job["result"]) == []
    return job["result"]  # type: ignore[no-any-return]


def test_files_in_a_form_are_checked_and_removed(real: Serving) -> None:
    answer = form(
        real,
        ("file", ("step.json.gz", EXAMPLE.read_bytes())),
        ("file", ("chain.txt", REGION.encode())),
        ("baseline", ("main.json.gz", EXAMPLE.read_bytes())),
        ("config", ("tritonworthy.toml", (CONFIG + 'regression = "warn"\n').encode())),
    )
    reply = result(answer)
    assert answer.headers["location"] == f"/api/v1/checks/{reply['id']}"
    assert (reply["name"], reply["outcome"], reply["exit_code"], reply["passed"]) == ("block", "failed", 1, False)
    assert [(s["name"], s["kind"]) for s in reply["subjects"]] == [("step.json.gz", "trace"), ("chain.txt", "region")]
    assert {f["subject"] for f in reply["errors"]} == {"step.json.gz", "chain.txt"}
    assert reply["baseline"]["name"] == "main.json.gz"
    # One step: how much steps differ by themselves is not known.
    assert any("one step" in u["reason"] for u in reply["unmeasured"])
    assert real.files() == []
    assert real.client.get(f"/api/v1/checks/{reply['id']}").json() == reply
    for name, known in FORMATS.items():
        report = real.client.get(f"/api/v1/checks/{reply['id']}.{known.suffix}")
        assert report.status_code == 200
        assert report.headers["content-type"].partition(";")[0] == known.media_type.partition(";")[0]
        VALIDATORS[name](report.content.decode("utf-8"))
        again = real.client.get(report.url, headers={"If-None-Match": report.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    disposition = real.client.get(f"/api/v1/checks/{reply['id']}.html").headers["content-disposition"]
    assert disposition == f'attachment; filename="check-{reply["id"]}.html"'


def test_traces_and_regions_that_are_here_are_checked_by_id(real: Serving) -> None:
    trace = real.client.post("/api/v1/traces?wait=120", content=EXAMPLE.read_bytes(), timeout=150).json()
    asserted = {"compile": {"level": "error", "region": "RMSNorm*"}}
    answer = result(post(real, traces=[trace["id"]], assertions=asserted))
    (finding,) = answer["errors"]
    assert finding["region_id"] in {r["id"] for r in trace["regions"]}
    by_region = result(post(real, region_ids=[finding["region_id"]], assertions=asserted))
    assert [f["region"] for f in by_region["errors"]] == ["RMSNorm by hand"]
    baseline = result(post(real, traces=[trace["id"]], baseline=trace["id"],
                           assertions={"compile": {"level": "error", "new_only": True}}))  # fmt: skip
    assert baseline["passed"]


def test_a_regions_text_in_json(real: Serving) -> None:
    assert result(post(real, regions=[REGION], assertions={"compile": "warn"}))["exit_code"] == 0
    assert result(post(real, regions=[REGION], assertions={"compile": "error"}))["exit_code"] == 1
    measured = {"level": "error", "evidence": "measured"}
    assert result(post(real, regions=[REGION], assertions={"compile": measured}))["exit_code"] == 2


def test_a_trace_of_hostile_names_makes_valid_reports(real: Serving, tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    write_hostile_trace(path)
    answer = result(form(real, ("file", ("=cmd|' /C calc'!A0</script>.json.gz", path.read_bytes())),
                        ("config", (None, CONFIG))))  # fmt: skip
    assert answer["outcome"] == "failed"
    for name, known in FORMATS.items():
        VALIDATORS[name](real.client.get(f"/api/v1/checks/{answer['id']}.{known.suffix}").content.decode("utf-8"))


@pytest.mark.parametrize(
    ("body", "status", "code", "said"),
    [
        ({}, 422, "invalid-request", "something to check"),
        ({"regions": [REGION], "assertions": {"compil": "warn"}}, 422, "config-invalid", "assertions.compil"),
        ({"regions": [REGION], "assertions": {"compile": 3}}, 422, "config-invalid", "assertions.compile"),
        ({"regions": [REGION], "check": {"device": "Voodoo"}}, 422, "config-invalid", "check.device"),
        ({"regions": [REGION], "check": {"nmae": "x"}}, 422, "config-invalid", "did you mean name?"),
        ({"regions": ["x: f32[4]\ny = gleu(x)\nreturn y\n"]}, 422, "region-", "gleu"),
        ({"regions": [REGION] * 65}, 422, "invalid-request", "regions"),
        ({"regions": [REGION], "surprise": 1}, 422, "invalid-request", "surprise"),
        ({"regions": "x"}, 422, "invalid-request", "regions"),
        ({"traces": ["a" * 26]}, 404, "not-found", ""),
        ({"region_ids": ["../../etc/passwd"]}, 404, "not-found", ""),
        ({"regions": [REGION], "baseline": "a" * 26}, 404, "not-found", ""),
        ({"regions": ["# " + "x" * 70_000]}, 413, "region-too-large", "65536"),
    ],
)
def test_what_cannot_be_checked_is_refused_before_a_job(
    real: Serving, body: Json, status: int, code: str, said: str
) -> None:
    answer = post(real, wait=0, **body)
    problem = answer.json()
    assert answer.status_code == status, problem
    assert problem["code"].startswith(code)
    assert said in json.dumps(problem)


def test_a_form_that_cannot_be_checked_leaves_nothing(real: Serving) -> None:
    before = real.files()
    file = ("file", ("step.json.gz", EXAMPLE.read_bytes()))
    for config, line in (("[assertions]\ntriton = 'eror'\n", 2), ("[assertions\n", 1)):
        for given in ((None, config), ("tritonworthy.toml", config.encode())):
            problem = form(real, file, ("config", given), wait=0)
            assert (problem.status_code, problem.json()["code"], problem.json()["line"]) == (
                422,
                "config-invalid",
                line,
            )
    region = ("file", ("a.txt", b"x: f32[4]\ny = gleu(x)\nreturn y\n"))
    assert form(real, file, region, wait=0).status_code == 422
    assert form(real, ("config", (None, CONFIG)), wait=0).json()["code"] == "upload-not-a-file"
    assert form(real, file, file, ("baseline", ("b.json", b"{}")), wait=0).status_code == 422
    assert form(real, file, ("config", ("c.toml", b"#" * 70_000)), wait=0).status_code == 422
    assert real.files() == before


def test_a_configuration_that_takes_long_to_parse_is_refused_at_once(real: Serving) -> None:
    before, url = real.files(), "/api/v1/checks"
    file = ("file", ("chain.txt", REGION.encode()))
    digits, keys = "9" * 60_000, ".".join(["a"] * 20_000)
    for config in (f"[check]\nstep_time_us = {digits}", f"{keys} = 1", f"[assertions]\nlibrary.{keys} = 1"):
        for given in ((None, config), ("tritonworthy.toml", config.encode())):
            answer = form(real, file, ("config", given), wait=0)
            assert (answer.status_code, answer.json()["code"]) == (422, "config-invalid")
            assert "more than" in answer.json()["detail"]
    for key, value in (("check", f'{{"step_time_us": {digits}}}'), ("assertions", '{"a":' * 9000 + "1" + "}" * 9000)):
        body = f'{{"regions": ["x: f32[4]\\nreturn x\\n"], "{key}": {value}}}'
        answer = real.client.post(url, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422, answer.text[:300]
        assert len(answer.text) < 2000
    assert real.files() == before


def test_other_bodies_are_refused(real: Serving) -> None:
    url = "/api/v1/checks"
    assert real.client.post(url, content=b"x").status_code == 415
    assert real.client.post(url, content=b"{", headers={"Content-Type": "application/json"}).status_code == 422
    big = b'{"regions": ["' + b"x" * (2 << 20) + b'"]}'
    assert real.client.post(url, content=big, headers={"Content-Type": "application/json"}).status_code == 413
    assert real.client.post(url, json={"regions": [REGION]}, headers={"Origin": "http://evil.test"}).status_code == 403


def test_a_damaged_trace_is_unmeasured_and_its_file_is_removed(real: Serving) -> None:
    before = real.files()
    answer = result(form(real, ("file", ("step.json.gz", gzip.compress(b'{"traceEvents": [')))))
    assert (answer["outcome"], answer["exit_code"]) == ("unmeasured", 2)
    assert answer["subjects"][0]["error"]
    assert real.files() == before


def test_unknown_checks_and_reports_are_404_and_unfinished_ones_409(tmp_path: Path) -> None:
    with serving(tmp_path, "hang") as server:
        answer = form(server, ("file", ("step.json.gz", EXAMPLE.read_bytes())), wait=0)
        job = answer.json()
        assert (answer.status_code, job["kind"]) == (202, "check")
        check = server.client.get(f"/api/v1/checks/{job['id']}").json()
        assert (check["outcome"], check["exit_code"], check["passed"]) == (None, None, None)
        assert server.client.get(f"/api/v1/checks/{job['id']}.md").json()["code"] == "check-not-done"
        assert server.client.get(f"/api/v1/checks/{job['id']}.pdf").status_code == 404
        assert server.client.get(f"/api/v1/checks/{'a' * 26}.md").status_code == 404
        assert server.client.get("/api/v1/checks/..%2f..%2fetc.md").status_code == 404
        assert len(server.files()) == 1
        server.client.post(f"/api/v1/jobs/{job['id']}/cancel")
        cancelled = server.client.get(f"/api/v1/checks/{job['id']}?wait=20").json()
        # A check that was cancelled is no regression.
        assert (cancelled["state"], cancelled["outcome"], cancelled["exit_code"]) == ("cancelled", "unmeasured", 2)


@pytest.mark.parametrize(("child", "code"), [("crash", "fault"), ("validation", "bad-output")])
def test_a_check_whose_child_fails_could_not_be_measured(tmp_path: Path, child: str, code: str) -> None:
    with serving(tmp_path, child) as server:
        if child == "validation":  # whose answer is no report
            job = server.client.post("/api/v1/checks?wait=20", json={"regions": [REGION]}).json()
        else:
            job = form(server, ("file", ("step.json.gz", EXAMPLE.read_bytes())), wait=20).json()
        assert (job["state"], job["error"] and job["error"]["code"]) in {("failed", code), ("failed", "fault")}
        check = server.client.get(f"/api/v1/checks/{job['id']}").json()
        assert (check["outcome"], check["exit_code"], check["passed"]) == ("unmeasured", 2, False)
        assert server.files() == []


def test_a_full_queue_is_429_and_leaves_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, "hang", queue_cap=1) as server:
        data = EXAMPLE.read_bytes()
        answers = [form(server, ("file", (f"{n}.json.gz", data)), wait=0).status_code for n in range(4)]
        assert 429 in answers
        assert len(server.files()) == answers.count(202)


def test_checks_are_listed_newest_first_in_pages(real: Serving) -> None:
    for name in ("one", "two", "three"):
        result(post(real, regions=[REGION], check={"name": name}))
    first = real.client.get("/api/v1/checks?limit=2").json()
    assert [c["name"] for c in first["items"]] == ["three", "two"]
    assert "errors" not in first["items"][0]
    rest = real.client.get("/api/v1/checks", params={"limit": 2, "after": first["next"]}).json()
    assert rest["items"][0]["name"] == "one"
    assert differences(CheckList, first) == []


def test_a_server_that_stops_in_mid_check_leaves_it_to_the_next(tmp_path: Path) -> None:
    with serving(tmp_path, "hang") as server:
        job = form(server, ("file", ("step.json.gz", EXAMPLE.read_bytes())), ("config", (None, CONFIG)), wait=1).json()
        assert job["state"] == "running"
    assert len(list((tmp_path / "uploads").iterdir())) == 1
    with serving(tmp_path) as server:
        check = server.client.get(f"/api/v1/checks/{job['id']}?wait=120", timeout=150).json()
        assert (check["state"], check["outcome"]) == ("done", "failed")
        assert server.files() == []


@pytest.mark.gpu
def test_a_check_measures_on_this_hosts_gpu(real: Serving) -> None:
    gpu = real.client.get("/api/v1/device").json()["gpu"]
    if gpu is None:
        pytest.skip("no GPU on this host")
    answer = result(post(real, regions=[REGION], check={"validate": True},
                        assertions={"beats": {"level": "error", "candidate": "compile", "over": "eager",
                                              "evidence": "measured"}}))  # fmt: skip
    assert answer["passed"], answer


def test_contracts_about_texts_and_patterns_are_judged_and_a_module_is_refused(real: Serving) -> None:
    text = "x: bf16[8192, 4096]\ny = silu(x) * 2\nreturn y, y.sum(0)\n"
    contract = f'[[contracts]]\nname = \'a\'\nregion = """\n{text}"""\nmax_kernels = 1\n'
    pattern = "[[contracts]]\nname = 'b'\npattern = 'RMSNorm*'\nmax_kernels = 1\n"
    step = ("file", ("step.json.gz", EXAMPLE.read_bytes()))
    reply = result(form(real, step, ("config", (None, CONFIG + contract + pattern))))
    assert [(row["name"], row["outcome"], row["was"]) for row in reply["contracts"]] == [
        ("a", "broken", None), ("b", "kept", None)
    ]  # fmt: skip
    page = real.client.get(f"/checks/{reply['id']}").text
    assert 'aria-label="Contracts"' in page
    module = "[[contracts]]\nname = 'a'\nmodule = 'model.py:make'\nmax_kernels = 1\n"
    problem = form(real, step, ("config", (None, module)), wait=0).json()
    assert (problem["code"], problem["key"]) == ("config-invalid", "contracts.1.module")
