"""action.yml: its steps are run as GitHub's runner runs them, against a server that speaks GitHub's calls."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.app.check.validators import VALIDATORS
from tests.ci.forges import GitHub, serving
from tests.ci.steps import Run, environment, load, run_action
from tests.conftest import ROOT

ACTION = load(ROOT / "action.yml")
EXAMPLES = ROOT / "app" / "examples"
ARTIFACT = "https://example.org/o/r/actions/runs/3/artifacts/4"
REGION = "x: bf16[8192, 4096]\ny = gelu(x) * 2\nreturn y\n"


@pytest.fixture
def server() -> Iterator[GitHub]:
    with serving(GitHub()) as github:
        yield github


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A workspace: a trace, the one of main, a region, a folder `app` of their own."""
    folder = tmp_path / "work"
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "__init__.py").write_text("raise SystemExit('not the app that was meant')\n")
    for name in ("step.json.gz", "main.json.gz"):
        shutil.copy(EXAMPLES / "handrolled_blocks.json.gz", folder / name)
    (folder / "chain one.txt").write_text(REGION)
    return folder


def keep(here: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """actions/upload-artifact: fails for a folder that is empty or not there."""
    assert any((here / settings["path"]).iterdir())
    assert settings["name"]
    return {"artifact-url": ARTIFACT}


def scan(here: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """github/codeql-action/upload-sarif, which refuses what is not SARIF."""
    VALIDATORS["sarif"]((here / settings["sarif_file"]).read_text(encoding="utf-8"))
    return {}


def refuse(here: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """One that may not."""
    raise AssertionError("not allowed")


USES = {"actions/upload-artifact": keep, "github/codeql-action/upload-sarif": scan}


def run(here: Path, server: GitHub, uses: Mapping[str, object] = USES, fork: bool = False, **given: str) -> Run:
    """The action in a workflow for pull request 7."""
    event = here.parent / "event.json"
    sides = {"head": {"repo": {"full_name": "x/r" if fork else "o/r"}}, "base": {"repo": {"full_name": "o/r"}}}
    event.write_text(json.dumps({"pull_request": {"number": 7, **sides}}))
    job = environment(
        GITHUB_ACTIONS="true", GITHUB_API_URL=server.url, GITHUB_REPOSITORY="o/r", GITHUB_EVENT_PATH=str(event),
        GITHUB_SERVER_URL="https://example.org", GITHUB_RUN_ID="3",
    )  # fmt: skip
    inputs = {"wheel": "installed", "python": sys.executable} | {n.replace("_", "-"): v for n, v in given.items()}
    return run_action(ACTION, inputs, here, job, uses, token="secret")


# ------------------------------------------------------------------------------------------------------------- the file


def test_the_file_is_an_action(tmp_path: Path) -> None:
    tool = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", "vendor.github-actions"]
    done = subprocess.run([*tool, str(ROOT / "action.yml")], capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    other = tmp_path / "action.yml"
    other.write_text((ROOT / "action.yml").read_text().replace("using: composite", "using: nothing"))
    assert subprocess.run([*tool, str(other)], capture_output=True, text=True, timeout=800).returncode == 1


def test_no_input_becomes_code_of_a_shell_and_what_is_used_has_a_version() -> None:
    steps = ACTION["runs"]["steps"]
    assert [s["name"] for s in steps if "${{" in s.get("run", "")] == []
    assert {s["shell"] for s in steps if "run" in s} == {"bash"}
    uses = [s["uses"] for s in steps if "uses" in s]
    assert len(uses) == 2 and all(re.fullmatch(r"[\w-]+(/[\w-]+)+@v\d+", use) for use in uses)


def test_every_input_is_used_and_described() -> None:
    text = (ROOT / "action.yml").read_text()
    for name, about in ACTION["inputs"].items():
        assert f"inputs.{name} " in text and about["description"]


# ------------------------------------------------------------------------------------------------------------ its steps


def test_a_check_that_passes_comments_summarises_and_is_scanned(here: Path, server: GitHub) -> None:
    server.add("Nice work", {"login": "stranger", "type": "User"})
    done = run(here, server, files="step.json.gz\nchain*.txt\n", baseline="main.json.gz", device="H200")
    assert done.ok, done.log
    assert done.ran == [s["name"] for s in ACTION["runs"]["steps"]]
    assert done.outputs == {"exit-code": "0", "outcome": "passed", "reports": "reports"}
    report = (here / "reports" / "check.md").read_text(encoding="utf-8")
    assert server.bodies() == ["Nice work", report]
    assert done.summary == report
    assert "`chain one.txt`" in report and "against `main.json.gz`" in report
    for name, file in (("markdown", "md"), ("sarif", "sarif"), ("junit", "xml"), ("json", "json"), ("html", "html")):
        VALIDATORS[name]((here / "reports" / f"check.{file}").read_bytes().decode())
    # What is new fails, and the same comment says so.
    shutil.copy(EXAMPLES / "llama_prefill.json.gz", here / "main.json.gz")
    (here / "tritonworthy.toml").write_text("[assertions]\ncompile-fuses = { level = 'error', new_only = true }\n")
    done = run(here, server, files="step.json.gz", baseline="main.json.gz")
    assert not done.ok
    assert done.outputs["exit-code"] == "1" and done.outputs["outcome"] == "failed"
    assert len(server.comments) == 2 and "❌" in server.bodies()[1]
    VALIDATORS["markdown"](server.bodies()[1])
    VALIDATORS["sarif"]((here / "reports" / "check.sarif").read_text(encoding="utf-8"))
    VALIDATORS["junit"]((here / "reports" / "check.xml").read_text(encoding="utf-8"))


def test_what_could_not_be_measured_is_a_warning_unless_it_is_to_fail(here: Path, server: GitHub) -> None:
    (here / "own.toml").write_text("[assertions]\nregression = 'error'\n")
    done = run(here, server, files="step.json.gz", config="own.toml")
    assert done.ok
    assert done.outputs["outcome"] == "unmeasured"
    assert "::warning::tritonworthy could not measure" in done.log
    assert not run(here, server, files="step.json.gz", config="own.toml", fail_on_unmeasured="true").ok
    assert len(server.comments) == 1


def test_where_nothing_was_checked_an_old_report_is_not_posted_for_a_new_one(here: Path, server: GitHub) -> None:
    (here / "reports").mkdir()
    (here / "reports" / "check.md").write_text("<!-- tritonworthy-check:x -->\n\nof yesterday\n")
    (here / "reports" / "check.xml").write_text("of yesterday")
    done = run(here, server, files="not there.json.gz")
    assert not done.ok
    assert done.outputs["exit-code"] == "3" and done.outputs["outcome"] == "wrong"
    assert done.ran == ["Install Tritonworthy", "Check", "Verdict"]
    assert server.calls == [] and done.summary == ""
    assert not list((here / "reports").iterdir())


def test_a_pull_request_from_a_fork_is_checked_and_not_commented_on(here: Path, server: GitHub) -> None:
    server.may_write = False
    done = run(here, server, fork=True, files="chain one.txt")
    assert done.ok, done.log
    assert "comes from a fork" in done.log and "::warning::" not in done.log
    assert done.summary
    assert not run(here, server, fork=True, files="chain one.txt", comment="required").ok


def test_a_gateway_that_stumbles_once_costs_no_comment(here: Path, server: GitHub) -> None:
    server.trouble = [(502, {})]
    assert run(here, server, files="chain one.txt").ok
    assert len(server.comments) == 1


def test_a_forge_that_refuses_fails_no_check(here: Path, server: GitHub) -> None:
    server.trouble = [(400, {})]
    done = run(here, server, files="chain one.txt")
    assert done.ok
    assert "::warning::tritonworthy could not comment" in done.log


def test_code_scanning_that_is_off_fails_nothing_and_artifacts_that_are_off_hide_no_verdict(
    here: Path, server: GitHub
) -> None:
    assert run(here, server, uses=USES | {"github/codeql-action/upload-sarif": refuse}, files="chain one.txt").ok
    done = run(here, server, uses=USES | {"actions/upload-artifact": refuse}, files="chain one.txt")
    assert not done.ok
    assert done.ran[-2:] == ["Comment on the pull request, or renew the comment", "Verdict"]
    assert len(server.comments) == 1


def test_steps_that_are_turned_off_are_not_run(here: Path, server: GitHub) -> None:
    done = run(here, server, files="chain one.txt", comment="false", sarif="false", artifact="")
    assert done.ok
    assert done.ran == ["Install Tritonworthy", "Check", "Verdict"]
    assert server.calls == []


def test_a_history_has_a_run_once_however_often_its_trace_is_checked(here: Path, server: GitHub) -> None:
    kept = []
    for _ in range(2):
        done = run(here, server, files="step.json.gz", history="runs.jsonl", comment="false")
        assert done.ok, done.log
        kept.append((here / "runs.jsonl").read_text(encoding="utf-8").splitlines())
    assert kept[0] == kept[1]
    metrics = [{m["metric"] for m in json.loads(line)["measures"]} for line in kept[0]]
    assert sorted(metrics, key=sorted) == [{"region time"}, {"step time"}]


@pytest.mark.parametrize("text", ["$(touch own)", "`touch own`", "x; touch own", "'; touch own; '", "--help", "a\nb c"])
@pytest.mark.parametrize("name", ["files", "baseline", "config", "device", "formats", "history", "reports"])
def test_no_input_is_run(name: str, text: str, here: Path, server: GitHub, tmp_path: Path) -> None:
    """With a stand-in for Python that writes down what it is called with: what bash makes of the inputs."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/bash\nprintf "%s\\0" "$@" >> "{tmp_path}/called"\nprintf "\\n" >> "{tmp_path}/called"\n')
    python.chmod(0o755)
    done = run(here, server, python=str(python), **{name: text})
    assert not list(here.rglob("own"))
    if (name, text) == ("reports", "a\nb c"):  # its second line would be an output of the step
        assert not done.ok and "::error::" in done.log
        return
    (check,) = [line for line in (tmp_path / "called").read_text().split("\0\n") if "\0check\0" in line]
    arguments = check.split("\0")
    expected = {"formats": text.split(), "files": text.split("\n")}.get(name, [text])
    assert all(word in arguments for word in expected)


@pytest.mark.parametrize(
    ("given", "installed"),
    [
        ({"wheel": ""}, str(ROOT)),
        ({"wheel": "dist/tritonworthy.whl"}, "dist/tritonworthy.whl"),
        ({"wheel": "https://example.org/tritonworthy.whl"}, "https://example.org/tritonworthy.whl"),
        ({"wheel": "installed"}, None),
        ({"wheel": "tritonworthy"}, None),
        ({"wheel": "tritonworthy==0.1.0"}, None),
        ({"wheel": "--requirement=x.whl"}, None),
    ],
)
def test_what_is_installed_is_a_file_or_the_checkout_and_never_a_name_of_an_index(
    given: dict[str, str], installed: str | None, here: Path, server: GitHub, tmp_path: Path
) -> None:
    """By the stand-in; benchmarks/ci/empty_machine.py installs a wheel."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/bash\nprintf "%s\\n" "$*" >> "{tmp_path}/called"\n')
    python.chmod(0o755)
    done = run(here, server, python=str(python), **given)
    if given["wheel"] != "installed" and installed is None:
        assert not done.ok and "::error::wheel" in done.log, "a name is whoever's who registers it"
        assert not (tmp_path / "called").exists()
        return
    pip = [line for line in (tmp_path / "called").read_text().splitlines() if line.startswith("-m pip")]
    assert pip == ([] if installed is None else [f"-m pip install --quiet --no-compile {installed}"])
