"""The table of what a performance engineer reads off the recorded traces, walked row by row.

The table is the traces' FINDINGS.md: the rows are read from it, and each must have its wants below. A want is a region:
how it may be called, the operations that its row lists for it, how much of the step it is at least, and what its text
must hold. The table's advice is for advice's own tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

import pytest

from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from profiler.region.mining.mine import COPIES, MinedRegion
from tests.conftest import DATA
from tests.profiler.region.mined import mined

TRACES = DATA / "traces"
NAMES = sorted(p.name.removesuffix(".json.gz") for p in TRACES.glob("*.json.gz") if ".et." not in p.name)


@dataclass(frozen=True)
class Want:
    """One region of a row. where: the row's traces that have it; text False: the trace lacks what a text needs, None:
    of some of its regions.
    """

    title: str  # a regular expression, of the whole title
    operations: str = ""  # in this order, others between them allowed; of the region's operations
    share: float = 0.0  # of the step's kernel time, all regions of this want together
    text: bool | None = True
    holds: str = ""  # one of the texts has it
    backward: bool | None = None
    where: str = "*"
    shapes: int = 1  # of one of the regions, at least


HAND = "handrolled_blocks_bf16_eager*"
WANTS: dict[tuple[str, str], tuple[Want, ...]] = {
    ("handrolled_blocks_* (eager)", "RMSNorm by hand"): (
        Want("RMSNorm by hand", "to pow mean add rsqrt to mul mul", 0.09, holds="x: bf16[4, 2048, 2048]"),
    ),
    ("handrolled_blocks_* (eager)", "attention by hand"): (
        Want("attention by hand", "matmul div add softmax matmul", 0.5, holds="bias: bf16[16, 2048, 2048]"),
    ),
    ("handrolled_blocks_* (eager)", "`matmul (t), add, gelu, mul (mask)`: the MLP's up-projection"): (
        Want("GEMM with GELU and mask tail", "matmul add gelu mul", 0.15, holds="mask: bf16[4, 2048, 8192]"),
    ),
    ("handrolled_blocks_* (eager)", "qkv/out/down projections"): (
        Want("GEMM", "linear", 0.15, holds="w: bf16[6144, 2048]"),
        Want("GEMM", "linear", 0.15, holds="w: bf16[2048, 8192]"),
    ),
    ("handrolled_blocks_noshapes", "same ops, no shapes"): (
        Want("RMSNorm by hand", "to pow mean add rsqrt to mul mul", 0.09, text=False),
        Want("attention by hand", "matmul div add softmax matmul", 0.5, text=False),
        Want("GEMM with GELU and mask tail", "matmul add gelu mul", 0.15, text=False),
        Want("GEMM", "linear", 0.15, text=False),
    ),
    ("*_compiled", "`triton_poi/red/per_fused_*`"): (
        Want("attention by hand", share=0.4, where="handrolled*", holds="softmax(scores / 11.313708 + bias, dim=-1)"),
        Want("torch.compile kernel triton_poi_.*_gelu_mul.*", share=0.04, text=False, where="handrolled*"),
        Want("torch.compile kernel triton_(poi|red|per)_fused_.*", share=0.1, text=None),
        Want("GEMM", "mm", 0.15),
        Want("SDPA attention", share=0.25, where="llama*"),
    ),
    ("llama_* (eager)", "RMSNorm by hand"): (
        Want("RMSNorm by hand", "to pow mean add rsqrt mul to mul", 0.08),
        Want("RMSNorm by hand", "to pow mean", 0.2, backward=True, where="llama_train*"),
        Want("RoPE", "mul neg cat mul add", 0.05),
        Want("RoPE", "mul neg cat mul add", 0.07, backward=True, where="llama_train*"),
        Want("SwiGLU", "silu mul", 0.02),
        Want("residual add", "add", 0.005),
        Want(r"layout copy \(repeated heads\)", "reshape", 0.01, holds="8, 4, 1024, 64", where="llama_eager*"),
    ),
    ("llama_* (eager)", "`scaled_dot_product_attention`"): (
        Want("SDPA attention", "scaled_dot_product_attention", 0.025, where="llama_[pdt]*"),
        Want("GEMM", "linear", 0.2),
    ),
    ("llama_eager_attention_prefill", "`matmul, mul, add (causal mask)"): (
        Want("attention by hand", "matmul mul add softmax to matmul", 0.5, holds="dtype=f32"),
    ),
    ("gpt2_train_*", "tanh-GELU by hand"): (
        Want(r"GELU \(tanh\) by hand", "mul pow mul add mul tanh add mul", 0.17, backward=True),
    ),
    ("gpt2_train_*", "`_log_softmax, nll_loss`"): (
        Want("cross entropy", "to cross_entropy_loss", 0.1, backward=True, holds="bf16[8, 1024, 50257]"),
    ),
    ("gpt2_train_*", "autocast casts"): (Want("autocast cast", "to", 0.03, holds=".to(bf16)", backward=True),),
    ("gpt2_train_*", "AdamW"): (
        Want(r"optimizer step \(fused\)", "_fused_adamw_", 0.01, holds="p: f32[81912576]",
             where="gpt2_train_autocast_eager"),
        Want(r"optimizer step \(foreach\)", "_foreach_addcdiv_", 0.03, holds="addcdiv(p, m, d", where="*_stack"),
    ),
    ("bert_train_varlen_*", "the same regions at six"): (
        Want("dropout, residual add, LayerNorm", "dropout add layer_norm", 0.08, holds="sizes[", backward=True,
             shapes=6),
        Want("SDPA attention", share=0.07, holds="sizes[", backward=True, shapes=6),
        Want("GEMM with GELU tail", "linear gelu", 0.08, holds="sizes[", backward=True, shapes=6),
        Want("cross entropy", share=0.1, holds="sizes[", backward=True, shapes=6),
        Want("embedding, residual add", "embedding add", 0.002, backward=True, shapes=6),
    ),
    ("mixtral_*", "`_grouped_mm, silu, mul, _grouped_mm`"): (
        Want("grouped GEMM", "_grouped_mm", 0.25, holds="offs: i32[8]"),
        Want("SwiGLU", "silu mul", 0.1),
    ),
    ("mixtral_*", "routing round it"): (
        Want("routing", "softmax topk div_ sort index histc cumsum masked_fill_", 0.08),
        Want("masked fill", "masked_fill", 0.1),
        Want("expert combine", "masked_fill mul index_put_ index sum", 0.07),
    ),
    ("t5_*", "attention by hand with a relative"): (
        Want("attention by hand", "matmul add_ _safe_softmax dropout matmul", 0.3, holds="bias: bf16[1, 8,",
             backward=True),
        Want("RMSNorm by hand", "pow mean add rsqrt mul mul", 0.1, backward=True, shapes=2),
        Want(r"optimizer step \(foreach\)", "_foreach_addcdiv_", 0.07, holds="addcdiv(p, m, d"),
    ),
    ("timm_convnext_*", "depthwise 7x7"): (
        Want("depthwise convolution", "conv2d", 0.2, backward=True, holds="groups=384"),
        Want("LayerNorm", "layer_norm", 0.15, backward=True, shapes=5),
        Want(".*GELU.*", "linear gelu", 0.15, backward=True),
        Want("layer scale, residual add.*", "mul add", 0.12, backward=True, shapes=3),
        Want(r"optimizer step \(foreach\)", "_foreach_add_", 0.004, holds="p: f32[28589128]"),
    ),
    ("timm_resnet50_*", "conv (cuDNN)"): (
        Want("convolution, batch norm.*", "conv2d batch_norm", 0.9, backward=True),
        Want("convolution, batch norm, residual add, ReLU", "conv2d batch_norm add_ relu_", 0.35, backward=True,
             holds=".channels_last"),
        Want("convolution, batch norm, ReLU", "conv2d batch_norm relu_", 0.5, backward=True, shapes=8),
    ),
    ("timm_vit_*", "SDPA, linear"): (
        Want("SDPA attention", "scaled_dot_product_attention", 0.08),
        Want("GEMM", "linear", 0.3),
        Want("residual add, LayerNorm", "add layer_norm", 0.15),
        Want("GEMM with GELU tail", "linear gelu", 0.25),
    ),
    ("pyg_*", "`index_select, mul, index_add_"): (
        Want("gather, multiply and scatter-add", "index_select mul scatter_add_", 0.7, backward=True,
             holds="index: i64[4199977].below(200000)"),
        Want("segment softmax by hand", "index_select exp scatter_add_ index_select div", 0.17, backward=True),
    ),
}  # fmt: skip
"""(the row's traces, how its region begins) -> what must be found."""

STEP = {("handrolled_blocks_*_cudagraph", "kernels of one graph"), ("llama_decode_bf16_eager", "about 3,000 kernels")}
"""Rows about the step: tests of their own below."""

GLOBS = {
    "handrolled_blocks_* (eager)": (HAND,),
    "*_compiled": ("handrolled_blocks_*_compiled", "llama_prefill_*_compiled"),
    "llama_* (eager)": ("llama_*_eager", "llama_*_eager_stack", "llama_eager_*"),
    "t5_*": ("t5_*", "large_t5_*"),
}
"""Traces that a row's first cell means, where it is no glob itself."""


def rows() -> list[tuple[str, str]]:
    """(traces, region) of each line of the table; a line without traces continues the one above."""
    collected: list[tuple[str, str]] = []
    above = ""
    for line in (TRACES / "FINDINGS.md").read_text().splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if len(cells) == 3 and cells[0] not in ("trace", "-"):
            above = cells[0] or above
            collected.append((above, cells[1]))
    return collected


def of_row(row: tuple[str, str]) -> tuple[str, str]:
    """The key of the wants for a row."""
    traces = "*_compiled" if row[0].startswith("handrolled_blocks_*_compiled") else row[0]
    return next((key for key in (*WANTS, *STEP) if key[0] == traces and row[1].startswith(key[1])), row)


def wanted() -> Iterator[tuple[str, Want]]:
    for row in rows():
        key = of_row(row)
        for want in WANTS.get(key, ()):
            for name in NAMES:
                if fnmatch(name, want.where) and any(fnmatch(name, g) for g in GLOBS.get(key[0], (key[0],))):
                    yield name, want


def has_in_order(operations: Sequence[str], wanted: str) -> bool:
    rest = iter(operations)
    return all(any(o == w for o in rest) for w in wanted.split())


def test_the_table_has_no_row_without_wants() -> None:
    unknown = [row for row in rows() if of_row(row) not in WANTS and of_row(row) not in STEP]
    assert not unknown
    assert len(rows()) == len(WANTS) + len(STEP)


CASES = list(wanted())


@pytest.mark.parametrize(("name", "want"), CASES, ids=[f"{n}-{w.title}" for n, w in CASES])
def test_the_region_is_found(name: str, want: Want) -> None:
    _, mining = mined(f"{name}.json.gz")
    named = [r for r in mining.regions if re.fullmatch(want.title, r.title)]
    assert named, [r.title for r in mining.regions]
    same = [r for r in named if has_in_order(r.operations, want.operations)]
    assert same, [r.operations for r in named]
    if want.backward is not None:
        same = [r for r in same if r.backward == want.backward]
        assert same
    assert sum(r.time_us_per_step for r in same) >= want.share * mining.kernel_time_us
    assert max(len(r.shapes) for r in same) >= want.shapes
    if want.text is None:
        return
    if not want.text:
        assert all(r.text is None and r.missing for r in same)
        return
    written = [r for r in same if r.text is not None]
    assert sum(r.time_us_per_step for r in written) >= 0.99 * sum(r.time_us_per_step for r in same)
    assert any(want.holds in (r.text or "") for r in written), [r.text for r in written]
    for region in written[:2]:
        _runs(region)


def _runs(region: MinedRegion) -> None:
    parsed = parse(region.text or "")
    graph = lower(parsed, parsed.bindings[0] if parsed.bindings else None)
    assert graph.operations


def test_kernels_of_a_graph_launch_are_named_with_the_time_and_the_remedy() -> None:
    _, mining = mined("handrolled_blocks_bf16_cudagraph.json.gz")
    assert not mining.regions
    graph = next(r for r in mining.rests if r.name.startswith("CUDA graph"))
    assert graph.time_us > 0.99 * mining.kernel_time_us
    assert "record_shapes" in graph.remedy
    assert "without CUDA graphs" in graph.remedy


def test_decoding_is_many_short_kernels_and_an_idle_gpu() -> None:
    _, mining = mined("llama_decode_bf16_eager.json.gz")
    kernels = sum(r.launches for r in mining.regions)
    kernels += sum(len(r.kernels) for r in mining.rests if r.name != COPIES) / len(mining.steps)
    assert 2_900 < kernels < 3_200
    assert mining.kernel_time_us / kernels < 5.0
    assert mining.busy_us < 0.1 * mining.step_time_us


def test_routing_is_launch_bound() -> None:
    """The row asks which part is: many kernels of a few microseconds each."""
    routing = next(r for r in mined("mixtral_prefill_bf16_eager.json.gz")[1].regions if r.title == "routing")
    assert routing.kernels_per_call > 20
    assert routing.time_us_per_step / routing.launches < 6.0
