"""Call time: µs of one library call, or of one of this project's own kernels, for all or a part of a region.

A kernel that both moves bytes and multiplies overlaps the two in part: the root of the sum of squares stands between
their sum and the longer of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from app.atlas.operation_items import attention_item
from app.atlas.price import between
from app.atlas.shipped import basis_of
from app.estimate.eager_time import (
    alone_us,
    attention_calls,
    attention_factor,
    call_us,
    operation_times,
    sureness,
)
from app.estimate.facts import OperationFacts, ShapeFacts
from app.estimate.fused_time import arithmetic_us, bytes_us
from app.estimate.layout_copies import layout_copies_us
from app.estimate.rates import BACKWARD, FITTED, SIXTEEN_BIT, Curve, Rates, reach, share_of
from app.estimate.widened import widening
from profiler.hardware import Device
from profiler.region import op_kinds
from profiler.region.model import PACKED

SDPA = "torch.nn.functional.scaled_dot_product_attention"
FLEX = "torch.nn.attention.flex_attention"
WITH_CAP = " with a cap"
CAPPED = 0.53
"""Of the rate of the products alone, with a hyperbolic tangent of each score: 741 µs capped and with a bias by heads at
[4, 16, 2048, 128], 185 TFLOP/s (H200, torch 2.11, docs/kernels.md)."""
FLEX_OVER_RATES = 2.8
"""What FlexAttention takes over what the rates say, which tables of long rows in 16 bits gave, where it has fewer than
1,024 queries, f32, or biases that are looked up for each score: 1.6 to 6.2 times, the geometric mean of 6 programs of
the corpus's fit third. A seventh, long and in bf16, takes 0.93, and 4 records of the Archive's half that may be tuned
on 0.94."""
LONG_QUERIES = 1024
LENGTHS_OF_HEADS = frozenset({64, 128})
"""In the tables of attention kernels, whose rows have 1,024 and more queries in bf16."""
SPLIT = ("quack", "triton")
"""Calls whose kernels give a row to several processors where there are few rows."""


def library_us(
    shape: ShapeFacts,
    device: Device,
    call: str,
    rates: Rates = FITTED,
    part: frozenset[str] | None = None,
    density: float = 1.0,
    given: str = "",
) -> float:
    """µs of one library call from its fewest bytes and its FLOPs; with `part`, the rest of the region stays eager.

    Forward and backward are two calls. density: share of attention's scores that it looks at. given: dtype of what it
    is given of attention by hand, "" for what the text multiplies.
    """
    scores = _scores(shape, part, given)
    given = given if scores is not None else ""  # a call for another part of the region takes what the text multiplies
    inside = part is None or any(o.kind == op_kinds.ATTENTION and o.name in part for o in shape.cost.operations)
    factor = attention_factor(shape, device, rates) if inside else 1.0
    if factor == 1.0:
        factor = by_hand_factor(shape, device, rates, part, given)
    if call.startswith(FLEX) and rates.atlas and scores is not None and _weak_for_flex(shape, scores, part):
        factor *= FLEX_OVER_RATES
    wide = widening(shape, device, call, rates, part)
    copies = layout_copies_us(shape, device, call, rates, part) + wide.time_us
    if part is not None:
        left, calls = _left_us(shape, device, rates, part)
        alone = part_us(shape, device, call, rates, part, density, given, wide.forward)
        return call_us(rates) + copies + left + calls * factor * alone
    computed = _computed_us(shape, device, call, rates, density * shape.cost.gemm_flops, given)
    operations = shape.operations
    start = (1 + joins(call, widest(operations), device)) * rates.times.fused_kernel
    drawn = arithmetic_us([o for o in operations if o.kind == op_kinds.RANDOM], device, rates.default)
    if shape.halves is None:
        moved = _moved_us(call, operations, shape.cost.ideal.bytes_moved + wide.forward, device, rates)
        return call_us(rates) + copies + start + factor * max(drawn, math.hypot(moved, computed))
    forward, backward = shape.halves
    moved = _moved_us(call, operations, forward + wide.forward, device, rates)
    moved += _moved_us(call + BACKWARD, operations, backward + wide.backward, device, rates)
    return call_us(rates) + copies + 2 * start + factor * max(drawn, math.hypot(moved, computed))


def by_hand_factor(
    shape: ShapeFacts, device: Device, rates: Rates, part: frozenset[str] | None = None, given: str = ""
) -> float:
    """As `attention_factor`, of attention that is written by hand: what the atlas says of one forward call of SDPA of
    its sizes and dtype, without a mask, over what the rates say; 1 where no attention is written by hand, and where the
    tables that the rates are fitted on have its like: long rows of 64 or 128 in 16 bits.

    Of the corpus's fit third calls for others took 1.5 to 3.2 times as long as the rates say, SDPA's and
    FlexAttention's alike.
    """
    basis = basis_of(device, rates.scaled) if rates.atlas else None
    scores = _scores(shape, part, given)
    if basis is None or scores is None or not _beyond_tables(scores):
        return 1.0
    item = attention_item(scores.batch, scores.m, scores.n, scores.k, scores.dtype)
    price = None if item is None else basis.atlas.price(item, device)
    if item is None or price is None:
        return 1.0
    moved = item.bytes_moved / (device.copy_rate * share_of(rates.calls, SDPA, 0.80))
    share = share_of(rates.flops, SDPA + heads(shape), 0.70)
    share = min(share, rates.matrix.gemm_f32) if scores.dtype in ("f32", "f64") else share
    computed = item.flops / (device.matmul_rate(scores.dtype) * share)
    said = rates.times.fused_kernel + 1e6 * math.hypot(moved, computed)
    return float((between(price, 0.5) / said) ** sureness(price.deviation))


def _beyond_tables(scores: OperationFacts) -> bool:
    """Of the product of queries with keys: sizes and dtypes that the kernels' tables have nothing like."""
    return scores.m < LONG_QUERIES or scores.dtype not in SIXTEEN_BIT or scores.k not in LENGTHS_OF_HEADS


