"""8-bit floating point for a step's large linear layers: through torchao, and never advised where that is missing."""

from __future__ import annotations

from importlib.util import find_spec

from app.objects.common import Note
from app.trace_report.actions.model import Option
from app.trace_report.fp8_left import LEAST, SIXTEENS
from app.trace_report.step_model import Change, Left, Step, busy_us, step_us
from app.units import count, share
from profiler.hardware import Device

FP8 = "fp8"
WORTH = 0.02
"""Share of the step from which the middle of what it saves is worth a line: it changes numbers."""
NUMERICS = (
    "linear layers' inputs, weights and gradients have 3 bits of mantissa, with one scale a row: about 4e-2 off in a "
    "number, less in a sum; compare the loss's curve, or the answers, before you keep it"
)
LARGE = (
    "large = lambda m, _: isinstance(m, torch.nn.Linear) and min(m.in_features, m.out_features) >= "
    f"{LEAST} and m.in_features % {SIXTEENS} == m.out_features % {SIXTEENS} == 0"
)
"""The layers that are priced, for both calls."""
TRAINING = (
    f"{LARGE}; "
    "from torchao.float8 import Float8LinearConfig, convert_to_float8_training; "
    'convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name("rowwise"), '
    "module_filter_fn=large); model = torch.compile(model)"
)
INFERENCE = (
    f"{LARGE}; "
    "from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, PerRow, quantize_; "
    "quantize_(model, Float8DynamicActivationFloat8WeightConfig(granularity=PerRow()), filter_fn=large); "
    "model = torch.compile(model)"
)
WORTH_INSTALLING = "worth-installing"
INSTALL = "pip install torchao"


def is_installed() -> bool:
    """Whether torchao is there."""
    return find_spec("torchao") is not None


def worth_installing(step: Step, device: Device, trained: bool) -> list[Note]:
    """What fp8 is predicted to save where torchao is missing: a remark, for what is not installed is never advised."""
    if is_installed():
        return []
    return [
        {
            "code": WORTH_INSTALLING, "level": "info",
            "message": "Worth installing to try: torchao, for large linear layers in fp8. By itself it is predicted to "
            f"save {(step.parts['wall_us'] - mid) / 1e3:.2f} ms of a step: {option.because}. It changes numbers: "
            f"{option.numerics}.",
            "remedy": f"{INSTALL}\n{option.call}",
        }
        for option in eight_bits(step, device, trained)
        if option.change and (mid := step_us(step, [option.change])[1]) <= (1 - WORTH) * step.parts["wall_us"]
    ]  # fmt: skip


def eight_bits(step: Step, device: Device, trained: bool) -> list[Option]:
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
    call = TRAINING if trained else INFERENCE
    because = (
        f"{count(len(time), 'region')} with products of 1,024 and more in each dimension "
        f"take{'s' if len(time) == 1 else ''} "
        f"{share(sum(busy_us(step.regions[i]) for i in time) / step.parts['wall_us'])} of the step; the {device.name} "
        "multiplies 8-bit numbers twice as fast, and the casts take part of that again"
    )
    return [
        Option(
            FP8, "precision", FP8, "Run large linear layers in fp8", call, because,
            {"kind": "predicted", "text": "from measured products of 8-bit numbers; scales per row and casts: a guess, "
             "not measured"},
            Change(time=time), tuple(time), numerics=NUMERICS, counted=False,
        )
    ]  # fmt: skip
