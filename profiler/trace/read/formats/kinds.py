"""What a file is by its first unpacked bytes, whatever it is called."""

from __future__ import annotations

import re

SQLITE = b"SQLite format 3\0"

_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{")
_KEY = re.compile(rb'"(rocprofiler-sdk-tool|traceEvents)"\s*:')
BINARY_LOOK_BYTES = 4096


def is_rocprofv3(head: bytes) -> bool:
    """Whether a file is rocprofv3's JSON (`--output-format json`): an object with its key before any `traceEvents`."""
    if not _OBJECT.match(head):
        return False
    key = _KEY.search(head)
    return key is not None and key[1] == b"rocprofiler-sdk-tool"


def is_binary(head: bytes) -> bool:
    """Whether a file is neither JSON nor a text in UTF-8."""
    return b"\0" in head[:BINARY_LOOK_BYTES]
