"""Who made a kernel, by its name and what launched it: torch.compile, somebody's Triton, or a library."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from profiler.trace.model import NONE, Trace

COMPILED = re.compile(r"triton_(?:poi|red|per|tem|for|mm|\d|_)")
"""Inductor's kernels: triton_poi/red/per_fused_* (2.6 on by default), triton_0 (2.4, 2.5), triton__0d1d2d (2.0)."""

_COMPILED_OPS = ("Torch-Compiled Region", "CompiledFunction", "## Call CompiledFxGraph")
"""Operations round what a compiled model runs, extern kernels included."""

_PLAIN = re.compile(r"(?!_Z)[a-z_][A-Za-z0-9_]*$")
_LIBRARIES = re.compile(
    r"nvjet|cudnn|cublas|cutlass|cask|ampere_|volta_|turing_|maxwell_|hopper_|sm\d+_|xmma|fmha|gemv|splitk|"
    r"batched_transpose|igemm_|naive_conv|miopen|rocblas|hipblas|gemm|conv2d_|dgrad2d_|wgrad2d_|mscclkernel|"
    r"__amd_rocclr|nccl|rccl|^k$|^kernel$",
    re.IGNORECASE,
)
"""Kernels of vendors' libraries that are C symbols as well; a bare `kernel` says nothing."""

Mask = npt.NDArray[np.bool_]


def compiled_kernels(trace: Trace) -> tuple[Mask, Mask]:
    """bool [kernels] twice: Inductor's own Triton kernels; every kernel that a compiled region launched, those too."""
    own = _by_name(trace, [COMPILED.match(name) is not None for name in trace.names])
    inside = np.zeros(len(own), np.bool_)
    marks = np.array([name.startswith(_COMPILED_OPS) for name in trace.names], np.bool_)
    if marks.any():
        kernels = np.flatnonzero(trace.kernels.op != NONE)
        above = trace.kernels.op[kernels].astype(np.int64)
        while len(kernels):
            inside[kernels] |= marks[trace.ops.name[above]]
            above = trace.ops.parent[above].astype(np.int64)
            kernels, above = kernels[above != NONE], above[above != NONE]
    return own, inside | own


def hand_written_triton(trace: Trace) -> Mask:
    """bool [kernels]: a plain function's name, no library's, launched outside of aten operations.

    C++ kernels carry their signature or a mangled name; Triton names a kernel as its Python function. A custom op or
    nothing at all is round the launch. Without operations in the trace only kernels of graphs are looked at.
    """
    plain = _by_name(
        trace,
        [
            _PLAIN.match(name) is not None and not _LIBRARIES.search(name) and not COMPILED.match(name)
            for name in trace.names
        ],
    )
    aten = np.zeros(len(plain), np.bool_)
    linked = trace.kernels.op != NONE
    of_aten = np.array([name.startswith("aten::") for name in trace.names], np.bool_)
    aten[linked] = of_aten[trace.ops.name[trace.kernels.op[linked]]]
    told = linked | trace.kernels.graph | (trace.kernels.launched & (len(trace.ops.name) > 0))
    found: Mask = plain & ~aten & told
    return found


def _by_name(trace: Trace, marks: list[bool]) -> Mask:
    marked = np.array(marks, np.bool_)
    return marked[trace.kernels.name] if len(marked) else np.zeros(len(trace.kernels.name), np.bool_)
