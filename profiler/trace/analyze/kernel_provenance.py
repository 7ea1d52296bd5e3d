"""Who made a kernel, by its name and what launched it: torch.compile, somebody's Triton, or a library.

torch.compile launches every Triton kernel, those it wrote and those of a user that it found in the model, inside an
operation with `kernel_backend: "triton"` and `kernel_file` (get_profiler_kwargs in torch/_inductor/runtime/
triton_heuristics.py). That operation has the kernel's unique name also where the kernel itself is only `triton_`
(unique_kernel_names=0), and a user's kernel is called as its function there, with a number (define_user_defined_
triton_kernel in torch/_inductor/codegen/wrapper.py).
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from profiler.trace.analyze.known_libraries import library_of_kernel
from profiler.trace.mmap_columns import take
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
    by_inductor = _by_name(trace, [COMPILED.match(name) is not None for name in trace.names])
    inside = _by_op(trace, [name in trace.triton_files for name in trace.names])
    by_inductor |= inside & _by_op(trace, [COMPILED.match(name) is not None for name in trace.names])
    marks = np.array([name.startswith(_COMPILED_OPS) for name in trace.names], np.bool_)
    if marks.any():
        kernels = np.flatnonzero(trace.kernels.op != NONE)
        above = trace.kernels.op[kernels].astype(np.int64)
        while len(kernels):
            inside[kernels] |= marks[trace.ops.name[above]]
            above = trace.ops.parent[above].astype(np.int64)
            kernels, above = kernels[above != NONE], above[above != NONE]
    return by_inductor, inside | by_inductor


def hand_written_triton(trace: Trace) -> Mask:
    """bool [kernels]: launched by torch.compile as somebody's; or a plain function's name, no library's, launched
    outside of aten operations. A known library's Triton is the library's.

    C++ kernels carry their signature or a mangled name; Triton names a kernel as its Python function. A custom op or
    nothing at all is around the launch. Without operations in the trace only kernels of graphs are looked at.
    """
    plain_name = _by_name(
        trace,
        [
            _PLAIN.match(name) is not None
            and not _LIBRARIES.search(name)
            and not COMPILED.match(name)
            and not library_of_kernel(name)
            for name in trace.names
        ],
    )
    linked = trace.kernels.op != NONE
    aten = _by_op(trace, [name.startswith("aten::") for name in trace.names])
    launch_known = linked | trace.kernels.graph | (trace.kernels.launched & (len(trace.ops.name) > 0))
    run_by_compile = _by_op(trace, [name in trace.triton_files for name in trace.names])
    written_by_it = run_by_compile & compiled_kernels(trace)[0]
    known = _by_name(trace, [bool(library_of_kernel(name)) for name in trace.names])
    hand_written: Mask = (plain_name & ~aten & launch_known | run_by_compile & ~known) & ~written_by_it
    return hand_written


def library_times(trace: Trace) -> dict[str, float]:
    """Library -> µs of its kernels, what takes most first: those that no aten operation launched."""
    aten = _by_op(trace, [name.startswith("aten::") for name in trace.names])
    time = np.bincount(trace.kernels.name[~aten], trace.kernels.duration_us[~aten], minlength=len(trace.names))
    made: dict[str, float] = {}
    for number in np.flatnonzero(time).tolist():
        library = library_of_kernel(trace.names[number])
        if library:
            made[library] = made.get(library, 0.0) + float(time[number])
    return dict(sorted(made.items(), key=lambda item: -item[1]))


def _by_name(trace: Trace, marks: list[bool]) -> Mask:
    marked = np.array(marks, np.bool_)
    return marked[trace.kernels.name] if len(marked) else np.zeros(len(trace.kernels.name), np.bool_)


def _by_op(trace: Trace, marks: list[bool]) -> Mask:
    """Marks of the operations' names, for each kernel that of the one it is linked to."""
    mask = np.zeros(len(trace.kernels.op), np.bool_)
    linked = np.flatnonzero(trace.kernels.op != NONE)
    if len(linked):
        mask[linked] = np.array(marks, np.bool_)[take(trace.ops.name, trace.kernels.op[linked])]
    return mask
