"""What stops torch.compile, or holds it up: every kind with what it does, why, and what to do about it. Data only.

Read off torch 2.13 (torch/_dynamo: variables/tensor.py, variables/builder.py, output_graph.py, config.py;
torch/_inductor: config.py, lowering.py, cudagraph_utils.py) and held to it by
tests/profiler/trace/analyze/test_compile_blockers_in_dynamo.py, which runs each break and each remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BREAK, OPAQUE, RECOMPILE, WAIT = "break", "opaque", "recompile", "wait"
"""break: the graph ends there, what follows is compiled anew. opaque: a call that nothing fuses across. recompile: no
break, the compiled code is made again. wait: no break, the host waits, and CUDA graphs are split there."""

EFFECTS: Mapping[str, str] = {
    BREAK: "breaks the graph",
    OPAQUE: "stays a call of its own",
    RECOMPILE: "compiles again",
    WAIT: "holds the host up, no graph break",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of blocker: what it is in three words, its effect, why, and the remedy."""

    title: str
    effect: str
    because: str
    remedy: str


KINDS: Mapping[str, Kind] = {
    "scalar-read": Kind(
        "a value read on the host",
        BREAK,
        "Python needs the number behind a tensor (.item(), int(), float()): by default torch.compile ends its graph "
        "there, and on a GPU the host waits for it",
        "keep it a tensor, or read it after the model has returned; else "
        "torch._dynamo.config.capture_scalar_outputs = True (fullgraph=True sets it) takes it into the graph",
    ),
    "tensor-branch": Kind(
        "an `if` on a tensor",
        BREAK,
        "Python decides on a tensor's value (if, while, assert, bool()): torch.compile cannot trace both ways and ends "
        "its graph there, whatever the settings; code that asks torch.compiler.is_compiling() first is not affected",
        "torch.where or torch.cond instead of the branch, or decide once outside the model and pass a Python bool",
    ),
    "value-comparison": Kind(
        "tensors compared to one bool",
        BREAK,
        "torch.equal and torch.allclose return a Python bool: a data-dependent operator that no setting takes into "
        "the graph",
        "(a == b).all() stays a tensor; or compare outside the model",
    ),
    "data-dependent-size": Kind(
        "a result whose size depends on values",
        BREAK,
        "how many elements come out is only known on the GPU: by default torch.compile ends its graph there, and the "
        "host waits for the count",
        "keep the size fixed, or torch._dynamo.config.capture_dynamic_output_shape_ops = True (fullgraph=True sets it)",
    ),
    "custom-op": Kind(
        "a custom operation",
        OPAQUE,
        "registered outside of PyTorch: nothing fuses into it or across it; where it has no fake (meta) "
        "implementation, which no trace shows, the graph breaks there as well",
        'torch.library.register_fake("{op}") gives it a fake where it has none; a Triton kernel inside: '
        "torch.library.triton_op, so that torch.compile sees the kernel; or the same in aten operations",
    ),
    "extension-call": Kind(
        "a kernel launched past PyTorch",
        BREAK,
        "a C++ or CUDA extension launches it without a registered operation: torch.compile cannot trace the call and "
        "ends its graph there",
        "wrap the call: @torch.library.custom_op(\"mylib::name\", mutates_args=()) and its register_fake; it stays one "
        "opaque call",
    ),
    "quantised-packed": Kind(
        "a quantised operation on packed weights",
        BREAK,
        "the packed weight is a C++ object, no tensor: torch.compile cannot pass it to its graph",
        "torchao.quantization.quantize_(), whose weights are tensors that torch.compile traces",
    ),
    "recurrent": Kind(
        "a cuDNN recurrent layer",
        BREAK,
        "nn.LSTM, nn.GRU and nn.RNN break the graph by default, and run as one library call either way",
        "torch._dynamo.config.allow_rnn = True keeps them in the graph as a call",
    ),
    "torchscript": Kind(
        "TorchScript",
        BREAK,
        "a scripted or traced module is not traced by torch.compile: the graph breaks round it (a function under "
        "torch.jit.script is read from its Python source)",
        "compile the module as it was before torch.jit.script or torch.jit.trace",
    ),
    "sparse": Kind(
        "a sparse tensor",
        BREAK,
        "torch.compile does not take sparse tensors into a graph",
        "keep the sparse product outside of the compiled part, or write it with index_select and index_add, whose "
        "sizes are fixed",
    ),
    "complex": Kind(
        "complex numbers",
        OPAQUE,
        "Inductor makes no code for complex types: these operations stay aten calls, and nothing fuses across them",
        "write it in real numbers: rotary embeddings as cos and sin instead of torch.view_as_complex",
    ),
    "resize": Kind(
        "Tensor.resize_()",
        BREAK,
        "torch.compile does not trace resize_() called from Python",
        "allocate the tensor at its size, or use torch.empty and copy_ into a slice",
    ),
    "communication": Kind(
        "communication between GPUs",
        OPAQUE,
        "nothing fuses across a collective; torch.compile takes all_reduce, all_gather, reduce_scatter and "
        "all_to_all_single of torch.distributed into its graph, and breaks it at the others and at async_op=True",
        "call one of these four without async_op",
    ),
    "copy-to-host": Kind(
        "a copy to the host",
        WAIT,
        "the host waits for the GPU, and mode=\"reduce-overhead\" splits its CUDA graph there; .tolist() on the copy "
        "breaks the graph",
        "move it behind the model's return, or leave the tensor on the GPU",
    ),
    "copy-from-host": Kind(
        "a copy from pageable host memory",
        WAIT,
        "the host waits for the copy, and mode=\"reduce-overhead\" splits its CUDA graph there",
        "make the tensor on the GPU (device=x.device), register it as a buffer, or copy it before the model is called",
    ),
    "view-written": Kind(
        "a write into part of a tensor",
        WAIT,
        "torch.compile turns in-place writes into new values and back, without a break; where the tensor comes from "
        'outside the model (a KV cache), mode="reduce-overhead" runs without a CUDA graph',
        "register the tensor as a buffer, or torch._dynamo.mark_static_address(tensor)",
    ),
    "synchronise": Kind(
        "the host waits for the GPU",
        WAIT,
        "torch.cuda.synchronize() or an event's synchronize() in the middle of the model: the GPU runs dry",
        "take it out of the model; time with torch.profiler or CUDA events read after the step",
    ),
    "many-shapes": Kind(
        "sizes that change from call to call",
        RECOMPILE,
        "torch.compile compiles for the first sizes, again at the first change with that dimension dynamic, and again "
        "where a guard on it fails; with dynamic=False once for every size, and past recompile_limit (8) it runs "
        'eagerly; mode="reduce-overhead" records a CUDA graph for every size',
        "torch._dynamo.mark_dynamic(x, dim) on the input before the first call, or torch.compile(dynamic=True); for "
        "CUDA graphs pad to a few sizes",
    ),
    "growing-shapes": Kind(
        "a tensor that grows with every call",
        RECOMPILE,
        "a cache concatenated to at every call has another size every time: one recompilation makes it dynamic, and "
        'mode="reduce-overhead" would record a CUDA graph for every size',
        "a preallocated cache that is written in place (transformers: cache_implementation=\"static\")",
    ),
    "compiled-in-parts": Kind(
        "a graph break that already happened",
        BREAK,
        "the trace was recorded under torch.compile, and one compiled frame goes on inside another: the graph broke "
        "between them",
        "TORCH_LOGS=graph_breaks names the line; torch.compile(fullgraph=True) fails on it",
    ),
    "recompiled": Kind(
        "code that was compiled again",
        RECOMPILE,
        "the trace was recorded under torch.compile, and one frame ran in several compiled variants",
        "TORCH_LOGS=recompiles names the guard that failed; sizes: torch._dynamo.mark_dynamic(x, dim)",
    ),
}  # fmt: skip
"""By the kind's stable name."""

