"""ci/gitlab/tritonworthy.yml: the job's script is run against a server that speaks GitLab's calls."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.check.validators import VALIDATORS
from tests.ci.forges import GitLab, serving
from tests.ci.steps import load, run_script
from tests.conftest import ROOT

FILE = ROOT / "ci" / "gitlab" / "tritonworthy.yml"
TEMPLATE = load(FILE)
JOB = TEMPLATE["tritonworthy"]
DEFAULTS = {name: about["value"] for name, about in TEMPLATE["variables"].items()}
EXAMPLES = ROOT / "app" / "examples"
REGION = "x: bf16[8192, 4096]\ny = gelu(x) * 2\nreturn y\n"


@pytest.fixture
def server() -> Iterator[GitLab]:
    with serving(GitLab()) as gitlab:
        yield gitlab


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name in ("step.json.gz", "main.json.gz"):
        shutil.copy(EXAMPLES / "handrolled_blocks.json.gz", tmp_path / name)
    (tmp_path / "chain.txt").write_text(REGION)
    return tmp_path


def run(here: Path, server: GitLab, request: str = "7", **variables: str) -> subprocess.CompletedProcess[str]:
    """The job in a pipeline for merge request 7."""
    ci = {
        "GITLAB_CI": "true", "CI_API_V4_URL": server.url, "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": request,
        "CI_PIPELINE_URL": "https://gitlab.example/o/r/-/pipelines/3", "GITLAB_TOKEN": "secret",
    }  # fmt: skip
    return run_script(JOB, DEFAULTS | {"CHECK_INSTALL": ""} | ci | variables, here)


def test_the_file_is_gitlabs(tmp_path: Path) -> None:
    tool = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", "vendor.gitlab-ci"]
    done = subprocess.run([*tool, str(FILE)], capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    other = tmp_path / "ci.yml"
    other.write_text(FILE.read_text().replace("  script:", "  scripts:"))
    assert subprocess.run([*tool, str(other)], capture_output=True, text=True, timeout=800).returncode == 1


def test_every_variable_is_used_and_described() -> None:
    script = "\n".join(JOB["script"])
    for name, about in TEMPLATE["variables"].items():
        assert f"${name}" in script and about["description"]


@pytest.mark.parametrize(
    ("config", "status", "sign"),
    [
        (None, 0, "✅"),
        ("[assertions]\ncompile = 'error'\n", 1, "❌"),
        ("[assertions]\nregression = 'error'\n", 2, "❔"),
    ],
)
def test_the_job_ends_with_the_checks_status_and_renews_its_comment(
    config: str | None, status: int, sign: str, here: Path, server: GitLab
) -> None:
    baseline = {} if status == 2 else {"CHECK_BASELINE": "main.json.gz"}
    if config is not None:
        (here / "own.toml").write_text(config)
        baseline["CHECK_CONFIG"] = "own.toml"
    server.add("Nice work", {"id": 3})
    for files in ("step.json.gz", "step.json.gz c*.txt")[status != 0 :]:
        done = run(here, server, CHECK_FILES=files, CHECK_DEVICE="H200", **baseline)
        assert done.returncode == status, done.stderr
    assert JOB["allow_failure"] == {"exit_codes": [2]}, "2 is a warning"
    assert JOB["artifacts"]["reports"]["junit"] == "reports/check.xml"
    report = (here / "reports" / "check.md").read_text(encoding="utf-8")
    assert server.bodies() == ["Nice work", report]
    assert sign in report and "`chain.txt`" in report
    for name, file in (("markdown", "md"), ("sarif", "sarif"), ("junit", "xml"), ("json", "json"), ("html", "html")):
        VALIDATORS[name]((here / "reports" / f"check.{file}").read_bytes().decode())


def test_a_pipeline_of_a_branch_comments_on_nothing(here: Path, server: GitLab) -> None:
    done = run(here, server, request="", CHECK_FILES="chain.txt")
    assert done.returncode == 0
    assert "nothing to comment on" in done.stderr
    assert server.calls == []


def test_where_nothing_was_checked_there_is_no_comment_and_no_report_of_yesterday(here: Path, server: GitLab) -> None:
    (here / "reports").mkdir()
    for name in ("check.md", "check.xml"):
        (here / "reports" / name).write_text("of yesterday")
    assert run(here, server, CHECK_FILES="missing.json.gz").returncode == 3
    assert server.calls == []
    assert not list((here / "reports").iterdir())


@pytest.mark.parametrize(
    ("given", "installed"),
    [
        ("tritonworthy", None),
        ("tritonworthy==0.1.0", None),
        ("--requirement=https://example.org/x", None),
        ("./wheels/tritonworthy.whl", "./wheels/tritonworthy.whl"),
        ("git+https://example.org/o/r.git@v1", "git+https://example.org/o/r.git@v1"),
    ],
)
def test_what_is_installed_is_a_path_or_an_address_and_never_a_name_of_an_index(
    given: str, installed: str | None, here: Path, server: GitLab, tmp_path: Path
) -> None:
    """By stand-ins for Python and for what it would install."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("python3", "tritonworthy"):
        (commands / name).write_text(f'#!/bin/bash\necho "{name} $*" >> "{tmp_path}/called"\n')
        (commands / name).chmod(0o755)
    assert DEFAULTS["CHECK_INSTALL"] == ""
    done = run(here, server, CHECK_INSTALL=given, PATH=f"{commands}:/usr/bin:/bin")
    called = (tmp_path / "called").read_text().splitlines() if (tmp_path / "called").exists() else []
    if installed is None:
        assert done.returncode == 3 and "CHECK_INSTALL: " in done.stderr
        assert called == []
    else:
        assert called[0] == f"python3 -m pip install --quiet --no-compile {installed}"


def test_an_image_without_tritonworthy_is_told_what_to_name(here: Path, server: GitLab) -> None:
    done = run(here, server, CHECK_FILES="chain.txt", PATH="/usr/bin:/bin")
    assert done.returncode == 3
    assert "name a wheel" in done.stderr


def test_a_token_that_may_not_comment_fails_where_that_is_required(here: Path, server: GitLab) -> None:
    server.may_write = False
    assert run(here, server, CHECK_FILES="chain.txt").returncode == 0
    assert run(here, server, CHECK_FILES="chain.txt", CHECK_COMMENT="required").returncode == 1
    calls = len(server.calls)
    assert run(here, server, CHECK_FILES="chain.txt", CHECK_COMMENT="false").returncode == 0
    assert len(server.calls) == calls
