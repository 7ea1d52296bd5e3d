"""torch has one profiler at a time: two that overlap end the process in its own code. A second one's beginning is seen
here, before torch sees it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar
from unittest import mock

R = TypeVar("R")

BEGINNINGS = (
    ("torch.autograd.profiler", "_prepare_profiler"),
    ("torch.autograd.profiler", "_run_on_profiler_start"),  # of those that prepare nothing: emit_nvtx, emit_itt
    ("torch.autograd.profiler_legacy", "_enable_profiler_legacy"),
)
"""What torch's profilers call first, by the modules in which they look it up."""


class OtherThreadError(RuntimeError):
    """A profiler began in another thread than the one that is recorded."""


@contextmanager
def making_way(end_ours: Callable[[], object], refused: Callable[[], object]) -> Iterator[None]:
    """While the program runs: `end_ours` is called before another profiler begins in this thread.

    torch ends a profiler in the thread that began it alone, so ours can't be ended for one of another thread, and the
    process would end where two overlap: `refused` is called, and its beginning raises OtherThreadError. Nor can it
    wait for the step's end: the step may wait for its thread.
    """
    thread = threading.get_ident()

    def before(begin: Callable[..., R]) -> Callable[..., R]:
        def beginning(*args: object, **kwargs: object) -> R:
            if threading.get_ident() != thread:
                refused()
                raise OtherThreadError(
                    "tritonworthy.capture records this step in another thread, and torch has one profiler at a time:"
                    " begin this one behind the recording"
                )
            end_ours()
            return begin(*args, **kwargs)

        return beginning

    with ExitStack() as stack:
        for place, name in BEGINNINGS:
            module = importlib.import_module(place)
            stack.enter_context(mock.patch.object(module, name, before(getattr(module, name))))
        yield
