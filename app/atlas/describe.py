"""Describe: what an item's numbers say of its time, in words; and what a measured point of an atlas was."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from app.atlas.atlas import Atlas
from app.atlas.item import ANOTHER, Item
from app.atlas.operation_items import PROCESSORS, serial_us
from app.units import amount, digits
from profiler.hardware import find_device

Numbers = Mapping[str, float]

GENERATED = "generated "
"""Groups of kernels that Inductor wrote begin so."""
VECTOR_BYTES = 16
"""Rows of a product that begin at multiples of these are what cuBLAS's fast kernels need."""
LONG_RUN = 4.0
"""Elements that lie one after another, as a logarithm: with fewer a tensor is not read in the order of memory."""
STRIDED_SHARE = 0.2
"""Of the bytes that a kernel moves: so many have to lie out of order to be told."""
WIDE = 6
"""Digits of a size that is told exactly: from a million on three figures do."""


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """One program that a device's atlas was made of. time_us: with inputs that are not in L2."""

    description: str
    time_us: float


def reasons(item: Item) -> tuple[str, ...]:
    """What sets its time besides bytes and FLOPs: sizes, strides, order, few rows."""
    if item.group.startswith(GENERATED):
        return tuple(_of_kernel(item.numbers))
    kind = item.group.removeprefix("eager ")
    return tuple(SIZES.get(kind, _rows)(item.numbers))


def describe(item: Item) -> str:
    """sum of bf16, 4,096 rows of 1,024, strided by 8.19 kB: 8.39 MB."""
    what = KERNELS.get(_category(item.numbers, "kind"), "kernel")
    if not item.group.startswith(GENERATED):
        name, dtype = _category(item.numbers, "target"), _category(item.numbers, "dtype")
        what = f"{name.strip('_')} of {dtype}"
    work = amount(item.flops, "FLOP") if item.flops else amount(item.bytes_moved)
    return f"{', '.join((what, *reasons(item)))}: {work}"


KERNELS = {
    "pointwise": "pointwise kernel",
    "reduction": "reduction in loops",
    "persistent_reduction": "reduction of whole rows",
    "split_scan": "scan over blocks",
}


@lru_cache(maxsize=4096)
def measured_point(atlas: Atlas, group: str, number: int) -> MeasuredPoint:
    """What the point of that number was, and its time: the floor that its numbers tell, times the factor over it.

    Of a point of another device the floor is this one's, and so is the time.
    """
    item = point_item(atlas, group, number)
    device = find_device(atlas.device)
    assert device is not None  # an atlas of an unknown device prices nothing
    cold = float(atlas.groups[group].interpolation.cold[number])
    elsewhere = "on another device, " if item.numbers.get(ANOTHER) else ""
    return MeasuredPoint(f"{elsewhere}{describe(item)}", item.floor_us(device) * math.exp(cold))


def point_item(atlas: Atlas, group: str, number: int) -> Item:
    """The item that a point was made of, read back from its numbers."""
    known = atlas.groups[group].interpolation
    row = known.points[number].tolist()
    numbers = {name: value for name, value in zip(known.names, row, strict=True) if value or "=" not in name}
    dtype = _category(numbers, "dtype")
    if group.startswith("eager convolution") and dtype == "f32":
        dtype = "tf32"
    flops = 2.0 ** numbers["work"] if "work" in numbers else 0.0
    if group == "eager gemm":
        flops = 2.0 * 2.0 ** sum(numbers[n] for n in ("m", "n", "k", "batch"))
    lanes = 2.0 ** numbers["lanes"] if numbers.get("lanes", 0.0) > 0 else 0.0
    return Item(group, 2.0 ** numbers["bytes"], numbers, flops, dtype, lanes, serial_us(group, numbers))


def _category(numbers: Numbers, name: str) -> str:
    """The member of a category that an item is."""
    members = (key for key, value in numbers.items() if value and key.startswith(f"{name}="))
    return next(members, "").removeprefix(f"{name}=")


def size(logarithm: float) -> int:
    """A size by its logarithm to the base of 2. Of a point the logarithm has five figures: the roundest size is taken
    that they allow."""
    value = math.exp2(logarithm)
    slack = max(1e-9, value * math.log(2) * (5e-4 if logarithm >= 10 else 5e-5))
    if abs(value - round(value)) < 1e-9 * value:
        return round(value)
    for power in range(max(0, int(logarithm)), -1, -1):
        near = round(value / (1 << power)) * (1 << power)
        if near and abs(near - value) <= slack:
            return near
    return round(value)


