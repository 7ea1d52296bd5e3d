"""Case: what the criteria judge, and how they write shares and names."""

from __future__ import annotations

from dataclasses import dataclass

from app.estimate.facts import Cover, RegionFacts
from app.estimate.predict import Prediction
from app.estimate.range import Range
from app.estimate.rates import FITTED, Rates
from app.thresholds import Thresholds
from profiler.hardware import Device
from profiler.region.model import Workload


@dataclass(frozen=True, slots=True)
class Case:
    """What the criteria judge. current: time of one call as it runs now; None without sizes and observation.

    share: the region's share of the step, None where unknown; share_source says where it is from.
    reachable: fastest predicted time of one call, by any tool; None where nothing could be predicted.
    eager: what PyTorch alone is predicted to take; None without sizes.
    other_clock: chance that the other of wall and device time decides than the options' times are of.
    """

    facts: RegionFacts
    workload: Workload
    device: Device
    settings: Thresholds
    covers: tuple[Cover, ...]
    current: Range | None
    share: float | None
    share_source: str
    reachable: float | None = None
    rates: Rates = FITTED
    eager: Prediction | None = None
    other_clock: float = 0.0


def percent(value: float) -> str:
    """0.042 -> "4.2 %"."""
    return f"{100 * value:.3g} %"


VARIANTS = {
    "F.scaled_dot_product_attention.cudnn": "F.scaled_dot_product_attention with the cuDNN backend",
    "F.scaled_dot_product_attention.flash": "F.scaled_dot_product_attention with the FlashAttention backend",
    "F.scaled_dot_product_attention.efficient": "F.scaled_dot_product_attention with the memory-efficient backend",
    "F.scaled_mm.blockwise": "F.scaled_mm with block-wise scales",
    "torch.topk.cutedsl": "torch.topk with its CuTe DSL kernel",
    "torch.index_add.cutedsl": "torch.index_add with its CuTe DSL kernel",
    "torch.optim.fused": "torch.optim with fused=True",
    **{f"torch.optim.{own}": f"torch.optim.{own} with fused=True" for own in ("Adam", "AdamW", "SGD", "Adagrad")},
    "torch._foreach": "torch's foreach functions",
    "F.activation": "F's own activation",
    "F.pool": "F's own pooling",
    "torchao.int4_weight_only": "torchao's quantize_ to 4-bit weights",
    "torchao.int8_weight_only": "torchao's quantize_ to 8-bit weights",
    "remedy.padding": "the same call on padded sizes",
    "remedy.layout": "the same call on channels-last tensors",
    "remedy.mask": "the same call without a stored mask",
    "remedy.precision": "the same call in another precision",
    "remedy.call": "the same values by another call",
}
"""Candidates that tell ways to make one call apart, and are no functions themselves."""


def short(candidate: str) -> str:
    """library:torch.nn.functional.rms_norm -> F.rms_norm. What is no function is said in words."""
    name = candidate.removeprefix("library:").replace("torch.nn.functional.", "F.")
    return VARIANTS.get(name, name)


def label_of(candidate: str) -> str:
    """A candidate as people say it: F.rms_norm, torch.compile max-autotune, Triton matmul_epilogue."""
    tool, _, name = candidate.partition(":")
    if tool == "library":
        said = short(candidate) if name.startswith("remedy.") else name.replace("torch.nn.functional.", "F.")
        return said.replace("torch.nn.attention.", "")
    if tool in ("triton", "cuda"):
        return f"{'Triton' if tool == 'triton' else 'CUDA'} {'to write' if name == 'custom' else name}"
    if candidate == "eager":
        return "as it runs now"
    return candidate.replace("compile", "torch.compile", 1).replace("torch.compile-", "torch.compile ")
