"""The text of a comment: known by its hidden first line, and never longer than the forge takes."""

from __future__ import annotations

import re

MARKER = re.compile(r"<!-- tritonworthy-check:[a-z0-9-]* -->")
FENCE = re.compile(r"(`{3,})")
LINK = re.compile(r"https?://[^\s<>]+")
DETAILS, DETAILS_END = "<details>", "</details>"


def marker_of(text: str) -> str | None:
    """The first line of a check's Markdown report; None for any other text."""
    first = text.split("\n", 1)[0].rstrip("\r")
    return first if MARKER.fullmatch(first) else None


def begins_with(body: str, marker: str) -> bool:
    """Whether a comment is the one of this marker. A forge may answer with other ends of lines than it was sent."""
    return body.split("\n", 1)[0].rstrip("\r") == marker


def fit(text: str, most: int, forge: str, link: str = "") -> str:
    """The text; or as many of its first lines as a comment may have, with a last paragraph that says so.

    What is open where it is cut, a block of code or details, is closed. link: where the whole report is, or "".
    """
    if len(text) <= most:
        return text
    where = f": [the whole report](<{link}>)" if LINK.fullmatch(link) else "; the reports that the build keeps have all"
    notice = (
        f"\n\n**Cut here.** The report has {len(text):,} characters, a comment on {forge} at most {most:,}{where}.\n"
    )
    kept: list[str] = []
    length, best, closing = len(notice), 0, ""
    fence, depth = "", 0
    for line in text.split("\n"):
        length += len(line) + 1
        if length > most:
            break
        kept.append(line)
        opened = FENCE.match(line)
        if fence:
            fence = "" if line == fence else fence
        elif opened:
            fence = opened[1]
        else:
            depth += line.startswith(DETAILS) - line.startswith(DETAILS_END)
        ends = ("\n" + fence if fence else "") + f"\n\n{DETAILS_END}" * depth
        if length + len(ends) <= most:
            best, closing = len(kept), ends
    return "\n".join(kept[:best]).rstrip("\n") + closing + notice
