"""What a file is by its first unpacked bytes, whatever it is called."""

from __future__ import annotations

import re

SQLITE = b"SQLite format 3\0"

_ROCPROFV3 = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"rocprofiler-sdk-tool"\s*:')


def is_rocprofv3(head: bytes) -> bool:
    """Whether a file begins as rocprofv3 writes its JSON (`--output-format json`)."""
    return _ROCPROFV3.match(head) is not None
