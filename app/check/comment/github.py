"""Comments on a pull request of GitHub, or of what speaks its API, as its Actions' environment tells of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.check.comment.forge import Comment, NowhereError
from app.check.comment.http import Api, CallError

MAX_CHARS = 65_536
NO_TOKEN = "no token in GITHUB_TOKEN: give the step `env: {GITHUB_TOKEN: ${{ github.token }}}`"


@dataclass(frozen=True, slots=True)
class GitHub:
    """repository: OWNER/NAME."""

    api: Api
    repository: str
    number: int
    name: str = "GitHub"
    max_chars: int = MAX_CHARS

    @property
    def request(self) -> str:
        """What is commented on."""
        return f"pull request {self.number}"

    def comments(self) -> Iterator[Comment]:
        """A pull request's comments are an issue's."""
        login = self._login()
        for item in self.api.pages(f"/repos/{self.repository}/issues/{self.number}/comments"):
            user = item.get("user")
            author = user if isinstance(user, dict) else {}
            own = author.get("login") == login if login is not None else author.get("type") == "Bot"
            yield Comment(str(item["id"]), str(item.get("body") or ""), own)

    def create(self, body: str) -> None:
        """Post a new comment."""
        self.api.ask("POST", f"/repos/{self.repository}/issues/{self.number}/comments", {"body": body})

    def update(self, comment: Comment, body: str) -> None:
        """Replace a comment's text."""
        self.api.ask("PATCH", f"/repos/{self.repository}/issues/comments/{comment.id}", {"body": body})

    def _login(self) -> str | None:
        """Of whom the token stands for; None for an app's token, such as a workflow's own, which may not ask."""
        try:
            user = self.api.ask("GET", "/user")
        except CallError as error:
            if error.is_forbidden:
                return None
            raise
        return str(user["login"]) if isinstance(user, dict) and "login" in user else None


def github(environment: Mapping[str, str], number: int | None = None) -> GitHub:
    """The pull request that a workflow runs for. Raises NowhereError."""
    repository = environment.get("GITHUB_REPOSITORY", "")
    if not repository:
        raise NowhereError("GITHUB_REPOSITORY is not set: OWNER/NAME")
    number = number or pull_request(environment)
    if number is None:
        raise NowhereError("this run is for no pull request: nothing to comment on", expected=True)
    token = environment.get("GITHUB_TOKEN", "").strip()
    if not token:
        raise NowhereError(NO_TOKEN)
    url = environment.get("GITHUB_API_URL") or "https://api.github.com"
    headers = {"Authorization": f"Bearer {token}", "X-GitHub-Api-Version": "2022-11-28"}
    return GitHub(Api(url.rstrip("/"), headers), repository, number)


def pull_request(environment: Mapping[str, str]) -> int | None:
    """Its number: of the event, else of the reference refs/pull/NUMBER/merge."""
    event = _event(environment)
    issue = event.get("issue")
    run = event.get("workflow_run")
    requests = run.get("pull_requests") if isinstance(run, dict) else None
    candidates = [
        event.get("pull_request"),
        issue if isinstance(issue, dict) and "pull_request" in issue else None,
        requests[0] if isinstance(requests, list) and len(requests) == 1 else None,
    ]
    for candidate in candidates:
        if isinstance(candidate, dict) and isinstance(candidate.get("number"), int):
            return int(candidate["number"])
    parts = environment.get("GITHUB_REF", "").split("/")
    return int(parts[2]) if parts[:2] == ["refs", "pull"] and len(parts) > 2 and parts[2].isdecimal() else None


def is_fork(environment: Mapping[str, str]) -> bool:
    """Whether the pull request comes from another repository."""
    request = _event(environment).get("pull_request")
    try:
        head, base = (request[side]["repo"] for side in ("head", "base"))  # type: ignore[index]
        return head is None or head["full_name"] != base["full_name"]
    except (KeyError, TypeError):
        return False


def run_page(environment: Mapping[str, str]) -> str:
    """The page of the run, with its artifacts; "" outside of one."""
    server, repository, run = (environment.get(f"GITHUB_{n}", "") for n in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    return f"{server}/{repository}/actions/runs/{run}" if server and repository and run else ""


def _event(environment: Mapping[str, str]) -> Mapping[str, object]:
    try:
        event = json.loads(Path(environment.get("GITHUB_EVENT_PATH", "")).read_bytes())
    except (OSError, ValueError):
        return {}
    return event if isinstance(event, dict) else {}
