"""Which commit and branch a check is of, and with what it was measured: by options, a CI's variables, or git."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from app import __version__
from app.history.from_report import RunContext

COMMIT = ("GITHUB_SHA", "CI_COMMIT_SHA")
BRANCH = ("GITHUB_REF_NAME", "CI_COMMIT_REF_NAME")
BASE = ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
"""GitHub's variables and GitLab's."""
PULL = re.compile(r"refs/pull/(\d+)/\w+")
MAX_EVENT_BYTES = 32 * 2**20

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
    here, request = git("rev-parse", "HEAD"), request_of(environment)
    commit = arguments.commit or request.commit or _first(environment, COMMIT) or here
    branch = arguments.branch or request.branch or _first(environment, BRANCH)
    branch = branch or git("rev-parse", "--abbrev-ref", "HEAD")
    is_here = bool(commit) and commit == here
    merged = bool(commit) and commit == git("rev-parse", "--verify", "--quiet", "HEAD^2")
    return RunContext(
        at=datetime.now(UTC).isoformat(),
        commit=commit,
        branch=branch if branch != "HEAD" else "",
        base=arguments.base_branch or _first(environment, BASE),
        software={**installed_software(), **dict(arguments.software)},
        method=arguments.method,
        parents=tuple(git("log", "-1", "--format=%P").split()) if is_here else (),
        dirty=(is_here or merged) and _is_dirty(history),
        commits=(*commits_of("HEAD^1"), *commits_of("HEAD^2", "^HEAD^1")) if merged else commits_of("HEAD"),
    )


@dataclass(frozen=True, slots=True)
class Request:
    """A pull or merge request by its number: a fork's branch may have any name. commit: its newest, not the merge."""

    branch: str = ""
    commit: str = ""


def request_of(environment: Mapping[str, str]) -> Request:
    """That a CI's variables say a run is of, and GitHub's event file."""
    if number := environment.get("CI_MERGE_REQUEST_IID"):
        return Request(f"merge-request/{number}", environment.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", ""))
    if not (head := environment.get("GITHUB_HEAD_REF")):
        return Request()
    event = _pull_request(environment.get("GITHUB_EVENT_PATH", ""))
    named = PULL.fullmatch(environment.get("GITHUB_REF", ""))
    return Request(f"pull/{named[1] if named else event.number or head}", event.head.sha)


class _Head(msgspec.Struct, frozen=True):
    sha: str = ""


class _PullRequest(msgspec.Struct, frozen=True):
    number: int = 0
    head: _Head = _Head()


class _Event(msgspec.Struct, frozen=True):
    pull_request: _PullRequest = _PullRequest()


def _pull_request(event: str) -> _PullRequest:
    """As the file of a GitHub event has it; empty where it has none."""
    try:
        with open(event, "rb") as file:
            return msgspec.json.decode(file.read(MAX_EVENT_BYTES), type=_Event).pull_request
    except (OSError, msgspec.DecodeError):
        return _PullRequest()


def is_shallow() -> bool:
    """Whether git has only the newest commits here."""
    return git("rev-parse", "--is-shallow-repository") == "true"


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
