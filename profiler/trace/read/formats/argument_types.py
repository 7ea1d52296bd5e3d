"""Types of arguments that a file does not tell, by the kernels that worked on them.

nsys and rocprofv3 know sizes by the names of PyTorch's ranges, and no types. A matrix product or a pointwise operation
whose kernels are all named by one floating-point type works on tensors of that type; of any other operation nothing is
said, because its operands may be indices, masks or of several types.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from profiler.trace.model import NONE, Detail, Ints, Note, Trace

OF_ONE_TYPE = frozenset(
    "mm addmm bmm baddbmm matmul linear add add_ sub sub_ mul mul_ div div_ neg silu silu_ silu_backward gelu "
    "gelu_backward relu relu_ sigmoid tanh exp sqrt rsqrt conv1d conv2d conv3d convolution _convolution "
    "cudnn_convolution miopen_convolution".split()
)
"""Operations of aten whose tensors have one type where their kernels name one."""

_BFLOAT16, _HALF, _FLOAT = "c10::BFloat16", "c10::Half", "float"

_NAMED = (
    (_BFLOAT16, re.compile(r"bfloat16|bf16|nvjet_(?:sm\d+_)?tst_|^Cijk_.*_BBS_", re.I)),
    (_HALF, re.compile(r"c10::Half|__half|(?<!b)f16|fp16|hgemm|h16816|nvjet_(?:sm\d+_)?hsh_|^Cijk_.*_HHS_", re.I)),
)
_NAMED_FLOAT = re.compile(r"<float|\(float|, float[,>]|sgemm|tf32|_f32|s1688gemm_\d|nvjet_(?:sm\d+_)?sss_|^Cijk_.*_SB_")
_ADDS_UP = "splitKreduce"
"""In the name of the kernel that adds up what a product's parts made: float whatever the operands are."""
_CASTS = ("LoadWithCast", "StoreWithCast", "gpu_kernel_impl<", "ScalarType", "fp8", "e4m3", "e5m2", "double", "int8",
          "complex")  # fmt: skip
"""In names of kernels that read or write several types, or one that is not looked for here."""


_COPIES = ("aten::copy_", "aten::_to_copy", "aten::to")


def kernel_type(name: str) -> str | None:
    """The one floating-point type that a kernel's name says, as a trace spells it; None for none, several or others.

    A kernel on 16-bit types computes in float, and its name may say so as well.
    """
    if any(word in name for word in _CASTS):
        return None
    named = [spelling for spelling, pattern in _NAMED if pattern.search(name)]
    if len(named) == 1:
        return named[0]
    return _FLOAT if not named and _NAMED_FLOAT.search(name) else None


def with_argument_types(trace: Trace) -> Trace:
    """The trace with the types that its kernels tell, and a note where there are any."""
    ops = trace.ops
    if not len(ops.name) or not trace.has_shapes:
        return trace
    wanted = np.array([name.removeprefix("aten::") in OF_ONE_TYPE for name in trace.names], np.bool_)
    types = _types_below(trace)
    details = list(trace.details)
    numbers: dict[tuple[int, str], int] = {}
    detail: Ints = np.array(ops.detail, np.int32)
    for op in np.flatnonzero(wanted[ops.name] & (ops.detail != NONE)).tolist():
        told = types.get(op, set())
        kept = trace.details[detail[op]]
        if len(told) != 1 or None in told or kept.types or not kept.dims:
            continue
        (spelling,) = told
        key = int(detail[op]), str(spelling)
        if key not in numbers:
            numbers[key] = len(details)
            details.append(Detail(kept.dims, tuple(spelling if sizes else "" for sizes in kept.dims)))  # type: ignore[misc]
        detail[op] = numbers[key]
    if not numbers:
        return trace
    note = Note(
        "types-by-kernels",
        "info",
        "The file tells sizes of arguments and no types: those of matrix products and pointwise operations are taken "
        "from their kernels' names, of other operations they are not known.",
        "Give a trace of torch.profiler with record_shapes=True to have advice on every part.",
    )
    return replace(trace, ops=replace(ops, detail=detail), details=tuple(details), notes=(*trace.notes, note))


def _types_below(trace: Trace) -> dict[int, set[str | None]]:
    """For each operation what the kernels say that it or one inside it launched; None where one says nothing, or casts:
    under autocast an operation's operands are of other types than its kernels work on."""
    by_name = [kernel_type(name) for name in trace.names]
    casting = [name in _COPIES for name in trace.names]
    types: dict[int, set[str | None]] = {}
    parent = trace.ops.parent
    for name, op in zip(trace.kernels.name.tolist(), trace.kernels.op.tolist(), strict=True):
        if _ADDS_UP in trace.names[name]:
            continue
        told = None if op != NONE and casting[trace.ops.name[op]] else by_name[name]
        while op != NONE:
            types.setdefault(op, set()).add(told)
            op = int(parent[op])
    return types
