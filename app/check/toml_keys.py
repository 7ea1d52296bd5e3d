"""On which line of a TOML text a key is set; tomllib does not tell."""

from __future__ import annotations

import re
from collections import Counter

_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")


def line_of(text: str, key: str) -> int | None:
    """The line, from 1, of a dotted key such as `assertions."beats:norm".over`; of its table where it is inline.

    `kernels.2.name` is a key of the second table `[[kernels]]`.

    None where no line sets any part of it. The text is TOML that tomllib takes.
    """
    wanted = _parts(key)
    best: tuple[int, int] | None = None
    table: list[str] = []
    counted: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            if (end := _header_end(stripped)) is None:
                continue
            table = path = _parts(stripped[:end].strip("[]"))
            if stripped.startswith("[[") and path != wanted:
                counted[".".join(path)] += 1
                table = path = [*path, str(counted[".".join(path)])]
        elif "=" in stripped and (named := _parts(stripped)):
            path = [*table, *named]
        else:
            continue
        deep = len(path)
        if path == wanted[:deep] and (best is None or deep > best[0]):
            best = deep, number
    return best[1] if best else None


def _header_end(line: str) -> int | None:
    """Where the brackets of a table's header close; None for a line of an array that begins with one."""
    match = re.match(r"\[{1,2}[^\[\]]+\]{1,2}", line)
    return match.end() if match else None


def _parts(key: str) -> list[str]:
    """The parts of a dotted key at the beginning of a text; what follows it is left out."""
    parts, at = [], 0
    while match := _PART.match(key, at):
        double, single, bare = match.groups()
        parts.append(double if double is not None else single if single is not None else bare)
        at = match.end()
        if key[at : at + 1] != ".":
            break
        at += 1
    return parts
