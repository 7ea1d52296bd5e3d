"""Norms and softmax, alone and with what stands round them. Torch-free."""

from __future__ import annotations

from kernels.libraries.conditions import (
    FLOATING,
    FP8_STORED,
    HALF,
    LAST_DIM,
    NO_DOUBLE,
    OTHER_DIM,
    compiled,
    constant,
    dtype_of,
    liger_row,
    multiple,
    rank,
)
from kernels.libraries.model import Condition, Entry, Facts, Operation

RMS, LAYER, ADD_RMS = frozenset({"rms_norm"}), frozenset({"layer_norm"}), frozenset({"add_rms_norm"})
QUANT, GROUP, BATCH = frozenset({"norm_quant"}), frozenset({"group_norm"}), frozenset({"batch_norm"})
SOFTMAX, MASKED, DROPPED = frozenset({"softmax"}), frozenset({"masked_softmax"}), frozenset({"dropout_add_norm"})
BLOCK_BYTES = 65536
"""What flash_attn's layer norm holds of one row (ops/triton/layer_norm.py)."""
PERSISTENT_OUTER, GROUP_PERSISTENT = 64, 4096


def _same_weight(f: Facts) -> bool:
    return f.dtypes.get("weight", f.dtype) == f.dtype


def _along(f: Facts) -> bool | None:
    size, dim = f.sizes.get("x"), f.roles.get("dim")
    return size[dim] <= PERSISTENT_OUTER if size and isinstance(dim, int) and dim < len(size) else None


def _group_elements(f: Facts) -> bool | None:
    """Elements of a group: said by hand, or of the call's sizes."""
    elements = f.roles.get("group_elements")
    if isinstance(elements, int):
        return elements <= GROUP_PERSISTENT
    c, hw, groups = (f.roles.get(n) for n in ("C", "HxW", "group"))
    if not (isinstance(c, int) and isinstance(hw, int) and isinstance(groups, int)):
        return None
    return c * hw // groups <= GROUP_PERSISTENT


def _fits_block(f: Facts) -> bool | None:
    width = f.size("x")
    return None if width is None else width * (4 if f.dtype == "f32" else 2) <= BLOCK_BYTES


