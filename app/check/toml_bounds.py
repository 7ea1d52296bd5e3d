"""What a TOML text may hold before it is parsed: tomllib takes seconds for a key of 20,000 parts.

The text is walked through once, token by token, as TOML is written. Where it is not TOML the walk may stop: tomllib
gets no further either.
"""

from __future__ import annotations

import re

MAX_CHARS = 64 * 1024
MAX_KEY_PARTS = 8
MAX_WORD_CHARS = 200
"""Longest bare key and longest number."""

_TOKEN = re.compile(
    r'''
      (?P<block> """ (?: [^"\\] | \\. | "(?!"") )*+ "{3,5} | \'\'\' (?: [^'] | '(?!'') )*+ '{3,5} )
    | (?P<part> (?!"""|\'\'\') (?: " (?: [^"\\\n] | \\[^\n] )*+ " | ' [^'\n]*+ ' ) | [A-Za-z0-9_+-]++ )
    | (?P<open> ["'] )
    | (?P<blank> [ \t]++ )
    | (?P<dot> \. )
    | (?P<other> \# [^\n]*+ | . )
    ''',
    re.DOTALL | re.VERBOSE,
)


class BoundsError(ValueError):
    """A text that holds too much to be parsed. line: from 1."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line


def check_bounds(text: str) -> None:
    """Raises BoundsError for a text that is too long, or has a key of too many parts or an overlong number."""
    if len(text) > MAX_CHARS:
        raise BoundsError(f"a configuration has at most {MAX_CHARS} characters")
    parts = 0  # of the dotted key that goes on here
    dotted = False  # whether a dot came last
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "open":
            return  # a string without an end
        if kind == "blank":
            continue
        if kind == "dot":
            dotted = parts > 0
            continue
        if kind != "part":
            parts, dotted = 0, False
            continue
        parts = parts + 1 if dotted else 1
        dotted = False
        word = token.group()
        if len(word) > MAX_WORD_CHARS and word[0] not in "\"'":
            problem = f"a number or a key of more than {MAX_WORD_CHARS} characters"
        elif parts > MAX_KEY_PARTS:
            problem = f"a key of more than {MAX_KEY_PARTS} parts"
        else:
            continue
        raise BoundsError(problem, text.count("\n", 0, token.start()) + 1)