def _weak_for_flex(shape: ShapeFacts, scores: OperationFacts, part: frozenset[str] | None) -> bool:
    """Attention by hand with few queries, in f32, or with biases from a table. scores: its first product."""
    looked_up = any(o.kind == op_kinds.GATHER for o in shape.operations if part is None or o.name in part)
    return scores.m < LONG_QUERIES or scores.dtype not in SIXTEEN_BIT or looked_up


def _scores(shape: ShapeFacts, part: frozenset[str] | None, given: str = "") -> OperationFacts | None:
    """Of attention by hand the product of queries with keys, in the dtype in which a call is given them.

    None where it is no attention: no second product, of what the softmax makes of the first with values.
    """
    forward = _forward(shape)
    inside = [o for o in shape.operations if o.name in forward and (part is None or o.name in part)]
    products = [o for o in inside if o.kind == op_kinds.GEMM]
    softmax = any(o.kind == op_kinds.SOFTMAX for o in inside)
    for first, second in itertools.pairwise(products):
        if softmax and (first.batch, first.m, first.n) == (second.batch, second.m, second.k) and first.batch > 1:
            return replace(first, dtype=given or first.dtype)
    return None


def _forward(shape: ShapeFacts) -> frozenset[str]:
    """Operations that autograd did not add."""
    return frozenset(o.name for o in shape.operations) - backward_of(shape)


def _left_us(shape: ShapeFacts, device: Device, rates: Rates, part: frozenset[str]) -> tuple[float, float]:
    """(µs of what stays eager next to a call for a part, the call's own time in forward calls).

    Of the backward as much goes with the part as of the forward, and the call has a backward of its own.
    """
    times = operation_times(shape, device, rates)
    behind = backward_of(shape)
    forward = {name: time_us for name, time_us in times.items() if name not in behind}
    left = sum(time_us for name, time_us in forward.items() if name not in part)
    if not behind or behind & part or not forward:
        return left + sum(time_us for name, time_us in times.items() if name in behind - part), 1.0
    kept = left / max(sum(forward.values()), 1e-9)
    return left + kept * sum(times[name] for name in behind & times.keys()), 1.0 + _backward_calls(shape, times, part)


BACKWARD_OF_A_CALL = 2.5
"""A call's backward in forward calls: five products to two of attention; of a norm three passes to two, and sums."""


def _backward_calls(shape: ShapeFacts, times: Mapping[str, float], part: frozenset[str]) -> float:
    """A call's backward in forward calls: that of eager's own attention where the part is one."""
    forward, backward = attention_calls(shape)
    inside = sum(times[o.name] for o in forward)
    if not backward or not inside or not any(o.name in part for o in forward):
        return BACKWARD_OF_A_CALL
    return sum(times[o.name] for o in backward) / inside


def backward_of(shape: ShapeFacts) -> frozenset[str]:
    """Operations that autograd adds, which have no line in the text."""
    if shape.halves is None or shape.launched is None:
        return frozenset()
    return frozenset(o.name for o in shape.launched.operations if o.line == 0)


