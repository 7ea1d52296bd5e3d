"""A long recording out of a short one: the same events again and again, later and under other ids."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

from isal import igzip

TRAINING = (
    Path(__file__).resolve().parent.parent.parent
    / "tests"
    / "data"
    / "traces"
    / "large_t5_train_autocast_2steps.json.gz"
)
"""Two steps of T5 training: what the long traces of the tests and the benchmarks are made of."""

LONG_BYTES = 215_000_000
"""JSON of 24 of its steps."""

_LIST = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
_CLOSING = re.compile(rb"\}\s*\]")
_NUMBER = re.compile(rb'"(ts|correlation|External id)"\s*:\s*(\d+)')


def repeat(source: Path, target: Path, size_bytes: int) -> int:
    """Writes at least `size_bytes` of JSON, gzip-compressed; returns how much. A trace as torch writes it: one line of
    numbers changes, no event is taken apart."""
    text = source.read_bytes()
    if source.suffix == ".gz":
        text = gzip.decompress(text)
    start = _LIST.search(text)
    if start is None:
        raise ValueError(f"{source} has no traceEvents")
    end = _list_end(text)
    head, tail = text[: start.end()], text[end:]
    pieces = _NUMBER.split(text[start.end() : end].rstrip())
    del text
    kinds, values = pieces[1::3], [int(digits) for digits in pieces[2::3]]
    times = [value for kind, value in zip(kinds, values, strict=True) if kind == b"ts"]
    ids = [value for kind, value in zip(kinds, values, strict=True) if kind != b"ts" and value < 2**31]
    period_us, period_id = max(times) - min(times) + 1_000_000, max(ids, default=0) + 1
    written: int = 0
    with igzip.open(target, "wb", compresslevel=1) as out:  # type: ignore[no-untyped-call]
        written += out.write(head)
        copies = 0
        while written < size_bytes:
            if copies:
                written += out.write(b",\n")
            pieces[2::3] = [
                b"%d" % (value + copies * _stride(kind, value, period_us, period_id))
                for kind, value in zip(kinds, values, strict=True)
            ]
            for i in range(0, len(pieces), 300_000):
                written += out.write(_join(pieces[i : i + 300_000]))
            copies += 1
        written += out.write(tail)
    return written


def _stride(kind: bytes, value: int, period_us: int, period_id: int) -> int:
    """How far one copy moves a number; 0 and what no id should be stay what they are."""
    if kind == b"ts":
        return period_us
    return period_id if 0 < value < 2**31 else 0


def _list_end(text: bytes) -> int:
    """Where the `]` of the events stands: the earliest of those near the end that leave whole keys after them."""
    end = -1
    for match in reversed(list(_CLOSING.finditer(text, max(0, len(text) - 1_000_000)))):
        try:
            json.loads(b'{"traceEvents": []' + text[match.end() :])
        except ValueError:
            break
        end = match.end() - 1
    if end < 0:
        raise ValueError("the trace has no end")
    return end


def _join(pieces: list[bytes]) -> bytes:
    """Text, key, number, text, key, number, ... as they stood."""
    keys = pieces[1::3]
    pieces[1::3] = [b'"%s": ' % key for key in keys]
    return b"".join(pieces)
