"""Items of kernels that this project's generator writes: by what their plans say before a launch."""

from __future__ import annotations

import math
from collections.abc import Mapping

from app.atlas.item import Item, alignment, log2
from app.atlas.kernel_items import HEAVY_LANES, MEMORY_LANES, SPECIAL_LANES
from app.atlas.operation_items import PROCESSOR_BYTES_US, PROCESSORS
from kernels.codegen.traits_model import GeneratedTraits

POINTWISE, REDUCTION, PRODUCT = GROUPS = ("triton pointwise", "triton reduction", "triton product")
RANDOM_LANES, SCAN_LANES, ORDER_LANES = 110, 6, 16
"""Multiply-adds in whose time a random number is drawn (2.3 a ns on each processor: app/estimate/rates.json), two
elements of a scan are joined, two of an order are exchanged: the last two are guesses."""
GROUP_OF = {"flat": POINTWISE, "tile": POINTWISE, "product": PRODUCT}
"""By a kernel's form; every other goes by rows."""


def generated_item(traits: GeneratedTraits) -> Item:
    """One generated kernel."""
    rows, columns = max(1, traits.rows), max(1, traits.columns)
    touching = (traits.bytes_asked + traits.bytes_written + traits.bytes_added) / max(1, traits.item_bytes)
    lanes = (
        traits.arithmetic + MEMORY_LANES * touching + SPECIAL_LANES * traits.special + HEAVY_LANES * traits.heavy
        + RANDOM_LANES * traits.drawn + SCAN_LANES * traits.scanned + ORDER_LANES * traits.ordered
    )  # fmt: skip
    group = GROUP_OF.get(traits.form, REDUCTION)
    held = 1 << (columns - 1).bit_length()
    numbers = {
        "bytes": log2(traits.bytes_moved), "bytes read": log2(traits.bytes_read),
        "bytes written": log2(traits.bytes_written), "bytes added": log2(traits.bytes_added),
        "bytes put before": log2(traits.bytes_started), "bytes asked for": log2(traits.bytes_asked),
        "read again": log2(traits.bytes_asked * traits.passes) - log2(traits.bytes_read) if traits.bytes_read else 0.0,
        "bytes not in a row": log2(traits.broken_bytes), "bytes at places read": log2(traits.placed_bytes),
        "rows": log2(rows), "columns": log2(columns), "rows a processor": min(4.0, rows / PROCESSORS),
        "bytes a row": log2(columns * traits.item_bytes), "columns left over": log2(held) - log2(columns),
        "passes": float(traits.passes), "loads": float(traits.loads), "full loads": float(traits.full_loads),
        "stores": float(traits.stores), "axes": float(traits.axes), "item bytes": float(traits.item_bytes),
        "arithmetic": log2(traits.arithmetic), "lanes": log2(lanes), "special functions": log2(traits.special),
        "heavy functions": log2(traits.heavy), "random numbers": log2(traits.drawn),
        "reductions": float(traits.reductions), "places": float(traits.places), "scanned": log2(traits.scanned),
        "ordered": log2(traits.ordered), "scan": float(traits.scans), "sort": float(traits.sorts),
        "across rows": float(traits.strided), "aligned": float(alignment(columns, 6)),
        "configurations": float(traits.configurations), f"form={traits.form}": 1.0,
    }  # fmt: skip
    if group == PRODUCT:
        numbers |= {
            "work": log2(traits.flops), "inner": log2(traits.inner), "batch": log2(traits.batch),
            "aligned inner": float(alignment(traits.inner, 6)), f"dtype={traits.dtype}": 1.0,
            "tiles": log2(traits.batch * math.ceil(rows / 128) * math.ceil(columns / 128)),
        }  # fmt: skip
    return Item(
        group, max(1, traits.bytes_moved), numbers, traits.flops, traits.dtype, lanes, serial_us(group, numbers)
    )


def serial_us(group: str, numbers: Mapping[str, float]) -> float:
    """What one processor takes for a row that it goes along by itself, as often as it does."""
    if group != REDUCTION or numbers.get("across rows"):
        return 0.0
    return math.exp2(numbers.get("bytes a row", 0.0)) * numbers.get("passes", 1.0) / PROCESSOR_BYTES_US