def _number(numbers: Numbers, name: str) -> str:
    count = size(numbers.get(name, 0.0))
    return f"{count:,}" if count < 10**WIDE else f"{digits(count / 1e6)} million"


def _rows(numbers: Numbers) -> list[str]:
    """Rows of columns, or elements where nothing goes by rows."""
    if numbers.get("columns", 0.0) <= 0:
        return _order(numbers)
    told = [f"{_number(numbers, 'rows')} rows of {_number(numbers, 'columns')}"]
    stride = numbers.get("stride of the axis", 0.0)
    if stride > 0:
        told.append(f"strided by {_bytes(stride, numbers)}")
    elif size(numbers.get("rows", 0.0)) < PROCESSORS:
        told.append("few rows")
    return told


def _bytes(elements: float, numbers: Numbers) -> str:
    """Bytes of so many elements, by their logarithm."""
    return amount(size(elements) * numbers.get("item bytes", 4.0))


def _gemm(numbers: Numbers) -> list[str]:
    sizes = [n for n in ("batch", "m", "n", "k") if n != "batch" or numbers.get(n, 0.0) > 0]
    told = [" × ".join(_number(numbers, n) for n in sizes)]
    tiles = size(numbers.get("tiles", 0.0))
    if tiles < PROCESSORS:
        told.append(f"only {tiles} output tiles")
    if numbers.get("aligned operands", 6.0) < math.log2(VECTOR_BYTES):
        told.append("rows begin off multiples of 16 bytes")
    return told


def _convolution(numbers: Numbers) -> list[str]:
    channels = f"{_number(numbers, 'channels in')} to {_number(numbers, 'channels out')} channels"
    told = [
        f"{channels}, filter of {_number(numbers, 'taps')}",
        f"{_number(numbers, 'positions')} positions of {_number(numbers, 'images')} images",
    ]
    if numbers.get("channels last"):
        told.append("channels last")
    if numbers.get("depthwise"):
        told.append("depthwise")
    elif numbers.get("grouped"):
        told.append(f"{_number(numbers, 'groups')} groups")
    return told


def _attention(numbers: Numbers) -> list[str]:
    told = [
        f"{_number(numbers, 'batch and heads')} heads of {numbers.get('head', 0.0):.0f}",
        f"{_number(numbers, 'query rows')} queries on {_number(numbers, 'key rows')} keys",
    ]
    return told + [name for name in ("causal", "mask") if numbers.get(name)]


def _indexed(numbers: Numbers) -> list[str]:
    return [f"{_number(numbers, 'places')} places, rows of {_bytes(numbers.get('width', 0.0), numbers)}"]


SIZES = {
    "gemm": _gemm, "convolution": _convolution, "convolution backward": _convolution, "attention": _attention,
    "attention backward": _attention,
    "gather": _indexed, "scatter": _indexed,
}  # fmt: skip
"""What is told of the kinds that are not described by rows and columns."""


def _order(numbers: Numbers) -> list[str]:
    """How the tensors of what goes element by element lie in memory, where that matters."""
    if numbers.get("broadcast"):
        return ["broadcast"]
    permuted = numbers.get("input permuted", 0.0) != numbers.get("result permuted", 0.0)
    jumps = numbers.get("shortest run read", LONG_RUN) < LONG_RUN < numbers.get("bytes read", 0.0)
    return ["read or written out of order"] if permuted or jumps else []


def _of_kernel(numbers: Numbers) -> list[str]:
    """Of a kernel that Inductor wrote, by its text."""
    told = []
    if numbers.get("columns", 0.0) > 0:
        told.append(f"{_number(numbers, 'rows')} rows of {_number(numbers, 'columns')}")
    if numbers.get("loops", 0.0) > 1:
        told.append(f"{numbers['loops']:.0f} loops over each row")
    moved = 2 ** numbers.get("bytes", 0.0)
    out_of_order = 2 ** numbers.get("bytes not in a row", -1.0)
    if out_of_order >= STRIDED_SHARE * moved:
        stride = numbers.get("stride", -1.0)
        told.append(f"strided by {_bytes(stride, numbers)}" if stride > 0 else "strided in part")
    if numbers.get("bytes at places read", -1.0) > 0:
        told.append("reads at indices")
    if numbers.get("atomics"):
        told.append("adds to memory")
    for name, words in (("random numbers", "draws random numbers"), ("heavy functions", "erf, tanh or pow")):
        if numbers.get(name, -1.0) > 0:
            told.append(words)
    return told
