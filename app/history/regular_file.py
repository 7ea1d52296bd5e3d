"""Files of a history are opened as what they are to be: regular ones, not too large, by their own name."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_FILE_BYTES = 64 * 10**6


def open_regular(path: Path, flags: int) -> int:
    """A descriptor of a regular file: no link, which may lead anywhere, no pipe, which may never end. OSError."""
    try:
        # Without O_NONBLOCK a pipe waits for its other end.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a symbolic link, not a file: name the file itself", str(path)) from None
        raise
    kind = os.fstat(descriptor)
    if not stat.S_ISREG(kind.st_mode):
        problem = OSError(errno.EINVAL, "no regular file", str(path))
    elif kind.st_size > MAX_FILE_BYTES:
        problem = OSError(errno.EFBIG, f"larger than {MAX_FILE_BYTES // 10**6} MB", str(path))
    else:
        return descriptor
    os.close(descriptor)
    raise problem
