"""Attention: SDPA and its backends, FlexAttention, packed, paged, latent, local and linear. Torch-free."""

from __future__ import annotations

from kernels.libraries.conditions import (
    FLOATING,
    HALF,
    NO_DOUBLE,
    at_most,
    constant,
    multiple,
    one_dtype,
    rank,
    without,
)
from kernels.libraries.model import Condition, Entry, Facts, Operation, capability_among

ATTENTION, FLEX = frozenset({"attention"}), frozenset({"flex_attention"})
PACKED, PAGED, LATENT = frozenset({"varlen_attention"}), frozenset({"paged_attention"}), frozenset({"mla"})
LOCAL, LINEAR = frozenset({"local_attention"}), frozenset({"linear_attention"})
SDPA = "library:torch.nn.functional.scaled_dot_product_attention"
CALL = "F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={mask}, is_causal={causal}, scale={scale}{grouped})"

HEADS = at_most("q", 256, "head size up to 256 (flash)")
NO_MASK_FOR_FLASH = Condition(
    "without a mask (else the memory-efficient or cuDNN backend takes it, not flash)",
    lambda f: True if f.roles.get("mask") is None else None,
)
NO_MASK = without("mask", "no arbitrary mask")
FOUR = rank("q", 4, "operands of [batch, heads, time, dimension]")
EIGHTS = multiple("head size a multiple of 8", 8, ("q", -1))
NO_DROPOUT = Condition("no dropout", lambda f: not f.roles.get("dropout"))
CHANGED_SCORES = Condition(
    "a bias, a cap, a mask or a causal order, which score_mod and block_mask express",
    lambda f: True if f.roles.get("score") or f.roles.get("keep") else None,
)
NO_AVERAGE = Condition(
    "no row that a mask hides as a whole by finite numbers (by hand it is the mean of all values, here 0)",
    lambda f: None if f.roles.get("averaged") else True,
)
LEAST_HEAD = Condition(
    "head size of 16 or more (torch's kernels; elsewhere the unfused reference)",
    lambda f: True if (n := f.size("q")) is not None and n >= 16 else None if f.capability is None or not n else False,
)


def _cudnn_heads(f: Facts) -> bool | None:
    """Up to 128; up to 256 on sm_90 where cuDNN is 9.10 or newer, which is not known here."""
    size = f.size("q")
    if size is None or size <= 128:
        return None if size is None else True
    return None if size <= 256 and f.capability in (None, (9, 0)) else False


CUDNN_HEADS = Condition("head size up to 128 (256 on Hopper with cuDNN 9.10)", _cudnn_heads)


SAGE_HEADS = Condition("head size 64, 96 or 128", lambda f: None if (n := f.size("q")) is None else n in (64, 96, 128))


def _one_head_size(f: Facts) -> bool | None:
    q, v = f.size("q"), f.size("v")
    return None if q is None or v is None else q == v


ONE_HEAD_SIZE = Condition("heads of v as wide as those of q", _one_head_size)
GEMS_HEADS = Condition(
    "head size 16, 32, 64, 128 or 256", lambda f: None if (n := f.size("q")) is None else n in (16, 32, 64, 128, 256)
)


def _decodes(facts: Facts) -> bool:
    size = facts.sizes.get("q", ())
    return len(size) > 1 and size[-2] == 1


def _backend(name: str) -> str:
    return f"with sdpa_kernel(SDPBackend.{name}):\n    y = {CALL}"


OPERATIONS: tuple[Operation, ...] = (
    Operation(17, "softmax(q @ kT) @ v", "Y", ATTENTION),
    Operation(18, "the same on Hopper's and Blackwell's own kernels", "Y", ATTENTION),
    Operation(19, "attention with a bias, a mask, a window, documents", "Y", ATTENTION | FLEX),
    Operation(20, "attention over packed rows", "Y", PACKED),
    Operation(21, "decoding over a paged cache", "Y", PAGED),
    Operation(22, "latent attention (MLA)", "Y", LATENT),
    Operation(23, "neighbourhood and block-sparse attention", "Y", LOCAL | FLEX),
    Operation(24, "linear attention, gated delta rule", "Y", LINEAR),
)

