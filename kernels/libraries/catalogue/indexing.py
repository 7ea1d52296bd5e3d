"""Embeddings, gathers and scatters, sorts, top-k, sampling, histograms. Torch-free."""

from __future__ import annotations

from math import prod

from kernels.libraries.conditions import (
    FLOATING,
    HALF,
    NO_DOUBLE,
    compiled,
    constant,
    dtype_of,
    rank,
)
from kernels.libraries.model import Condition, Entry, Facts, Operation
from profiler.region.model import ITEMSIZE

EMBED, BACK, BAG = frozenset({"embedding"}), frozenset({"embedding_backward"}), frozenset({"embedding_bag"})
SCATTER, SEGMENT, GATHER = frozenset({"scatter_add"}), frozenset({"segment"}), frozenset({"gather"})
SORT, TOPK, ROUTER = frozenset({"sort"}), frozenset({"topk"}), frozenset({"router"})
SAMPLING, HISTOGRAM = frozenset({"top_p_sampling"}), frozenset({"histogram"})

INT_MAX = 2**31 - 1


def _sortable(f: Facts) -> bool | None:
    size, dim = f.sizes.get("x"), f.roles.get("dim", -1)
    return size[dim] <= INT_MAX if size and isinstance(dim, int) else None


SORTABLE = Condition("up to 2147483647 numbers along the dimension", _sortable)
POWERS = frozenset(2**i for i in range(6, 11))


def _override_k(f: Facts) -> bool | None:
    """K of torch's CuTeDSL top-k: 16 and 32 of short rows, powers of two from 64 to 1024."""
    k = f.roles.get("k")
    return None if not isinstance(k, int) else k in (16, 32) or k in POWERS


def _wave(f: Facts) -> bool | None:
    """A row for each SM: below, aten's kernel shares a row among several."""
    return None if f.processors is None or "x" not in f.sizes else prod(f.sizes["x"][:-1]) >= f.processors


def _rows_of_16_bytes(f: Facts) -> bool | None:
    width = f.size("x")
    return None if width is None else width * ITEMSIZE.get(f.dtype, 4) % 16 == 0


