"""Runs the steps of a composite action as GitHub's runner does, each `run:` in bash with the files it writes to."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.ci.expressions import filled, holds
from tests.conftest import ROOT

Used = Callable[[Path, Mapping[str, str]], Mapping[str, str]]
"""What stands for an action of others: (workspace, `with`) -> outputs. It raises where that action would fail."""


@dataclass
class Run:
    """What came of an action. seconds: wall time of each step that was run, by its name."""

    ok: bool = True
    seconds: dict[str, float] = field(default_factory=dict)
    log: str = ""
    summary: str = ""
    outputs: dict[str, str] = field(default_factory=dict)

    @property
    def ran(self) -> list[str]:
        """Names of the steps that were run, in their order."""
        return list(self.seconds)


def load(path: Path) -> Any:
    """A YAML file."""
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def environment(**more: str) -> dict[str, str]:
    """Of a job: this Python first, this checkout's packages, nothing that is set for us or for another CI system."""
    foreign = ("TRITONWORTHY_", "GITHUB_", "GITLAB_", "CI_", "CHECK_", "http", "HTTP")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(foreign) and k != "CI"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return clean | {"PATH": path, "PYTHONPATH": str(ROOT), "NO_PROXY": "*"} | more


def run_action(
    action: Any, given: Mapping[str, str], here: Path, job: Mapping[str, str], uses: Mapping[str, Used], token: str = ""
) -> Run:
    """Run a composite action with these inputs in this workspace. job: the environment of the job."""
    unknown = set(given) - set(action["inputs"])
    if unknown:
        raise ValueError(f"no such inputs: {unknown}")
    github = {"token": token, "action_path": str(ROOT)}
    defaults = {n: filled(str(i.get("default", "")), {"github": github}) for n, i in action["inputs"].items()}
    context: dict[str, Any] = {"inputs": defaults | dict(given), "github": github, "steps": {}}
    run = Run()
    temporary = here.parent / f"{here.name}.runner"
    temporary.mkdir(exist_ok=True)
    for number, step in enumerate(action["runs"]["steps"]):
        if not holds(step.get("if"), context, not run.ok):
            continue
        began = time.monotonic()
        outputs: Mapping[str, str] = {}
        if "run" in step:
            ok, outputs = _run_step(step, context, here, job, temporary / str(number), run)
        else:
            settings = {k: filled(str(v), context) for k, v in step["with"].items()}
            try:
                outputs, ok = uses[step["uses"].partition("@")[0]](here, settings), True
            except AssertionError as error:
                ok = False
                run.log += f"{step['uses']}: {error}\n"
        run.seconds[step["name"]] = time.monotonic() - began
        if "id" in step:
            context["steps"][step["id"]] = {"outputs": dict(outputs)}
        run.ok = run.ok and (ok or bool(step.get("continue-on-error")))
    run.outputs = {n: filled(o["value"], context) for n, o in action["outputs"].items()}
    return run


def _run_step(
    step: Any, context: Mapping[str, Any], here: Path, job: Mapping[str, str], stem: Path, run: Run
) -> tuple[bool, dict[str, str]]:
    files = {name: stem.with_suffix(f".{name}") for name in ("output", "summary", "sh")}
    for path in files.values():
        path.write_text("")
    files["sh"].write_text(filled(step["run"], context))
    own = {name: filled(str(value), context) for name, value in step.get("env", {}).items()}
    runner = {"GITHUB_OUTPUT": str(files["output"]), "GITHUB_STEP_SUMMARY": str(files["summary"])}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(files["sh"])],
        cwd=here, env={**job, **own, **runner}, capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    run.log += done.stdout + done.stderr
    run.summary += files["summary"].read_text()
    lines = files["output"].read_text().splitlines()
    return done.returncode == 0, dict(line.split("=", 1) for line in lines)


def run_script(job: Any, variables: Mapping[str, str], here: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A GitLab job's script, all lines in one shell that stops at the first error, as its runner does."""
    script = "\n".join(job["script"])
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=here, env=environment(**variables, **more), capture_output=True, text=True, timeout=800,
    )  # fmt: skip