def _moved_us(call: str, operations: Sequence[OperationFacts], moved: float, device: Device, rates: Rates) -> float:
    rows = widest(operations)
    alone = 0.0 if rows is None or call.startswith(SPLIT) else alone_us(rows, device, rates)
    started = rows.rows * ROW_PROGRAM_US if rows is not None and call.startswith(ROW_PROGRAMS) else 0.0
    return max(alone, started, bytes_us(moved, reached_by(call, operations, moved, device, rates), device))


ROW_PROGRAMS = ("liger_kernel.layer_norm", "liger_kernel.rms_norm", "liger_kernel.softmax")
"""Calls that start a program for each row, however short."""
ROW_PROGRAM_US = 0.63e-3
"""262,144 rows of 192 bytes: 165 µs (H200, liger_kernel.layer_norm, a program of the corpus's fit third)."""


def part_us(
    shape: ShapeFacts,
    device: Device,
    call: str,
    rates: Rates,
    part: frozenset[str],
    density: float = 1.0,
    given: str = "",
    more: int = 0,
) -> float:
    """µs of one call for some of the operations: it reads what the first of them read and writes what the last writes.
    more: bytes that it moves besides.

    0 where none of them launches anything.
    """
    inside = [o for o in shape.cost.operations if o.name in part and o.launches]
    if not inside:
        return 0.0
    facts = [o for o in shape.operations if o.name in part]
    products = [o for o in inside if o.kind == op_kinds.GEMM]
    first = (
        products[0] if len(products) == 2 else inside[0]
    )  # of attention the queries and keys, not what makes its mask
    moved = first.bytes_read + inside[-1].bytes_written + more
    flops = sum(o.flops for o in inside if o.kind in op_kinds.MATRIX_KINDS)
    computed = _computed_us(shape, device, call, rates, density * flops, given)
    drawn = arithmetic_us([o for o in facts if o.kind == op_kinds.RANDOM], device, rates.default)
    spent = math.hypot(_moved_us(call, facts, moved, device, rates), computed)
    return rates.times.fused_kernel + max(drawn, spent)


def own_us(
    shape: ShapeFacts,
    device: Device,
    candidate: str,
    rates: Rates,
    density: float = 1.0,
    part: frozenset[str] | None = None,
    given: str = "",
) -> float:
    """µs of this project's own kernel. candidate: "triton:KERNEL". part: of the region, the rest stays eager. given: as
    in `library_us`.

    Forward and backward are a kernel each, with the products of both where there are any.
    """
    if part is not None:
        return library_us(shape, device, candidate, rates, part, density, given)
    base = call_us(rates) + layout_copies_us(shape, device, candidate, rates)
    if shape.halves is not None:
        if candidate in ONE_PASS:
            moved = _moved_us(ONE_PASS[candidate], shape.operations, shape.cost.ideal.bytes_moved, device, rates)
            return base + rates.times.fused_kernel + moved
        forward, backward = shape.halves
        moved = _moved_us(candidate, shape.operations, forward, device, rates)
        moved += _moved_us(candidate + OWN_BACKWARD, shape.operations, backward, device, rates)
        computed = _computed_us(shape, device, candidate, rates, density * shape.cost.gemm_flops, given)
        return base + 2 * rates.times.fused_kernel + math.hypot(moved, computed)
    moved = _moved_us(candidate, shape.operations, least_bytes(shape, device), device, rates)
    computed = _computed_us(shape, device, candidate, rates, density * shape.cost.gemm_flops, given)
    computed += idle_us(shape.between, device, rates)
    starts = 1 + joins(candidate, widest(shape.operations), device)
    return base + starts * rates.times.fused_kernel + math.hypot(moved, computed)


ONE_PASS = {"triton:cross_entropy": "triton:cross_entropy_with_gradient"}
"""Kernels whose forward makes the gradient as well, by their name in that table."""
OWN_BACKWARD = "_backward"
"""What stands behind a kernel's name in that of its backward, in the table of the kernels' own measurement."""
NEAR = math.sqrt(2)
"""How many times longer or shorter a row may be than those that were recorded: points of a curve are that far apart."""


def backward_recorded(shape: ShapeFacts, candidate: str, rates: Rates, part: frozenset[str] | None) -> bool:
    """Whether this project's own kernel was measured forward and backward on rows of about this length.

    Of a kernel for a part the backward goes by eager's, and without gradients there is none: False.
    """
    if shape.halves is None or part is not None:
        return False
    if candidate in ONE_PASS:
        halves = {ONE_PASS[candidate]: shape.cost.ideal.bytes_moved}
    else:
        halves = dict(zip((candidate, candidate + OWN_BACKWARD), shape.halves, strict=True))
    rows = widest(shape.operations)
    return all(_recorded(rates.rows.get(name), moved, rows) for name, moved in halves.items())


