"""tritonworthy comment: a check's Markdown report as one comment on the pull or merge request, renewed by every run.

Where it is run tells which: in GitHub's Actions or GitLab's CI. Exit status: 0 posted, renewed, unchanged, or there is
nothing to comment on; also where the token may not comment, as in pull requests from forks, unless `--required`; 1 the
file is no check's report; 2 it could not be posted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from app.check.comment import github, gitlab
from app.check.comment.body import marker_of
from app.check.comment.forge import Forge, NowhereError
from app.check.comment.http import CallError
from app.check.comment.post import post
from app.cli.inputs import InputError
from app.cli.options import count, given_path

NOT_POSTED = 2
REPORT = "reports/check.md"


def add_comment(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `comment` into the command line."""
    about = (
        "a check's report as a comment on GitHub's pull or GitLab's merge request, renewed by every run (docs/ci.md)"
    )
    comment = commands.add_parser("comment", help=about, description=about[0].upper() + about[1:] + ".")
    comment.add_argument("report", metavar="REPORT", nargs="?", type=given_path, default=Path(REPORT),
                         help=f"what `check --format markdown` wrote; {REPORT}")  # fmt: skip
    comment.add_argument("--request", type=count(1, 2**53), metavar="NUMBER",
                         help="the pull or merge request; without it the one that the build is for")  # fmt: skip
    comment.add_argument("--link", metavar="URL", default="",
                         help="where the whole report is, for one that is too long; the build's page")  # fmt: skip
    comment.add_argument("--required", action="store_true",
                         help="status 2 also where the token may not comment, or there is none")  # fmt: skip
    comment.set_defaults(run=_comment)


def _comment(arguments: argparse.Namespace) -> int:
    try:
        text = arguments.report.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{arguments.report}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{arguments.report}: not UTF-8") from None
    if marker_of(text) is None:
        raise InputError(f"{arguments.report}: not what `tritonworthy check --format markdown` writes")
    try:
        forge = forge_of(os.environ, arguments.request)
    except NowhereError as error:
        print(f"not commented: {error}", file=sys.stderr)
        return NOT_POSTED if arguments.required and not error.expected else 0
    try:
        done = post(forge, text, arguments.link or _page(os.environ))
    except CallError as error:
        if not error.is_forbidden:
            print(f"not commented: {error}", file=sys.stderr)
            return NOT_POSTED
        print(f"not commented: {_why_forbidden(forge, os.environ)} ({error})", file=sys.stderr)
        return NOT_POSTED if arguments.required else 0
    print(f"{done}: the comment on {forge.request}")
    return 0


def forge_of(environment: Mapping[str, str], number: int | None) -> Forge:
    """The request that this build is for. Raises NowhereError."""
    if _is_gitlab(environment):
        return gitlab.gitlab(environment, number)
    if environment.get("GITHUB_ACTIONS") or environment.get("GITHUB_REPOSITORY"):
        return github.github(environment, number)
    raise NowhereError(
        "this is neither GitHub's Actions nor GitLab's CI: GITHUB_REPOSITORY or CI_API_V4_URL is not set"
    )


def _is_gitlab(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("GITLAB_CI") or environment.get("CI_API_V4_URL"))


def _page(environment: Mapping[str, str]) -> str:
    return gitlab.pipeline_page(environment) if _is_gitlab(environment) else github.run_page(environment)


def _why_forbidden(forge: Forge, environment: Mapping[str, str]) -> str:
    fork = gitlab.is_fork(environment) if _is_gitlab(environment) else github.is_fork(environment)
    if fork:
        return f"{forge.request} comes from a fork, for which the token may only read"
    needed = "scope api" if _is_gitlab(environment) else "`permissions: {pull-requests: write}`"
    return f"the token may not comment on {forge.request}; it needs {needed}"
