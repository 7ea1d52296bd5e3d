"""TF32 and bf16 for a step whose matrix products run in f32: what they save on this device, and what changes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.objects.trace import ActionEvidence, KernelRow
from app.trace_report.actions.model import EagerPart, Option, eager_parts
from app.trace_report.step_model import AnyRegion, Change, Left, Step, busy_us
from app.units import share
from profiler.hardware import Device, find_device
from profiler.trace.analyze.kernel_kinds import is_tf32

TF32, BF16, FP16 = "tf32", "bf16", "fp16"
PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "dot", "mv", "addmv", "addbmm", "einsum"})
"""What the flag for matrix products reaches. Convolutions have one of their own, which is on as torch comes; SDPA's f32
kernel asks neither."""
IN_TF32 = "product in TF32"
"""What parts by names call a product that bf16 still halves the bytes of."""
ON_MATRIX_UNITS = PRODUCTS | {"convolution", "convolution_backward", IN_TF32}
TF32_IS_ON = 0.5
"""Of the time of f32 matrix products, what runs in TF32 where the flag is set: cuBLAS then still gives some of them to
kernels of the vector units, as rows that are no multiple of 16 bytes."""


@dataclass(frozen=True, slots=True)
class Law:
    """A product's time in another precision, from its time in f32: overhead_us + factor x f32_us ** power, in µs.

    Never below what the matrix units' rates leave. multiple: of which the row lengths have to be one.
    """

    overhead_us: float
    factor: float
    power: float
    multiple: int = 1


LAWS: Mapping[str, tuple[Law, Law]] = {
    "tf32": (Law(1.5, 1.3, 0.7, 4), Law(0.5, 1.2, 0.85)),
    "bf16": (Law(5.0, 0.5, 0.7, 8), Law(4.5, 0.7, 0.9)),
}
"""Of rows that are a multiple of 16 bytes, and of others. Fitted on half of 60 sizes on an H100 (torch 2.11, cuBLAS;
benchmarks/operations/precision.py, tests/records/precision-h100.json), held to the other half by a test."""
FROM_F32 = 0.5
"""Of a convolution's time in f32 on the vector units, what 16 bits leave of it on matrix units. A guess: it moves half
the bytes, and no such GPU was measured."""
FOLLOWS = 0.6
"""Of what norms, activations and sums between convolutions take in f32, what is left where the convolutions give 16
bits, which they hand on: half the bytes, and what does not shrink with them. A guess."""
BEHIND_CONVOLUTIONS = (
    "batch_norm", "native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit", "relu", "threshold_backward",
    "add", "silu", "hardtanh", "max_pool2d_with_indices", "_adaptive_avg_pool2d", "avg_pool2d",
)  # fmt: skip
"""How names of operations begin that autocast leaves in the type that they get."""
FROM_TF32 = 0.61
"""bf16's time over TF32's, the median of aligned products in the record: convolutions run in TF32 as torch comes."""
MEASURED_ON = "H100"
SPREAD = 1.35
"""The ends of the range, as a factor."""
TF32_NUMERICS = (
    "products round their inputs to 10 bits of mantissa, f32's range and sums stay: results are about 3e-4 off"
)
BF16_NUMERICS = (
    "products and their results have 7 bits of mantissa, about 3e-3 off; norms, softmax and losses stay in f32"
)
FP16_NUMERICS = (
    "products and their results have 10 bits of mantissa and reach from 6e-8 to 65,504: a training loss is scaled so "
    "that gradients do not vanish; norms, softmax and losses stay in f32"
)
ONLY_F16 = frozenset({"sm_70", "sm_72", "sm_75"})
"""Volta and Turing."""
F32_NAMES = re.compile(r"sgemm|scudnn|simt|implicit_convolve|winograd|gemm_f32f32_f32f32", re.IGNORECASE)
CONVOLUTIONS = re.compile(r"cudnn|conv|winograd|[dw]grad|fprop", re.IGNORECASE)
"""In names of kernels: of f32 on the vector units, and of convolutions."""
SIZES = re.compile(r"^(\w+): sizes\[([^\]]*)\]", re.MULTILINE)
SHAPES = re.compile(r": f32\[([^\]]+)\]")
NUMBER = re.compile(r"\d+")
WORTH = 0.01
"""Share of the kernels' time in f32 products from which it is worth a line."""


