"""What a price of a generated Triton kernel needs, read off its text.

The text is parsed, never run. Torch-free. Forms that are not known give None, never an error.
"""

from __future__ import annotations

import functools

from profiler.oracle.kernel_reader import KernelReader, kernel_function
from profiler.oracle.traits_model import Access, FunctionCount, KernelTraits, Template


@functools.lru_cache(maxsize=1024)
def read_traits(source: str) -> KernelTraits:
    """Traits of one kernel's module as Inductor writes it. What is not understood is None; never raises."""
    try:
        function = kernel_function(source)
        return KernelReader(function).traits() if function is not None else KernelTraits()
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return KernelTraits()


__all__ = ["Access", "FunctionCount", "KernelTraits", "Template", "read_traits"]
