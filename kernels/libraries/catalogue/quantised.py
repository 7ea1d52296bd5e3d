"""Products of one-byte and half-byte numbers, quantisation, sparse weights. Torch-free."""

from __future__ import annotations

from kernels.libraries.conditions import (
    FP8_STORED,
    HALF,
    NO_DOUBLE,
    at_least,
    at_most,
    compiled,
    constant,
    multiple,
)
from kernels.libraries.model import Condition, Entry, Facts, Operation, capability_among

FP8, FP8_BLOCKS = frozenset({"fp8_gemm"}), frozenset({"fp8_block_gemm"})
MX = frozenset({"mx_gemm"})
INT8, INT8_WEIGHT, INT4 = frozenset({"int8_gemm"}), frozenset({"int8_weight_gemm"}), frozenset({"int4_gemm"})
QUANTISE = frozenset({"quantise"})

SMALL_BATCH = at_most("a", 64, "up to 64 rows (Marlin: 3.1 times up to 16, none at 128)", 0)
SIXTEENS = multiple("inner and outer size multiples of 16", 16, ("a", -1), ("b", 0), ("b", 1))
SIXTEENS_MX = multiple("sizes multiples of 16", 16, ("x", -1), ("mat2", 0), ("mat2", 1))
GROUPS = constant("group", "groups of 32, 64 or 128", lambda n: n in (32, 64, 128))
PLAIN = Condition("one scale a tensor or a token", lambda f: not f.roles.get("block"))
NO_MXFP4 = Condition(
    "f4 with scales of f8e4m3 (torch has mxfp4 on AMD's gfx950 alone)",
    lambda f: f.arch == "gfx950" or f.dtype != "f4e2m1x2" or f.dtypes.get("scale_a") != "f8e8m0",
)


def _block_units(facts: Facts) -> bool | None:
    """Block formats have units in sm_100 and newer; of AMD's in gfx950, where torch's call takes mxfp4."""
    if facts.arch.startswith("gfx"):
        return facts.arch == "gfx950" and facts.dtype == "f4e2m1x2" and facts.dtypes.get("scale_a") == "f8e8m0"
    return None if facts.capability is None else facts.capability >= (10, 0)


BLOCK_UNITS = Condition("NVIDIA GPU of compute capability 10.0 or newer, for mxfp4 gfx950", _block_units)
BLOCKED = Condition("one scale a block", lambda f: bool(f.roles.get("block")))

