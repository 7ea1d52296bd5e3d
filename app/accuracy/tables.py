"""Tables: measured rows of this project's kernels and their peers, each as a region or a call that the rates predict.

Rows are those of tests/records/kernels-h200.json: an operation at its sizes, ours, eager, torch.compile and other
packages. Sizes are the row's own; no row is looked up by them.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.estimate.facts import CURVED
from app.objects.accuracy import KernelTable, TableRow

ROWS = "x: {d}[{rows}, {columns}]\n"
BY_HAND = "{s}.float() * torch.rsqrt({s}.float().pow(2).mean(-1, keepdim=True) + 1e-6)"
PRODUCT = "a: {d}[{m}, {k}]\nb: {d}[{k}, {n}]\n"

TEXTS: Mapping[str, str] = {
    "vector_add": "x: {d}[{n}]\ny: {d}[{n}]\nreturn x + y\n",
    "bias_activation_mask": ROWS + "b: {d}[{columns}]\nm: {d}[{rows}, {columns}]\nreturn F.gelu(x + b) * m\n",
    "gated_activation": ROWS + "b: {d}[{rows}, {columns}]\nreturn F.silu(x) * b\n",
    "dropout": ROWS + "return F.dropout(x, {p})\n",
    "softmax": ROWS + "return F.softmax(x, -1)\n",
    "softmax_long": ROWS + "return F.softmax(x, -1)\n",
    "softmax_axis": "x: {d}{shape}\nreturn F.softmax(x, {dim})\n",
    "gated_activation_backward": "dy: {d}[{rows}, {columns}]\na: {d}[{rows}, {columns}]\nb: {d}[{rows}, {columns}]\n"
    "return aten.silu_backward(dy * b, a), dy * F.silu(a)\n",
    "rope": "q: {d}[{b}, {h}, {s}, {d_}]\nk: {d}[{b}, {k}, {s}, {d_}]\nc: {d}[{tables}, {s}, {d_}]\n"
    "z: {d}[{tables}, {s}, {d_}]\nc = c[:, None]\nz = z[:, None]\n"
    "x = q * c + torch.cat((-q[..., {half}:], q[..., :{half}]), -1) * z\n"
    "y = k * c + torch.cat((-k[..., {half}:], k[..., :{half}]), -1) * z\nreturn x, y\n",
    "rms_norm_with_rstd": ROWS + "w: {d}[{columns}]\nr = torch.rsqrt(x.float().pow(2).mean(-1) + 1e-6)\n"
    "return (x.float() * r[..., None] * w).to({d}), r\n",
    "channel_rms_norm": "x: {d}{shape}\n"
    f"return ({BY_HAND.format(s='x').replace('mean(-1', 'mean({dim}')}).to({{d}})\n",
    "rms_norm_backward": "dy: {d}[{rows}, {columns}]\n" + ROWS + "w: {d}[{columns}]\nr: f32[{rows}]\n"
    "h = x.float() * r[..., None]\ng = dy.float() * w\n"
    "dx = r[..., None] * (g - h * (g * h).mean(-1, keepdim=True))\n"
    "return dx.to({d}), (dy.float() * h).sum(0).to({d})\n",
    "layer_norm_backward": "dy: {d}[{rows}, {columns}]\n" + ROWS + "w: {d}[{columns}]\nm: f32[{rows}]\nr: f32[{rows}]\n"
    "u = dy.float()\nh = (x.float() - m[..., None]) * r[..., None]\ng = u * w\n"
    "dx = (g - g.mean(-1, keepdim=True) - h * (g * h).mean(-1, keepdim=True)) * r[..., None]\n"
    "return dx.to({d}), (u * h).sum(0).to({d}), u.sum(0).to({d})\n",
    "cross_entropy": ROWS + "t: i64[{rows}].below({columns})\nreturn F.cross_entropy(x.float(), t)\n",
    "rms_norm": ROWS + "w: {d}[{columns}]\nreturn F.rms_norm(x, ({columns},), w, 1e-6)\n",
    "add_rms_norm": ROWS + "r: {d}[{rows}, {columns}]\nw: {d}[{columns}]\ns = x + r\n"
    f"y = {BY_HAND.format(s='s')}\n" + "return (y * w).to({d}), s\n",
    "layer_norm": ROWS + "w: {d}[{columns}]\nb: {d}[{columns}]\nreturn F.layer_norm(x, ({columns},), w, b)\n",
    "add_layer_norm": ROWS + "r: {d}[{rows}, {columns}]\nw: {d}[{columns}]\nb: {d}[{columns}]\ns = x + r\n"
    "return F.layer_norm(s, ({columns},), w, b), s\n",
    "matmul": PRODUCT + "return a @ b\n",
    "matmul_epilogue": PRODUCT + "c: {d}[{n}]\nm: {d}[{m}, {n}]\nreturn F.gelu(a @ b + c) * m\n",
    "matmul_layer_norm": PRODUCT + "w: {d}[{n}]\nc: {d}[{n}]\n"
    "return F.layer_norm((a @ b).float(), ({n},), w.float(), c.float(), 1e-5).to({d})\n",
    "matmul_logsumexp": PRODUCT + "return torch.logsumexp((a @ b).float() * {scale}, 1)\n",
    "fused_mlp": "x: {d}[{m}, {k}]\nv: {d}[{k}, {h}]\nw: {d}[{h}, {n}]\nreturn F.{activation}(x @ v) @ w\n",
    "router": "x: {d}[{tokens}, {experts}]\np = torch.softmax(x.float(), -1)\nw, i = torch.topk(p, {k}, -1)\n"
    "return w / w.sum(-1, keepdim=True), i\n",
    "top_k": ROWS + "y, i = torch.topk(x, {k}, -1)\nreturn y, i\n",
    "two_axis_reduction": ROWS + "return x.float().sum(0), x.float().sum(1)\n",
    "cumsum": ROWS + "return x.cumsum(-1)\n",
    "index_add": "x: {d}[{edges}, {columns}]\nt: i64[{edges}].below({nodes})\n"
    "return torch.zeros({nodes}, {columns}).index_add(0, t, x)\n",
    "jagged_mean": "x: {d}[{rows}, {columns}]\no: i64[{ends}].offsets({rows})\nn = o[1:] - o[:-1]\n"
    "g = torch.repeat_interleave(torch.arange({segments}), n, output_size={rows})\n"
    "return torch.zeros({segments}, {columns}, dtype={d}).index_add(0, g, x) / n[:, None]\n",
    "depthwise_conv": "x: {d}[{images}, {channels}, {height}, {width}]\nw: {d}[{channels}, 1, {k}, {k}]\n"
    "return F.conv2d(x, w, None, 1, {padding}, 1, {channels})\n",
}  # fmt: skip
"""An operation's reference in the region language: what eager and torch.compile ran. {d}: dtype; others: sizes."""

