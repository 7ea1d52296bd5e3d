"""One comment a check, against servers that speak GitHub's and GitLab's calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.check.comment.forge import NowhereError
from app.check.comment.github import github, is_fork, pull_request, run_page
from app.check.comment.gitlab import gitlab
from app.check.comment.gitlab import is_fork as is_fork_of_gitlab
from app.check.comment.http import CallError
from app.check.comment.post import MOST_WAIT_S, TRIES, post
from app.check.formats.markdown import marker
from tests.ci.forges import GitHub, GitLab, serving

REPORT = f"{marker('nightly')}\n\n### An assertion does not hold & more = `a+b` ❌\n"
STRANGER = {"login": "stranger", "type": "User", "id": 3}


@pytest.fixture(params=[GitHub, GitLab])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    with serving(request.param()) as forge:
        yield forge


def client(server: Any, token: str = "secret", number: int | None = 7) -> Any:
    if isinstance(server, GitLab):
        variables = {"CI_API_V4_URL": server.url, "CI_PROJECT_ID": "5", "GITLAB_TOKEN": token}
        return gitlab(variables, number)
    return github({"GITHUB_API_URL": server.url, "GITHUB_REPOSITORY": "o/r", "GITHUB_TOKEN": token}, number)


def posted(server: Any, text: str = REPORT, **more: Any) -> tuple[str, list[float]]:
    waits: list[float] = []
    return post(client(server), text, sleep=waits.append, **more), waits


def test_it_is_posted_once_and_then_renewed(server: Any) -> None:
    server.add("Nice work", STRANGER)
    assert posted(server) == ("posted", [])
    assert posted(server) == ("unchanged", [])
    assert posted(server, REPORT + "\nmore\n") == ("renewed", [])
    assert server.bodies() == ["Nice work", REPORT + "\nmore\n"]


def test_the_comments_of_two_checks_stand_side_by_side(server: Any) -> None:
    other = REPORT.replace("nightly", "weekly")
    for text in (REPORT, other, REPORT, other):
        posted(server, text)
    assert server.bodies() == [REPORT, other]


def test_it_is_found_behind_two_hundred_others(server: Any) -> None:
    for number in range(205):
        server.add(f"comment {number}", STRANGER)
    posted(server)
    for number in range(205):
        server.add(f"later {number}", STRANGER)
    assert posted(server, REPORT + "new\n")[0] == "renewed"
    assert len(server.comments) == 411
    assert server.bodies()[205] == REPORT + "new\n"


def test_a_comment_that_somebody_else_began_with_the_marker_is_not_touched(server: Any) -> None:
    server.add(f"{marker('nightly')}\n\nall is well", STRANGER)
    posted(server)
    posted(server, REPORT + "new\n")
    assert server.bodies() == [f"{marker('nightly')}\n\nall is well", REPORT + "new\n"]


def test_a_user_of_github_renews_their_own_comment_and_not_a_bots() -> None:
    with serving(GitHub()) as server:
        server.add(REPORT, GitHub.BOT)
        assert post(client(server, "personal"), REPORT) == "posted"
        assert post(client(server, "personal"), REPORT + "new\n") == "renewed"
        assert server.bodies() == [REPORT, REPORT + "new\n"]


def test_a_bad_gateway_and_a_rate_limit_are_waited_for(server: Any) -> None:
    server.trouble = [
        (502, {}),
        (429, {"Retry-After": "7"}),
        (403, {"X-RateLimit-Remaining": "0", "Retry-After": "900"}),
    ]
    assert posted(server) == ("posted", [1.0, 7.0, MOST_WAIT_S])
    assert server.bodies() == [REPORT]


def test_a_post_whose_answer_is_lost_is_not_posted_twice(server: Any) -> None:
    server.lost = 1
    assert posted(server) == ("unchanged", [1.0])
    assert server.bodies() == [REPORT]


def test_a_forge_that_is_down_is_given_up_on(server: Any) -> None:
    server.trouble = [(503, {})] * 20
    with pytest.raises(CallError, match="503 trouble"):
        posted(server)
    assert len(server.calls) == TRIES


def test_no_forge_at_all_is_told_in_words() -> None:
    with serving(GitHub()) as server:
        pass
    with pytest.raises(CallError, match="does not answer") as raised:
        posted(server)
    assert raised.value.passing


def test_a_token_that_may_only_read_is_told_at_once(server: Any) -> None:
    server.may_write = False
    with pytest.raises(CallError) as raised:
        posted(server)
    assert raised.value.is_forbidden
    assert server.bodies() == []


def test_a_wrong_token_is_a_fault_and_no_missing_right(server: Any) -> None:
    with pytest.raises(CallError, match="401") as raised:
        post(client(server, "wrong"), REPORT)
    assert not raised.value.is_forbidden


def test_a_redirect_is_not_followed_with_the_token(server: Any) -> None:
    with serving(type(server)()) as elsewhere:
        server.trouble = [(301, {"Location": f"{elsewhere.url}/user"})]
        with pytest.raises(CallError, match="301"):
            posted(server)
        assert elsewhere.calls == []


def test_the_next_page_is_asked_for_here_wherever_its_link_leads(server: Any) -> None:
    """A proxy's answers may name the forge behind it, and a token goes nowhere but where it was meant for."""
    for number in range(150):
        server.add(f"comment {number}", STRANGER)
    own, forge = server.url, client(server)
    server.url = "https://elsewhere.invalid/api/v4"
    assert post(forge, REPORT) == "posted"
    assert own != server.url and len(server.comments) == 151


