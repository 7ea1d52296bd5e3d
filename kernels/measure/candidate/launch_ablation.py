"""Launch ablation: a call whose Triton kernels do not run. What it returns all the same, something else computed."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

KERNELS = (("triton.runtime.jit", "JITFunction"), ("triton.runtime.interpreter", "InterpretedFunction"))
NEW = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_strided", "empty_like", "empty_permuted", "new_empty", "new_empty_strided")
)
"""What gives memory without writing to it."""


class _NewIntegers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """New integers and booleans are one number, and not what the memory held.

    What a silent kernel would have written is read by operations that are not silent: a pool's gradient goes where such
    an index points. On a CPU that ended the process by SIGSEGV in five of six validations of max_pool2d(relu(x)) * 2.
    """

    def __init__(self, number: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.number = number

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.name().partition(".")[0] in NEW and not (made.is_floating_point() or made.is_complex()):
            made.fill_(self.number)
        return made


@contextlib.contextmanager
def silenced(number: int = 0) -> Iterator[list[str]]:
    """Triton functions return at once without a launch; yields the names of those that were asked to run. number: what
    integers and booleans are that none of them wrote.
    """
    asked: list[str] = []
    kept: list[tuple[Any, Callable[..., Any]]] = []

    def run(function: Any, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("warmup"):
            asked.append(str(function.fn.__name__))

    for module, name in KERNELS:
        with contextlib.suppress(ImportError, AttributeError):
            owner = getattr(importlib.import_module(module), name)
            kept.append((owner, owner.run))
            owner.run = run
    try:
        with _NewIntegers(number):
            yield asked
    finally:
        for owner, original in kept:
            owner.run = original
