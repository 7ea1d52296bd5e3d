"""What FINDINGS.md of the real traces advises, as data: one Want for each thing that a row of it names.

A row is told by its traces and by how its region begins, as in tests/profiler/region/mining/test_findings.py, which
holds the regions themselves to the table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Want:
    """One region of a row and what its cell advises.

    title: a regular expression, of the whole title. tools: those that are right by the cell. says: a regular expression
    that what is advised must hold in its words, call or notes, its alternatives left out; "" where the tool is enough.
    calls: one that the advised call itself must hold. where: of the row's traces those that have it. share: at least
    so much of its step, so that a trifle of the same name is not meant.
    """

    title: str
    tools: tuple[str, ...]
    says: str = ""
    where: str = "*"
    share: float = 0.01
    calls: str = ""


@dataclass(frozen=True)
class Otherwise:
    """Advice that differs from a cell of the table, and what contradicts the cell.

    record: the Archive's record that measured it. Without one the trace itself does, by `criterion`: the rule's
    criterion of that name does not hold by what the trace has measured.
    """

    trace: str
    title: str
    record: str = ""
    criterion: str = ""


@dataclass(frozen=True)
class Later:
    """A region of a cell whose first action in the trace's list is not the cell's: the action of that id comes first.

    The trace itself contradicts the cell: that action is the first of the whole list and saves more of the step.
    """

    trace: str
    title: str
    first: str


@dataclass(frozen=True)
class Open:
    """Advice that differs from a cell, and nothing has measured which is right: to be mended or to be measured."""

    trace: str
    title: str
    why: str


SDPA = r"scaled_dot_product_attention|flex_attention"

ROWS: dict[tuple[str, str], tuple[Want, ...]] = {
    ("handrolled_blocks_* (eager)", "RMSNorm by hand"): (
        Want("RMSNorm by hand", ("library", "compile"), r"rms_norm|torch\.compile"),
    ),
    ("handrolled_blocks_* (eager)", "attention by hand"): (Want("attention by hand", ("library",), SDPA),),
    ("handrolled_blocks_* (eager)", "`matmul (t), add, gelu, mul (mask)`: the MLP's up-projection"): (
        Want("GEMM with GELU and mask tail", ("compile",)),
    ),
    ("handrolled_blocks_* (eager)", "qkv/out/down projections"): (Want("GEMM", ("skip",), "Already "),),
    ("handrolled_blocks_noshapes", "same ops, no shapes"): (
        Want("RMSNorm by hand", ("library", "compile"), "record_shapes"),
        Want("attention by hand", ("library",), "record_shapes"),
        Want("GEMM with GELU and mask tail", ("compile",), "record_shapes"),
        Want("GEMM", ("skip",)),
    ),
    ("*_compiled", "`triton_poi/red/per_fused_*`"): (
        Want(r"torch.compile kernel triton_(poi|red|per)_.*", ("skip",), "torch.compile has fused it"),
        Want("GEMM", ("skip",), "Already "),
        Want("attention by hand", ("library",), SDPA, where="handrolled*"),
    ),
    ("llama_* (eager)", "RMSNorm by hand"): (
        Want("RMSNorm by hand", ("compile", "library")),
        Want("RoPE", ("compile", "library")),
        Want("SwiGLU", ("compile", "library")),
        Want("residual add", ("compile",)),
        Want(r"layout copy \(repeated heads\)", ("compile",), where="llama_eager*", share=0.005),
    ),
    ("llama_* (eager)", "`scaled_dot_product_attention`"): (
        Want("SDPA attention", ("skip",)),
        Want("GEMM", ("skip",), where="llama_[!d]*"),
    ),
    ("llama_eager_attention_prefill", "`matmul, mul, add (causal mask)"): (
        Want("attention by hand", ("library",), calls=r"scaled_dot_product_attention\("),
    ),
    ("llama_decode_bf16_eager", "about 3,000 kernels"): (
        Want("RMSNorm by hand", ("compile",), "reduce-overhead.*static cache"),
        Want("GEMM", ("compile",), "reduce-overhead", share=0.009),
    ),
    ("gpt2_train_*", "tanh-GELU by hand"): (
        Want(r"GELU \(tanh\) by hand", ("library", "compile"), r"F\.gelu|torch\.compile"),
    ),
    ("gpt2_train_*", "`_log_softmax, nll_loss`"): (
        # The packages that have a kernel for it are not installed there: torch.compile, and they are worth installing.
        Want("cross entropy", ("library", "triton", "compile")),
    ),
    ("gpt2_train_*", "autocast casts"): (Want("autocast cast", ("compile",)),),
    ("gpt2_train_*", "AdamW"): (
        Want(r"optimizer step \(fused\)", ("skip",), "Already "),
        Want(r"optimizer step \(foreach\)", ("library",), "fused=True"),
    ),
    ("bert_train_varlen_*", "the same regions at six"): (
        Want("dropout, residual add, LayerNorm", ("compile",), share=0.0),
        Want("GEMM with GELU tail", ("compile",), share=0.005),
    ),
    ("mixtral_*", "`_grouped_mm, silu, mul, _grouped_mm`"): (Want("grouped GEMM", ("skip",), "Already "),),
    ("mixtral_*", "routing round it"): (
        Want("routing", ("triton", "library")),
        Want("masked fill", ("triton", "library")),
        Want("expert combine", ("triton", "library")),
    ),
    ("t5_*", "attention by hand with a relative"): (
        Want("attention by hand", ("library",), r"flex_attention|scaled_dot", share=0.02),
        Want("RMSNorm by hand", ("compile",)),
        Want(r"optimizer step \(foreach\)", ("library",), "fused=True"),
    ),
    ("timm_convnext_*", "depthwise 7x7"): (
        Want("depthwise convolution", ("triton",)),
        Want("LayerNorm", ("compile",)),
        Want(".*GELU.*", ("compile",)),
        Want("layer scale, residual add.*", ("compile",)),
        Want(r"optimizer step \(foreach\)", ("library",), "fused=True", share=0.0),
    ),
    ("timm_resnet50_*", "conv (cuDNN)"): (
        Want("convolution, batch norm, residual add, ReLU", ("skip", "compile")),
        Want("convolution, batch norm, ReLU", ("skip", "compile")),
    ),
    ("timm_vit_*", "SDPA, linear"): (
        Want("SDPA attention", ("skip", "compile")),
        Want("GEMM", ("skip", "compile")),
        Want("residual add, LayerNorm", ("skip", "compile")),
        Want("GEMM with GELU tail", ("skip", "compile")),
    ),
    ("pyg_*", "`index_select, mul, index_add_"): (
        Want("gather, multiply and scatter-add", ("triton", "library")),
        Want("segment softmax by hand", ("triton", "library")),
    ),
}  # fmt: skip
"""(the row's traces, how its region begins) -> what its advice must be."""

STEP = {("handrolled_blocks_*_cudagraph", "kernels of one graph")}
"""Rows about the step: tests of their own."""

OTHERWISE = (
    Otherwise("llama_*", "residual add", record="residual-add-nvidia-h200-2026-11-21-072b463c"),
    # Under 1 % of a step that waits for the host: the rule's second question comes before any tool.
    Otherwise("llama_eager_*", r"layout copy \(repeated heads\)", criterion="worth-it"),
    Otherwise("bert_train_varlen_*", "dropout, residual add, LayerNorm", criterion="worth-it"),
    Otherwise("bert_train_varlen_*", "GEMM with GELU tail", criterion="worth-it"),
    Otherwise("timm_convnext_*", r"optimizer step \(foreach\)", criterion="worth-it"),
    Otherwise("mixtral_*", "masked fill", record="masked-fill-nvidia-h200-2026-11-22-354dac42"),
    Otherwise(
        "mixtral_*",
        "expert combine",
        record="scatter-with-masked-fill-mul-index-select-and-sum-nvidia-h200-2026-11-22-fd99e134",
    ),
    Otherwise(
        "pyg_*",
        "segment softmax by hand",
        record="scatter-with-index-select-add-leaky-relu-and-sub-and-more-nvidia-h200-2026-11-22-f213bfe5",
    ),
    Otherwise(
        "pyg_*",
        "gather, multiply and scatter-add",
        record="scatter-with-index-select-and-mul-nvidia-h200-2026-11-22-d3be0b09",
    ),
    Otherwise(
        "pyg_*",
        "gather, multiply and scatter-add",
        record="scatter-with-index-select-and-mul-nvidia-h200-2026-11-22-8f3cf093",
    ),
    # Nothing fused, ours or a library's, is more than 1.24 times as fast: 0.5 % of the step.
    *(
        Otherwise("timm_convnext_*", "GEMM with GELU tail", record=f"gemm-with-gelu-tail-nvidia-h200-2026-11-{one}")
        for one in ("23-0d828865", "22-b8bd7d9f", "23-eee55975")
    ),
    Otherwise("gpt2_train_autocast_eager*", "autocast cast", record="to-nvidia-h200-2026-11-22-ca9c0df0"),
    # A launch-bound step: CUDA graphs for all of it come before attention's own kernels.
    Otherwise("*t5_*", "attention by hand", criterion="kernel-problem"),
)

LATER = (
    # The step waits for launches: the GPU is busy for 36 % of 15.8 ms, 49 % of 11.1 and 44 % of 56.6 (docs/traces.md).
    Later("llama_eager_attention_prefill", "attention by hand", "cuda-graphs"),
    Later("mixtral_*", "routing", "cuda-graphs"),
    Later("timm_convnext_*", "depthwise convolution", "cuda-graphs"),
    # What is measured of these has torch.compile in front (OTHERWISE), and the whole model saves more than one region.
    Later("mixtral_*", "masked fill", "cuda-graphs"),
    Later("mixtral_*", "expert combine", "cuda-graphs"),
    Later("*t5_*", "attention by hand", "cuda-graphs"),
    Later("pyg_*", "gather, multiply and scatter-add", "compile-model"),
    Later("pyg_*", "segment softmax by hand", "compile-model"),
)

OPEN: tuple[Open, ...] = ()
"""Each is to leave this list: by advice that is mended, or by a record that contradicts the cell."""
