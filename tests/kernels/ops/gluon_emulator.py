"""A kernel in Gluon run on numpy, one program after another: Triton's interpreter does not take Gluon.

Tensors are arrays, layouts are looked at by nobody: what the compiler makes of them is not under test here. What is:
addresses, masks, hints and the order of asynchronous copies. A copy is done as late as the program allows (when it is
waited for) or as early (at once), so that a slot that is read too early, or overwritten too early, shows. An access
beyond a tensor raises, shared memory begins as NaN, and a hint that is not true raises.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from triton.experimental.gluon import language as gl


class Tensor(np.ndarray):
    """An array that can be cast as Gluon's tensors are."""

    def to(self, dtype: Any) -> Any:
        return self.astype(dtype)


@dataclass
class Addresses:
    """Places in the memory that a tensor spans."""

    memory: np.ndarray
    at: Any = 0

    def __add__(self, other: Any) -> Addresses:
        return Addresses(self.memory, self.at + other)

    def checked(self, mask: Any) -> tuple[np.ndarray, np.ndarray]:
        at, wanted = np.broadcast_arrays(self.at, mask)
        if wanted.any() and (at[wanted].min() < 0 or at[wanted].max() >= len(self.memory)):
            raise IndexError(f"{at[wanted].min()} to {at[wanted].max()} of {len(self.memory)}")
        return at, wanted


@dataclass
class Shared:
    """A view of shared memory."""

    values: np.ndarray

    def slice(self, start: int, length: int, dim: int) -> Shared:
        return Shared(np.moveaxis(np.moveaxis(self.values, dim, 0)[start : start + length], 0, dim))

    def permute(self, order: Sequence[int]) -> Shared:
        return Shared(self.values.transpose(order))

    def load(self, layout: Any) -> Any:
        return self.values.copy().view(Tensor)


@dataclass
class Copies:
    """Copies under way, in groups. late: done when they are waited for, else at once."""

    late: bool
    open: list[Callable[[], None]] = field(default_factory=list)
    groups: list[list[Callable[[], None]]] = field(default_factory=list)

    def async_copy_global_to_shared(self, to: Shared, source: Addresses, mask: Any = True) -> None:
        at, wanted = source.checked(mask)
        assert at.shape == to.values.shape

        def copy() -> None:
            to.values[...] = 0.0
            to.values[wanted] = source.memory[at[wanted]]

        if self.late:
            self.open.append(copy)
        else:
            copy()

    def commit_group(self) -> None:
        self.groups.append(self.open)
        self.open = []

    def wait_group(self, outstanding: int) -> None:
        while len(self.groups) > outstanding:
            for copy in self.groups.pop(0):
                copy()


class Language:
    """What kernels here ask of `gluon.language`; layouts and what else is not here are Gluon's own."""

    float32, int64 = np.float32, np.int64
    static_range = staticmethod(range)
    minimum = staticmethod(min)

    def __init__(self, program: int) -> None:
        self._program = program

    def __getattr__(self, name: str) -> Any:
        return getattr(gl, name)

    def program_id(self, axis: int) -> int:
        return self._program

    def cdiv(self, x: int, y: int) -> int:
        return -(-x // y)

    def cast(self, x: Any, dtype: Any) -> Any:
        return dtype(x)

    def arange(self, start: int, end: int, layout: Any) -> Any:
        return np.arange(start, end, dtype=np.int32).view(Tensor)

    def zeros(self, shape: Sequence[int], dtype: Any, layout: Any) -> Any:
        return np.zeros(shape, dtype).view(Tensor)

    def allocate_shared_memory(self, dtype: Any, shape: Sequence[int], layout: Any) -> Shared:
        return Shared(np.full(shape, np.nan, dtype))

    def multiple_of(self, x: Any, value: int) -> Any:
        assert not (x[::value] % value).any()
        return x

    def max_contiguous(self, x: Any, value: int) -> Any:
        assert (np.diff(x.reshape(-1, value), axis=1) == 1).all()
        return x

    def store(self, to: Addresses, value: Any, mask: Any) -> None:
        at, wanted = to.checked(mask)
        to.memory[at[wanted]] = np.broadcast_to(value, at.shape)[wanted]


def memory_of(x: torch.Tensor) -> Addresses:
    """The memory that a CPU tensor spans, and no more: writes go into it."""
    span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return Addresses(x.as_strided((span,), (1,)).numpy())


def run(
    kernel: Any, helpers: Sequence[Any], arguments: Sequence[Any], programs: int, late: bool, **constants: Any
) -> None:
    """Run a kernel on CPU tensors and numbers. helpers: the Gluon functions that it calls in the program."""
    given = [memory_of(a) if isinstance(a, torch.Tensor) else a for a in arguments]
    for program in range(programs):
        known: dict[str, Any] = {"gl": Language(program), "async_copy": Copies(late)}
        for helper in helpers:
            known[helper.__name__] = _with(helper.fn, known)
        _with(kernel.fn, known)(*given, **constants)


def _with(function: Callable[..., Any], known: dict[str, Any]) -> Callable[..., Any]:
    """The function with other things behind its global names. known may grow later."""
    everything = {**function.__globals__}
    made = types.FunctionType(function.__code__, everything, function.__name__, function.__defaults__)
    everything.update(known)
    return made
