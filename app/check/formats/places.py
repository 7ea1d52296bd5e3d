"""A source line as stacks tell it, "models/bert.py:429 forward", as a place in the repository that CI looks at."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from urllib.parse import quote

from app.check.safe import visible

_PLACE = re.compile(r"^(?P<file>.+):(?P<line>[0-9]{1,9})(?: (?P<function>.+))?$", re.S)


@dataclass(frozen=True, slots=True)
class Place:
    """uri: relative, percent-encoded; line from 1."""

    uri: str
    line: int
    function: str


def place_of(source: str, root: str = "") -> Place | None:
    """The place; None where the source tells none. root: the folder of the repository where it was recorded."""
    match = _PLACE.match(source)
    if match is None:
        return None
    uri = relative(match["file"], root)
    return Place(uri, max(1, int(match["line"])), visible(match["function"] or "")) if uri else None


def relative(file: str, root: str = "") -> str:
    """A path as a relative URI: below root where it lies there; never absolute, never with `..` or a scheme."""
    path, root = (p.replace("\\", "/") for p in (file, root))
    if root and path.startswith(root.rstrip("/") + "/"):
        path = path[len(root.rstrip("/")) :]
    path = re.sub(r"^[A-Za-z]:(?=/)", "", path)
    parts = [p for p in posixpath.normpath("/" + path.lstrip("/")).split("/") if p not in ("", ".", "..")]
    return "/".join(quote(p, safe="", errors="replace") for p in parts)
