"""How many tokens a text is at most, without any model's vocabulary: nothing is downloaded for it. Pure functions.

Counted as byte-pair encoders cut texts: words, numbers and signs one by one, spaces with what follows them. Much of
what they merge (`":"`, long common words) is counted as if they did not, so that the count is above theirs.
"""

from __future__ import annotations

import json
import math
import re

MAX_TOKENS = 1500
"""Of one answer to an agent."""
LETTERS, CAPITALS, DIGITS, SIGNS, BYTES = 5, 2, 2, 2, 3
"""Letters of a word, capitals, digits and signs in a row that are one token; a longer piece is several. Of a whole text
no token has more bytes than the last, in the mean."""
CUT = "..."

_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\x00-\x7f]+|[^\x80-\U0010ffff\sA-Za-z0-9]+|\n[ \t]*| {2,}|\t+")


def json_text(value: object, *, ascii_only: bool = False) -> str:
    """JSON without spaces, as agents are given it. ascii_only: with escapes, for a stream that has no other letters."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only, allow_nan=False)


def token_bound(text: str) -> int:
    """Tokens that the text is at most."""
    return max(sum(map(_of_piece, _PIECE.findall(text))), math.ceil(len(text.encode("utf-8", "replace")) / BYTES))


def _of_piece(piece: str) -> int:
    if not piece.isascii():
        return len(piece.encode("utf-8", "replace"))
    if piece.isalpha():
        return math.ceil(len(piece) / (CAPITALS if piece.isupper() else LETTERS))
    if piece.isdigit():
        return math.ceil(len(piece) / DIGITS)
    return 1 if piece.isspace() else math.ceil(len(piece) / SIGNS)


def cut(text: str, most: int) -> str:
    """The text, or as much of its beginning as is within so many tokens, with a mark; cut between words if possible."""
    if token_bound(text) <= most:
        return text
    used, size, end = token_bound(CUT), len(CUT), 0
    for match in _PIECE.finditer(text):
        used += _of_piece(match[0])
        size += len(text[end : match.end()].encode("utf-8", "replace"))
        if used > most or size > BYTES * most:
            break
        end = match.end()
    return text[:end].rstrip() + CUT
