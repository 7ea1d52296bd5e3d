"""What a region's text may be made of, checked before Python's own reader sees it. Torch-free.

Python's tokenizer warns on the console, normalises identifiers (NFKC: a full-width letter becomes another name), counts
columns in bytes and takes a form feed for the beginning of a line. A text with none of that needs no thought about it.
"""

from __future__ import annotations

import re

from profiler.region.model import RegionError

MAX_CHARS = 16_000
MAX_LINES = 600
MAX_LINE = 2_000  # characters; a straight line of operations has no longer ones
MAX_BRACKETS = 40  # nesting

LINE_END = re.compile(r"\r\n|\r|\n")
OPEN, CLOSE, QUOTES = "([{", ")]}", "'\""
WORD = re.compile(r"[\w.]+")
NUMBER = re.compile(r"0[xX][\da-fA-F_]+|0[bBoO][\d_]+|\d[\d_]*(?:\.[\d_]*)?(?:[eE][\d_]*)?[jJ]?")
"""What a word that begins with a digit can be. Python reads `1if` too, and warns of it on the console."""


def read_lines(text: str) -> tuple[str, ...]:
    """The text's lines as Python counts them: ended by \\n, \\r\\n or \\r, and by nothing else."""
    return tuple(LINE_END.split(text))


def longest_statement(text: str) -> int:
    """Characters of the longest run of lines that brackets hold together, of a text that `check_characters` took."""
    depth = length = longest = 0
    for number, line in enumerate(read_lines(text), 1):
        length = length + len(line) if depth else len(line)
        longest = max(longest, length)
        depth = _check_line(line, number, depth)
    return longest


def check_characters(text: str) -> None:
    """Raises RegionError for a text that is too long or holds characters that a region has no use for."""
    if len(text) > MAX_CHARS:
        raise RegionError(f"the text has {len(text)} characters; at most {MAX_CHARS} are read", code="region-too-long")
    lines = read_lines(text)
    if len(lines) > MAX_LINES + 1:
        raise RegionError(f"the text has more than {MAX_LINES} lines", code="region-too-long", line=MAX_LINES + 1)
    depth = 0
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            message = f"the line has {len(line)} characters; at most {MAX_LINE} are read"
            raise RegionError(message, code="region-too-long", line=number, column=MAX_LINE + 1)
        depth = _check_line(line, number, depth)


def _check_line(line: str, number: int, depth: int) -> int:
    """Brackets that are open after the line."""
    quote = ""
    code_end = len(line)
    for at, char in enumerate(line):
        fault = _fault(char)
        if fault:
            raise RegionError(fault, code="region-syntax", line=number, column=at + 1)
        if quote:
            quote = "" if char == quote else quote
        elif char in QUOTES:
            quote = char
        elif char == "#":
            code_end = at
            break
        elif char in OPEN:
            depth += 1
            if depth > MAX_BRACKETS:
                message = f"more than {MAX_BRACKETS} brackets are open"
                raise RegionError(message, code="region-too-deep", line=number, column=at + 1)
        elif char in CLOSE:
            depth = max(0, depth - 1)
        if char == "\\" and at + 1 < len(line):
            raise RegionError("a backslash has no meaning here", code="region-syntax", line=number, column=at + 1)
        if not char.isascii():
            message = f"the character U+{ord(char):04X} is not part of the language; names are ASCII"
            raise RegionError(message, code="region-syntax", line=number, column=at + 1)
    for at in range(code_end, len(line)):
        fault = _fault(line[at])
        if fault:
            raise RegionError(fault, code="region-syntax", line=number, column=at + 1)
    for word in WORD.finditer(line, 0, code_end):
        if word[0][0].isdigit() and not NUMBER.fullmatch(word[0]):
            raise RegionError("a number runs into a word", code="region-syntax", line=number, column=word.start() + 1)
    return depth


def _fault(char: str) -> str:
    """Why a character can be nowhere in a text, not even in a comment; "" where it can."""
    if char == "\0":
        return "the text holds a null byte"
    if (char < " " and char != "\t") or char == "\x7f":
        return f"the text holds the control character U+{ord(char):04X}"
    if "\ud800" <= char <= "\udfff":
        return f"the text holds half a character, U+{ord(char):04X}"
    return ""