def test_a_report_that_is_too_long_for_the_forge_is_cut(server: Any) -> None:
    text = REPORT + "one more line\n" * (server.MAX_CHARS // 14 + 1)
    assert posted(server, text, link="https://example.org/run/1")[0] == "posted"
    (body,) = server.bodies()
    assert server.MAX_CHARS - 200 < len(body) <= server.MAX_CHARS
    assert body.endswith("[the whole report](<https://example.org/run/1>).\n")
    assert posted(server, text, link="https://example.org/run/1")[0] == "unchanged"


def test_a_text_without_a_marker_is_not_posted(server: Any) -> None:
    with pytest.raises(ValueError, match="marker"):
        posted(server, "# Readme\n")
    assert server.calls == []


# ------------------------------------------------------------------------------------------------------ the environment


@pytest.mark.parametrize(
    ("event", "reference", "number"),
    [
        ({"pull_request": {"number": 7}}, "", 7),
        ({"issue": {"number": 7, "pull_request": {}}}, "", 7),
        ({"issue": {"number": 7}}, "", None),
        ({"workflow_run": {"pull_requests": [{"number": 7}]}}, "", 7),
        ({"workflow_run": {"pull_requests": []}}, "", None),
        ({}, "refs/pull/7/merge", 7),
        ({}, "refs/heads/main", None),
        ([], "refs/heads/pull/7", None),
        (None, "refs/pull/7/head", 7),
    ],
)
def test_the_pull_request_of_a_run(event: object, reference: str, number: int | None, tmp_path: Path) -> None:
    file = tmp_path / "event.json"
    if event is not None:
        file.write_text(json.dumps(event))
    assert pull_request({"GITHUB_EVENT_PATH": str(file), "GITHUB_REF": reference}) == number


def test_a_fork_is_known_by_its_repository(tmp_path: Path) -> None:
    file = tmp_path / "event.json"
    sides = {side: {"repo": {"full_name": name}} for side, name in (("head", "x/r"), ("base", "o/r"))}
    for request, fork in (
        (sides, True),
        (sides | {"head": sides["base"]}, False),
        (sides | {"head": {"repo": None}}, True),
    ):
        file.write_text(json.dumps({"pull_request": request}))
        assert is_fork({"GITHUB_EVENT_PATH": str(file)}) is fork
    assert not is_fork({})
    assert is_fork_of_gitlab({"CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "9", "CI_MERGE_REQUEST_PROJECT_ID": "5"})
    assert not is_fork_of_gitlab({"CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "5", "CI_MERGE_REQUEST_PROJECT_ID": "5"})


def test_an_enterprise_server_is_asked_at_its_own_address() -> None:
    variables = {"GITHUB_API_URL": "https://git.example.com/api/v3/", "GITHUB_REPOSITORY": "o/r", "GITHUB_TOKEN": "t"}
    assert github(variables, 7).api.url == "https://git.example.com/api/v3"
    assert github(variables | {"GITHUB_API_URL": ""}, 7).api.url == "https://api.github.com"
    variables = {"CI_API_V4_URL": "https://git.example.com/api/v4", "CI_PROJECT_ID": "9", "GITLAB_TOKEN": "t"}
    own = gitlab(variables | {"CI_MERGE_REQUEST_IID": "7", "CI_SERVER_TLS_CA_FILE": "/ca"})
    assert (own.api.url, own.api.ca_file, own.project, own.number) == ("https://git.example.com/api/v4", "/ca", "9", 7)
    assert gitlab(variables | {"CI_MERGE_REQUEST_PROJECT_ID": "5"}, 7).project == "5", (
        "the project that a fork is merged into"
    )


def test_the_page_of_a_run_needs_all_of_its_parts() -> None:
    parts = {"GITHUB_SERVER_URL": "https://example.org", "GITHUB_REPOSITORY": "o/r", "GITHUB_RUN_ID": "3"}
    assert run_page(parts) == "https://example.org/o/r/actions/runs/3"
    assert run_page({}) == ""


@pytest.mark.parametrize("forge", [github, gitlab])
def test_nothing_to_comment_on_is_expected_and_no_token_is_not(forge: Any) -> None:
    there = {"GITHUB_REPOSITORY": "o/r", "CI_API_V4_URL": "https://g.example", "CI_PROJECT_ID": "5"}
    for variables, number, expected in (({}, None, False), (there, None, True), (there, 7, False)):
        with pytest.raises(NowhereError) as raised:
            forge(variables, number)
        assert raised.value.expected is expected