OPERATIONS: tuple[Operation, ...] = (
    Operation(48, "embedding", "C", EMBED),
    Operation(49, "embedding_bag", "Y", BAG),
    Operation(50, "backward of embedding and index_select", "Y", BACK),
    Operation(51, "scatter_add, index_add", "Y*", SCATTER),
    Operation(52, "segment_reduce, scatter_reduce, jagged reductions", "N", SEGMENT),
    Operation(53, "gather, index", "C", GATHER),
    Operation(54, "sort, argsort, unique", "skip", SORT),
    Operation(55, "topk", "Y", TOPK),
    Operation(56, "router: softmax and topk", "Y*", ROUTER),
    Operation(57, "top-p, top-k and min-p sampling", "Y", SAMPLING),
    Operation(62, "histc, bincount, nonzero", "skip", HISTOGRAM),
)

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "library:torch.nn.functional.embedding", "torch", EMBED, "F.embedding({index}, {weight})", (), (48,),
        since="always", unmeasured="it is the call already", source="torch documentation",
        targets=frozenset({"embedding"}),
    ),
    compiled(EMBED, 48, conditions=(FLOATING,), note="Fuses what is done to the rows.", source="catalogue, row 48"),
    Entry(
        "library:torch.nn.functional.embedding_bag", "torch", BAG, "F.embedding_bag({index}, {weight}, ...)",
        (FLOATING,),
        (49,), since="always", unmeasured="it is the call already", note="torch.compile calls the same.",
        source="torch 2.13, torch/_inductor/lowering.py",
        targets=frozenset({"_embedding_bag", "_embedding_bag_forward_only", "embedding_bag"}),
    ),
    Entry(
        "library:fbgemm_gpu.tbe", "fbgemm_gpu", BAG, "SplitTableBatchedEmbeddingBagsCodegen(...)",
        (Condition("sum or mean", lambda f: f.roles.get("mode") in (0, 1)),), (49,), (7, 0), ("f32", "f16"),
        unmeasured="a module that holds its tables", note="For many tables at once.", source="pytorch/FBGEMM",
    ),
    Entry(
        "library:torch.ops.aten.embedding_dense_backward", "torch", BACK,
        "F.embedding(...) under autograd", (FLOATING,), (50,), since="always", unmeasured="it is the call already",
        note="Sorts the indices, adds without atomics.", source="torch documentation",
        targets=frozenset({"embedding_dense_backward"}),
    ),
    compiled(
        BACK, 50, dtypes=("f32",), note="Atomic adds: 50 times slower in bf16.", source="pytorch/pytorch#137425",
    ),
    Entry(
        "library:torch.index_add", "torch", SCATTER, "torch.index_add({x}, {dim}, {index}, {source})", (), (51,),
        since="always", unmeasured="it is the call already", source="torch documentation",
        targets=frozenset({"index_add", "scatter_add"}),
    ),
    Entry(
        "library:torch.index_add.cutedsl", "torch", SCATTER, "torch.index_add({x}, {dim}, {index}, {source})",
        (constant("dim", "over the first dimension", lambda n: n == 0),
         Condition("rows in multiples of 16 bytes", _rows_of_16_bytes)),
        (51,), (9, 0), ("f32", *HALF), feature="native.scatter_add", since="2.13",
        unmeasured="torch picks it by itself", note="TMA reductions, 3 to 7 times faster where many rows meet.",
        source="torch 2.13, torch/_native/ops/scatter_add", targets=frozenset({"index_add", "scatter_add"}),
    ),
    compiled(GATHER, 53, conditions=(dtype_of("index", "i64", "i32"),), source="coverage catalogue, row 53"),
    Entry(
        "library:torch.sort", "torch", SORT, "torch.sort({x}, {dim})", (SORTABLE,), (54,), since="always",
        unmeasured="it is the call already", note="CUB; torch.compile calls the same.", source="torch documentation",
        targets=frozenset({"sort", "argsort", "msort"}),
    ),
    Entry(
        "library:torch.topk", "torch", TOPK, "torch.topk({x}, {k}, {dim})", (), (55,), since="always",
        unmeasured="it is the call already", note="torch.compile calls the same.", source="torch documentation",
        targets=frozenset({"topk"}),
    ),
    Entry(
        "library:torch.topk.cutedsl", "torch", TOPK, "torch.topk({x}, {k}, {dim})",
        (Condition("k of 16 or 32, or a power of two from 64 to 1024", _override_k),
         Condition("a row for each SM or more", _wave),
         Condition("f32, or bf16 from torch 2.15 on",
         lambda f: f.dtype == "f32" or (None if f.dtype == "bf16" else False)),
         Condition("the largest, in order", lambda f: f.roles.get("largest", True) is True)), (55,), (9, 0),
        feature="native.topk", since="2.13", unmeasured="torch picks it by itself", note="Not for a router's k of 8.",
        source="torch 2.13, torch/_native/ops/topk", targets=frozenset({"topk"}),
    ),
    Entry(
        "library:quack.topk", "quack", TOPK, "quack.topk.topk({x}, {k})",
        (rank("x", 2, "two dimensions"), constant("k", "k up to 32768", lambda k: k <= 32768),
         Condition("the largest, in order", lambda f: f.roles.get("largest", True) is True)), (55,), (9, 0), NO_DOUBLE,
        adapter="quack_topk", gives_up="indices of 32 bits", source="quack-kernels 0.6.5, topk.py",
    ),
    Entry(
        "library:flag_gems.topk", "flag_gems", TOPK, "flag_gems.topk({x}, {k})",
        (), (55,), dtypes=NO_DOUBLE, forward_only=True,
        adapter="flag_gems_topk", source="flag_gems 5.0.2",
    ),
    Entry(
        "library:flashinfer.top_k", "flashinfer", TOPK, "flashinfer.top_k({x}, {k})", (rank("x", 2, "two dimensions"),),
        (55,), (8, 0), NO_DOUBLE, True, unmeasured="gives them in no order", source="flashinfer fb28d724",
    ),
    Entry(
        "library:vllm.topk_softmax", "vllm", ROUTER, "vllm ops.topk_softmax(weights, ids, token_ids, {x})",
        (), (56,), (7, 0), NO_DOUBLE, True,
        unmeasured="writes into tensors that are given", source="vllm topk_softmax",
    ),
    Entry(
        "library:flag_gems.topk_softmax", "flag_gems", ROUTER, "flag_gems.topk_softmax(weights, ids, token_ids, {x})",
        (constant("k", "k up to 32", lambda k: k <= 32),), (56,), dtypes=NO_DOUBLE, forward_only=True,
        unmeasured="writes into tensors that are given", source="flag_gems 5.0.2, fused/topk_softmax.py",
    ),
    Entry(
        "library:flashinfer.top_p_sampling_from_probs", "flashinfer", SAMPLING,
        "flashinfer.sampling.top_p_sampling_from_probs(torch.softmax({x}.float(), -1), {p})",
        (constant("samples", "one sample a row", lambda n: n == 1), rank("x", 2, "two dimensions")), (57,), (7, 5),
        forward_only=True, adapter="flashinfer_top_p", note="No sort: 3.1 to 6.9 times faster.",
        gives_up="other random numbers", source="flashinfer fb28d724; vllm#11394",
    ),
    Entry(
        "library:torch.histc", "torch", HISTOGRAM, "torch.histc({x}, ...)",
        (Condition("not f16 or bf16: CUDA has no such histogram",
                   lambda f: f.roles.get("call") != "histc" or f.dtype not in HALF),), (62,), since="always",
        unmeasured="it is the call already", note="torch.compile calls the same.", source="torch documentation",
        targets=frozenset({"histc", "bincount", "nonzero"}),
    ),
)  # fmt: skip
