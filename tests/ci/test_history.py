"""The history between runs of docs/ci.md: both files are run, each run in a fresh folder with a clone and the cache."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.ci.expressions import filled, holds
from tests.ci.steps import environment, load, run_action, run_script
from tests.conftest import ROOT

ACTION = load(ROOT / "action.yml")
TEMPLATE = load(ROOT / "ci" / "gitlab" / "tritonworthy.yml")
TRACE = ROOT / "app" / "examples" / "handrolled_blocks.json.gz"
RECORD = "import shutil, sys\nshutil.copy('recorded.json.gz', sys.argv[1])\n"
"""What stands for recording the step of a model."""


def example(number: int) -> Any:
    """The YAML block of the section."""
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    section = page.split("\n## A history between runs\n", 1)[1].split("\n## ", 1)[0]
    return YAML(typ="safe").load(re.findall(r"^```yaml\n(.*?)^```$", section, re.M | re.S)[number])


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True, timeout=120
    ).stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    shutil.copy(TRACE, folder / "recorded.json.gz")
    (folder / "record_step.py").write_text(RECORD)
    git(folder, "add", ".")
    commit(folder)
    return folder


def commit(origin: Path) -> str:
    git(origin, "commit", "--quiet", "--allow-empty", "--message=change")
    return git(origin, "rev-parse", "HEAD")


@dataclass
class Cache:
    """What runs leave for later ones. kept: by key, oldest first; an entry of GitHub's never changes."""

    kept: dict[str, str] = field(default_factory=dict)

    def restore(self, here: Path, settings: Mapping[str, str]) -> None:
        fitting = [k for k in self.kept if k == settings["key"] or k.startswith(settings["restore-keys"])]
        if fitting:
            (here / settings["path"]).write_text(self.kept[fitting[-1]])

    def save(self, here: Path, settings: Mapping[str, str]) -> None:
        assert settings["key"] not in self.kept, "a key that is there is not saved again"
        self.kept[settings["key"]] = (here / settings["path"]).read_text()


def clone(origin: Path, here: Path, depth: int) -> None:
    """depth: 0 is all of it."""
    shallow = (f"--depth={depth}",) if depth else ()
    git(origin.parent, "clone", "--quiet", *shallow, f"file://{origin}", str(here))


def runs(text: str) -> list[dict[str, Any]]:
    """A run each: its step, which has an environment and so a line of its own beside that of its regions."""
    lines = [json.loads(line) for line in text.splitlines()]
    return [line for line in lines if any(m["metric"] == "step time" for m in line.get("measures", ()))]


def run_workflow(workflow: Any, number: int, origin: Path, cache: Cache, pull_request: bool = False) -> Path:
    """A run of the workflow on a runner that is new: the folder that it leaves."""
    here = origin.parent / f"runner{number}" / "work"
    here.parent.mkdir()
    ref = "refs/pull/7/merge" if pull_request else "refs/heads/main"
    context = {"github": {"ref": ref, "run_id": str(number), "run_attempt": "1"}}
    branch = {"GITHUB_REF": ref, "GITHUB_REF_NAME": "7/merge" if pull_request else "main"}
    branch |= {"GITHUB_HEAD_REF": "topic", "GITHUB_BASE_REF": "main"} if pull_request else {}
    job = environment(GITHUB_ACTIONS="true", GITHUB_SHA=git(origin, "rev-parse", "HEAD"), **branch)
    ok = True
    for step in workflow["jobs"]["check"]["steps"]:
        if not holds(step.get("if"), context, not ok):
            continue
        settings = {name: filled(str(value), context) for name, value in step.get("with", {}).items()}
        uses = step.get("uses", "").partition("@")[0]
        if uses == "actions/checkout":
            clone(origin, here, int(settings.get("fetch-depth", 1)))
        elif uses == "actions/cache/restore":
            cache.restore(here, settings)
        elif uses == "actions/cache/save":
            cache.save(here, settings)
        elif uses == "OWNER/tritonworthy":
            given = settings | {"wheel": "installed", "python": sys.executable}
            done = run_action(ACTION, given, here, job, {"actions/upload-artifact": lambda *_: {}})
            ok = ok and done.ok
        else:
            subprocess.run(["bash", "-e", "-c", step["run"]], cwd=here, env=job, check=True, timeout=120)
    assert ok is not (here / "tritonworthy.toml").exists(), "the check fails where the repository asserts"
    return here


