"""Libraries by kind of region, for where coverage was not asked: the widget, traces without shapes, quantised weights.

Facts from the coverage catalogue. What a region's own shapes allow is `kernels.libraries`' to say.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.estimate.facts import Cover, RegionFacts
from app.thresholds import Thresholds

DONE_BY_LIBRARY = frozenset({"gemm", "attention", "convolution", "fft", "sort"})
"""One call of these, not written by hand, runs on the library already."""


@dataclass(frozen=True, slots=True)
class Known:
    """One library call for a kind of region; the fields of a Cover."""

    candidate: str
    package: str
    call: str
    covers: bool
    conditions: tuple[tuple[str, bool | None], ...]
    installed: bool
    already: bool
    note: str
    operations: frozenset[str] = frozenset()
    whole: bool = True
    adapter: str | None = None
    verdict: str = ""
    install: str = ""
    density: float | None = None
    loses_digits: bool = False

    @property
    def missing(self) -> str:
        return "" if self.installed else f"{self.package} is not installed here"


F = "torch.nn.functional."

TABLE: dict[str, tuple[str, str, str, str]] = {
    # kind: (package, call's name, code, condition)
    "attention": (
        "torch", F + "scaled_dot_product_attention", "y = F.scaled_dot_product_attention(q, k, v, attn_mask=...)",
        "16-bit types with heads of up to 256 for the fused backends; FlexAttention for a bias or a mask",
    ),
    "gemm": ("torch", "torch.matmul", "y = torch.matmul(a, b)", "cuBLAS, every dtype"),
    "convolution": ("torch", F + "conv2d", "y = F.conv2d(x, w)", "cuDNN; channels_last and 16 bits"),
    "fft": ("torch", "torch.fft", "y = torch.fft.rfft(x)", "cuFFT"),
    "sort": ("torch", "torch.sort", "y, i = torch.sort(x, -1)", "CUB"),
    "optimizer": (
        "torch", "torch.optim.fused", "optimizer = torch.optim.AdamW(parameters, fused=True)  # or your class",
        "Adam, AdamW, SGD or Adagrad; floating-point parameters on a GPU",
    ),
    "quantised_gemm": (
        "vllm", "vllm.marlin_gemm",
        "# vLLM: Marlin (sm_80 and later), Machete (sm_90); torchao: quantize_(model, Int4WeightOnlyConfig())",
        "weights of 4 or 8 bits in groups of 32, 64 or 128",
    ),
    "f8_gemm": (
        "torch", F + "scaled_mm", "y = F.scaled_mm(a, b, scale_a, ScalingType.RowWise, scale_b, ScalingType.RowWise)",
        "sm_89 and later; inner and outer sizes multiples of 16",
    ),
    "moe": (
        "torch", F + "grouped_mm", "y = F.grouped_mm(x, w, offs=offsets)",
        "bf16; one kernel from sm_90 on, a loop below",
    ),
    "rms_norm": (
        "torch", F + "rms_norm", "y = F.rms_norm(x, (x.shape[-1],), weight, eps)", "torch 2.9 and later for one kernel",
    ),
    "layer_norm": (
        "torch", F + "layer_norm", "y = F.layer_norm(x, (x.shape[-1],), weight, bias, eps)",
        "normalises the last dimensions",
    ),
    "gelu_tanh": ("torch", F + "gelu", 'y = F.gelu(x, approximate="tanh")', "the tanh form"),
    "cross_entropy": (
        "torch", F + "cross_entropy", "loss = F.cross_entropy(logits, target)",
        "Liger's or quack's kernels where the vocabulary is large",
    ),
    "softmax": ("torch", "torch.softmax", "y = torch.softmax(x, -1)", "over the last dimension"),
}  # fmt: skip

FUSED_OPTIMIZERS = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})
"""Classes of torch.optim that take fused=True (torch 2.11)."""

BY_HAND_ONLY = frozenset({"optimizer", "quantised_gemm", "f8_gemm", "moe"})
"""Kinds whose library another spelling of the region would use, whatever its shapes are."""


def known_covers(facts: RegionFacts, settings: Thresholds) -> tuple[Cover, ...]:
    """What covers a region of this kind, by the table. Where the region's own coverage names a call, that is enough."""
    kind = facts.kind
    if any(c.covers and c.whole for c in facts.covers) and not names_its_optimizer(facts):
        return ()
    if facts.quantised:
        kind = "f8_gemm" if facts.quantised.startswith("f8") else "quantised_gemm"
    if kind not in TABLE or (facts.shapes and kind not in (*DONE_BY_LIBRARY, *BY_HAND_ONLY)):
        return ()
    package, name, code, condition = TABLE[kind]
    if kind == "optimizer" and (own := facts.optimizer_class):
        if own not in FUSED_OPTIMIZERS:
            return ()  # what computes another step is no replacement
        name, code = f"torch.optim.{own}", f"optimizer = torch.optim.{own}(parameters, fused=True)"
        condition = "floating-point parameters on a GPU"
    already = kind in DONE_BY_LIBRARY and not facts.by_hand and _alone(facts)
    already |= kind == "optimizer" and is_fused_optimizer(facts)
    if facts.shapes and not already and kind in DONE_BY_LIBRARY:
        return ()
    conditions: list[tuple[str, bool | None]] = [(condition, True if already else None)]
    covers = True
    if kind == "quantised_gemm":
        small = facts.gemm_rows is None or facts.gemm_rows <= settings.quantised_batch
        rows = "an unknown number of" if facts.gemm_rows is None else str(facts.gemm_rows)
        conditions.append((f"at most {settings.quantised_batch:.0f} rows; this one has {rows}", small))
        covers = small
    return (Known(f"library:{name}", package, code, covers, tuple(conditions), package == "torch", already, ""),)


def covers_of(facts: RegionFacts, settings: Thresholds) -> tuple[Cover, ...]:
    """What the region's text is covered by, and what its kind is; of an optimizer that its trace names, that alone.

    A call whose result has fewer digits is left out: it is no replacement unless somebody says that it is.
    """
    own = () if names_its_optimizer(facts) else tuple(c for c in facts.covers if not c.loses_digits)
    return (*own, *known_covers(facts, settings))


def names_its_optimizer(facts: RegionFacts) -> bool:
    """A trace tells whose step it is, or that it is fused: more than the operations of its text do."""
    return is_fused_optimizer(facts) or bool(facts.optimizer and facts.optimizer_class)


def is_fused_optimizer(facts: RegionFacts) -> bool:
    """An optimizer's step that torch runs in a kernel of its own already."""
    return facts.optimizer and "fused" in facts.title


def _alone(facts: RegionFacts) -> bool:
    """Nothing but the library's own kind of operation is in the region."""
    return not facts.kinds or len(facts.kinds) == 1
