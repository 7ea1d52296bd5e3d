"""Calls to a forge's REST API: JSON over HTTP by the standard library.

The clients there are, PyGithub and python-gitlab, are one for each forge, with `requests` and for GitHub cryptography:
four calls are no reason to install these on every runner that checks. The calls of `app.cli.servers.remote` are to
servers of Tritonworthy: another way to tell of errors, no pages, no rate limits.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from typing import IO
from urllib.parse import parse_qs, urlsplit

from app.check.safe import visible

MOST_BYTES = 64 * 1024 * 1024
"""Of one answer: a hundred comments of GitLab's longest, less what nobody writes."""
TIMEOUT_S = 60.0
PER_PAGE = 100
"""The most that both forges give at once."""
MOST_PAGES = 100
PASSING = frozenset({429, 500, 502, 503, 504})
"""Statuses that another try may not meet."""
FORBIDDEN = frozenset({403, 404})
"""How both forges answer a token that may not: GitHub says 404 where it may not even know of the repository."""


class CallError(Exception):
    """A call was refused or not answered: in words.

    status: of the answer, None without one. passing: another try may succeed, in `retry_after_s` where the server says.
    """

    def __init__(
        self, message: str, status: int | None = None, passing: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.passing = passing
        self.retry_after_s = retry_after_s

    @property
    def is_forbidden(self) -> bool:
        """Whether the token may not do this."""
        return not self.passing and self.status in FORBIDDEN


class _Stay(urllib.request.HTTPRedirectHandler):
    """A token is for this host alone, and a POST that is redirected would be sent as a GET."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Api:
    """An API by its base URL. headers: of every call, the token's among them. ca_file: whom to trust besides, or ""."""

    url: str
    headers: Mapping[str, str]
    ca_file: str = ""

    def ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> object:
        """The answer's JSON. Raises CallError."""
        return self._call(method, path, body)[0]

    def pages(self, path: str) -> Iterator[Mapping[str, object]]:
        """The objects of a list over all its pages.

        The next page's number is taken from the answer's `Link`, which both forges send, and asked for at our own
        address: the token goes nowhere else. A short page may not be the last: GitLab leaves out what one may not see.
        """
        page = "1"
        for _ in range(MOST_PAGES):
            items, headers = self._call("GET", f"{path}?per_page={PER_PAGE}&page={page}")
            if not isinstance(items, list):
                raise CallError(f"{self.url} answered no list")
            yield from (item for item in items if isinstance(item, dict))
            following = _next_page(headers.get("Link", ""))
            if following is None:
                return
            page = following
        raise CallError(f"more than {MOST_PAGES * PER_PAGE} comments")

    def _call(self, method: str, path: str, body: Mapping[str, str] | None = None) -> tuple[object, HTTPMessage]:
        headers = {**self.headers, "Accept": "application/json", "User-Agent": "tritonworthy"}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            context = ssl.create_default_context()
            if self.ca_file:
                context.load_verify_locations(self.ca_file)
            opener = urllib.request.build_opener(_Stay, urllib.request.HTTPSHandler(context=context))
            request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
            with opener.open(request, timeout=TIMEOUT_S) as response:
                return json.loads(response.read(MOST_BYTES)), response.headers
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error, f"{method} {self.url}{path}") from None
        except urllib.error.URLError as error:
            raise CallError(f"{self.url} does not answer: {visible(error.reason)}", passing=True) from None
        except (OSError, HTTPException) as error:
            raise CallError(f"{self.url} broke off: {visible(error)}", passing=True) from None
        except ValueError:
            raise CallError(f"{self.url} answered no JSON") from None


def _next_page(link: str) -> str | None:
    """The page's number in the part of a `Link` that is called next."""
    for part in link.split(","):
        address, _, relation = part.partition(";")
        if 'rel="next"' in relation:
            numbers = parse_qs(urlsplit(address.strip(" <>")).query).get("page", [])
            return numbers[0] if numbers and numbers[0].isdecimal() else None
    return None


def _refusal(error: urllib.error.HTTPError, what: str) -> CallError:
    said = _message(error)
    limited = error.code == 403 and (
        "Retry-After" in error.headers or error.headers.get("X-RateLimit-Remaining") == "0"
    )
    after = error.headers.get("Retry-After", "")
    return CallError(
        f"{what}: {error.code} {said}",
        error.code,
        passing=limited or error.code in PASSING,
        retry_after_s=float(after) if after.isdecimal() else None,
    )


def _message(error: urllib.error.HTTPError) -> str:
    """What the forge says of it: GitHub and GitLab both in `message`, GitLab at times in `error`."""
    try:
        answer = json.loads(error.read(MOST_BYTES))
        said = answer.get("message") or answer.get("error") or ""
    except (OSError, HTTPException, ValueError, AttributeError):
        said = ""
    return visible(said, 300) or str(error.reason)
