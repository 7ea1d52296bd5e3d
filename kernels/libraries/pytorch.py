"""What torch itself has, with the conditions under which it covers a pattern."""

from __future__ import annotations

from kernels.libraries.model import Condition, Entry, Facts

HALF = ("f16", "bf16")


def _head_size(f: Facts) -> bool | None:
    size = f.sizes.get("q")
    return None if not size else size[-1] <= 256


def _same_weight(f: Facts) -> bool:
    return f.dtypes.get("weight", f.dtype) == f.dtype


def _last(f: Facts) -> bool | None:
    size, dim = f.sizes.get("x"), f.roles.get("dim")
    return None if not size or not isinstance(dim, int) else dim % len(size) == len(size) - 1


def _bias_vector(f: Facts) -> bool | None:
    size = f.sizes.get("bias")
    return None if size is None else len([n for n in size if n > 1]) <= 1


FLOATING = Condition("floating-point operands", lambda f: f.dtype in ("f64", "f32", "bf16", "f16"))
NO_MASK_FOR_FLASH = Condition(
    "without a mask (else the memory-efficient or cuDNN backend takes it, not flash)",
    lambda f: True if f.roles.get("mask") is None else None,
)

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "library:torch.nn.functional.rms_norm", "torch", frozenset({"rms_norm"}),
        "F.rms_norm({x}, ({width},), weight={weight}, eps={eps})",
        (FLOATING, Condition("weight in x's dtype, else torch runs it in several kernels", _same_weight)),
        adapter="rms_norm", feature="F.rms_norm",
        note="One CUDA kernel since torch 2.9. Measured on an H200 (torch 2.11) it was slower than torch.compile "
             "from 8192 columns: 223 against 134 µs at 8192x16384.",
        source="pytorch/pytorch#153666; measurements on one H200, 2026-11-21",
    ),
    Entry(
        "library:torch.nn.functional.layer_norm", "torch", frozenset({"layer_norm"}),
        "F.layer_norm({x}, ({width},), weight={weight}, bias={bias}, eps={eps})", (FLOATING,),
        adapter="layer_norm", note="Native CUDA kernel, forward and backward.", source="torch documentation",
    ),
    Entry(
        "library:torch.softmax", "torch", frozenset({"softmax"}), "torch.softmax({x}, dim={dim})",
        (FLOATING, Condition("over the last dimension (else torch's spatial kernel runs)", _last)),
        adapter="softmax", note="Native CUDA kernel.", source="torch documentation",
    ),
    Entry(
        "library:torch.nn.functional.scaled_dot_product_attention", "torch", frozenset({"attention"}),
        "F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={mask}, is_causal={causal}, scale={scale})",
        (
            FLOATING,
            Condition("head size up to 256 (flash)", _head_size),
            Condition("f16 or bf16 for the flash backend", lambda f: True if f.dtype in HALF else None),
            NO_MASK_FOR_FLASH,
        ),
        adapter="attention",
        note="Never stores the scores. torch picks flash, cuDNN or the memory-efficient kernel.",
        source="torch documentation",
    ),
    Entry(
        "library:torch.nn.functional.gelu", "torch", frozenset({"gelu_tanh"}), 'F.gelu({x}, approximate="tanh")',
        (FLOATING,), adapter="gelu_tanh", note="One kernel for eight.", source="torch documentation",
    ),
    Entry(
        "library:torch.ops.aten._addmm_activation", "torch", frozenset({"gemm_activation"}),
        "torch.ops.aten._addmm_activation({bias}, {a}, {b}, use_gelu={use_gelu})",
        (
            Condition("two-dimensional product with a 1-D bias", _bias_vector),
            Condition("f16, bf16 or f32", lambda f: f.dtype in ("f16", "bf16", "f32")),
            Condition("forward only", lambda f: not f.requires_grad),
        ),
        adapter="addmm_activation", feature="aten._addmm_activation",
        note="cuBLASLt applies bias and ReLU or tanh-GELU before it stores: 1716 µs against 1793 with torch.compile "
             "at 8192x4096x16384 on an H200. The result of the product is not rounded in between. A private name.",
        source="measurements on one H200, 2026-11-21",
    ),
    Entry(
        "library:torch.mm", "torch", frozenset({"gemm"}), "torch.mm({a}, {b})  # F.linear, torch.bmm, torch.addmm",
        (Condition("floating-point operands of one dtype", lambda f: f.dtype in ("f64", "f32", "bf16", "f16")),),
        note="cuBLAS; f32 needs torch.set_float32_matmul_precision('high') to use TF32.", source="torch documentation",
    ),
    Entry(
        "library:torch.nn.functional.cross_entropy", "torch", frozenset({"cross_entropy"}),
        "F.cross_entropy({x}, {target})", (FLOATING,), source="torch documentation",
        note="Two kernels and a stored log-softmax; torch.compile needs a third less time on an H200.",
    ),
    Entry(
        "library:torch.nn.functional.group_norm", "torch", frozenset({"group_norm"}), "F.group_norm(x, groups, ...)",
        source="torch documentation",
    ),
    Entry(
        "library:torch.nn.functional.batch_norm", "torch", frozenset({"batch_norm"}), "F.batch_norm(x, ...)",
        source="torch documentation", note="cuDNN; channels_last is the faster layout.",
    ),
    Entry(
        "library:torch.nn.functional.conv2d", "torch", frozenset({"convolution"}), "F.conv2d(x, weight, ...)",
        source="torch documentation", note="cuDNN: channels_last and torch.backends.cudnn.benchmark = True.",
    ),
    Entry(
        "library:torch.nn.functional.embedding", "torch", frozenset({"embedding"}), "F.embedding(ids, table)",
        source="torch documentation",
    ),
    Entry("library:torch.sort", "torch", frozenset({"sort"}), "torch.sort(x), torch.topk(x, k)",
          source="torch documentation", note="CUB; torch.compile calls the same."),
    Entry("library:torch.cumsum", "torch", frozenset({"scan"}), "torch.cumsum(x, dim)", source="torch documentation",
          note="CUB; torch.compile scans short rows itself."),
    Entry(
        "library:torch.nn.functional.grouped_mm", "torch", frozenset({"grouped_gemm"}), "F.grouped_mm(a, b, offs=ends)",
        (
            Condition("bf16", lambda f: f.dtype == "bf16"),
            Condition(
                "compute capability 9.0 or newer (below, torch loops over the groups)",
                lambda f: None if f.capability is None else f.capability >= (9, 0),
            ),
        ),
        feature="F.grouped_mm", source="pytorch 2.13; DeepSpeed#8180",
    ),
    Entry(
        "library:torch.nn.functional.scaled_mm", "torch", frozenset({"quantised_gemm"}), "F.scaled_mm(a, b, ...)",
        (
            Condition("fp8 operands", lambda f: f.dtype.startswith("f8")),
            Condition("compute capability 8.9 or newer", lambda f: None if f.capability is None
                      else f.capability >= (8, 9)),
        ),
        feature="F.scaled_mm", source="torch documentation",
    ),
    Entry(
        "library:torch.optim.fused", "torch", frozenset({"optimizer"}), "torch.optim.AdamW(parameters, fused=True)",
        source="torch documentation", note="One kernel for all parameters.",
    ),
)  # fmt: skip

ALREADY_CALLS = {
    "rms_norm": "rms_norm", "_fused_rms_norm": "rms_norm", "native_layer_norm": "layer_norm", "_softmax": "softmax",
    "attention": "attention", "mm": "gemm", "bmm": "gemm", "addmm": "gemm", "baddbmm": "gemm",
    "nll_loss_forward": "cross_entropy", "native_group_norm": "group_norm", "native_batch_norm": "batch_norm",
    "_native_batch_norm_legit": "batch_norm", "convolution": "convolution", "embedding": "embedding", "topk": "sort",
    "sort": "sort", "cumsum": "scan", "_grouped_mm": "grouped_gemm", "grouped_mm": "grouped_gemm",
    "_scaled_mm": "quantised_gemm",
}  # fmt: skip
"""aten operation -> the kind whose torch call gives just this operation."""