def _recorded(curve: Curve | None, moved: float, rows: OperationFacts | None) -> bool:
    if not curve:
        return False
    if curve[-1][0] <= 1.0:  # it goes by no rows: any size is as good
        return True
    row_bytes = moved / rows.rows if rows is not None else 0.0
    return rows is not None and not rows.strided and curve[0][0] / NEAR <= row_bytes <= curve[-1][0] * NEAR


ROWS_UNDER_WAY = 128
"""Of a product, on each processor."""


def least_bytes(shape: ShapeFacts, device: Device) -> int:
    """Bytes that one kernel for all of it moves: each tensor once, a residual that was a product's rows once more where
    they are out of L2 when its program has come to their end.

    16,384 rows of 8 KiB, two products of 64 and the residual: 118 µs, for 402 MB and not 268 (H200).
    """
    products = [o for o in shape.operations if o.kind == op_kinds.GEMM]
    most = ROWS_UNDER_WAY * device.processors
    held = max((o.k * o.itemsize * min(o.batch * o.m, most) for o in products), default=0)
    return shape.cost.ideal.bytes_moved + (shape.reread if held > 0.5 * device.l2_bytes else 0)


def idle_us(elements: int, device: Device, rates: Rates) -> float:
    """µs that the matrix units of one kernel for two products wait for each tile of the activation between them.

    67 million GELU between two products of 128 columns: 103 µs, for 268 MB and 34 GFLOP (H200).
    """
    return 1e-3 * elements / rates.matrix.between / device.processors


def joins(call: str, rows: OperationFacts | None, device: Device) -> int:
    """Times that processors which share a row wait for each other, each about as long as a launch: for what the row
    comes to, and to apply it."""
    few = rows is not None and not rows.strided and rows.rows < device.processors
    return 2 if few and call.startswith(SPLIT) else 0


def _computed_us(shape: ShapeFacts, device: Device, call: str, rates: Rates, flops: float, given: str = "") -> float:
    if not flops:
        return 0.0
    written = given or shape.cost.matmul_dtype
    dtype = written if written in PACKED else narrow_product(call) or written or "bf16"
    share = share_of(rates.flops, _measured_as(call, heads(shape), rates), 0.70)
    share *= CAPPED if call.endswith(WITH_CAP) else 1.0
    if dtype in ("f32", "f64"):
        share = min(share, rates.matrix.gemm_f32)
    return 1e6 * flops / (device.matmul_rate(dtype) * share)


def _measured_as(call: str, suffix: str, rates: Rates) -> str:
    """A backend that no table has is as fast as what torch picks itself, for heads of that length too."""
    picked = call.rpartition(".")[0] + suffix
    known = call in rates.flops or call + suffix in rates.flops
    return picked if picked in rates.flops and not known else call + suffix


SHORT_HEADS = " of short heads"
HEAD = 64


def heads(shape: ShapeFacts) -> str:
    """What stands behind an attention call's name where attention by hand has short heads: fewer FLOPs a byte."""
    products = [o for o in shape.operations if o.kind == op_kinds.GEMM]
    return SHORT_HEADS if len(products) == 2 and min(min(o.n, o.k) for o in products) <= HEAD else ""


NARROW_PRODUCTS = {
    "torch.nn.functional.scaled_mm": "f8e4m3", "torch._scaled_mm": "f8e4m3", "torch._int_mm": "i8",
    "triton:scaled_gemm": "f8e4m3",
}  # fmt: skip
"""Calls that give the units 8-bit operands as they are, where the text widens them first."""


def narrow_product(call: str) -> str | None:
    """The type that a call multiplies in, where it is another than the text's."""
    return next((dtype for name, dtype in NARROW_PRODUCTS.items() if call.startswith(name)), None)


def reached_by(call: str, operations: Iterable[OperationFacts], moved: float, device: Device, rates: Rates) -> float:
    """Share of the copy rate that a call reaches on the longest rows among these operations. moved: its bytes."""
    rows = widest(operations)
    if rows is None:
        return reach(rates, call, 0.0)
    row_bytes = moved / rows.rows
    strided = call + STRIDED
    if rows.strided and strided in rates.rows:
        return reach(rates, strided, row_bytes)
    reached = reach(rates, call, row_bytes)
    # Another package's kernel for rows that lie side by side, or one that is not tuned for others.
    return min(reached, rates.default.strided) if rows.strided and not call.startswith("triton:") else reached


STRIDED = " over another axis"


def widest(operations: Iterable[OperationFacts]) -> OperationFacts | None:
    """The reduction with most elements; None where nothing goes by rows."""
    rowwise = [o for o in operations if o.columns > 1]
    return max(rowwise, key=lambda o: o.rows * o.columns, default=None)
