"""What Triton's interpreter computes wrongly, noticed while a kernel runs in it.

bf16 numbers are bare bits to it: Triton 3.7.1 multiplies matrices of these as if they were integers (triton#11584), and
a right kernel's result is nonsense.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

BF16_PRODUCTS = "bf16, whose matrix products it computes wrongly"


@contextlib.contextmanager
def watched() -> Iterator[set[str]]:
    """Fills the set it yields with what kernels asked the interpreter for that it computes wrongly."""
    from triton.runtime import interpreter

    builder, wrong = interpreter.InterpreterBuilder, set[str]()
    own = builder.create_dot

    def create_dot(self: Any, a: Any, b: Any, *rest: Any, **options: Any) -> Any:
        made = own(self, a, b, *rest, **options)
        if BF16_PRODUCTS not in wrong and _is_bits(a.data) and _is_bits(b.data):
            added = rest[0].data if rest else options["d"].data
            with np.errstate(all="ignore"):
                right = np.matmul(_numbers(a.data), _numbers(b.data)) + added
            if not np.allclose(made.data, right, rtol=1e-2, atol=1e-2 * float(np.abs(right).max()), equal_nan=True):
                wrong.add(BF16_PRODUCTS)
        return made

    builder.create_dot = create_dot
    try:
        yield wrong
    finally:
        builder.create_dot = own


def _is_bits(data: Any) -> bool:
    """bf16, which numpy has no type for."""
    return bool(data.dtype == np.uint16)


def _numbers(bits: Any) -> Any:
    return (bits.astype(np.uint32) << 16).view(np.float32)