def precisions(step: Step, device: Device, kernels: Sequence[KernelRow] = (), trained: bool = False) -> list[Option]:
    """TF32 for the products that run in f32 without it, unless the flag is set, and bf16 autocast, which takes
    convolutions in too; on a GPU with neither, f16. kernels: of the step, by whose names products without shapes are
    known. trained: f16 wants its loss scaled.
    """
    in_tf32 = tf32_is_on(kernels, [r.get("kind") or "" for r in step.regions])
    by_names = parts_by_names(step, kernels, in_tf32)
    places = {i: parts for i, r in enumerate(step.regions) if (parts := _parts(r, by_names.get(i, [])))}
    if device.arch in ONLY_F16:
        return _sixteen_bits(step, places, device, trained)
    made = []
    faster = device.tf32_rate > device.f32_rate and not in_tf32
    if faster and (tf32 := _changed(step, places, PRODUCTS, device, TF32)) is not None:
        because, change = tf32
        made.append(
            Option(
                TF32, "precision", TF32, "Let f32 matrix products run in TF32",
                'torch.set_float32_matmul_precision("high")', f"{because} without the matrix units", _evidence(device),
                change, tuple(change.time), numerics=TF32_NUMERICS,
            )
        )  # fmt: skip
    bf16 = _changed(step, places, ON_MATRIX_UNITS, device, BF16) if _gains_by_bf16(device) else None
    if bf16 is not None:
        because, change = bf16
        made.append(
            Option(
                BF16, "precision", BF16, "Run the model in bf16", 'with torch.autocast("cuda", torch.bfloat16):',
                because, _evidence(device), change, tuple(change.time), numerics=BF16_NUMERICS, counted=False,
                instead_of=TF32 if made else "",
            )
        )  # fmt: skip
    return made


def _gains_by_bf16(device: Device) -> bool:
    """A GPU whose bf16 is faster than what f32 products run in: Ada's GeForce has TF32 no faster than f32, and bf16
    twice as fast. An AMD GPU without TF32 is told nothing: no such one was measured."""
    return device.bf16_rate > max(device.tf32_rate, device.f32_rate) and bool(device.tf32_rate)


def _sixteen_bits(step: Step, places: Mapping[int, Sequence[EagerPart]], device: Device, trained: bool) -> list[Option]:
    """f16 on Volta and Turing, whose matrix units take no other floating point."""
    half = _changed(step, places, ON_MATRIX_UNITS, device, FP16)
    if half is None:
        return []
    because, change = half
    call = 'with torch.autocast("cuda", torch.float16):'
    call += ' ...  # and scaler = torch.amp.GradScaler("cuda") around loss and step' if trained else ""
    because += ", on the vector units; images channels-last besides, in which its f16 kernels work"
    return [
        Option(
            FP16, "precision", FP16, "Run the model in f16" + (", with its loss scaled" if trained else ""), call,
            because, {"kind": "predicted", "text": f"from half the bytes; on no {device.name} was it measured"},
            change, tuple(change.time), numerics=FP16_NUMERICS, counted=False,
        )
    ]  # fmt: skip


def tf32_is_on(kernels: Sequence[KernelRow], kinds: Sequence[str]) -> bool:
    """The flag for matrix products is set: most of their time in f32 is spent in kernels of TF32. kernels: of the step;
    kinds: of its regions, by their place.

    Kernels of convolutions alone do not count, whatever they are named: theirs is another flag, and cuDNN has 1x1
    convolutions done by products.
    """
    in_f32_us = in_tf32_us = 0.0
    for row in kernels:
        of_convolutions = bool(row["regions"]) and all(kinds[i].startswith("convolution") for i in row["regions"])
        if of_convolutions or CONVOLUTIONS.search(row["name"]):
            continue
        if is_tf32(row["name"]):
            in_tf32_us += row["time_us"]
        elif F32_NAMES.search(row["name"]):
            in_f32_us += row["time_us"]
    return in_tf32_us > 0.0 and in_tf32_us >= TF32_IS_ON * (in_f32_us + in_tf32_us)


def parts_by_names(step: Step, kernels: Sequence[KernelRow], in_tf32: bool = False) -> dict[int, list[EagerPart]]:
    """Of regions, by their place, the products and convolutions that their kernels' names show to run in f32 on the
    vector units, and the rest of their time as one part. in_tf32: the step's products run in TF32, and those that do
    are parts too."""
    of_matrix: dict[int, list[EagerPart]] = {}
    for row in kernels:
        if not (in_tf32 if is_tf32(row["name"]) else F32_NAMES.search(row["name"])):
            continue
        name = "convolution" if CONVOLUTIONS.search(row["name"]) else IN_TF32 if is_tf32(row["name"]) else "mm"
        busy = sum(busy_us(step.regions[i]) for i in row["regions"])
        for i in row["regions"]:
            region = step.regions[i]
            calls = float(region.get("calls_per_step") or 0.0)
            if not calls or not busy:
                continue
            time_us = row["time_us"] * busy_us(region) / busy / calls
            of_matrix.setdefault(i, []).append(EagerPart(name, time_us, 0.0, 0.0))
    for i, parts in of_matrix.items():
        region = step.regions[i]
        rest = busy_us(region) / float(region["calls_per_step"]) - sum(p.time_us for p in parts)
        parts.append(EagerPart("", max(0.0, rest), 0.0, 0.0))
    return of_matrix


def _evidence(device: Device) -> ActionEvidence:
    own = MEASURED_ON in device.name
    scaled = "" if own else f", scaled to the {device.name} by its rates"
    return {"kind": "predicted", "text": f"from f32, TF32 and bf16 products of 60 sizes on an {MEASURED_ON}{scaled}"}


