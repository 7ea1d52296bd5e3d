"""Sum, mean or largest of the rows of each segment, given sorted offsets; and the gradient.

Reference: torch.segment_reduce; an empty segment has 0, NaN and -inf. Traffic: values read once, results written once,
(rows + segments) * columns * itemsize bytes. Every program takes the same number of rows, whatever segments they belong
to, so that one long segment costs no more than many short ones. What a segment has in several programs goes through
f32 parts, which a second launch joins in a fixed order: no atomics, and no result changes from run to run.

Backward: dx of a row is its segment's dy (a mean's divided by its rows): dy read, dx written. Of a maximum, rows as
large as the largest share its gradient evenly (torch divides positive gradients alone); a pass over the values counts
them first.

embedding_bag's gradient is the same kernel, with rows that are gathered and scaled.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.ops.scatter.jagged_mean import segment_of
from kernels.ops.shared.pairs import rounded
from kernels.ops.shared.rows import DTYPES
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

MODES = ("sum", "mean", "max")
EMPTY = {"sum": 0.0, "mean": float("nan"), "max": float("-inf")}
INDEXES = (torch.int32, torch.int64)

tuner = Tuner("segment_reduce")
backward_tuner = Tuner("segment_reduce_backward")


def reference(values: torch.Tensor, offsets: torch.Tensor, mode: str) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    return torch.segment_reduce(wide(values), mode, offsets=offsets, axis=0, unsafe=True).to(values.dtype)


def reference_backward(
    dy: torch.Tensor, values: torch.Tensor, y: torch.Tensor, offsets: torch.Tensor, mode: str
) -> torch.Tensor:
    """The gradient of the values, in plain PyTorch. values, y: of the forward, for max alone."""
    lengths = offsets[1:] - offsets[:-1]
    count = len(lengths)
    segment = torch.repeat_interleave(torch.arange(count, device=dy.device), lengths, output_size=len(values))
    if mode == "sum":
        return dy[segment]
    if mode == "mean":
        return (wide(dy) / lengths.clamp(min=1)[:, None])[segment].to(dy.dtype)
    largest = (values == y[segment]).to(wide(dy).dtype)
    ties = torch.zeros(dy.shape, dtype=largest.dtype, device=dy.device).index_add(0, segment, largest)
    return (largest * (wide(dy) / ties.clamp(min=1))[segment]).to(dy.dtype)


@triton.jit(do_not_specialize=("segments",))
def segment_parts(
    v_ptr, rows_ptr, scale_ptr, own_ptr, pick_ptr, keys_ptr, top_ptr, offsets_ptr, y_ptr, parts_ptr, count, segments,
    columns, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr, MODE: tl.constexpr, GATHER: tl.constexpr,
    SCALED: tl.constexpr, PICKED: tl.constexpr, KEYED: tl.constexpr, TIES: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """ROWS rows a program: results of segments that lie inside, parts of the others into [programs, 2, columns].

    Of a segment that begins before these rows in parts[:, 0], of one that only ends after them in parts[:, 1].
    GATHER: row i is row rows_ptr[i] of the values. SCALED: times scale_ptr[i]. PICKED: a number counts only where
    pick_ptr, laid out as the values, is own_ptr[i]. KEYED: row i's segment is keys_ptr[i], so that empty ones are not
    walked over. TIES: what is summed is how many numbers are their segment's in top_ptr.
    """
    block = tl.program_id(0).to(tl.int64)
    first = block * ROWS
    row = tl.arange(0, ROWS)[:, None]
    col = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = (row < count - first) & (col[None, :] < columns)
    place = first + row
    if GATHER:
        place = tl.load(rows_ptr + place, mask=row < count - first, other=0).to(tl.int64)
    at = place * stride + col[None, :]
    if WHOLE:
        x = tl.load(v_ptr + at).to(tl.float32)
    else:
        x = tl.load(v_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if SCALED:
        x *= tl.load(scale_ptr + first + row, mask=row < count - first, other=0.0).to(tl.float32)
    if PICKED:
        own = tl.load(own_ptr + first + row, mask=row < count - first, other=0)
        x = tl.where(tl.load(pick_ptr + place * columns + col[None, :], mask=inside, other=-1) == own, x, 0.0)
    end = tl.minimum(first + ROWS, count)
    if KEYED:
        s = tl.load(keys_ptr + first)
    else:
        s = segment_of(offsets_ptr, segments, first)
    done = first
    while (done < end) & (s >= 0) & (s < segments):
        begin = tl.load(offsets_ptr + s).to(tl.int64)
        stop = tl.load(offsets_ptr + s + 1).to(tl.int64)
        until = tl.minimum(stop, end)
        done = tl.maximum(done, begin)  # rows before the first offset belong to no segment
        if until > done:
            here = (row >= (done - first).to(tl.int32)) & (row < (until - first).to(tl.int32))
            if TIES:
                top = tl.load(top_ptr + s.to(tl.int64) * columns + col, mask=col < columns, other=0.0)
                total = tl.sum(tl.where(here & (x == top.to(tl.float32)[None, :]), 1.0, 0.0), 0)
            elif MODE == "max":
                total = tl.max(tl.where(here, x, float("-inf")), 0)
            else:
                total = tl.sum(tl.where(here, x, 0.0), 0)
            if (begin >= first) & (stop <= end):
                if MODE == "mean":
                    total /= (stop - begin).to(tl.float32)
                tl.store(y_ptr + s.to(tl.int64) * columns + col, rounded(total, y_ptr), mask=col < columns)
            else:
                slot = 2 * block + tl.where(begin < first, 0, 1)
                tl.store(parts_ptr + slot * columns + col, total, mask=col < columns)
            done = until
        if KEYED:
            s = tl.load(keys_ptr + tl.minimum(done, count - 1))
        else:
            s += 1


@triton.jit(do_not_specialize=("segments",))
def segment_join(
    offsets_ptr, y_ptr, parts_ptr, segments, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr,
    SEGMENTS: tl.constexpr, MODE: tl.constexpr, EMPTY: tl.constexpr,
):  # fmt: skip
    """SEGMENTS segments a program: empty ones' results are written, the parts of others joined."""
    group = tl.program_id(0).to(tl.int64) * SEGMENTS
    col = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    segment = group + tl.arange(0, SEGMENTS)
    begins = tl.load(offsets_ptr + segment, mask=segment < segments, other=0).to(tl.int64)
    stops = tl.load(offsets_ptr + segment + 1, mask=segment < segments, other=0).to(tl.int64)
    empty = (stops <= begins) & (segment < segments)
    nothing = tl.full((SEGMENTS, BLOCK), EMPTY, tl.float32)
    tl.store(y_ptr + segment[:, None] * columns + col[None, :], nothing,
             mask=empty[:, None] & (col[None, :] < columns))  # fmt: skip
    several = (stops > begins) & ((stops - 1) // ROWS > begins // ROWS)
    if tl.max(several.to(tl.int32), 0) > 0:
        for i in range(SEGMENTS):
            s = group + i
            if s < segments:
                begin = tl.load(offsets_ptr + s).to(tl.int64)
                stop = tl.load(offsets_ptr + s + 1).to(tl.int64)
                first = begin // ROWS
                last = (stop - 1) // ROWS
                if (stop > begin) & (last > first):
                    part = tl.arange(0, PARTS)[:, None]
                    low: tl.constexpr = float("-inf") if MODE == "max" else 0.0
                    total = tl.full((PARTS, BLOCK), low, tl.float32)
                    for start in range(first, last + 1, PARTS):
                        here = start + part
                        at = parts_ptr + (2 * here + tl.where(here == first, 1, 0)) * columns + col[None, :]
                        more = tl.load(at, mask=(here <= last) & (col[None, :] < columns), other=low)
                        if MODE == "max":
                            total = tl.maximum(total, more)
                        else:
                            total += more
                    if MODE == "max":
                        result = tl.max(total, 0)
                    else:
                        result = tl.sum(total, 0)
                    if MODE == "mean":
                        result /= (stop - begin).to(tl.float32)
                    tl.store(y_ptr + s * columns + col, rounded(result, y_ptr), mask=col < columns)


@triton.jit(do_not_specialize=("segments",))
def segment_spread(
    dy_ptr, x_ptr, y_ptr, ties_ptr, offsets_ptr, dx_ptr, count, segments, columns, stride, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    """dx of ROWS rows. Their segments are searched for together: a step of the search is one load for all."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)[None, :]
    low = tl.zeros((ROWS,), tl.int32)
    high = low + segments
    while tl.max(high - low, 0) > 1:
        middle = (low + high) // 2
        below = tl.load(offsets_ptr + middle) <= row
        low = tl.where(below, middle, low)
        high = tl.where(below, high, middle)
    segment = low.to(tl.int64)[:, None]
    inside = (row < count)[:, None] & (col < columns)
    at = segment * columns + col
    # Rows before the first offset and from the last one on belong to no segment.
    held = (row >= tl.load(offsets_ptr)) & (row < tl.load(offsets_ptr + segments))
    inside = inside & held[:, None]
    g = tl.load(dy_ptr + at, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if MODE == "mean":
        begin = tl.load(offsets_ptr + segment, mask=held[:, None], other=0)
        stop = tl.load(offsets_ptr + segment + 1, mask=held[:, None], other=1)
        g = g / (stop - begin).to(tl.float32)
    if MODE == "max":
        x = tl.load(x_ptr + row[:, None] * stride + col, mask=inside, other=0.0, eviction_policy="evict_first")
        top = tl.load(y_ptr + at, mask=inside, other=0.0, eviction_policy="evict_last")
        ties = tl.load(ties_ptr + at, mask=inside, other=1.0, eviction_policy="evict_last")
        g = tl.where(x.to(tl.float32) == top.to(tl.float32), g / ties, 0.0)
    tl.store(dx_ptr + row[:, None] * columns + col, rounded(g, dx_ptr), mask=(row < count)[:, None] & (col < columns))


TILES = ((64, 4), (16, 2), (16, 1), (32, 2), (32, 1), (64, 2), (8, 1))
"""Rows of 128 columns, warps."""
WIDEST = 256
FORM = (("GATHER", False), ("SCALED", False), ("PICKED", False), ("KEYED", False), ("TIES", False))


def space(rows: int, columns: int, mode: str, form: tuple[tuple[str, bool], ...] = FORM) -> list[Variant]:
    """Variants worth timing: 8 to 32 numbers a thread."""
    block = min(WIDEST, max(triton.next_power_of_2(columns), 16))
    variants = []
    for height, warps in TILES:
        count = min(max(8, height * 128 // block), 512)
        whole = rows % count == 0 and columns % block == 0
        constants = (("ROWS", count), ("BLOCK", block), ("MODE", mode), *form, ("WHOLE", whole))
        held = count * block // (32 * warps)
        registers = held * (4 if dict(form)["PICKED"] else 1) + 40
        variants.append(Variant(segment_parts, constants, warps, tuned=("ROWS",), registers=registers))
    return list(dict.fromkeys(variants))


def joined(variant: Variant, empty: float) -> Variant:
    """How parts are joined: 16 at a time, of 16 segments a program."""
    own = (("ROWS", variant["ROWS"]), ("BLOCK", variant["BLOCK"]), ("PARTS", 16), ("SEGMENTS", 16),
           ("MODE", variant["MODE"]), ("EMPTY", empty))  # fmt: skip
    return Variant(segment_join, own, 4)


def launch(
    variant: Variant, values: torch.Tensor, rows: torch.Tensor, scale: torch.Tensor, own: torch.Tensor,
    pick: torch.Tensor, keys: torch.Tensor, top: torch.Tensor, offsets: torch.Tensor, y: torch.Tensor, count: int,
    empty: float,
) -> None:  # fmt: skip
    """Run one variant on `count` rows of values (gathered by `rows`) into contiguous y [segments, columns]."""
    segments, columns = y.shape
    blocks, across = triton.cdiv(count, variant["ROWS"]), triton.cdiv(columns, variant["BLOCK"])
    parts = torch.empty((max(blocks, 1), 2, columns), dtype=torch.float32, device=y.device)
    if blocks:
        segment_parts[(blocks, across)](
            values, rows, scale, own, pick, keys, top, offsets, y, parts, count, segments, columns, values.stride(0),
            **variant.meta,
        )  # fmt: skip
    join = joined(variant, empty)
    segment_join[(triton.cdiv(segments, join["SEGMENTS"]), across)](
        offsets, y, parts, segments, columns, **join.meta
    )  # fmt: skip


def checked(name: str, values: torch.Tensor, offsets: torch.Tensor, mode: str) -> torch.Tensor:
    """The values with contiguous rows. Raises TypeError and ValueError for what the kernels do not take."""
    if values.dtype not in DTYPES or offsets.dtype not in INDEXES:
        raise TypeError(f"{name} takes f32, f16 or bf16 and i32 or i64, not {values.dtype} and {offsets.dtype}")
    if values.dim() != 2 or offsets.dim() != 1 or not len(offsets):
        raise ValueError(f"{name} takes [rows, columns] and [segments + 1], not {[*values.shape]}, {[*offsets.shape]}")
    if mode not in MODES:
        raise ValueError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
    return values if values.stride(1) == 1 else values.contiguous()


def segment_reduce(values: torch.Tensor, offsets: torch.Tensor, mode: str) -> torch.Tensor:
    """Sum, mean or max ("sum", "mean", "max") of values[offsets[i] : offsets[i + 1]] for each i: [segments, columns].

    values [rows, columns] in f32, f16 or bf16, offsets [segments + 1] in i32 or i64, sorted, between 0 and rows: rows
    before the first and from the last on are in no segment. Computed in f32, the result like the values. A NaN is not
    the largest of anything else. Raises TypeError for other dtypes, ValueError for other shapes and modes.
    """
    values = checked("segment_reduce", values, offsets, mode)
    sizes = (len(values), values.shape[1])
    y = torch.empty((len(offsets) - 1, sizes[1]), dtype=values.dtype, device=values.device)
    if y.numel():
        offsets = offsets.contiguous()
        arguments = (values, *(offsets,) * 4, offsets, values, offsets, y, len(values), EMPTY[mode])
        key = (*values.shape, len(y), values.dtype, offsets.dtype, mode, values.stride(0))
        variant = tuner.pick(key, lambda: space(*sizes, mode), launch, *arguments, uncopied=arguments[:8])
        launch(variant, *arguments)
    return y


SPREADS = ((16, 4), (32, 4), (64, 4), (64, 8), (128, 8))
"""Rows of 128 columns, warps."""


def launch_spread(
    variant: Variant, dy: torch.Tensor, values: torch.Tensor, y: torch.Tensor, ties: torch.Tensor,
    offsets: torch.Tensor, dx: torch.Tensor,
) -> None:  # fmt: skip
    """Run one variant of the backward into contiguous dx [rows, columns]."""
    count, columns = dx.shape
    grid = (triton.cdiv(count, variant["ROWS"]), triton.cdiv(columns, variant["BLOCK"]))
    segment_spread[grid](
        dy, values, y, ties, offsets, dx, count, len(offsets) - 1, columns, values.stride(0), **variant.meta
    )  # fmt: skip


def segment_reduce_backward(
    dy: torch.Tensor, values: torch.Tensor, y: torch.Tensor, offsets: torch.Tensor, mode: str
) -> torch.Tensor:
    """The gradient of segment_reduce's values, like them. dy, y: [segments, columns]; of values and y only "max" reads
    numbers. Raises as segment_reduce does."""
    values = checked("segment_reduce_backward", values, offsets, mode)
    for label, t in (("dy", dy), ("y", y)):
        if t.dtype != values.dtype or t.shape != (len(offsets) - 1, values.shape[1]):
            raise ValueError(f"{label} is {t.dtype}{[*t.shape]} for values of {values.dtype}{[*values.shape]}")
    dx = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    if not dx.numel():
        return dx
    sizes = (len(values), values.shape[1])
    dy, y, offsets = dy.contiguous(), y.contiguous(), offsets.contiguous()
    ties = y
    if mode == "max":
        ties = torch.empty(y.shape, dtype=torch.float32, device=y.device)
        counting = tuple((name, name == "TIES") for name, _ in FORM)
        counted = (values, *(offsets,) * 4, offsets, y, offsets, ties, len(values), 0.0)
        key = (*values.shape, len(y), values.dtype, offsets.dtype, "ties", values.stride(0))
        variant = tuner.pick(key, lambda: space(*sizes, "sum", counting), launch, *counted, uncopied=counted[:8])
        launch(variant, *counted)
    block = min(WIDEST, max(triton.next_power_of_2(values.shape[1]), 16))
    variants = [
        Variant(segment_spread, (("ROWS", max(4, h * 128 // block)), ("BLOCK", block), ("MODE", mode)), w)
        for h, w in SPREADS
    ]
    arguments = (dy, values, y, ties, offsets, dx)
    key = (*values.shape, len(y), values.dtype, offsets.dtype, mode)
    variant = backward_tuner.pick(key, variants, launch_spread, *arguments, uncopied=arguments[:-1])
    launch_spread(variant, *arguments)
    return dx


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor, str]:
    """Arguments to try it on."""
    offsets = make.offsets(c["segments"], c["rows"], torch.int32 if c.get("short") else torch.int64)
    return make.normal((c["rows"], c["columns"]), c.torch_dtype), offsets, c["mode"]


def backward_inputs(c: Case, make: Maker) -> tuple[torch.Tensor, ...]:
    """Arguments to try the backward on; a few values are alike."""
    values, offsets, mode = inputs(c, make)
    values = values.copy_((values.float() * 4).round() / 4)
    dy = make.normal((c["segments"], c["columns"]), c.torch_dtype)
    return dy, values, reference(values, offsets, mode), offsets, mode  # type: ignore[return-value]


def _cost(c: Case) -> Cost:
    return Cost(bytes=(c["rows"] + c["segments"]) * c["columns"] * c.itemsize)


def _backward_cost(c: Case) -> Cost:
    """dy and dx; of a maximum the values and results as well."""
    return Cost(bytes=(2 if c["mode"] == "max" else 1) * _cost(c).bytes)


INTEGERS = ("rows_ptr", "own_ptr", "pick_ptr", "keys_ptr", "offsets_ptr")
SIGNATURE = {
    **dict.fromkeys(("v_ptr", "scale_ptr", "top_ptr", "y_ptr", "dy_ptr", "x_ptr", "dx_ptr"), "*bf16"),
    **dict.fromkeys(INTEGERS, "*i64"), "parts_ptr": "*fp32", "ties_ptr": "*fp32",
    **dict.fromkeys(("count", "segments", "columns", "stride"), "i32"),
}  # fmt: skip


def build(variant: Variant) -> Build:
    """Its signature in the order of its arguments."""
    names = variant.kernel.arg_names
    return Build(variant, {k: SIGNATURE[k] for k in names if k in SIGNATURE}, divisible=("columns",))


FORMS = ("plain", "strided", "misaligned")
OPERATIONS = (
    Operation(
        name="segment_reduce", run=segment_reduce, reference=reference, inputs=inputs, cost=_cost, forms=FORMS,
        beyond=None,
        checks=(
            *(case(d, rows=r, columns=n, segments=s, mode=m) for d in ("f32", "bf16") for m in MODES
              for r, n, s in ((100, 33, 7), (300, 130, 40), (5, 1, 9))),
            case("f16", rows=700, columns=16, segments=1, mode="mean"), case("f32", rows=0, columns=4, segments=3,
                                                                            mode="max"),
            case("bf16", rows=256, columns=64, segments=60, mode="max", short=True),
        ),
        cases=(
            *(case("bf16", rows=1 << 20, columns=256, segments=1 << 15, mode=m) for m in MODES),
            case("f32", rows=1 << 21, columns=64, segments=1 << 18, mode="sum"),
        ),
        builds=(*(build(space(1 << 20, 256, m)[0]) for m in MODES), build(joined(space(1 << 20, 256, "max")[0], 0.0))),
    ),
    Operation(
        name="segment_reduce_backward", run=segment_reduce_backward, reference=reference_backward,
        inputs=backward_inputs, cost=_backward_cost, forms=FORMS,
        checks=(
            *(case(d, rows=r, columns=n, segments=s, mode=m) for d in ("f32", "bf16") for m in MODES
              for r, n, s in ((100, 33, 7), (5, 1, 9))),
            case("f16", rows=700, columns=16, segments=1, mode="max"),
            case("f32", rows=0, columns=4, segments=3, mode="max"),
            case("bf16", rows=256, columns=64, segments=60, mode="max", short=True),
        ),
        cases=tuple(case("bf16", rows=1 << 20, columns=256, segments=1 << 15, mode=m) for m in MODES),
        builds=tuple(build(Variant(segment_spread, (("ROWS", 32), ("BLOCK", 256), ("MODE", m)), 4)) for m in MODES),
    ),
)  # fmt: skip