OTHER_TYPES: Mapping[str, str] = {"index_add": "f32"}
"""An operation -> the only type in which its reference is the text; in others it converts first."""

DEFAULTS: Mapping[str, Any] = {"scale": 1.0, "padding": 0, "activation": "relu"}
"""Settings that a row leaves out."""

OWN: Mapping[str, str] = {
    "softmax_long": "triton:softmax_axis",
    "softmax_axis": "triton:softmax_axis over another axis",
    "channel_rms_norm": "triton:channel_norm over another axis",
    "two_axis_reduction": "triton:two_axis_reduction",
    "index_add": "triton:scatter_add",
}
"""An operation -> the candidate whose kernel it is, where the names differ."""

TORCH = "torch.nn.functional."
PEERS: Mapping[tuple[str, str], tuple[str, ...]] = {
    # (operation, its name in the table) -> calls
    ("top_k", "eager"): ("torch.topk",),
    ("matmul", "eager"): ("torch.mm",),
    ("softmax", "F.softmax"): (f"{TORCH}softmax", "torch.softmax"),
    ("softmax_long", "F.softmax"): (f"{TORCH}softmax", "torch.softmax"),
    ("rms_norm", "eager"): (f"{TORCH}rms_norm",),
    ("layer_norm", "eager"): (f"{TORCH}layer_norm",),
    ("cross_entropy", "F.cross_entropy"): (f"{TORCH}cross_entropy",),
    ("rms_norm_backward", "aten._fused_rms_norm_backward"): (f"{TORCH}rms_norm backward",),
    ("layer_norm_backward", "aten.native_layer_norm_backward"): (f"{TORCH}layer_norm backward",),
    ("softmax", "liger"): ("liger_kernel.softmax",),
    ("rms_norm", "liger"): ("liger_kernel.rms_norm",),
    ("add_rms_norm", "liger"): ("liger_kernel.fused_add_rms_norm",),
    ("layer_norm", "liger"): ("liger_kernel.layer_norm",),
    ("gated_activation", "liger"): ("liger_kernel.swiglu",),
    ("rms_norm_backward", "liger"): ("liger_kernel.rms_norm backward",),
    ("softmax", "flag_gems"): ("flag_gems.softmax",),
    ("rms_norm", "flag_gems"): ("flag_gems.rms_norm",),
    ("layer_norm", "flag_gems"): ("flag_gems.layer_norm",),
    ("gated_activation", "flag_gems"): ("flag_gems.silu_and_mul",),
    ("top_k", "flag_gems"): ("flag_gems.topk",),
    ("cumsum", "flag_gems"): ("flag_gems.cumsum",),
    ("matmul", "flag_gems"): ("flag_gems.mm",),
    ("softmax", "quack"): ("quack.softmax",),
    ("rms_norm", "quack"): ("quack.rmsnorm",),
    ("add_rms_norm", "quack"): ("quack.fused_add_rmsnorm",),
    ("layer_norm", "quack (f32 weight)"): ("quack.layernorm",),
    ("cross_entropy", "quack"): ("quack.cross_entropy",),
    ("top_k", "quack"): ("quack.topk",),
    ("softmax_backward", "quack"): ("quack.softmax backward",),
    ("rms_norm_backward", "quack"): ("quack.rmsnorm backward",),
    ("layer_norm_backward", "quack"): ("quack.layernorm backward",),
    ("flash_attention", "SDPA cuDNN"): (f"{TORCH}scaled_dot_product_attention",),
    ("flash_attention", "SDPA flash"): (f"{TORCH}scaled_dot_product_attention.flash", "flash_attn.flash_attn_func"),
    ("flash_attention", "SDPA efficient"): (f"{TORCH}scaled_dot_product_attention.efficient",),
    ("flash_attention", "FlexAttention"): ("torch.nn.attention.flex_attention",),
    ("matmul_epilogue", "addmm_activation (cuBLASLt)"): ("torch.ops.aten._addmm_activation",),
}
"""What another package's figure in a row is a figure of."""

