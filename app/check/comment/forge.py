"""What GitHub and GitLab have in common for whoever comments: one request's comments, read and written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Comment:
    """id: as the forge's addresses have it. own: written by whom the token stands for, so that we may replace it."""

    id: str
    body: str
    own: bool


class Forge(Protocol):
    """The comments on one pull or merge request. Every method raises CallError."""

    @property
    def name(self) -> str:
        """Of the system, in messages."""
        ...

    @property
    def request(self) -> str:
        """What is commented on, in messages: "pull request 7"."""
        ...

    @property
    def max_chars(self) -> int:
        """The most that a comment may have."""
        ...

    def comments(self) -> Iterator[Comment]:
        """Every comment, the oldest first, however many pages they are."""
        ...

    def create(self, body: str) -> None:
        """Post a new comment."""
        ...

    def update(self, comment: Comment, body: str) -> None:
        """Replace a comment's text."""
        ...


class NowhereError(Exception):
    """There is nothing to comment on, or no token to do it with: in words. expected: as a build of a branch is."""

    def __init__(self, message: str, expected: bool = False) -> None:
        super().__init__(message)
        self.expected = expected
