"""Calls beside torch's plain functions: FlexAttention, and libraries that are known but have no adapter."""

from __future__ import annotations

from kernels.libraries.model import (
    FORWARD_ONLY,
    Condition,
    Entry,
    Facts,
    capability_at_least,
    dtype_among,
)

TRAINING = Condition("training (it saves memory in forward and backward together)", lambda f: f.requires_grad or None)
SMALL_BATCH = Condition(
    "up to 64 rows (Marlin: 3.1 times up to 16, none at 128)",
    lambda f: None if not f.sizes.get("a") else f.sizes["a"][0] <= 64,
)
TANH = Condition("the tanh form of GELU", lambda f: f.roles.get("approximate") == "tanh")
WEIGHT_ONLY = Condition(
    "integer weights of 8 or 4 bits, unpacked before the product", lambda f: f.by_hand and f.dtypes.get("b") != "f8e4m3"
)


def _decodes(facts: Facts) -> bool:
    size = facts.sizes.get("q", ())
    return len(size) > 1 and size[-2] == 1


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "library:torch.nn.attention.flex_attention", "torch", frozenset({"attention"}),
        "def score_mod(score, b, h, q_idx, kv_idx):\n    return {score}\n\n"
        "torch.compile(flex_attention)({q}, {k}, {v}, score_mod=score_mod, block_mask={blocks}, scale={scale})",
        (
            FORWARD_ONLY,
            Condition(
                "a bias, a mask or a causal order, which score_mod and block_mask express",
                lambda f: True if f.roles.get("mask") or f.roles.get("causal") else None,
            ),
            Condition("operands of [batch, heads, time, dimension]", lambda f: len(f.sizes.get("q", ())) == 4),
        ),
        adapter="flex_attention", feature="flex_attention",
        note="For a score change that SDPA's fast backends do not take; the scores are never stored.",
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
        "flashinfer.BatchDecodeWithPagedKVCacheWrapper(...)",
        (FORWARD_ONLY, dtype_among("f16", "bf16"), Condition("decoding: one query a sequence", _decodes)),
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
        "library:liger_kernel.swiglu", "liger_kernel", frozenset({"swiglu"}), "LigerSiLUMulFunction", (TRAINING,),
        note="torch.compile is as fast or faster forward.", source="linkedin/Liger-Kernel#1330",
    ),
    Entry(
        "library:liger_kernel.geglu", "liger_kernel", frozenset({"geglu"}), "LigerGELUMulFunction", (TANH, TRAINING),
        note="torch.compile is as fast or faster forward.",
        source="liger_kernel 0.8.5, ops/geglu.py: the tanh form",
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
        (WEIGHT_ONLY, SMALL_BATCH, capability_at_least(8), FORWARD_ONLY),
        source="IST-DASLab/marlin; vllm#2497",
    ),
    Entry(
        "library:torchao.int4_weight_only", "torchao", frozenset({"quantised_gemm"}),
        "quantize_(model, Int4WeightOnlyConfig())", (WEIGHT_ONLY, SMALL_BATCH, FORWARD_ONLY),
        source="pytorch/ao 6027d82d",
    ),
    Entry(
        "library:gemlite.A16W4", "gemlite", frozenset({"quantised_gemm"}), "gemlite A16W4_HQQ_INT(...)",
        (WEIGHT_ONLY, SMALL_BATCH, FORWARD_ONLY), source="gemlite fd3f933",
    ),
)  # fmt: skip