def _changed(
    step: Step, places: Mapping[int, Sequence[EagerPart]], of: frozenset[str], device: Device, dtype: str
) -> tuple[str, Change] | None:
    """(why, the change) of these operations in another precision; None where they are too little of the step."""
    follows = dtype != TF32 and any(p.name.startswith("convolution") for parts in places.values() for p in parts)
    time, padded = {}, {}
    for i, parts in places.items():
        aligned = _aligned(step.regions[i], LAWS[TF32 if dtype == TF32 else BF16][0].multiple)
        if (left := _left(parts, of, device, dtype, follows, aligned)).mid < 1:
            time[i] = left
            if not aligned:
                padded[i] = _left(parts, of, device, dtype, follows, True)
    spent = sum(_share(places[i], of) * busy_us(step.regions[i]) for i in time)
    if not time or spent < WORTH * step.parts["kernels_us"]:
        return None
    what = "products and convolutions" if of is ON_MATRIX_UNITS else "matrix products"
    return f"{what} in f32 take {share(spent / step.parts['wall_us'])} of the step", Change(time=time, padded=padded)


def _in_f32(region: AnyRegion) -> list[EagerPart]:
    """The region's operations where its products run in f32 and no kernel of it in TF32; [] elsewhere."""
    cost, text = region.get("cost"), region.get("text") or ""
    if not cost or ": f32[" not in text or any(dtype in text for dtype in ("bf16", "f16", "f64", "autocast")):
        return []
    parts = eager_parts(region)
    if any(map(is_tf32, region.get("kernel_names") or ())) and not any(p.name.startswith("convolution") for p in parts):
        return []
    return parts


def _parts(region: AnyRegion, by_names: list[EagerPart]) -> list[EagerPart]:
    """The region's operations where some run in f32; by its kernels' names where its text has no product and they do: a
    call of attention that makes its projections itself."""
    parts = _in_f32(region)
    return parts if any(p.name in ON_MATRIX_UNITS for p in parts) else by_names or parts


def _share(parts: Sequence[EagerPart], of: frozenset[str]) -> float:
    """Of eager's time, the part of these operations."""
    total = sum(p.time_us for p in parts)
    return sum(p.time_us for p in parts if p.name in of) / total if total else 0.0


def _left(
    parts: Sequence[EagerPart], of: frozenset[str], device: Device, dtype: str, follows: bool, aligned: bool
) -> Left:
    """What is left of a region's time where these operations take what the law says, and never more than now. aligned:
    rows are of whole units, as torch.compile pads them to be (in kernels that write them anyway)."""
    total = sum(p.time_us for p in parts)
    if not total:
        return Left()
    law = LAWS[TF32 if dtype == TF32 else BF16][0 if aligned else 1]  # f16 and bf16 are one for the units

    def left(spread: float) -> float:
        return sum(_part_us(p, of, law, spread, device, dtype, follows) for p in parts) / total

    return Left(left(SPREAD), left(1.0), left(1 / SPREAD))


def _follows(part: EagerPart) -> bool:
    """It takes the type that a convolution before it gives."""
    return part.name.removeprefix("aten::").startswith(BEHIND_CONVOLUTIONS)


def _part_us(
    part: EagerPart, of: frozenset[str], law: Law, spread: float, device: Device, dtype: str, follows: bool
) -> float:
    """What an operation takes then; one that is not of these, or would be slower, stays as it is. follows: but for what
    goes by the type of convolutions before it."""
    if part.name not in of:
        return part.time_us * (1.0 - (1.0 - FOLLOWS) / spread) if follows and _follows(part) else part.time_us
    from_f32 = part.name in PRODUCTS
    of_convolution = FROM_F32 if dtype == FP16 else FROM_TF32
    then = law_us(law, part.time_us, device, dtype) if from_f32 else part.time_us * of_convolution
    least = part.time_us * device.f32_rate / _rate(device, dtype)
    return min(part.time_us, max(spread * then, least if from_f32 else 0.0))


def _rate(device: Device, dtype: str) -> float:
    return {TF32: device.tf32_rate, BF16: device.bf16_rate, FP16: device.f16_rate}[dtype]


def law_us(law: Law, f32_us: float, device: Device, dtype: str) -> float:
    """The product's time, from that in f32 (µs): by the law, and no faster than the device's matrix units leave it."""
    rates = device.f32_rate / _rate(device, dtype)
    measured = find_device(MEASURED_ON)
    assert measured is not None
    there = measured.f32_rate / _rate(measured, dtype)
    scaled: float = law.overhead_us + law.factor * f32_us**law.power * rates / there
    return max(scaled, f32_us * rates)


def _aligned(region: AnyRegion, multiple: int) -> bool:
    """All row lengths of the region's inputs are whole multiples, in every binding."""
    sizes: dict[str, str] = dict(SIZES.findall(region.get("text") or ""))
    for dims in SHAPES.findall(region.get("text") or ""):
        last = dims.split(",")[-1].strip()
        listed = sizes.get(last, last)
        if any(int(n) % multiple for n in NUMBER.findall(listed)):
            return False
    return True