OPERATIONS: tuple[Operation, ...] = (
    Operation(7, "fp8 GEMM, a scale a tensor or a row", "Y", FP8),
    Operation(8, "fp8 or f4 GEMM, a scale a block", "Y*", FP8_BLOCKS | MX,
              note="mxfp8, mxfp4 and nvfp4 are written with torch._scaled_mm, whose scales lie as cuBLAS wants them"),
    Operation(9, "int8 x int8 GEMM", "Y", INT8),
    Operation(10, "int8 weight-only GEMM", "C", INT8_WEIGHT),
    Operation(11, "int4 weight-only GEMM", "Y*", INT4),
    Operation(12, "2:4 sparse linear", "Y*", inexpressible="a region's tensors are dense: no to_sparse_semi_structured",
              note="torch.sparse.to_sparse_semi_structured: f16, bf16, i8; sm_80; sizes in multiples of 64"),
    Operation(13, "block-sparse or CSR product", "Y*", inexpressible="a region's tensors are dense: no to_sparse_csr",
              note="torch.sparse.mm, for high sparsity only"),
    Operation(45, "quantisation to int8 or fp8, a scale a tensor or a token", "C", QUANTISE, where=(PLAIN,)),
    Operation(46, "fp8 quantisation, a scale a block", "C", QUANTISE, where=(BLOCKED,)),
    Operation(47, "nvfp4 or mxfp4 quantisation with swizzle", "Y", inexpressible="torch has no cast to f4",
              note="flashinfer.fp4_quantize and torchao's mx kernels, sm_100"),
)  # fmt: skip

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "library:torch.nn.functional.scaled_mm", "torch", FP8,
        "F.scaled_mm({a}, {b}, {scale_a}, ScalingType.RowWise, {scale_b}, ScalingType.RowWise)", (SIXTEENS,), (7,),
        (8, 9), ("f8e4m3", "f8e5m2"), True, adapter="scaled_mm", feature="F.scaled_mm", since="2.10",
        note="A scale a row is fast from sm_90 on.", gives_up="no backward: torchao.float8 has one",
        source="torch documentation", targets=frozenset({"_scaled_mm"}),
    ),
    Entry(
        "library:torch.nn.functional.scaled_mm.blockwise", "torch", FP8_BLOCKS,
        "F.scaled_mm({a}, {b}, {scale_a}, ScalingType.BlockWise1x128, {scale_b}, ScalingType.BlockWise128x128)",
        (capability_among((9, 0)), constant("block", "blocks of 128", lambda n: n == 128)), (8,),
        dtypes=("f8e4m3",), forward_only=True, feature="F.scaled_mm", since="2.10",
        unmeasured="scales would have to be turned into cuBLAS's layout outside of the region",
        gives_up="scales in cuBLAS's own layout", source="torch 2.13, torch.nn.functional.ScalingType",
    ),
    Entry(
        "library:flashinfer.mm_fp8", "flashinfer", FP8_BLOCKS,
        "flashinfer.gemm.gemm_fp8_nt_groupwise({a}, {b:turned}, ...)",
        (capability_among((10, 0), (12, 0)),), (8,), dtypes=("f8e4m3",), forward_only=True,
        unmeasured="scales would have to be turned into its layout outside of the region", source="flashinfer fb28d724",
    ),
    Entry(
        "library:torch.nn.functional.scaled_mm.mx", "torch", MX,
        "torch._scaled_mm({x}, {mat2}, {scale_a}, {scale_b}, out_dtype=torch.bfloat16)",
        (BLOCK_UNITS, NO_MXFP4, SIXTEENS_MX), (8,), dtypes=("f8e4m3", "f8e5m2", "f4e2m1x2"), forward_only=True,
        feature="F.scaled_mm", since="2.8",
        unmeasured="it is the call already", gives_up="scales in cuBLAS's own layout; no backward",
        source="torch 2.13, torch/_meta_registrations.py, _check_scaled_mm_sizes_v2", targets=frozenset({"_scaled_mm"}),
    ),
    Entry(
        "library:flashinfer.mm_fp4", "flashinfer", MX,
        "flashinfer.mm_fp4({x}, {mat2}, {scale_a}, {scale_b})",
        (capability_among((10, 0), (10, 3), (12, 0), (12, 1)),), (8,), dtypes=("f4e2m1x2",), forward_only=True,
        adapter="flashinfer_mm_fp4", note="Chooses among cuDNN, CUTLASS, TensorRT-LLM and CuTe DSL kernels.",
        source="flashinfer-python 0.7.2.post1, gemm/gemm_base.py",
    ),
    Entry(
        "library:flashinfer.mm_mxfp8", "flashinfer", MX,
        "flashinfer.mm_mxfp8({x}, {mat2}, {scale_a}, {scale_b})",
        (capability_among((10, 0), (10, 3), (12, 0), (12, 1)),), (8,), dtypes=("f8e4m3",), forward_only=True,
        adapter="flashinfer_mm_mxfp8", source="flashinfer-python 0.7.2.post1, gemm/gemm_base.py",
    ),
    Entry(
        "library:torchao.mx_fp8_bf16", "torchao", MX,
        "torch.ops.torchao.mx_fp8_bf16({x}, {mat2}, {scale_a}, {scale_b})",
        (capability_among((10, 0)),), (8,), dtypes=("f8e4m3",), forward_only=True,
        adapter="torchao_mx_fp8", gives_up="only in torchao's build for sm_100",
        note="quantize_(model, MXDynamicActivationMXWeightConfig()) makes such layers.",
        source="torchao 0.18.0, ops.py, prototype/mx_formats/inference_workflow.py",
    ),
    Entry(
        "library:torch._int_mm", "torch", INT8, "torch._int_mm({a}, {b})",
        (at_least("a", 17, "more than 16 rows", 0), multiple("inner and outer size multiples of 8", 8, ("a", -1),
         ("b", 0), ("b", 1))), (9,), (8, 0), ("i8",), True, adapter="int_mm", feature="aten._int_mm", since="2.1",
        note="The result is int32.", gives_up="a private name", source="torch 2.13; pytorch/ao 6027d82d",
        targets=frozenset({"_int_mm"}),
    ),
    compiled(
        INT8_WEIGHT, 10, conditions=(at_most("a", 64,
        "up to 64 rows: two FLOPs a row for each byte of weight, then arithmetic binds", 0),),
        note="It puts the cast into a matrix-vector product where there is one row.", source="gpt-fast's recipe",
    ),
    Entry(
        "library:torchao.int8_weight_only", "torchao", INT8_WEIGHT, "quantize_(model, Int8WeightOnlyConfig())",
        (), (10,), (8, 0), HALF, True, unmeasured="quantises a module, and torch.compile makes the kernel",
        source="pytorch/ao 6027d82d",
    ),
    Entry(
        "library:gemlite.A16W8", "gemlite", INT8_WEIGHT, "gemlite A16W8_INT8(...)", (SMALL_BATCH,), (10,), (8, 0), HALF,
        True, unmeasured="packs the weights into its own layout beforehand", source="gemlite fd3f933",
    ),
    Entry(
        "library:vllm.marlin_gemm", "vllm", INT4 | INT8_WEIGHT, "vllm ops.marlin_gemm(...)", (SMALL_BATCH, GROUPS),
        (10, 11), (8, 0), HALF,
        True, unmeasured="packs the weights into its own layout beforehand", source="IST-DASLab/marlin; vllm#2497",
        gives_up="weights repacked once; for 128 rows and more an unpacked product wins",
    ),
    Entry(
        "library:torchao.int4_weight_only", "torchao", INT4, "quantize_(model, Int4WeightOnlyConfig())",
        (SMALL_BATCH, GROUPS), (11,), (8, 0), ("bf16",), True,
        unmeasured="packs the weights into its own layout beforehand", source="pytorch/ao 6027d82d",
    ),
    Entry(
        "library:torch._weight_int4pack_mm", "torch", INT4,
        "torch._weight_int4pack_mm({a}, packed, {group}, scales_and_zeros)", (SMALL_BATCH, GROUPS), (11,), (8, 0),
        ("bf16",), True, feature="aten._weight_int4pack_mm", since="2.2",
        unmeasured="packs the weights into its own layout beforehand, with a zero that is subtracted after the scale",
        gives_up="a private name; weights repacked once", source="torch 2.13",
        targets=frozenset({"_weight_int4pack_mm"}),
    ),
    Entry(
        "library:gemlite.A16W4", "gemlite", INT4, "gemlite A16W4_HQQ_INT(...)", (SMALL_BATCH, GROUPS), (11,), (7, 5),
        HALF,
        True, unmeasured="packs the weights into its own layout beforehand", source="gemlite fd3f933",
    ),
    compiled(
        QUANTISE, 45, 46, conditions=(FP8_STORED,), dtypes=("f32", *HALF), source="vllm#19830, #38026",
        note="One kernel with what stands before it: vLLM runs 1.07 to 1.16 times faster so.",
    ),
    Entry(
        "library:flag_gems.per_token_group_quant_fp8", "flag_gems", QUANTISE,
        "flag_gems.per_token_group_quant_fp8({x}, {block})",
        (BLOCKED, Condition("stored in e4m3", lambda f: f.roles.get("to") == "f8e4m3")), (46,), (9, 0), NO_DOUBLE, True,
        unmeasured="gives scales of another form than the region's", source="flag_gems 5.0.2",
    ),
    Entry(
        "library:vllm.per_token_group_quant_fp8", "vllm", QUANTISE, "vllm per_token_group_quant_fp8({x}, {block})",
        (BLOCKED, Condition("stored in e4m3", lambda f: f.roles.get("to") == "f8e4m3")), (46,), (8, 9), HALF, True,
        unmeasured="gives scales of another form than the region's", source="vllm per_token_group_quant_fp8",
    ),
)  # fmt: skip
