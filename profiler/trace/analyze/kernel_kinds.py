"""What a GPU kernel computes, what to call it and whether it moves data between ranks, by its name alone. Torch-free.

Names are all that a trace has of a kernel that no operation is linked to, and of every one on a graph.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

COMMUNICATION, INDUCTOR, OPTIMIZER, ATTENTION = "communication", "torch.compile's", "optimizer, foreach", "attention"
NORM, SOFTMAX, CONVOLUTION, GEMM = "normalisation", "softmax, loss", "convolution", "matrix product"
LOOKUP, SORT, RANDOM, COPY = "embedding, index", "sort, scan", "dropout, random", "copy, cast, layout"
REDUCTION, POINTWISE, OTHER = "reduction", "pointwise", "other"

_PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # The first row that has a part of the lowered name wins: cuDNN's batch norm before its convolutions, flash
    # attention of CUTLASS before its products, a product's split-k reduction before reductions.
    (INDUCTOR, ("triton_poi_", "triton_red_", "triton_per_", "triton_tem_", "triton_for_", "triton_unk_")),
    (OPTIMIZER, ("multi_tensor_apply", "fusedadam", "fused_adam", "adamfunctor", "adagrad", "sgd_kernel")),
    (ATTENTION, ("flash", "fmha", "sdpa", "attn", "attention", "mha_", "compute_dot_do_o")),
    (NORM, ("layer_norm", "layernorm", "rms_norm", "rmsnorm", "batch_norm", "batchnorm", "group_norm", "groupnorm",
            "rowwisemoments", "gammabeta", "bn_fw", "bn_bw", "miopenbatchnorm")),
    (SOFTMAX, ("softmax", "nll_loss", "cross_entropy", "crossentropy", "mseloss", "binary_cross", "classnll")),
    (GEMM, ("splitkreduce", "gemmk1")),
    (CONVOLUTION, ("winograd", "wgrad", "dgrad", "fprop", "scudnn", "conv", "igemm_fwd", "igemm_bwd", "igemm_wrw",
                   "miopensp3")),
    (GEMM, ("gemm", "nvjet", "cijk_", "cutlass", "gemv", "xmma", "cublas", "marlin", "machete", "dot_kernel",
            "reduce_1block_kernel", "matmul", "wmma")),
    (SORT, ("radixsort", "sort", "devicescan", "scan", "topk", "bitonic", "gathertopk")),
    (RANDOM, ("dropout", "distribution", "philox", "bernoulli")),
    (LOOKUP, ("embedding", "index", "gather", "scatter", "nonzero", "masked_select", "permute_pooled")),
    (REDUCTION, ("reduce_kernel", "pool", "reduce", "_sum")),
    (COPY, ("copy_kernel", "catarray", "transpose", "nchwtonhwc", "nhwctonchw", "fillfunctor", "memcpy", "memset",
            "copydevice", "nchw2nhwc", "permute", "copybuffer", "fillbuffer", "rearrange")),
    (POINTWISE, ("elementwise", "pointwise", "activation", "silu", "gelu", "relu", "rotary", "rope", "_add", "_mul")),
)  # fmt: skip

_COMMUNICATION_KERNELS = (
    "nccldev", "ncclkernel", "rccl", "mscclkernel", "cross_device_reduce", "multimem_all_reduce", "nvshmem",
    "deep_ep::", "quick_all_reduce",
)  # fmt: skip
"""NCCL, RCCL and MSCCL name their kernels so; the others are all-reduces of vLLM, torch's symmetric memory, DeepEP."""

_COMMUNICATION_OPS = ("nccl:", "gloo:", "mpi:", "ucc:", "c10d::", "_c10d_functional::", "record_param_comms")

_TF32 = ("tf32", "s1688", "tensorop_s")
_OF_FEWER_BITS = re.compile(r"bf16|fp16|f16|half|e4m3|e5m2|_[su][48]_", re.IGNORECASE)
"""In names of kernels that multiply in TF32, cuBLAS's and CUTLASS's, and of those whose operands have 16 bits or
fewer, which share some of these marks: cutlass_75_tensorop_bf16_s1688gemm_bf16."""

