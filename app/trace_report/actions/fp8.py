"""8-bit floating point for a step's large linear layers: through torchao, and never advised where that is missing."""

from __future__ import annotations

from dataclasses import dataclass

from app.trace_report.actions.model import Option
from app.trace_report.step_model import Change, Left, Step, busy_us
from app.units import count, share
from profiler.hardware import Device

FP8 = "fp8"
WORTH = 0.02
"""Share of the step from which the middle of what it saves is worth a line: it changes numbers."""
NUMERICS = (
    "linear layers' inputs, weights and gradients have 3 bits of mantissa, with one scale a row: about 4e-2 off in a "
    "number, less in a sum; compare the loss's curve, or the answers, before you keep it"
)
TRAINING = (
    "from torchao.float8 import Float8LinearConfig, convert_to_float8_training; "
    'convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name("rowwise"), module_filter_fn='
    "lambda m, _: min(m.in_features, m.out_features) >= 1024); model = torch.compile(model)"
)
INFERENCE = (
    "from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, PerRow, quantize_; "
    "quantize_(model, Float8DynamicActivationFloat8WeightConfig(granularity=PerRow())); model = torch.compile(model)"
)
INSTALL = "pip install torchao"


@dataclass(frozen=True, slots=True)
class Having:
    """Whether torchao is there, and whether the step trains."""

    torchao: bool
    trained: bool


def eight_bits(step: Step, device: Device, having: Having) -> list[Option]:
    """fp8 for the regions of which `fp8_left` says something. It is never followed together with the others: whoever
    reads decides over the numbers."""
    time = {
        i: Left(left["high"], left["mid"], left["low"])
        for i, r in enumerate(step.regions)
        if (left := r.get("fp8_left")) is not None and left["mid"] < 1.0
    }
    saved = sum(busy_us(step.regions[i]) * (1 - left.mid) for i, left in time.items())
    if not time or saved < WORTH * step.parts["wall_us"]:
        return []
    call = TRAINING if having.trained else INFERENCE
    because = (
        f"{count(len(time), 'region')} with products of 1,024 and more in each dimension "
        f"take{'s' if len(time) == 1 else ''} "
        f"{share(sum(busy_us(step.regions[i]) for i in time) / step.parts['wall_us'])} of the step; the {device.name} "
        "multiplies 8-bit numbers twice as fast, and the casts take part of that again"
    )
    title = "Run large linear layers in fp8"
    if not having.torchao:
        title = "Worth installing to try: torchao, for large linear layers in fp8"
        because = f"{because}. torchao is not installed here: {INSTALL}"
    return [
        Option(
            FP8, "precision", FP8, title, call, because,
            {"kind": "predicted", "text": "from measured products of 8-bit numbers, and the casts' bytes"},
            Change(time=time), tuple(time), numerics=NUMERICS, counted=False, last=not having.torchao,
        )
    ]  # fmt: skip
