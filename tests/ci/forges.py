"""GitHub and GitLab as far as comments go: servers on this machine that speak the calls of their REST APIs.

Made from what both publish of them (addresses, statuses, bodies, `Link` of a list's pages, who may write), since tests
ask neither. They refuse what those refuse: a call without the right token, a body that is too long.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]


@dataclass
class Forge:
    """comments: of one request, by id. trouble: (status, headers) to answer the next calls with, first of all.

    lost: so many POSTs are carried out and then answered with 502, as by a gateway that lost the answer.
    """

    url: str = ""
    may_write: bool = True
    comments: dict[int, Json] = field(default_factory=dict)
    trouble: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    lost: int = 0
    calls: list[str] = field(default_factory=list)

    def add(self, body: str, user: Json) -> int:
        number = max(self.comments, default=0) + 1
        self.comments[number] = {"id": number, "body": body, "user": user, "author": user, "system": False}
        return number

    def bodies(self) -> list[str]:
        return [c["body"] for c in self.comments.values()]


class GitHub(Forge):
    """Pull request 7 of o/r. The token `secret` is a workflow's own, which may not ask who it is; `personal` may."""

    BOT: ClassVar[Json] = {"login": "github-actions[bot]", "type": "Bot"}
    USERS: ClassVar[dict[str, Json]] = {"Bearer secret": BOT, "Bearer personal": {"login": "me", "type": "User"}}
    MAX_CHARS = 65_536

    def answer(self, method: str, path: str, query: str, headers: Any, body: Json) -> tuple[int, Any, dict[str, str]]:
        user = self.USERS.get(headers["Authorization"])
        if user is None:
            return 401, {"message": "Bad credentials"}, {}
        refused = 403, {"message": "Resource not accessible by integration"}, {}
        if path == "/user":
            return refused if user is self.BOT else (200, user, {})
        one = re.fullmatch(r"/repos/o/r/issues/comments/(\d+)", path)
        if path != "/repos/o/r/issues/7/comments" and not one:
            return 404, {"message": "Not Found"}, {}
        if method == "GET":
            return page_of(self, f"{self.url}/repositories/1/issues/7/comments", query)
        if not self.may_write:
            return refused
        if len(body["body"]) > self.MAX_CHARS:
            return 422, {"message": "Body is too long (maximum is 65536 characters)"}, {}
        if method == "POST" and not one:
            return 201, {"id": self.add(body["body"], user)}, {}
        if method == "PATCH" and one and int(one[1]) in self.comments:
            self.comments[int(one[1])]["body"] = body["body"]
            return 200, {"id": int(one[1])}, {}
        return 404, {"message": "Not Found"}, {}


class GitLab(Forge):
    """Merge request 7 of project 5. The token `secret` is a project's, whose user is number 40."""

    USER: ClassVar[Json] = {"id": 40, "username": "project_5_bot"}
    MAX_CHARS = 1_000_000

    def answer(self, method: str, path: str, query: str, headers: Any, body: Json) -> tuple[int, Any, dict[str, str]]:
        if headers["PRIVATE-TOKEN"] != "secret":
            return 401, {"message": "401 Unauthorized"}, {}
        if path == "/api/v4/user":
            return 200, self.USER, {}
        one = re.fullmatch(r"/api/v4/projects/5/merge_requests/7/notes(?:/(\d+))?", path)
        if not one:
            return 404, {"message": "404 Project Not Found"}, {}
        if method == "GET":
            return page_of(self, f"{self.url}/projects/5/merge_requests/7/notes", query)
        if not self.may_write:
            return 403, {"error": "insufficient_scope"}, {}
        if len(body["body"]) > self.MAX_CHARS:
            return 400, {"message": "400 Bad request - Note is too long (maximum is 1000000 characters)"}, {}
        if method == "POST" and not one[1]:
            return 201, {"id": self.add(body["body"], self.USER)}, {}
        if method == "PUT" and one[1] and int(one[1]) in self.comments:
            self.comments[int(one[1])]["body"] = body["body"]
            return 200, {"id": int(one[1])}, {}
        return 404, {"message": "404 Not found"}, {}


def page_of(forge: Forge, address: str, query: str) -> tuple[int, Any, dict[str, str]]:
    """A page of the comments, and the next one's address in `Link`."""
    asked = parse_qs(query)
    size, page = min(100, int(asked.get("per_page", ["30"])[0])), int(asked.get("page", ["1"])[0])
    listed = list(forge.comments.values())
    links = [f'<{address}?per_page={size}&page={p}>; rel="{rel}"' for p, rel in ((1, "first"), (page + 1, "next"))]
    more = page * size < len(listed)
    return 200, listed[(page - 1) * size : page * size], {"Link": ", ".join(links[: 2 if more else 1])}


@contextmanager
def serving(forge: GitHub | GitLab) -> Iterator[Any]:
    """The forge, at its `url`."""

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers["Content-Length"] or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            forge.calls.append(f"{self.command} {parts.path}")
            if forge.trouble:
                status, headers = forge.trouble.pop(0)
                answer: Any = {"message": "trouble"}
            else:
                status, answer, headers = forge.answer(self.command, parts.path, parts.query, self.headers, body)
            if self.command == "POST" and forge.lost:
                forge.lost -= 1
                status, answer, headers = 502, {"message": "Bad gateway"}, {}
            data = json.dumps(answer).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = _do  # noqa: N815 - as the base class calls them

        def log_message(self, *_: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    forge.url = f"http://127.0.0.1:{listener.server_port}" + ("/api/v4" if isinstance(forge, GitLab) else "")
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield forge
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join(10)