def test_the_workflows_history_grows_on_main_alone_and_a_pull_request_reads_it(origin: Path) -> None:
    workflow, cache = example(0), Cache()
    first = git(origin, "rev-parse", "HEAD")
    run_workflow(workflow, 1, origin, cache)
    second = commit(origin)
    here = run_workflow(workflow, 2, origin, cache)
    kept = list(cache.kept.values())
    assert [[run["commit"] for run in runs(text)] for text in kept] == [[first], [first, second]]
    assert runs(kept[-1])[1]["parents"] == [first]
    assert git(here, "rev-list", "--count", "HEAD") == "2", "without the commits runs have no order"
    commit(origin)
    here = run_workflow(workflow, 3, origin, cache, pull_request=True)
    assert [run["branch"] for run in runs((here / "history.jsonl").read_text())] == ["main", "main", "pull/7"]
    assert list(cache.kept.values()) == kept, "a pull request leaves nothing"


def test_the_workflow_keeps_the_run_of_a_check_that_failed(origin: Path) -> None:
    (origin / "tritonworthy.toml").write_text("[assertions]\ncompile = 'error'\n")
    git(origin, "add", ".")
    commit(origin)
    cache = Cache()
    run_workflow(example(0), 1, origin, cache)
    assert [len(runs(text)) for text in cache.kept.values()] == [1]


def run_job(pipeline: Any, number: int, origin: Path, cache: Cache, merge_request: bool = False) -> Path:
    """The job of a pipeline on a runner that is new: the folder that it leaves."""
    job = TEMPLATE["tritonworthy"] | pipeline["tritonworthy"]
    (rule,) = [rule for rule in job["rules"] if ("merge_request" in rule["if"]) is merge_request]
    defaults = {name: about["value"] for name, about in TEMPLATE["variables"].items()}
    ci = {"GITLAB_CI": "true", "CI_COMMIT_SHA": git(origin, "rev-parse", "HEAD"), "CHECK_COMMENT": "false"}
    ci |= (
        {
            "CI_MERGE_REQUEST_IID": "7",
            "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "topic",
            "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
        }
        if merge_request
        else {"CI_COMMIT_REF_NAME": "main"}
    )
    variables = defaults | pipeline["variables"] | job["variables"] | rule["variables"] | ci
    here = origin.parent / f"runner{number}"
    clone(origin, here, int(variables["GIT_DEPTH"]))
    (path,), policy = job["cache"]["paths"], variables[job["cache"]["policy"].removeprefix("$")]
    if "pull" in policy.split("-") and job["cache"]["key"] in cache.kept:
        (here / path).write_text(cache.kept[job["cache"]["key"]])
    done = run_script({"script": [*job["before_script"], *job["script"]]}, variables, here)
    assert done.returncode == 0, done.stderr
    if "push" in policy.split("-"):
        cache.kept[job["cache"]["key"]] = (here / path).read_text()
    return here


def test_the_jobs_history_grows_on_main_alone_and_a_merge_request_reads_it(origin: Path) -> None:
    pipeline, cache = example(1), Cache()
    first = git(origin, "rev-parse", "HEAD")
    run_job(pipeline, 1, origin, cache)
    second = commit(origin)
    here = run_job(pipeline, 2, origin, cache)
    (kept,) = cache.kept.values()
    assert [run["commit"] for run in runs(kept)] == [first, second]
    assert git(here, "rev-list", "--count", "HEAD") == "2"
    commit(origin)
    here = run_job(pipeline, 3, origin, cache, merge_request=True)
    assert [run["branch"] for run in runs((here / "history.jsonl").read_text())] == ["main", "main", "merge-request/7"]
    assert list(cache.kept.values()) == [kept], "a merge request leaves nothing"