WEIGHT_F32 = dtype_of("weight", "f32")
OPERATIONS: tuple[Operation, ...] = (
    Operation(25, "layer_norm", "Y", LAYER),
    Operation(26, "rms_norm", "Y", RMS),
    Operation(27, "residual add and rms_norm", "C", ADD_RMS),
    Operation(28, "norm and quantisation", "C", QUANT, note="nvfp4 is no type of a region's text; flashinfer has it"),
    Operation(29, "group_norm", "C", GROUP),
    Operation(30, "batch_norm", "Y", BATCH),
    Operation(31, "softmax over the last dimension", "C", SOFTMAX, where=(LAST_DIM,)),
    Operation(32, "softmax over another dimension", "N*", SOFTMAX, where=(OTHER_DIM,)),
    Operation(33, "scaled or masked softmax", "C", MASKED),
    Operation(44, "bias, dropout, residual, layer_norm", "C", DROPPED),
)

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "library:torch.nn.functional.rms_norm", "torch", RMS, "F.rms_norm({x}, ({width},), weight={weight}, eps={eps})",
        (FLOATING, Condition("weight in x's dtype, else torch runs it in several kernels", _same_weight)), (26,),
        adapter="rms_norm", feature="F.rms_norm", since="2.4, one kernel since 2.9",
        note="One CUDA kernel since torch 2.9. Measured on an H200 (torch 2.11) it was slower than torch.compile "
             "from 8192 columns: 223 against 134 µs at 8192x16384.",
        source="pytorch/pytorch#153666; measurements on one H200, 2026-11-21",
        targets=frozenset({"rms_norm", "_fused_rms_norm"}),
    ),
    Entry(
        "library:torch.nn.functional.layer_norm", "torch", LAYER,
        "F.layer_norm({x}, ({width},), weight={weight}, bias={bias}, eps={eps})", (FLOATING,), (25,),
        adapter="layer_norm", since="always", note="Native CUDA kernel, forward and backward.",
        source="torch documentation", targets=frozenset({"native_layer_norm"}),
    ),
    Entry(
        "library:torch.softmax", "torch", SOFTMAX, "torch.softmax({x}, dim={dim})", (FLOATING, LAST_DIM), (31,),
        adapter="softmax", since="always", note="Native CUDA kernel.", source="torch documentation",
        targets=frozenset({"_softmax"}), takes_dtype=True,
    ),
    Entry(
        "library:torch.nn.functional.group_norm", "torch", GROUP,
        "F.group_norm({x}, {num_groups}, weight={weight}, bias={bias}, eps={eps})", (FLOATING,), (29,),
        adapter="group_norm", since="always", source="torch documentation", targets=frozenset({"native_group_norm"}),
    ),
    Entry(
        "library:torch.nn.functional.batch_norm", "torch", BATCH,
        "F.batch_norm({x}, None, None, weight={weight}, bias={bias}, training=True, eps={eps})",
        (Condition("f16, bf16 or f32 for cuDNN", lambda f: f.dtype in NO_DOUBLE),), (30,), adapter="batch_norm",
        since="always", source="torch documentation", note="cuDNN; channels_last is the faster layout.",
        targets=frozenset({"native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm",
                           "_native_batch_norm_legit_functional"}),
    ),
    Entry(
        "library:liger_kernel.rms_norm", "liger_kernel", RMS, "liger_rms_norm({x}, {weight}, {eps}, in_place=False)",
        (liger_row("x"), Condition("with a weight", lambda f: "weight" in f.sizes)),
        (26,), dtypes=NO_DOUBLE, adapter="liger_rms_norm", since="0.1",
        note="Its default, in_place=True, writes the gradient of x over the gradient that comes in.",
        source="linkedin/Liger-Kernel ead96b61; measured elsewhere at 70 µs on an H200, at rows of 4096",
    ),
    Entry(
        "library:quack.rmsnorm", "quack", RMS, "quack.rmsnorm({x}, {weight}, eps={eps})", (), (26,), (9, 0), NO_DOUBLE,
        adapter="quack_rmsnorm", since="0.2", gives_up="CuTeDSL compiles at the first call",
        source="quack-kernels 0.6.5; 265 µs for 4096x65536 on an H200",
    ),
    Entry(
        "library:flag_gems.rms_norm", "flag_gems", RMS, "flag_gems.rms_norm({x}, ({width},), {weight}, {eps})",
        (Condition("with a weight", lambda f: "weight" in f.sizes),), (26,), dtypes=NO_DOUBLE,
        adapter="flag_gems_rms_norm", source="flag_gems 5.0.2",
    ),
    Entry(
        "library:vllm.rms_norm", "vllm", RMS, "vllm._custom_ops.rms_norm(out, {x}, {weight}, {eps})",
        (Condition("with a weight", lambda f: "weight" in f.sizes),), (26,), (8, 0), NO_DOUBLE, True,
        adapter="vllm_rms_norm", gives_up="writes into a tensor that is given", source="vllm 0.33.0, _custom_ops.py",
    ),
    Entry(
        "library:unsloth.rms_norm", "unsloth", RMS, "Fast_RMS_Layernorm.apply({x}, {weight}, {eps})",
        (Condition("with a weight", lambda f: "weight" in f.sizes), liger_row("x")), (26,), (7, 0), NO_DOUBLE,
        adapter="unsloth_rms_norm", gives_up="importing unsloth changes transformers' classes",
        source="unsloth 2026.10.9, kernels/rms_layernorm.py",
    ),
    Entry(
        "library:flashinfer.rmsnorm", "flashinfer", RMS, "flashinfer.rmsnorm({x}, {weight}, {eps})",
        (Condition("with a weight", lambda f: "weight" in f.sizes), rank("x", 2, "two dimensions")), (26,), (8, 0),
        HALF,
        True, adapter="flashinfer_rmsnorm", source="flashinfer fb28d724",
    ),
    Entry(
        "library:liger_kernel.layer_norm", "liger_kernel", LAYER, "liger_layer_norm({x}, {weight}, {bias}, {eps})",
        (liger_row("x"),
         Condition("with weight and bias", lambda f: "weight" in f.sizes and "bias" in f.sizes)), (25,),
        dtypes=NO_DOUBLE, adapter="liger_layer_norm", since="0.1",
        note="Slower than torch's own below about 8000 columns: 0.266 against 0.080 ms at 4096x1024, H100.",
        source="linkedin/Liger-Kernel ead96b61, benchmark data",
    ),
    Entry(
        "library:quack.layernorm", "quack", LAYER, "quack.rmsnorm.layernorm_fwd({x}, {weight}, bias={bias}, eps={eps})",
        (WEIGHT_F32, dtype_of("bias", "f32"), Condition("with a weight", lambda f: "weight" in f.sizes)), (25,), (9, 0),
        NO_DOUBLE, True, adapter="quack_layernorm", source="quack-kernels 0.6.5, rmsnorm.py",
    ),
    Entry(
        "library:flag_gems.layer_norm", "flag_gems", LAYER,
        "flag_gems.layer_norm({x}, ({width},), {weight}, {bias}, {eps})", (), (25,), dtypes=NO_DOUBLE,
        forward_only=True, adapter="flag_gems_layer_norm", source="flag_gems 5.0.2",
    ),
    compiled(ADD_RMS, 27, source="vllm#55329: 54.8 µs against FlashInfer's 54.9, RTX 5090", dtypes=NO_DOUBLE),
    Entry(
        "library:flashinfer.fused_add_rmsnorm", "flashinfer", ADD_RMS,
        "flashinfer.fused_add_rmsnorm({x}, {residual}, {weight}, {eps})",
        (Condition("with a weight", lambda f: "weight" in f.sizes), rank("x", 2, "two dimensions")), (27,), (8, 0),
        HALF,
        True, adapter="flashinfer_fused_add_rmsnorm", gives_up="overwrites both operands",
        note="Measured on copies of both operands, which counts against it.", source="flashinfer fb28d724",
    ),
    Entry(
        "library:liger_kernel.fused_add_rms_norm", "liger_kernel", ADD_RMS,
        "liger_fused_add_rms_norm({x}, {residual}, {weight}, {eps}, in_place=False)",
        (liger_row("x"), Condition("with a weight", lambda f: "weight" in f.sizes)),
        (27,), dtypes=NO_DOUBLE, adapter="liger_fused_add_rms_norm", since="0.6",
        note="Its default, in_place=True, writes the gradient of x over the gradient that comes in.",
        source="liger_kernel 0.8.5, ops/fused_add_rms_norm.py",
    ),
    compiled(QUANT, 28, conditions=(FP8_STORED,), dtypes=NO_DOUBLE, source="vllm#38026"),
    Entry(
        "library:flashinfer.rmsnorm_quant", "flashinfer", QUANT,
        "flashinfer.norm.rmsnorm_quant(out, {x}, {weight}, scale)",
        (Condition("stored in e4m3", lambda f: f.roles.get("to") == "f8e4m3"),), (28,), (8, 9), HALF, True,
        unmeasured="takes a scale that is known beforehand", source="flashinfer fb28d724",
    ),
    compiled(
        GROUP, 29, conditions=(FLOATING, Condition(
            f"groups of up to {GROUP_PERSISTENT} numbers: one kernel, three above", _group_elements,
        )), source="Inductor's kernels, counted without a GPU",
    ),
    Entry(
        "library:liger_kernel.group_norm", "liger_kernel", GROUP,
        "liger_group_norm({x}, {weight}, {bias}, {C}, {num_groups}, {eps})", (), (29,), dtypes=NO_DOUBLE,
        adapter="liger_group_norm", since="0.3", source="liger_kernel 0.8.5, ops/group_norm.py",
        note="Its published gain is over eager, not over torch.compile.",
        gives_up="mean and deviation are kept in x's dtype, gradients of weight and bias added up in theirs",
    ),
    Entry(
        "library:flag_gems.group_norm", "flag_gems", GROUP,
        "flag_gems.group_norm({x}, {weight}, {bias}, {N}, {C}, {HxW}, {num_groups}, {eps})",
        (), (29,), dtypes=NO_DOUBLE, forward_only=True, adapter="flag_gems_group_norm", source="flag_gems 5.0.2",
    ),
    compiled(SOFTMAX, 31, conditions=(FLOATING, LAST_DIM), source="pytorch/pytorch#127011"),
    compiled(
        SOFTMAX, 32, conditions=(FLOATING, OTHER_DIM, Condition(
            f"up to {PERSISTENT_OUTER} numbers along it: Inductor keeps them in registers, five kernels above", _along,
        )), source="torch 2.13, torch/_inductor/codegen/triton.py; Inductor's kernels, counted without a GPU",
    ),
    Entry(
        "library:quack.softmax", "quack", SOFTMAX, "quack.softmax({x})",
        (LAST_DIM, multiple("rows in multiples of 8", 8, ("x", -1))), (31,), (9, 0), NO_DOUBLE,
        adapter="quack_softmax", gives_up="CuTeDSL compiles at the first call",
        source="quack-kernels 0.6.5; 262 µs for 4096x65536 on an H200",
    ),
    Entry(
        "library:liger_kernel.softmax", "liger_kernel", SOFTMAX, "liger_softmax({x})", (LAST_DIM, liger_row("x")),
        (31,), dtypes=NO_DOUBLE, adapter="liger_softmax", since="0.6", source="liger_kernel 0.8.5, ops/softmax.py",
    ),
    Entry(
        "library:flag_gems.softmax", "flag_gems", SOFTMAX, "flag_gems.softmax({x}, {dim})", (), (31, 32),
        dtypes=NO_DOUBLE, forward_only=True, adapter="flag_gems_softmax", source="flag_gems 5.0.2",
    ),
    compiled(MASKED, 33, conditions=(FLOATING, LAST_DIM), source="coverage catalogue, row 33"),
    compiled(
        DROPPED, 44, dtypes=NO_DOUBLE, source="pytorch/torchdynamo#646",
        gives_up="another mask than eager's, unless fallback_random is set",
    ),
    Entry(
        "library:flash_attn.layer_norm_fn", "flash_attn", DROPPED,
        "flash_attn.ops.triton.layer_norm.layer_norm_fn({x}, {weight}, {shift}, residual={residual}, dropout_p={p})",
        (Condition("rows of up to 64 KiB", _fits_block), constant("p", "a rate below 1", lambda p: p < 1)), (44,),
        dtypes=NO_DOUBLE, unmeasured="draws another mask, and cannot be told the region's",
        source="Dao-AILab/flash-attention 0251105a, ops/triton/layer_norm.py",
    ),
)  # fmt: skip