MODES: Mapping[str, str] = {"eager": "eager", "compile": "compile", "max-autotune": "compile-max-autotune"}
"""A row's name -> the candidate that runs the row's text."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row. sizes: by name; region: the measured region that it is, "" where none; times_us: by implementation."""

    operation: str
    dtype: str
    sizes: Mapping[str, Any]
    region: str
    bytes: int
    flops: int
    times_us: Mapping[str, float]

    @property
    def rows(self) -> int:
        """How many rows it goes by; 0 where it goes by none."""
        if "shape" in self.sizes and "dim" in self.sizes:
            return int(math.prod(self.sizes["shape"])) // int(self.sizes["shape"][self.sizes["dim"]])
        return int(self.sizes.get("rows", self.sizes.get("tokens", 0))) if self.operation in ROWWISE else 0

    @property
    def text(self) -> str | None:
        """Its reference as a region; None where it has none in the language, or a variant that the text is not."""
        template = TEXTS.get(self.operation)
        known = set(re.findall(r"\{(\w+)\}", template or ""))
        given = {**DEFAULTS, **self.sizes}
        if "segments" in given:
            given["ends"] = given["segments"] + 1
        if self.operation == "rope":
            given |= {"d_": given.pop("d"), "half": self.sizes["d"] // 2}
        if (
            template is None
            or set(self.sizes) - known
            or known - {"d"} - set(given)
            or given.get("k") == 0
            or OTHER_TYPES.get(self.operation, self.dtype) != self.dtype
        ):
            return None
        return template.format(d=self.dtype, **{k: _format(v) for k, v in given.items()})

    @property
    def between(self) -> int:
        """Elements of the activation between its two products; 0 without, or where that costs next to nothing."""
        given = {**DEFAULTS, **self.sizes}
        return int(given["m"] * given["h"]) if "h" in given and given["activation"].split("_")[0] in CURVED else 0

    @property
    def own(self) -> str:
        """The candidate that its own kernel is."""
        if self.operation == "softmax" and "widen" in self.sizes:
            return OWN["softmax_long"]
        return OWN.get(self.operation, f"triton:{self.operation}")


ROWWISE = frozenset(
    """softmax softmax_long softmax_backward cross_entropy rms_norm add_rms_norm rms_norm_backward layer_norm
    add_layer_norm layer_norm_backward router top_k cumsum""".split()
)
"""Operations that go by rows of `columns`."""


def _format(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


LATER = frozenset(
    """adamw_many attention_backward average_pool average_pool_backward batch_norm_activation causal_conv1d
    causal_conv1d_backward embedding_bag embedding_bag_backward gated_linear_attention group_norm_silu grouped_gemm
    grouped_gemm_backward layer_norm_quantise linear_cross_entropy linear_cross_entropy_with_gradient max_pool
    max_pool_backward paged_decode rms_norm_quantise scaled_gemm segment_reduce segment_reduce_backward selective_scan
    selective_scan_backward top_k_top_p_sample weight_only_gemm""".split()
)
"""Operations of the second set: in none of the rates yet, which were fitted before any of them was measured."""


REVIEWED = "2026-11-27 15:02"
"""The day and hour of runs up to which the rates were fitted when docs/advice-review.md was judged."""


def fitted_rows(table: KernelTable) -> list[TableRow]:
    """Those that the rates are fitted on: of a row that was measured again after REVIEWED, as it was before.

    By newer ones reviewed advice may become other advice, which nobody has judged yet.
    """
    former = {(item["operation"], item["case"]): item for item in table.get("former", ())}
    chosen = (
        item if item.get("run", "") < REVIEWED else former.get((item["operation"], item["case"]), item)
        for item in table["rows"]
    )  # fmt: skip
    return [item for item in chosen if item["operation"] not in LATER and item.get("run", "") < REVIEWED]


def rows(table: KernelTable, fitted: bool = False) -> Iterator[Row]:
    """Every row of the table with the times that it has. fitted: those that the rates are fitted on."""
    for item in fitted_rows(table) if fitted else table["rows"]:
        dtype, _, rest = item["case"].partition(" ")
        sizes = {k: _value(v) for k, v in re.findall(r"(\w+)=(\([^)]*\)|\S*)", rest)}
        times = {name: median_us for name, c in item["candidates"].items() if (median_us := c.get("median_us"))}
        yield Row(item["operation"], dtype, sizes, item["region"], item["bytes"], item["flops"], times)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