_BY_MASK = "torch.where(mask, x, 0.0) or x * mask keeps the size fixed"
_PLACES = "torch.nonzero_static(mask, size=) gives a fixed number of places"
_DISTINCT = "find the distinct values outside of the model, or sort and compare neighbours, which keeps the size fixed"
_CAPTURED = "else torch._dynamo.config.capture_dynamic_output_shape_ops = True (fullgraph=True sets it)"

REMEDIES: Mapping[str, str] = {
    "aten::index": f"{_BY_MASK}; {_CAPTURED}",
    "aten::masked_select": f"{_BY_MASK}; {_CAPTURED}",
    "aten::nonzero": f"{_PLACES}; {_CAPTURED}",
    "aten::nonzero_numpy": f"{_PLACES}; {_CAPTURED}",
    "aten::argwhere": f"{_PLACES}; {_CAPTURED}",
    "aten::_unique2": f"{_DISTINCT}; {_CAPTURED}",
    "aten::unique_dim": f"{_DISTINCT}; {_CAPTURED}",
    "aten::unique_consecutive": f"{_DISTINCT}; {_CAPTURED}",
    "aten::bincount": f"zeros(bins).index_add(0, index, ones) has a fixed number of bins; {_CAPTURED}",
    "aten::repeat_interleave": f"repeat_interleave(x, repeats, output_size=) gives the size; {_CAPTURED}",
    "aten::one_hot": "one_hot(x, num_classes=) gives the size",
}
"""By operation, where one has its own; else the kind's."""

BRANCHES = frozenset({"aten::is_nonzero"})
READS = frozenset({"aten::item", "aten::_local_scalar_dense"})
COMPARISONS = frozenset({"aten::equal", "aten::allclose"})

SIZES = frozenset(
    """aten::nonzero aten::nonzero_numpy aten::argwhere aten::masked_select aten::_unique aten::_unique2
    aten::unique_dim aten::unique_consecutive aten::unique_dim_consecutive aten::bincount""".split()
)
"""Operations with the tag dynamic_output_shape: as many results as the values say."""

SIZES_IF_READ = frozenset({"aten::repeat_interleave", "aten::one_hot"})
"""Sizes that depend on values unless an argument gives them; then nothing is copied to the host."""

MASK_WRITES = frozenset({"aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::masked_scatter"})
"""x[mask] = value: eager counts the mask's ones, torch.compile does not need to."""

RECURRENT = frozenset({"aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"})

SPARSE = ("aten::sparse_", "aten::_sparse_", "aten::to_sparse", "aten::_to_sparse", "aten::smm", "aten::_coalesce")
NOT_SPARSE = ("semi_structured", "log_softmax_backward", "_sparse_semi")

OWN_NAMESPACES = frozenset(
    """aten prims prim c10d _c10d_functional c10d_functional torch autograd inductor inductor_prims profiler nccl rccl
    gloo ucc mpi higher_order debugprims rngprims streams quantized""".split()
)
"""What is registered by PyTorch itself, or is no operation."""

COLLECTIVES = ("c10d::", "_c10d_functional::", "c10d_functional::")

HEAVY = frozenset(
    """mm addmm bmm baddbmm matmul linear addbmm einsum conv1d conv2d conv3d convolution cudnn_convolution
    miopen_convolution _convolution conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention
    embedding embedding_bag _grouped_mm _scaled_mm lstm gru _int_mm""".split()
)
"""aten operations that only a model has: not its loss, its metrics or its data loading."""
