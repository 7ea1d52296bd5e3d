"""What a value costs that the host waits for: the copy that brings it, and until the host goes on. Pure functions.

The small ones are medians of the 19 reads of tests/data/traces/llama_decode_bf16_eager.json.gz (one H200).
"""

from __future__ import annotations

from profiler.program.model import Call

COPIES = frozenset({"aten::_local_scalar_dense", "aten::_to_copy", "aten::copy_"})
"""Calls that launch nothing else where the host waits for them; others find in kernels what is copied then."""
COPY_US = 1.44
"""Of a few bytes."""
RETURNS_US = 6.87
"""From the copy's end to the host's going on."""
LINK = 63e9
"""Bytes/s of 16 lanes of PCIe 5.0, one way: no copy is faster, and one from pageable memory slower."""
SIZE_BYTES = 8
"""How many results there are."""


def is_copy(call: Call) -> bool:
    """Whether it only brings to the host what is there."""
    return call.waits and call.name in COPIES


def copied_bytes(call: Call) -> int:
    """What comes to the host."""
    if not is_copy(call) or call.operation is None:
        return SIZE_BYTES
    return sum(tensor.bytes for tensor in call.operation.reads)


def copy_us(size_bytes: int) -> float:
    """On the GPU."""
    return max(COPY_US, 1e6 * size_bytes / LINK)
