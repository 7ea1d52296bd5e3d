"""What Inductor wrote, as one text that is kept, read and compared. Torch-free."""

from __future__ import annotations

import difflib

from profiler.oracle.model import Prediction

KERNEL = "@triton.jit"
"""A kernel's own lines begin here; what stands before, imports and settings, differs between versions of torch."""
MAX_DIFF_CHARS = 40_000


def code_of(prediction: Prediction) -> str:
    """The functions of its kernels one after the other, each with its launches; library calls as comments."""
    parts = [
        f"# {kernel.stage}: {kernel.calls} launched\n{_function(kernel.source)}\n" for kernel in prediction.kernels
    ]
    parts += [f"# {extern.stage}: library call {extern.name}, {extern.calls} called\n" for extern in prediction.externs]
    return "\n".join(parts)


def _function(source: str) -> str:
    at = source.find(KERNEL)
    return source[max(at, 0) :].strip()


def diff_of(before: str, after: str, before_name: str, after_name: str) -> str:
    """A unified diff; "" where nothing differs. A long one is cut, and says so."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), before_name, after_name, lineterm="")
    text = "\n".join(lines)
    if len(text) <= MAX_DIFF_CHARS:
        return text
    return text[:MAX_DIFF_CHARS].rpartition("\n")[0] + "\n(cut here: the rest is longer than a report shows)"
