"""Takes the place of `torch._inductor.runtime.triton_heuristics` in a kernel's module, and only records.

Inductor's decorators would build an autotuner that asks the GPU for its properties. Here every decorator returns what
it was given, so that a module can be loaded without a GPU or a driver and nothing in torch is patched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Recorded:
    """A kernel as its module declares it: `heuristic(*arguments, **named)` applied to a `triton.jit` function."""

    heuristic: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    function: Any


def __getattr__(heuristic: str) -> Callable[..., Callable[[Any], Recorded]]:
    """Any heuristic by name: pointwise, reduction, persistent_reduction, template, foreach, ..."""
    if heuristic.startswith("_"):
        raise AttributeError(heuristic)

    def decorator_of(*arguments: Any, **named: Any) -> Callable[[Any], Recorded]:
        return lambda function: Recorded(heuristic, arguments, named, function)

    return decorator_of
