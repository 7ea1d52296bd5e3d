"""Layout copies: µs that a call spends on laying out its operands anew before its kernel starts. Pure functions.

Kernels that go by rows read the elements of a row next to each other, and their launchers copy what lies otherwise:
liger_kernel and flag_gems all that is not contiguous, this project's own what has another stride along the last axis.
"""

from __future__ import annotations

import itertools

from app.atlas.operation_items import operation_item
from app.atlas.price import between
from app.atlas.shipped import basis_of
from app.estimate.facts import ShapeFacts
from app.estimate.rates import Rates
from profiler.hardware import Device
from profiler.region import op_kinds
from profiler.region.graph.operation import Operation, Tensor

CONTIGUOUS = (
    "liger_kernel.layer_norm", "liger_kernel.rms_norm", "liger_kernel.fused_add_rms_norm", "liger_kernel.softmax",
    "liger_kernel.swiglu", "liger_kernel.geglu", "liger_kernel.group_norm", "flag_gems",
)  # fmt: skip
"""Calls that copy every operand that is not contiguous (liger_kernel 0.8.5, `ensure_contiguous`; flag_gems 5.0.2)."""
ROWS = ("triton:layer_norm", "triton:rms_norm", "triton:softmax", "triton:cross_entropy")
"""Calls that copy operands with another stride than 1 along the last axis (`kernels/ops/shared/rows.py`)."""
HELD = 0.5
"""Share of what is copied that counts as in L2, as of every library call's operands."""


def layout_copies_us(
    shape: ShapeFacts, device: Device, call: str, rates: Rates, part: frozenset[str] | None = None
) -> float:
    """µs of these copies on the device. 0 for calls that make none, and by the rates alone, which know no layouts.

    call: as `call_time` has it. part: operations that the call replaces, None for all. Gradients come as the forward
    left them, so that a backward copies nothing more.
    """
    if not rates.atlas or shape.launched is None or not call.startswith((*CONTIGUOUS, *ROWS)):
        return 0.0
    basis = basis_of(device, rates.scaled)
    if basis is None:
        return 0.0
    lies_well = _is_contiguous if call.startswith(CONTIGUOUS) else _has_rows
    total = 0.0
    for tensor in _operands(shape, part):
        item = None if lies_well(tensor) else operation_item(_copy(tensor))
        price = None if item is None else basis.atlas.price(item, device)
        total += 0.0 if price is None else between(price, HELD)
    return total


def _operands(shape: ShapeFacts, part: frozenset[str] | None) -> list[Tensor]:
    """What the call reads of others' results and of the region's inputs, each storage once; vectors lie well."""
    assert shape.launched is not None  # asked before
    trained = shape.halves is not None
    inside = [
        o
        for o in shape.launched.operations
        if (part is None or o.name in part) and o.kind != op_kinds.VIEW and not (trained and o.line == 0)
    ]
    made = {t.storage for o in inside for t in o.writes}
    read = {t.storage: t for o in reversed(inside) for t in reversed(o.reads) if t.storage not in made}
    return [t for t in read.values() if sum(size > 1 for size in t.shape) > 1]


def _is_contiguous(tensor: Tensor) -> bool:
    """Its elements lie in the order of its axes, without gaps."""
    stride = 1
    for size, step in zip(reversed(tensor.shape), reversed(tensor.stride), strict=True):
        if size > 1 and step != stride:
            return False
        stride *= size
    return True


def _has_rows(tensor: Tensor) -> bool:
    """Elements along the last axis are neighbours, and the rows lie as one matrix's."""
    if tensor.shape[-1] > 1 and tensor.stride[-1] != 1:
        return False
    outer = [(n, step) for n, step in zip(tensor.shape[:-1], tensor.stride[:-1], strict=True) if n > 1]
    return all(before == n * after for (_, before), (n, after) in itertools.pairwise(outer))


def _copy(tensor: Tensor) -> Operation:
    """`contiguous()` of it, as eager runs it."""
    strides, step = [], 1
    for size in reversed(tensor.shape):
        strides.append(step)
        step *= size
    laid_out = Tensor(tensor.shape, tuple(reversed(strides)), tensor.dtype, -1, tensor.bytes)
    target = "aten.clone.default"
    return Operation("clone", target, "clone", op_kinds.COPY, (), (tensor,), (laid_out,), 0, 0)
