"""What is wrong with a configuration, told with its key, and the words that tell it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from app.objects.check import Severity as Level

LEVELS: tuple[Level, ...] = ("off", "warn", "error")
MAX_TEXT = 200
"""Characters of a name, a path or a pattern."""


class ConfigError(ValueError):
    """A configuration that cannot be taken. key: the place in it; line: from 1, where it is a file's."""

    def __init__(self, key: str, problem: str, file: str = "", line: int | None = None) -> None:
        place = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        self.key = key
        self.problem = problem
        self.line = line
        self.message = f"{place}{key}: {problem}" if key else f"{place}{problem}"
        super().__init__(self.message)


def check_known(place: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raises ConfigError for a key that is none of `known`."""
    for key in table:
        if key not in known:
            raise ConfigError(join(place, key), f"there is no such key{suggest(str(key), known)}")


def join(place: str, key: object) -> str:
    """The place of a key: `assertions."beats:norm".over`."""
    text = str(key)[:MAX_TEXT]
    shown = text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else f'"{text}"'
    return f"{place}.{shown}" if place else shown


def show(value: object) -> str:
    """A value that is not taken, for a message."""
    if isinstance(value, bool):
        return str(value).lower()
    try:
        return repr(value)[:80]
    except (ValueError, RecursionError):  # thousands of digits; nested too deep
        return "what would be too long to show"


def suggest(word: str, known: tuple[str, ...]) -> str:
    """What follows "there is no such key": the nearest one there is, else all."""
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]}?" if near else f". There are: {', '.join(known)}"
