"""Copies that the driver makes and no kernel does: both tensors lie in memory alike, without gaps. Pure functions."""

from __future__ import annotations

from profiler.program.model import Call
from profiler.region.graph.operation import Tensor

COPIES = frozenset({"aten::clone", "aten::copy_"})
NAME, CALL = "Memcpy DtoD (Device -> Device)", "cudaMemcpyAsync"
"""Of the GPU's event, and of the host's that asks for it."""


def is_memory_copy(call: Call) -> bool:
    """Whether torch asks the driver for it (aten/src/ATen/native/cuda/Copy.cu)."""
    operation = call.operation
    if call.name not in COPIES or operation is None or not operation.reads or not operation.writes:
        return False
    source, written = operation.reads[-1], operation.writes[0]
    alike = (source.dtype, source.shape, source.stride) == (written.dtype, written.shape, written.stride)
    return alike and _is_dense(source)


def _is_dense(tensor: Tensor) -> bool:
    """No gap between its elements, and none that is there twice, in whatever order."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride, strict=True))
    return tensor.elements > 0 and reach == tensor.elements and 0 not in tensor.stride
