"""Post the comment, or renew the one that stands: one comment a check, however often it is run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeAlias

from app.check.comment.body import begins_with, fit, marker_of
from app.check.comment.forge import Forge
from app.check.comment.http import CallError

Done: TypeAlias = Literal["posted", "renewed", "unchanged"]

TRIES = 4
FIRST_WAIT_S = 1.0
"""Before the second try; each wait after it is three times as long."""
MOST_WAIT_S = 60.0
"""However long the forge asks to wait: a build is not held up for an hour by a rate limit."""


def post(forge: Forge, text: str, link: str = "", sleep: Callable[[float], None] = time.sleep) -> Done:
    """Post or renew the comment whose first line is the text's. Raises CallError, ValueError for a text without marker.

    What may pass is tried again from the list on, never the single call: a POST whose answer got lost may have posted.
    """
    marker = marker_of(text)
    if marker is None:
        raise ValueError("the text does not begin with a check's marker")
    body = fit(text, forge.max_chars, forge.name, link)
    wait_s = FIRST_WAIT_S
    for attempt in range(1, TRIES + 1):
        try:
            return _once(forge, marker, body)
        except CallError as error:
            if not error.passing or attempt == TRIES:
                raise
            sleep(min(MOST_WAIT_S, error.retry_after_s if error.retry_after_s is not None else wait_s))
            wait_s *= 3
    raise AssertionError("unreachable")


def _once(forge: Forge, marker: str, body: str) -> Done:
    standing = next((c for c in forge.comments() if c.own and begins_with(c.body, marker)), None)
    if standing is None:
        forge.create(body)
        return "posted"
    if standing.body.replace("\r\n", "\n").rstrip("\n") == body.rstrip("\n"):
        return "unchanged"
    forge.update(standing, body)
    return "renewed"
