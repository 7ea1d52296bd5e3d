"""Names from outside made harmless. A kernel may be called anything, and reports are read by people and programs.

Every character that is not visible is shown as its number: control characters, marks that turn the direction of text
(so that code reads otherwise than it is), zero-width ones, line separators, lone surrogates. What is markup in one
format is that format's own business.
"""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and marks that show nothing."""

MAX_CHARS = 400


def visible(text: object, most: int = MAX_CHARS) -> str:
    """One line of visible text, at most so many characters; white space is single spaces."""
    line = " ".join(_show(str(text)[: 4 * most]).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def visible_block(text: object, most: int = 4000) -> str:
    """The same for code: lines and indentation stay."""
    lines = str(text)[:most].replace("\t", "    ").split("\n")
    return "\n".join(_show(line.rstrip()) for line in lines).strip("\n")


def _show(text: str) -> str:
    return "".join(_character(c) for c in text)


def _character(c: str) -> str:
    if c in "\n\t\r":
        return " "
    if c in _BLANK or unicodedata.category(c) in _HIDDEN:
        return f"\\u{{{ord(c):x}}}"
    return c
