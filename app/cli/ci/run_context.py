"""Which commit and branch a check is of, and with what it was measured: by options, a CI's variables, or git."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from app import __version__
from app.history.from_report import RunContext

COMMIT = ("GITHUB_SHA", "CI_COMMIT_SHA")
BRANCH = ("GITHUB_HEAD_REF", "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME")
BASE = ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
"""GitHub's variables and GitLab's, the ones of a pull or merge request first."""

MAX_COMMITS = 5000
GIT_SECONDS = 20
DRIVER = Path("/proc/driver/nvidia/version")


def context_options(parser: argparse.ArgumentParser) -> None:
    """What a history keeps of a run apart from its times."""
    parser.add_argument("--commit", metavar="SHA", help="of the history; by default the CI's variables, or git")
    parser.add_argument("--branch", metavar="NAME", help="the same")
    parser.add_argument("--base-branch", metavar="NAME", help="the branch whose runs a pull request is compared with")
    parser.add_argument("--software", metavar="NAME=VERSION", action="append", default=[], type=named_version,
                        help="a version that the trace was recorded with, where it is not the one here")  # fmt: skip
    parser.add_argument("--method", metavar="TEXT", default="", help="how it was recorded: times of another method are"
                        " another series")  # fmt: skip


def named_version(text: str) -> tuple[str, str]:
    """torch=2.12.0."""
    name, equals, of = text.partition("=")
    if not (name and equals and of):
        raise argparse.ArgumentTypeError("NAME=VERSION is wanted, such as torch=2.12.0")
    return name, of


def run_context(
    arguments: argparse.Namespace, history: Path, environment: Mapping[str, str] = os.environ
) -> RunContext:
    """Of this run. history: the file, whose own change does not make the working tree dirty."""
    commit = arguments.commit or _first(environment, COMMIT) or git("rev-parse", "HEAD")
    branch = arguments.branch or _first(environment, BRANCH) or git("rev-parse", "--abbrev-ref", "HEAD")
    is_here = bool(commit) and commit == git("rev-parse", "HEAD")
    return RunContext(
        at=datetime.now(UTC).isoformat(),
        commit=commit,
        branch=branch if branch != "HEAD" else "",
        base=arguments.base_branch or _first(environment, BASE),
        software={**installed_software(), **dict(arguments.software)},
        method=arguments.method,
        parents=tuple(git("log", "-1", "--format=%P").split()) if is_here else (),
        dirty=is_here and _is_dirty(history),
        commits=commits_of("HEAD"),
    )


def installed_software() -> dict[str, str]:
    """Versions that times depend on, as far as they are known without torch: importing it takes seconds."""
    versions = {"tritonworthy": __version__}
    for name in ("torch", "triton"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    try:
        if number := re.search(r"\b(\d+\.\d+(\.\d+)?)\b", DRIVER.read_text(encoding="utf-8")):
            versions["driver"] = number[1]
    except OSError:
        pass  # no GPU of NVIDIA's here
    return versions


def commits_of(*names: str) -> tuple[str, ...]:
    """Commits of a first-parent line, oldest first; () without git."""
    listed = git("log", "--first-parent", "--format=%H", f"--max-count={MAX_COMMITS}", *names, "--")
    return tuple(reversed(listed.split()))


def git(*arguments: str) -> str:
    """What git answers here; "" where there is no git, no repository, or no such thing."""
    try:
        answer = subprocess.run(
            ("git", *arguments), capture_output=True, timeout=GIT_SECONDS, check=True, text=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.rstrip("\n")


def _is_dirty(history: Path) -> bool:
    """Files that git knows and that were changed, other than the history: what is new does not change the program."""
    changed = git("status", "--porcelain", "--untracked-files=no", "-z").split("\0")
    top = git("rev-parse", "--show-toplevel")
    own = os.path.realpath(history)
    return any(os.path.realpath(os.path.join(top, line[3:])) != own for line in changed if line[3:])


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")
