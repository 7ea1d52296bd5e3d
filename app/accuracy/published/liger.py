"""The regions that Liger-Kernel's benchmark scripts time, in the region language. Sizes are the scripts'.

A provider other than Liger is the plain PyTorch that the script compares with: it is predicted as eager, or compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.accuracy.published.model import Row

DTYPES = {"torch.float32": "f32", "torch.bfloat16": "bf16"}
EAGER = frozenset({"torch", "huggingface"})
IN_CATALOGUE = frozenset({"softmax", "layer_norm", "rms_norm", "cross_entropy", "group_norm"})
"""Kernels of Liger that the catalogue has under the same name."""


def candidate_of(row: Row) -> str:
    """Whose time it is, by this project's names; "" where there is no such candidate."""
    if row.provider in EAGER:
        return "eager"
    if row.provider == "torch_compile":
        return "compile"
    return f"library:liger_kernel.{row.kernel}" if row.provider == "liger" and row.kernel in IN_CATALOGUE else ""


def region_of(row: Row) -> str:
    """What the script runs, as text; "" for a kernel that is not written here."""
    made = _REGIONS.get(row.kernel)
    return made(row) if made is not None else ""


def _g(row: Row) -> str:
    return ".requires_grad" if row.mode == "full" else ""


def _dtype(row: Row) -> str:
    return DTYPES[str(row.config["dtype"])]


def _softmax(row: Row) -> str:
    return f"x: {_dtype(row)}[{row.config['M']}, {row.size}]{_g(row)}\nreturn softmax(x, -1)\n"


def _layer_norm(row: Row) -> str:
    dtype, width = _dtype(row), row.size
    weights = f"w: {dtype}[{width}]{_g(row)}\nb: {dtype}[{width}]{_g(row)}\n"
    return f"x: {dtype}[{row.config['M']}, {width}]{_g(row)}\n{weights}return layer_norm(x, ({width},), w, b, 1e-6)\n"


def _rms_norm(row: Row) -> str:
    """Hugging Face's, of which the script's weight stays in f32."""
    dtype, width = _dtype(row), row.size
    return (
        f"x: {dtype}[{row.config['M']}, {width}]{_g(row)}\nw: f32[{width}]{_g(row)}\nh = x.float()\n"
        f"h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)\nreturn w * h.to({dtype})\n"
    )


def _cross_entropy(row: Row) -> str:
    tokens = int(row.config["B"]) * int(row.config["T"])
    return f"x: f32[{tokens}, {row.size}]{_g(row)}\nt: i64[{tokens}].below({row.size})\nreturn F.cross_entropy(x, t)\n"


def _relu_squared(row: Row) -> str:
    return f"x: {_dtype(row)}[{row.config['M']}, {row.size}]{_g(row)}\ny = relu(x)\nreturn y * y\n"


def _embedding(row: Row) -> str:
    batch, time, width = (int(row.config[k]) for k in "BTD")
    return (
        f"e: {_dtype(row)}[{row.size}, {width}]{_g(row)}\ni: i64[{batch}, {time}].below({row.size})\n"
        "return embedding(i, e)\n"
    )


def _group_norm(row: Row) -> str:
    dtype, channels = _dtype(row), row.size
    groups = channels // int(row.config["channels_per_group"])
    weights = f"w: {dtype}[{channels}]{_g(row)}\nb: {dtype}[{channels}]{_g(row)}\n"
    x = f"x: {dtype}[{row.config['M']}, {channels}, {row.config['H']}]{_g(row)}\n"
    return f"{x}{weights}return group_norm(x, {groups}, w, b, 1e-6)\n"


_REGIONS: Mapping[str, Callable[[Row], str]] = {
    "softmax": _softmax, "layer_norm": _layer_norm, "rms_norm": _rms_norm, "cross_entropy": _cross_entropy,
    "relu_squared": _relu_squared, "embedding": _embedding, "group_norm": _group_norm,
}  # fmt: skip
