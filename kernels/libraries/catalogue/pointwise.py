"""Pointwise chains, activations, gates, positions, dropout. Torch-free."""

from __future__ import annotations

from kernels.libraries.conditions import FLOATING, HALF, NO_DOUBLE, TRAINING, compiled, liger_row, one_dtype
from kernels.libraries.model import Condition, Entry, Operation

CHAIN, ALONE, DROPOUT = frozenset({"pointwise"}), frozenset({"activation"}), frozenset({"dropout"})
BY_HAND = frozenset({"gelu_tanh"})
SWIGLU, GEGLU = frozenset({"swiglu"}), frozenset({"geglu"})
ROPE, NORM_ROPE = frozenset({"rope"}), frozenset({"qk_norm_rope"})

TANH = Condition("the tanh form of GELU", lambda f: f.roles.get("approximate") == "tanh")
HALVES = Condition("halves of a head turned, not neighbours", lambda f: not f.roles.get("interleaved"))
TWINS = Condition(
    "cosines and sines that the text makes of two equal halves, cat((a, a), -1): it reads the first for both",
    lambda f: bool(f.roles.get("twin_halves")),
)
OVERWRITES = (
    "Its backward writes both gradients over gate and up; measured on copies of those that the region is given, or "
    "reads again."
)

OPERATIONS: tuple[Operation, ...] = (
    Operation(38, "a chain of pointwise operations", "C", CHAIN),
    Operation(39, "gelu, silu or relu alone", "skip", ALONE | BY_HAND),
    Operation(40, "swiglu, geglu", "C", SWIGLU | GEGLU),
    Operation(41, "RoPE", "C", ROPE),
    Operation(42, "norm of queries and keys, RoPE", "Y*", NORM_ROPE),
    Operation(43, "dropout", "skip", DROPOUT),
)

