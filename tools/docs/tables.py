"""A table in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Its lines, and an empty one."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join('-' for _ in head)}|"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""
