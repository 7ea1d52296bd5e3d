"""Products in 16 and 32 bits: one, a batch, groups, with what follows them. Torch-free."""

from __future__ import annotations

from kernels.libraries.conditions import (
    FLOATING,
    HALF,
    NO_DOUBLE,
    compiled,
    constant,
    multiple,
    one_of,
    rank,
    without,
)
from kernels.libraries.model import Condition, Entry, Facts, Operation

GEMM, BATCHED = frozenset({"gemm"}), frozenset({"batched_gemm"})
ACTED, TAIL = frozenset({"gemm_activation"}), frozenset({"gemm_tail", "gemm_activation"})
REDUCED, CHAIN = frozenset({"gemm_reduction"}), frozenset({"gemm_chain"})
GROUPED, MOE, LORA = frozenset({"grouped_gemm"}), frozenset({"moe_mlp"}), frozenset({"lora"})

BIG_GPU_PROCESSORS = 68
"""torch._inductor.utils.is_big_gpu (torch 2.15): below, max-autotune tries no Triton products."""


def _bias_vector(f: Facts) -> bool | None:
    size = f.sizes.get("bias")
    return None if size is None else len([n for n in size if n > 1]) <= 1


OPERATIONS: tuple[Operation, ...] = (
    Operation(1, "mm, addmm", "Y", GEMM),
    Operation(2, "bmm, baddbmm", "Y", BATCHED),
    Operation(3, "addmm with ReLU or GELU", "Y*", ACTED),
    Operation(4, "mm with a pointwise epilogue", "C", TAIL),
    Operation(5, "mm with a row reduction", "N", REDUCED),
    Operation(6, "mm, pointwise, mm of a small hidden size", "N", CHAIN,
              note="torch._inductor.config.b2b_gemm_pass is off by default"),
    Operation(14, "grouped GEMM, a product for each expert", "Y*", GROUPED),
    Operation(15, "MoE experts: gate and up, activation, down", "Y*", MOE),
    Operation(16, "LoRA, x @ A @ B", "C", LORA),
)  # fmt: skip

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "library:torch.mm", "torch", GEMM, "torch.mm({a}, {b})  # F.linear, torch.addmm",
        (Condition("floating-point operands of one dtype", FLOATING.test), rank("a", 2, "two dimensions")), (1,),
        note="cuBLAS; f32 needs torch.set_float32_matmul_precision('high') to use TF32.", since="always",
        unmeasured="it is the call already", source="torch documentation", targets=frozenset({"mm", "addmm"}),
    ),
    Entry(
        "library:torch.bmm", "torch", BATCHED, "torch.bmm({a}, {b})  # torch.baddbmm",
        (Condition("floating-point operands of one dtype", FLOATING.test), rank("a", 3, "three dimensions")), (2,),
        note="cuBLAS, strided and batched; f32 needs torch.set_float32_matmul_precision('high') to use TF32.",
        since="always", unmeasured="it is the call already", source="torch documentation",
        targets=frozenset({"bmm", "baddbmm"}),
    ),
    Entry(
        "library:torch.ops.aten._addmm_activation", "torch", ACTED,
        "torch.ops.aten._addmm_activation({bias}, {a}, {b}, use_gelu={use_gelu})",
        (Condition("two-dimensional product with a 1-D bias", _bias_vector),), (3,), dtypes=NO_DOUBLE,
        forward_only=True, adapter="addmm_activation", feature="aten._addmm_activation", since="1.13",
        note="cuBLASLt applies bias and ReLU or tanh-GELU before it stores: 1716 µs against 1793 with torch.compile "
             "at 8192x4096x16384 on an H200. The result of the product is not rounded in between. A private name.",
        gives_up="a private name; torch.compile does not fuse across it",
        source="measurements on one H200, 2026-11-21", targets=frozenset({"_addmm_activation"}),
    ),
    compiled(
        TAIL, 4, call='torch.compile(f, mode="max-autotune-no-cudagraphs")',
        conditions=(Condition(
            f"a GPU of {BIG_GPU_PROCESSORS} SMs or more (Inductor tries no templates below)",
            lambda f: None if f.processors is None else f.processors >= BIG_GPU_PROCESSORS,
        ),),
        note="Its default mode never fuses into cuBLAS.", source="torch 2.15, torch/_inductor/utils.py",
    ),
    Entry(
        "library:quack.gemm_act", "quack", TAIL, "quack.gemm_interface.gemm_act({a}, {b}, bias={bias}, ...)",
        (without("mask", "no mask in the epilogue"),
         one_of("activation", (None, "none", "relu", "silu", "gelu_tanh"), "ReLU, SiLU or tanh-GELU, if any"),
         Condition("a residual only where there is no activation (it is added before)",
                   lambda f: f.roles.get("residual") is None or f.roles.get("activation") == "none"),
         multiple("inner and outer size multiples of 8", 8, ("a", -1),
         ("b", -1))), (4,), (9, 0), HALF, forward_only=True, adapter="quack_gemm_act",
        gives_up="CuTeDSL compiles at the first call; no gradient (quack.linear has one)",
        source="quack-kernels 0.6.5, gemm_interface.py",
    ),
    Entry(
        "library:flash_attn.ops.fused_dense", "flash_attn", CHAIN, "flash_attn.ops.fused_dense.fused_mlp_func(...)",
        (constant("hidden", "a hidden size above 256", lambda n: n > 256),), (6,), (8, 0), HALF,
        unmeasured="built from the repository's csrc, not in the wheel",
        source="Dao-AILab/flash-attention 0251105a",
    ),
    Entry(
        "library:torch.nn.functional.grouped_mm", "torch", GROUPED, "F.grouped_mm({x}, {weight}, offs={offs})",
        (Condition("compute capability 9.0 or newer (below, torch loops over the groups)",
                   lambda f: None if f.capability is None else f.capability >= (9, 0)),),
        (14,), dtypes=("bf16",), adapter="grouped_mm", feature="F.grouped_mm", since="2.10",
        gives_up="sizes and strides in multiples of 16 bytes", source="pytorch 2.13; DeepSpeed#8180",
        targets=frozenset({"_grouped_mm", "grouped_mm"}),
    ),
    Entry(
        "library:flashinfer.grouped_mm_bf16", "flashinfer", GROUPED, "flashinfer.grouped_mm_bf16(...)", (), (14,),
        (9, 0), ("bf16",), True, unmeasured="its workspace and plan live outside of the call",
        source="flashinfer fb28d724",
    ),
    Entry(
        "library:vllm.fused_moe", "vllm", MOE, "vllm fused_experts({x}, w1, w2, topk_weights, topk_ids)", (), (15,),
        (8, 0), HALF, True, unmeasured="needs vLLM's configuration context", source="vllm fused_moe",
        gives_up="gate and up have to be one tensor",
    ),
    Entry(
        "library:flashinfer.cutlass_fused_moe", "flashinfer", MOE, "flashinfer.cutlass_fused_moe({x}, ...)", (), (15,),
        (9, 0), HALF, True, unmeasured="takes the router's choice of experts, which the region does not hold",
        source="flashinfer fb28d724",
    ),
    Entry(
        "library:liger_kernel.fused_moe", "liger_kernel", MOE, "liger_kernel fused_moe({x}, ...)",
        (Condition("training", lambda f: f.requires_grad),),
        (15,), (8, 0), HALF, since="0.8", note="Weak for few experts.",
        unmeasured="takes the router's choice of experts, which the region does not hold",
        source="liger_kernel 0.8.5, ops/fused_moe.py",
    ),
    compiled(
        LORA, 16,
        note="cuBLAS for both products, one kernel for what is round them.", source="coverage catalogue, row 16",
    ),
)  # fmt: skip