ENTRIES: tuple[Entry, ...] = (
    compiled(CHAIN, 38, source="coverage catalogue, row 38"),
    Entry(
        "library:torch.nn.functional.gelu", "torch", BY_HAND, 'F.gelu({x}, approximate="tanh")',
        (FLOATING,), (39,), adapter="gelu_tanh", since="1.12", note="One kernel for eight.",
        source="torch documentation",
    ),
    Entry(
        "library:torch.nn.functional.activation", "torch", ALONE, "F.{call}({x})", (FLOATING,), (39,), since="always",
        unmeasured="it is the call already", note="One kernel; nothing to gain but by fusing it with a neighbour.",
        source="torch documentation", targets=frozenset({"gelu", "silu", "relu", "mish", "elu", "softplus",
        "hardswish"}),
        alone=True,
    ),
    compiled(SWIGLU | GEGLU, 40, conditions=(FLOATING,),
    source="linkedin/Liger-Kernel#1330: 3.15 times Liger on a B300"),
    Entry(
        "library:liger_kernel.swiglu", "liger_kernel", SWIGLU, "liger_swiglu({a}, {b})",
        (TRAINING, one_dtype("a", "b"), liger_row("a")), (40,), dtypes=NO_DOUBLE, adapter="liger_swiglu", since="0.1",
        note=f"torch.compile is as fast or faster forward. {OVERWRITES}",
        gives_up="gate and up: its backward writes over them", source="linkedin/Liger-Kernel#1330",
    ),
    Entry(
        "library:liger_kernel.geglu", "liger_kernel", GEGLU, "liger_geglu({a}, {b})",
        (TANH, TRAINING, one_dtype("a", "b"), liger_row("a")), (40,), dtypes=NO_DOUBLE, adapter="liger_geglu",
        since="0.1",
        note=f"torch.compile is as fast or faster forward. {OVERWRITES}",
        gives_up="gate and up: its backward writes over them", source="liger_kernel 0.8.5, ops/geglu.py: the tanh form",
    ),
    Entry(
        "library:flashinfer.silu_and_mul", "flashinfer", SWIGLU, "flashinfer.silu_and_mul(torch.cat(({a}, {b}), -1))",
        (one_dtype("a", "b"),), (40,), (8, 0), HALF, True, adapter="flashinfer_silu_and_mul",
        gives_up="both halves have to be one tensor", note="Measured with the joining copy where they are two.",
        source="flashinfer fb28d724",
    ),
    Entry(
        "library:flashinfer.gelu_tanh_and_mul", "flashinfer", GEGLU,
        "flashinfer.gelu_tanh_and_mul(torch.cat(({a}, {b}), -1))", (TANH, one_dtype("a", "b")), (40,), (8, 0), HALF,
        True, adapter="flashinfer_gelu_tanh_and_mul", gives_up="both halves have to be one tensor",
        note="Measured with the joining copy where they are two.", source="flashinfer fb28d724",
    ),
    Entry(
        "library:flag_gems.silu_and_mul", "flag_gems", SWIGLU, "flag_gems.silu_and_mul({a}, {b})",
        (one_dtype("a", "b"),), (40,), dtypes=NO_DOUBLE, adapter="flag_gems_silu_and_mul", source="flag_gems 5.0.2",
    ),
    Entry(
        "library:flag_gems.gelu_and_mul", "flag_gems", GEGLU,
        "flag_gems.gelu_and_mul({a}, {b}, {approximate!r})", (one_dtype("a", "b"),), (40,), dtypes=NO_DOUBLE,
        adapter="flag_gems_gelu_and_mul", source="flag_gems 5.0.2",
    ),
    Entry(
        "library:unsloth.swiglu", "unsloth", SWIGLU, "unsloth.kernels.swiglu.swiglu_fg_kernel({a}, {b})",
        (one_dtype("a", "b"),), (40,), (7, 0), HALF, True, adapter="unsloth_swiglu",
        gives_up="importing unsloth changes transformers' classes", source="unsloth 2026.10.9, kernels/swiglu.py",
    ),
    Entry(
        "library:unsloth.geglu", "unsloth", GEGLU, "unsloth.kernels.geglu.geglu_approx_forward_kernel({a}, {b})",
        (one_dtype("a", "b"), TANH), (40,), (7, 0), HALF, True,
        adapter="unsloth_geglu", gives_up="importing unsloth changes transformers' classes",
        source="unsloth 2026.10.9, kernels/geglu.py",
    ),
    compiled(ROPE, 41, conditions=(FLOATING,), source="pytorch/pytorch#141265"),
    Entry(
        "library:liger_kernel.rope", "liger_kernel", ROPE, "liger_rope({x}, key, {cos}, {sin})",
        (HALVES, TWINS, Condition("[batch, heads, time, dimension]", lambda f: len(f.sizes.get("x", ())) == 4)), (41,),
        dtypes=NO_DOUBLE, adapter="liger_rope", since="0.1",
        note="Turns queries and keys at once: measured with the first head of the queries for keys. Heads that lie "
             "next to each other in memory it turns in place, others it copies first.",
        gives_up="the operand, and in backward the gradient that comes in",
        source="linkedin/Liger-Kernel ead96b61",
    ),
    Entry(
        "library:flashinfer.apply_rope", "flashinfer", ROPE, "flashinfer.apply_rope_with_cos_sin_cache(...)", (), (41,),
        (8, 0), HALF, True, unmeasured="takes positions and one cache of cosines and sines", gives_up="the operand",
        source="flashinfer fb28d724",
    ),
    Entry(
        "library:flash_attn.apply_rotary_emb", "flash_attn", ROPE,
        "flash_attn.layers.rotary.apply_rotary_emb({x}, cos, sin)", (), (41,), dtypes=NO_DOUBLE,
        unmeasured="cosines and sines of half a head, [batch, time, heads, dimension]",
        source="Dao-AILab/flash-attention 0251105a",
    ),
    Entry(
        "library:flashinfer.fused_qk_rmsnorm_rope", "flashinfer", NORM_ROPE, "flashinfer.fused_qk_rmsnorm_rope(...)",
        (),
        (42,), (8, 0), ("bf16",), True, unmeasured="takes queries, keys and values as one tensor",
        gives_up="inference only, in place", source="flashinfer fb28d724",
    ),
    Entry(
        "library:torch.nn.functional.dropout", "torch", DROPOUT, "F.dropout({x}, {p})", (FLOATING,), (43,),
        since="always", unmeasured="it is the call already", source="torch documentation",
        targets=frozenset({"native_dropout"}), alone=True,
        note="torch.compile draws another mask than eager, unless fallback_random is set.",
    ),
)  # fmt: skip
