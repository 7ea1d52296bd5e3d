"""Libraries beside torch: known, probed for, not measured here yet (no adapter). From research with a source each."""

from __future__ import annotations

from kernels.libraries.model import (
    FORWARD_ONLY,
    Condition,
    Entry,
    capability_at_least,
    dtype_among,
)

TRAINING = Condition("training (it saves memory in forward and backward together)", lambda f: f.requires_grad or None)
SMALL_BATCH = Condition(
    "up to 64 rows (Marlin: 3.1 times up to 16, none at 128)",
    lambda f: None if not f.sizes.get("a") else f.sizes["a"][0] <= 64,
)
TANH_OR_SILU = Condition(
    "SiLU, or the tanh form of GELU", lambda f: f.kind == "swiglu" or f.roles.get("approximate") == "tanh"
)
FP8_OR_INT4 = Condition("weights of 8 or 4 bits", lambda f: None)

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "library:torch.nn.attention.flex_attention", "torch", frozenset({"attention"}),
        "flex_attention({q}, {k}, {v}, score_mod=..., block_mask=...)  # under torch.compile",
        (Condition("a bias, mask or window that is a function of position", lambda f: None),),
        feature="flex_attention", note="For a score change that SDPA has no argument for; nothing is stored.",
        source="torch 2.5 or newer",
    ),
    Entry(
        "library:flash_attn.flash_attn_func", "flash_attn", frozenset({"attention"}), "flash_attn_func({q}, {k}, {v})",
        (dtype_among("f16", "bf16"), capability_at_least(8),
         Condition("no arbitrary mask", lambda f: f.roles.get("mask") is None)),
        source="Dao-AILab/flash-attention 0251105a",
    ),
    Entry(
        "library:flashinfer.attention", "flashinfer", frozenset({"attention"}),
        "flashinfer.BatchDecodeWithPagedKVCacheWrapper(...)", (FORWARD_ONLY, dtype_among("f16", "bf16")),
        note="For decoding with a paged cache.", source="flashinfer fb28d724",
    ),
    Entry(
        "library:liger_kernel.rms_norm", "liger_kernel", frozenset({"rms_norm"}), "LigerRMSNorm",
        source="linkedin/Liger-Kernel ead96b61; measured elsewhere at 70 µs for 16384x4096 on an H200",
    ),
    Entry(
        "library:quack.rmsnorm", "quack", frozenset({"rms_norm"}), "quack.rmsnorm({x}, {weight}, eps={eps})",
        (capability_at_least(9),), source="quack-kernels 0.6.5; 265 µs for 4096x65536 on an H200",
    ),
    Entry(
        "library:quack.softmax", "quack", frozenset({"softmax"}), "quack.softmax({x})", (capability_at_least(9),),
        source="quack-kernels 0.6.5; 262 µs for 4096x65536 on an H200",
    ),
    Entry(
        "library:liger_kernel.swiglu", "liger_kernel", frozenset({"swiglu", "geglu"}), "LigerSiLUMulFunction",
        (TANH_OR_SILU, TRAINING),
        note="torch.compile is as fast or faster forward.", source="linkedin/Liger-Kernel#1330",
    ),
    Entry(
        "library:liger_kernel.rope", "liger_kernel", frozenset({"rope"}), "liger_rotary_pos_emb",
        note="Works in place.", source="linkedin/Liger-Kernel ead96b61",
    ),
    Entry(
        "library:liger_kernel.cross_entropy", "liger_kernel", frozenset({"cross_entropy"}), "LigerCrossEntropyLoss()",
        (TRAINING,), note="Overwrites the logits with their gradient.", source="linkedin/Liger-Kernel ead96b61",
    ),
    Entry(
        "library:quack.cross_entropy", "quack", frozenset({"cross_entropy"}), "quack.cross_entropy({x}, {target})",
        (capability_at_least(9),), source="quack-kernels 0.6.5; 605 µs for 8192x128256 on an H200",
    ),
    Entry(
        "library:vllm.marlin_gemm", "vllm", frozenset({"quantised_gemm"}), "vllm ops.marlin_gemm(...)",
        (FP8_OR_INT4, SMALL_BATCH, capability_at_least(8), FORWARD_ONLY),
        source="IST-DASLab/marlin; vllm#2497",
    ),
    Entry(
        "library:torchao.int4_weight_only", "torchao", frozenset({"quantised_gemm"}),
        "quantize_(model, Int4WeightOnlyConfig())", (FP8_OR_INT4, SMALL_BATCH, FORWARD_ONLY),
        source="pytorch/ao 6027d82d",
    ),
    Entry(
        "library:gemlite.A16W4", "gemlite", frozenset({"quantised_gemm"}), "gemlite A16W4_HQQ_INT(...)",
        (FP8_OR_INT4, SMALL_BATCH, FORWARD_ONLY), source="gemlite fd3f933",
    ),
)  # fmt: skip
