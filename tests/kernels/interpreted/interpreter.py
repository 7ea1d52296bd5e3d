"""Triton's interpreter without three costs that grow with a kernel's size and change no answer.

It patches the language anew for every call of a device function (`inspect.getmembers` over three modules, a
millisecond each), combines the elements of a reduction or scan one at a time unless it is a plain sum or maximum, and
builds a table of dtypes for each tensor it makes. `test_interpreter.py` compares what stands here with Triton's own.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

Arrays = list[np.ndarray]

REDUCE, SCAN = interpreter.ReduceOps.generic_reduce, interpreter.ScanOps.generic_scan
"""Triton's own, an element at a time."""


def combined(op: Any, dtypes: list[Any], left: Arrays, right: Arrays) -> Arrays:
    """What the combine function of a reduction or scan makes of two blocks, element by element."""
    values = [op.to_tensor(array, dtype) for array, dtype in zip(left + right, dtypes + dtypes, strict=True)]
    got = op.combine_fn.fn(*values)
    raw = [g.handle.data if isinstance(g, tl.core.tensor) else g for g in (got if isinstance(got, tuple) else (got,))]
    return [np.broadcast_to(r, a.shape).astype(a.dtype) for r, a in zip(raw, left, strict=True)]


def reduce_in_pairs(self: Any, input: tuple[Any, ...]) -> list[Any]:
    """`ReduceOps.generic_reduce`, neighbours first, as a GPU does: the order of operands is kept, not the grouping."""
    tensors, axis = self.unravel(input, self.axis)
    dtypes = [t.dtype for t in tensors]
    parts: Arrays = [np.moveaxis(t.handle.data, axis, 0) for t in tensors]
    while parts[0].shape[0] > 1:  # a power of two, as every block's dimension
        parts = combined(self, dtypes, [p[0::2] for p in parts], [p[1::2] for p in parts])
    results: list[Any] = [p[0] for p in parts]
    if self.keep_dims:
        results = [np.expand_dims(r, axis) for r in results]
    elif self.axis is None:
        results = [r.item() for r in results]
    return [self.to_tensor(r, dtype) for r, dtype in zip(results, dtypes, strict=True)]


def scan_by_slices(self: Any, input: tuple[Any, ...]) -> list[Any]:
    """`ScanOps.generic_scan` in its order: one step combines a whole slice across the other axes."""
    dtypes = [t.dtype for t in input]
    steps: Arrays = [np.moveaxis(t.handle.data, self.axis, 0) for t in input]
    made: list[Arrays] = [[s[:1] for s in steps]]
    for at in range(1, steps[0].shape[0]):
        made.append(combined(self, dtypes, made[-1], [s[at : at + 1] for s in steps]))
    joined = [np.moveaxis(np.concatenate(slices), 0, self.axis) for slices in zip(*made, strict=True)]
    return [self.to_tensor(array, dtype) for array, dtype in zip(joined, dtypes, strict=True)]


class _Nothing:
    """The scope of a device function's call within a launch: what it needs is patched already."""

    def restore(self) -> None:
        """Leaves all as it is: the launch restores it."""


def patched_once(patch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`_patch_lang` that patches `tl` and `tl.core` at a launch, and nothing more until the launch restores them."""
    sees_both = types.FunctionType(patched_once.__code__, {"tl": tl, "core": tl.core})
    launched = False

    def patch_language(_: Any) -> Any:
        nonlocal launched
        if launched:
            return _Nothing()
        scope = patch(sees_both)
        restore = scope.restore
        launched = True

        def end() -> None:
            nonlocal launched
            launched = False
            restore()

        scope.restore = end
        return scope

    return patch_language


def remembered(numpy_dtype: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`_get_np_dtype` that looks up a scalar's dtype once; types of blocks and pointers are not hashable."""
    of_scalar = functools.cache(numpy_dtype)
    return lambda dtype: of_scalar(dtype) if type(dtype) is tl.dtype else numpy_dtype(dtype)


def speed_up() -> None:
    """For this process, which must have been started with TRITON_INTERPRET=1."""
    interpreter.ReduceOps.generic_reduce = reduce_in_pairs
    interpreter.ScanOps.generic_scan = scan_by_slices
    interpreter._patch_lang = patched_once(interpreter._patch_lang)
    interpreter._get_np_dtype = remembered(interpreter._get_np_dtype)