ENTRIES: tuple[Entry, ...] = (
    Entry(
        SDPA, "torch", ATTENTION, CALL,
        (FLOATING, HEADS, Condition("f16 or bf16 for the flash backend", lambda f: True if f.dtype in HALF else None),
         NO_MASK_FOR_FLASH),
        (17, 19), adapter="attention", since="2.0", source="torch documentation", targets=frozenset({"attention"}),
        repeats=("f32",),
        note="Never stores the scores. torch picks flash, cuDNN or the memory-efficient kernel.",
        gives_up="probabilities are not rounded in between; no arbitrary score change",
    ),
    Entry(
        f"{SDPA}.flash", "torch", ATTENTION, _backend("FLASH_ATTENTION"), (HEADS, NO_MASK, EIGHTS, FOUR), (17,), (8, 0),
        HALF, adapter="sdpa_flash", since="2.0", source="torch 2.13, aten/native/transformers/cuda/sdp_utils.cpp",
    ),
    Entry(
        f"{SDPA}.cudnn", "torch", ATTENTION, _backend("CUDNN_ATTENTION"),
        (CUDNN_HEADS, EIGHTS, FOUR), (17,), (8, 0), HALF, adapter="sdpa_cudnn", gpu_only=True, since="2.5",
        source="torch 2.13, aten/native/transformers/cuda/sdp_utils.cpp",
    ),
    Entry(
        f"{SDPA}.efficient", "torch", ATTENTION, _backend("EFFICIENT_ATTENTION"),
        (FOUR, one_dtype("q", "k", "v")), (17,), (5, 0), NO_DOUBLE, adapter="sdpa_efficient", gpu_only=True,
        since="2.0", repeats=NO_DOUBLE,
        source="torch 2.13, aten/native/transformers/cuda/sdp_utils.cpp",
    ),
    Entry(
        "library:torch.nn.attention.flex_attention", "torch", FLEX, "torch.compile(flex_attention)({q}, {k}, {v})",
        (CHANGED_SCORES, LEAST_HEAD, NO_AVERAGE, one_dtype("q", "k", "v"), NO_DROPOUT), (19, 23), dtypes=NO_DOUBLE,
        adapter="flex_attention", feature="flex_attention",
        note="Scores are never stored, and blocks that a mask hides are skipped. A mask of positions is made into "
             "blocks once; one that reads tensors again in each call that is measured.",
        since="2.5",
        gives_up="compiled: the first call takes seconds; no dropout; a row that is hidden as a whole gives 0",
        source="torch 2.13, nn/attention/flex_attention.py, _inductor/kernel/flex",
    ),
    Entry(
        "library:flash_attn.flash_attn_func", "flash_attn", ATTENTION, "flash_attn_func({q}, {k}, {v})",
        (NO_MASK, HEADS, FOUR), (17,), (8, 0), HALF, adapter="flash_attn", since="2.0",
        gives_up="operands of [batch, time, heads, dimension]", source="Dao-AILab/flash-attention 0251105a",
    ),
    Entry(
        "library:flash_attn_interface.flash_attn_func", "flash_attn_interface", ATTENTION,
        "flash_attn_interface.flash_attn_func({q}, {k}, {v})", (capability_among((9, 0)), NO_MASK, HEADS, NO_DROPOUT),
        (18,), dtypes=HALF, adapter="flash_attn_3", since="3.0", gives_up="Hopper only, no dropout, built from source",
        note="Also by torch.nn.attention.activate_flash_attention_impl('FA3').",
        source="Dao-AILab/flash-attention 0251105a, hopper/",
    ),
    Entry(
        "library:flash_attn.cute.flash_attn_func", "flash_attn.cute", ATTENTION,
        "flash_attn.cute.flash_attn_func({q}, {k}, {v})",
        (capability_among((9, 0), (10, 0)), NO_MASK, at_most("q", 128, "head size up to 128"), NO_DROPOUT), (18,),
        dtypes=HALF, adapter="flash_attn_4", since="4.0 beta", gives_up="no dropout, no ALiBi; paged only on sm_100",
        note="Also by torch.nn.attention.activate_flash_attention_impl('FA4').",
        source="torch 2.15, nn/attention/_fa4.py",
    ),
    Entry(
        "library:flag_gems.scaled_dot_product_attention", "flag_gems", ATTENTION,
        CALL.replace("F.", "flag_gems.", 1),
        (GEMS_HEADS, FOUR, NO_DROPOUT), (17,), (8, 0), HALF, adapter="flag_gems_attention", source="flag_gems 5.0.2",
    ),
    Entry(
        "library:sageattention.sageattn", "sageattention", ATTENTION,
        'sageattention.sageattn({q}, {k}, {v}, tensor_layout="HND", is_causal={causal}, sm_scale={scale})',
        (NO_MASK, SAGE_HEADS, ONE_HEAD_SIZE, FOUR, NO_DROPOUT), (17,), (8, 0), HALF, True, adapter="sageattention",
        since="1.0", loses_digits=True,
        gives_up="scores of 8-bit integers: about two digits", source="sageattention 1.0.6, core.py",
    ),
    Entry(
        "library:flashinfer.attention", "flashinfer", ATTENTION, "flashinfer.BatchDecodeWithPagedKVCacheWrapper(...)",
        (Condition("decoding: one query a sequence", _decodes),), (17,), dtypes=HALF, forward_only=True,
        unmeasured="its plan is made outside of the call", note="For decoding with a paged cache.",
        source="flashinfer fb28d724",
    ),
    Entry(
        "library:torch.nn.attention.varlen_attn", "torch", PACKED,
        "torch.nn.attention.varlen.varlen_attn({q}, {k}, {v}, cu_seq_q, cu_seq_k, max_q, max_k)", (HEADS, NO_DROPOUT),
        (20,), (8, 0), HALF, feature="varlen_attn", since="2.10",
        unmeasured="takes the documents' ends, which the region's mask holds as numbers of documents",
        gives_up="operands of [all rows, heads, dimension]", source="torch 2.13, nn/attention/varlen.py",
    ),
    Entry(
        "library:flash_attn.flash_attn_varlen_func", "flash_attn", PACKED,
        "flash_attn_varlen_func({q}, {k}, {v}, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)", (HEADS,),
        (20,),
        (8, 0), HALF, unmeasured="takes the documents' ends, which the region's mask holds as numbers of documents",
        source="Dao-AILab/flash-attention 0251105a",
    ),
    Entry(
        "library:flashinfer.BatchDecodeWithPagedKVCacheWrapper", "flashinfer", PAGED,
        "flashinfer.BatchDecodeWithPagedKVCacheWrapper(...).run({q}, ({k}, {v}))",
        (at_most("q", 256, "head size up to 256"),), (21,), (7, 5), HALF, True,
        unmeasured="its plan is made outside of the call", gives_up="a plan for each batch",
        source="flashinfer fb28d724",
    ),
    Entry(
        "library:vllm.unified_attention", "vllm", PAGED, "vllm unified_attention(...)", (), (21,), (8, 0), HALF, True,
        unmeasured="needs vLLM's metadata", source="vllm",
    ),
    Entry(
        "library:flashinfer.BatchMLAPagedAttentionWrapper", "flashinfer", LATENT,
        "flashinfer.mla.BatchMLAPagedAttentionWrapper(...).run({q}, ...)",
        (constant("width", "512 numbers of the latent and 64 with positions", lambda n: n == 576),), (22,), (9, 0),
        HALF,
        True, unmeasured="its plan is made outside of the call", source="flashinfer fb28d724",
    ),
    Entry(
        "library:flag_gems.flash_mla", "flag_gems", LATENT, "flag_gems.flash_mla({q}, ...)",
        (Condition("decoding: one query a sequence", _decodes),), (22,), (8, 0), HALF, True,
        unmeasured="takes a paged cache, which the region does not hold", source="flag_gems 5.0.2",
    ),
    Entry(
        "library:natten.na1d", "natten", LOCAL, "natten.na1d({q}, {k}, {v}, kernel_size)", (FOUR, NO_DROPOUT), (23,),
        None, NO_DOUBLE, unmeasured="the window is read from a mask by hand only",
        gives_up="a window that is moved in at the edges", source="SHI-Labs/NATTEN",
    ),
    Entry(
        "library:fla.linear_attn", "fla", LINEAR, "fla.ops.linear_attn.chunk_linear_attn({q}, {k}, {v})",
        (constant("state", "head size 64, 128 or 256", lambda n: n in (64, 128, 256)),), (24,), (8, 0), NO_DOUBLE,
        unmeasured="operands of [batch, time, heads, dimension], which the region's loop does not name",
        source="fla-org/flash-linear-attention",
    ),
)  # fmt: skip
