"""Kinds of aten operations; `operations` lists which operation is of which kind. Torch-free."""

from __future__ import annotations

GEMM, ATTENTION, CONVOLUTION = "gemm", "attention", "convolution"
POINTWISE, REDUCTION, NORMALISATION, SOFTMAX = "pointwise", "reduction", "normalisation", "softmax"
VIEW, COPY, GATHER, SCATTER, SORT, SCAN = "view", "copy", "gather", "scatter", "sort", "scan"
RANDOM, CONSTANT, FFT, COMMUNICATION, OTHER = "random", "constant", "fft", "communication", "other"

KINDS = (
    GEMM, ATTENTION, CONVOLUTION, POINTWISE, REDUCTION, NORMALISATION, SOFTMAX, VIEW, COPY, GATHER, SCATTER, SORT, SCAN,
    RANDOM, CONSTANT, FFT, COMMUNICATION, OTHER,
)  # fmt: skip

MATRIX_KINDS = frozenset({GEMM, ATTENTION, CONVOLUTION})
"""Kinds whose work is the matrix units': they have FLOPs at those units' rate."""


def base_name(target: str) -> str:
    """`aten.mul.Tensor`, `aten::mul`, `tritonworthy.rms_norm.default` -> `mul`, `mul`, `rms_norm`."""
    name = target.split("::")[-1] if "::" in target else target
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[0] in ("aten", "tritonworthy", "prims") else parts[0]
