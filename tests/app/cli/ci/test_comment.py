"""tritonworthy comment, in the environment of a CI system."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.check.formats.markdown import marker
from app.cli import main
from tests.ci.forges import GitHub, GitLab, serving

REPORT = f"{marker('nightly')}\n\n### An assertion does not hold\n"


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("GITHUB_", "GITLAB_", "CI_")):
            monkeypatch.delenv(name)


@pytest.fixture(params=[GitHub, GitLab])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A forge, and the environment of a build for its request 7."""
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}))
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "check.md").write_text(REPORT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with serving(request.param()) as forge:
        variables = {
            "GITHUB_ACTIONS": "true", "GITHUB_API_URL": forge.url, "GITHUB_REPOSITORY": "o/r", "GITHUB_TOKEN": "secret",
            "GITHUB_EVENT_PATH": str(event),
        } if isinstance(forge, GitHub) else {
            "GITLAB_CI": "true", "CI_API_V4_URL": forge.url, "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "7",
            "GITLAB_TOKEN": "secret",
        }  # fmt: skip
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield forge


def test_the_build_says_where_and_the_comment_is_renewed(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    what = "pull request 7" if isinstance(server, GitHub) else "merge request 7"
    for done in ("posted", "unchanged"):
        assert main(["comment"]) == 0
        assert capsys.readouterr().out == f"{done}: the comment on {what}\n"
    assert server.bodies() == [REPORT]


def test_a_fork_is_told_of_and_fails_only_where_the_comment_is_required(
    server: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.may_write = False
    assert main(["comment"]) == 0
    assert "the token may not comment on" in capsys.readouterr().err
    sides = {side: {"repo": {"full_name": name}} for side, name in (("head", "x/r"), ("base", "o/r"))}
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 7, **sides}}))
    monkeypatch.setenv("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "9")
    monkeypatch.setenv("CI_MERGE_REQUEST_PROJECT_ID", "5")
    assert main(["comment", "--required"]) == 2
    assert "comes from a fork" in capsys.readouterr().err


def test_a_missing_token_fails_only_where_the_comment_is_required(
    server: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GITHUB_TOKEN" if isinstance(server, GitHub) else "GITLAB_TOKEN")
    assert main(["comment"]) == 0
    assert "no token in G" in capsys.readouterr().err
    assert main(["comment", "--required"]) == 2


def test_a_wrong_token_could_not_be_posted_with(
    server: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN" if isinstance(server, GitHub) else "GITLAB_TOKEN", "wrong")
    assert main(["comment"]) == 2
    assert "401" in capsys.readouterr().err


def test_another_request_may_be_named(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["comment", "--request", "8"]) == 0, "there is none of that number, or it may not be seen"
    assert "404" in capsys.readouterr().err
    assert main(["comment", "--request", "7"]) == 0
    assert server.bodies() == [REPORT]


def test_a_push_has_nothing_to_comment_on(
    server: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GITHUB_EVENT_PATH", raising=False)
    monkeypatch.delenv("CI_MERGE_REQUEST_IID", raising=False)
    assert main(["comment", "--required"]) == 0
    assert "nothing to comment on" in capsys.readouterr().err
    assert server.calls == []


@pytest.mark.parametrize("text", [None, b"# A readme\n", b"\xff\xfe"])
def test_what_is_no_report_is_wrong_input(server: Any, text: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "other.md"
    if text is not None:
        file.write_bytes(text)
    assert main(["comment", str(file)]) == 1
    assert server.calls == []


def test_outside_of_ci_it_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "check.md").write_text(REPORT)
    assert main(["comment", str(tmp_path / "check.md")]) == 0
    assert "neither GitHub's Actions nor GitLab's CI" in capsys.readouterr().err
