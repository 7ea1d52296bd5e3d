"""Errors as the API answers with them."""

from __future__ import annotations

from typing_extensions import TypedDict


class Problem(TypedDict):
    """RFC 9457 problem details; `code` is stable."""

    type: str
    title: str
    status: int
    code: str
    detail: str
