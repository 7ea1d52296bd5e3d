"""Comments on a merge request of GitLab, as its CI's environment tells of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.check.comment.forge import Comment, NowhereError
from app.check.comment.http import Api

MAX_CHARS = 1_000_000
NO_TOKEN = (
    "no token in GITLAB_TOKEN: it is a project's access token of scope api, and a protected variable is not given to"
    " merge requests from forks or of branches that are not protected"
)


@dataclass(frozen=True, slots=True)
class GitLab:
    """project: its number. number: of the merge request within the project."""

    api: Api
    project: str
    number: int
    name: str = "GitLab"
    max_chars: int = MAX_CHARS

    @property
    def request(self) -> str:
        """What is commented on."""
        return f"merge request {self.number}"

    @property
    def _notes(self) -> str:
        return f"/projects/{self.project}/merge_requests/{self.number}/notes"

    def comments(self) -> Iterator[Comment]:
        """The notes, those of the system left out; ours are those of the token's user."""
        user = self.api.ask("GET", "/user")
        own_id = user.get("id") if isinstance(user, dict) else None
        for item in self.api.pages(self._notes):
            author = item.get("author")
            own = own_id is not None and isinstance(author, dict) and author.get("id") == own_id
            if not item.get("system"):
                yield Comment(str(item["id"]), str(item.get("body") or ""), own)

    def create(self, body: str) -> None:
        """Post a new note."""
        self.api.ask("POST", self._notes, {"body": body})

    def update(self, comment: Comment, body: str) -> None:
        """Replace a note's text."""
        self.api.ask("PUT", f"{self._notes}/{comment.id}", {"body": body})


def gitlab(environment: Mapping[str, str], number: int | None = None) -> GitLab:
    """The merge request that a pipeline runs for. Raises NowhereError."""
    url, project = (environment.get(name, "") for name in ("CI_API_V4_URL", "CI_PROJECT_ID"))
    if not url or not project:
        raise NowhereError("CI_API_V4_URL and CI_PROJECT_ID are not set")
    iid = environment.get("CI_MERGE_REQUEST_IID", "")
    number = number or (int(iid) if iid.isdecimal() else None)
    if number is None:
        raise NowhereError("this pipeline is for no merge request: nothing to comment on", expected=True)
    token = environment.get("GITLAB_TOKEN", "").strip()
    if not token:
        raise NowhereError(NO_TOKEN)
    trusted = environment.get("CI_SERVER_TLS_CA_FILE", "")
    # The project that the merge request is into: in a fork's pipeline CI_PROJECT_ID is the fork.
    project = environment.get("CI_MERGE_REQUEST_PROJECT_ID") or project
    return GitLab(Api(url.rstrip("/"), {"PRIVATE-TOKEN": token}, trusted), project, number)


def is_fork(environment: Mapping[str, str]) -> bool:
    """Whether the merge request comes from another project."""
    source, target = (environment.get(f"CI_MERGE_REQUEST_{side}PROJECT_ID", "") for side in ("SOURCE_", ""))
    return bool(source and target and source != target)


def pipeline_page(environment: Mapping[str, str]) -> str:
    """The page of the pipeline, with its jobs' artifacts; "" outside of one."""
    return environment.get("CI_PIPELINE_URL", "")