READ = 600
"""Characters of a name that are read: the patterns take quadratic time on what is no name."""
_NAMESPACES = re.compile(r"(?:\w+|\(anonymous namespace\))::")
_FUNCTOR = re.compile(
    r"(?:CUDAFunctor(?:OnSelf|OnOther|OnTensor)?_(\w+?)|(\w+?)_?Functor(?!_)|(\w+?)_kernel(?:_cuda|_impl|_bf16)?\b"
    r"|(\w+?)(?:Kernel)?CUDAKernelImpl|(\w+?)KernelImpl|launch_(\w+))(?=[<(:{,> ]|$)"
)
_CUTLASS = re.compile(r"(?:void )?cutlass\w*::Kernel2?<(\w+)>")
_WRAPPED = re.compile(r"elementwise_kernel|multi_tensor_apply_kernel|reduce_kernel|elementwise_kernel_manual_unroll")
_HOLDERS = frozenset(
    {"Binary", "BUnary", "AUnary", "at", "native", "vectorized_elementwise", "gpu", "_cuda_scatter_gather_internal"}
)
"""What only holds the functor that computes."""
_ENTRIES = frozenset({"Kernel", "Kernel2", "kentry"})
"""Of a library's every kernel: what it computes is in its template."""
_SYMBOL = re.compile(r"(?:St|L)?(\d+)")
_CASTS = {"direct_copy": "copy", "bfloat16_copy": "cast to bf16", "float16_copy": "cast to f16", "Fill": "fill"}


def is_communication(kernel: str) -> bool:
    """Whether a kernel of this name moves data between ranks."""
    lowercase = kernel.lower()
    return any(part in lowercase for part in _COMMUNICATION_KERNELS)


def is_communication_op(name: str) -> bool:
    """Whether an operation or annotation of this name does."""
    return name.startswith(_COMMUNICATION_OPS)


def communication_kernels(names: Sequence[str], name: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """bool [kernels]: which of them move data between ranks. name: int [kernels], indices into names."""
    marked = np.array([is_communication(text) for text in names], np.bool_)
    return marked[name] if len(marked) else np.zeros(len(name), np.bool_)


@lru_cache(maxsize=8192)
def kernel_kind(name: str) -> str:
    """What the kernel computes, as the pages call it: GEMM, POINTWISE, ...; OTHER where the name tells nothing."""
    if is_communication(name):
        return COMMUNICATION
    lowercase = name.lower().replace("fbgemm", "")  # a library of embeddings
    return next((kind for kind, parts in _PARTS if any(part in lowercase for part in parts)), OTHER)


@lru_cache(maxsize=8192)
def kernel_label(name: str, longest: int = 60) -> str:
    """A kernel's name without return type, namespaces, template and call arguments: `vectorized_elementwise_kernel` of
    ATen by what it computes, `add (elementwise)`. Cut in the middle where it is longer, as variants differ at the end.
    """
    text = name[:READ].strip()
    if text.startswith("_Z"):
        text = _demangle(text)
    if of_cutlass := _CUTLASS.match(text):
        return _cut(of_cutlass[1], longest)
    wrapper = _WRAPPED.search(text)
    if wrapper and "<" in text and (inner := _functor(text[text.index("<") :])):
        what = {"r": "reduction", "m": "foreach"}.get(wrapper[0][0], "elementwise")
        return _cut(f"{inner} ({what})", longest)
    return _cut(_plain(text), longest)


def _functor(arguments: str) -> str:
    """What an ATen kernel's template says that it computes; "" where it does not."""
    for match in _FUNCTOR.finditer(arguments):
        inner = next(group for group in match.groups() if group)
        if inner not in _HOLDERS:
            return _CASTS.get(inner, inner)
    return ""


def _plain(text: str) -> str:
    """Before the first bracket of arguments, without the return type and namespaces."""
    text = text.removeprefix("void ").replace("(anonymous namespace)::", "")
    depth = 0
    letters: list[str] = []
    for letter in text:
        if letter in "<(" and not (letter == "(" and not letters):
            depth += 1
        elif letter in ">)" and depth:
            depth -= 1
            continue
        if not depth:
            letters.append(letter)
    bare = "".join(letters).strip() or text
    return _NAMESPACES.sub("", bare).strip() or bare


def _demangle(text: str) -> str:
    """The last name of an Itanium-mangled symbol's path; the symbol where it cannot be read."""
    at, names = 2 + text[2:].startswith("N"), []
    while match := _SYMBOL.match(text, at):
        length = int(match[1])
        if not length or match.end() + length > len(text):
            break
        names.append(text[match.end() : match.end() + length])
        at = match.end() + length
    named = [n for n in names if not n.startswith("_GLOBAL__")]
    if named and named[-1] in _ENTRIES:
        inside = (text[f.end() : f.end() + int(f[1])] for f in re.finditer(r"(?<!\d)(\d{2})(?=[A-Za-z_])", text[:4096]))
        named += [name for name in inside if name not in named and not name.startswith("_GLOBAL__")][:1]
    return named[-1] if named else text


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 3
    return f"{text[: longest - 1 - tail]}…{text[-tail:]}"


def is_tf32(name: str) -> bool:
    """A kernel of that name multiplies f32 numbers rounded to TF32, on the matrix units."""
    short = name[:READ].lower()
    return any(mark in short for mark in _TF32) and not _OF_FEWER_BITS.search(short)
