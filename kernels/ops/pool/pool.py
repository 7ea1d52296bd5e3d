"""Max and average pooling of planes, contiguous and channels-last; pool_backward.py has the gradients.

Reference: F.max_pool2d and F.avg_pool2d; an axis of one position makes them the 1d ones. Traffic: x read, y written
once, what windows share comes from L1; with places, one byte a result more, which says where in its window the largest
number was (torch keeps eight).

Both layouts are one kernel: a plane's positions have INNER numbers, 1 or all channels. A thread takes ROWS results
below one another, so that rows that their windows share are read, and reduced along the row, once; channels-last it
takes as many channels as one access of 16 bytes has, contiguous with a stride of 2 two neighbours in one access. Sizes
of plane and window are constants: divisions become multiplications, every number is at a constant distance from one
address a thread, and edges are compared only where a window can be over them. Each size compiles anew. Windows of more
than UNROLLED positions are walked over, smaller ones unrolled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from kernels.ops.norm.group_norm_silu import is_channels_last
from kernels.ops.shared.pairs import rounded
from kernels.ops.shared.rows import DTYPES
from kernels.spec import Build, Case, Cost, Maker, Operation
from kernels.tuning import Tuner, Variant

LARGEST_WINDOW = 255
"""Positions of a window: a place is one byte."""
UNROLLED = tl.constexpr(25)
"""Positions of a window whose loops are unrolled: of more the code would grow and compile for longer."""
LARGEST_SAMPLE = 1 << 30
"""Numbers of one sample: they are counted in 32 bits."""

tuner = Tuner("pool")

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """What is pooled together. size, stride, padding, dilation: of rows and columns; stride None: the size.

    ceil: windows may end outside. counted: padding counts in an average's divisor. Raises ValueError for what torch
    refuses too, and for windows of more than 255 positions.
    """

    size: Pair
    stride: Pair | None = None
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    ceil: bool = False
    counted: bool = True

    def __post_init__(self) -> None:
        positive = (*self.size, *self.strides, *self.dilation)
        if (
            min(positive) < 1
            or min(self.padding) < 0
            or any(2 * p > k for p, k in zip(self.padding, self.size, strict=True))
        ):
            raise ValueError(f"sizes from 1 on and padding of at most half the window, not {self}")
        if math.prod(self.size) > LARGEST_WINDOW:
            raise ValueError(f"windows of at most {LARGEST_WINDOW} positions, not {self.size[0]} by {self.size[1]}")

    @property
    def strides(self) -> Pair:
        return self.stride or self.size

    def of(self, length: int, axis: int) -> int:
        """How many windows an axis of this length has. Raises ValueError where none fits."""
        step, padding = self.strides[axis], self.padding[axis]
        room = length + 2 * padding - self.dilation[axis] * (self.size[axis] - 1) - 1
        if room < 0 or not length:
            raise ValueError(f"{length} positions hold no window of {self}")
        count = -(-room // step) + 1 if self.ceil else room // step + 1
        return count - 1 if self.ceil and (count - 1) * step >= length + padding else count

    @property
    def constants(self) -> tuple[tuple[str, object], ...]:
        names = ("KH", "KW", "SH", "SW", "PH", "PW", "DH", "DW")
        values = (*self.size, *self.strides, *self.padding, *self.dilation)
        return tuple(zip(names, values, strict=True))


def reference_max(x: torch.Tensor, window: Window) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    return F.max_pool2d(x, window.size, window.strides, window.padding, window.dilation, window.ceil)


def reference_average(x: torch.Tensor, window: Window) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    return F.avg_pool2d(x, window.size, window.strides, window.padding, window.ceil, window.counted)


@triton.jit
def row_of_windows(
    at, lanes, ow, W: tl.constexpr, OW: tl.constexpr, INNER: tl.constexpr, KW: tl.constexpr, SW: tl.constexpr,
    PW: tl.constexpr, DW: tl.constexpr, MAX: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """(largest number or sum, its column in the window or 255) of one row of each lane's window. at: pointers to column
    ow * SW of that row; lanes: which rows there are."""
    result = tl.full(lanes.shape, float("-inf") if MAX else 0.0, tl.float32)
    place = tl.full(lanes.shape, 255, tl.int32)
    if KW > UNROLLED:
        for j in range(KW):
            iw = ow * SW + (j * DW - PW)
            result, place = with_number(result, place, at + (j * DW - PW) * INNER, lanes & (iw >= 0) & (iw < W), j, MAX,
                                        PLACES)  # fmt: skip
    else:
        for j in tl.static_range(KW):
            # Two neighbours that begin at an even column of a row of even length are one access.
            if SW == 2 and DW == 1 and INNER == 1 and W % 2 == 0 and (j - PW) % 2 == 0 and j + 1 < KW:
                there = edged(lanes, ow, j - PW, 2, W, OW, SW)
                pair = tl.load((at + (j - PW))[:, :, None] + tl.arange(0, 2)[None, None, :], mask=there[:, :, None],
                               other=float("-inf") if MAX else 0.0)  # fmt: skip
                first, second = tl.split(pair)
                result, place = with_value(result, place, first.to(tl.float32), there, j, MAX, PLACES)
                result, place = with_value(result, place, second.to(tl.float32), there, j + 1, MAX, PLACES)
            elif not (SW == 2 and DW == 1 and INNER == 1 and W % 2 == 0 and (j - PW) % 2 == 1 and j > 0):
                result, place = with_number(result, place, at + (j * DW - PW) * INNER,
                                            edged(lanes, ow, j * DW - PW, 1, W, OW, SW), j, MAX, PLACES)  # fmt: skip
    return result, place


@triton.jit
def edged(
    lanes, index, OFFSET: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr, COUNT: tl.constexpr,
    STEP: tl.constexpr,
):  # fmt: skip
    """lanes, without those where positions from index * STEP + OFFSET on, WIDTH of them, are none of SIZE; index is one
    of COUNT. Where all are, nothing is compared."""
    if OFFSET < 0:
        lanes = lanes & (index * STEP >= -OFFSET)
    if (COUNT - 1) * STEP + OFFSET + WIDTH > SIZE:
        lanes = lanes & (index * STEP < SIZE - OFFSET - WIDTH + 1)
    return lanes


@triton.jit
def with_number(result, place, pointers, there, at, MAX: tl.constexpr, PLACES: tl.constexpr):
    """As with_value, of what is loaded."""
    x = tl.load(pointers, mask=there, other=float("-inf") if MAX else 0.0).to(tl.float32)
    return with_value(result, place, x, there, at, MAX, PLACES)


@triton.jit
def with_value(result, place, x, there, at, MAX: tl.constexpr, PLACES: tl.constexpr):
    """(result, place) with x of place `at`, which is minus infinity or 0 where it is not there. NaN wins, the last; of
    equal ones the first does."""
    if not MAX:
        return result + x, place
    if not PLACES:
        return tl.maximum(result, x, propagate_nan=tl.PropagateNan.ALL), place
    larger = (x > result) | (x != x) | (there & (place == 255))
    return tl.where(larger, x, result), tl.where(larger, at, place)


@triton.jit
def divided(
    total, oh, ow, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, KH: tl.constexpr,
    KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    """`total` by the number of positions of its window, in f32: by a constant where all windows have as many."""
    outside_h: tl.constexpr = (OH - 1) * SH - PH + KH - H
    outside_w: tl.constexpr = (OW - 1) * SW - PW + KW - W
    # Counted ones are shorter where they end beyond the padding: ceil mode only.
    if (COUNTED and outside_h <= PH and outside_w <= PW) or (PH == 0 and PW == 0 and outside_h <= 0 and outside_w <= 0):
        return total * (1.0 / (KH * KW))
    top, left = oh * SH - PH, ow * SW - PW
    bottom, right = tl.minimum(top + KH, H + PH), tl.minimum(left + KW, W + PW)
    if not COUNTED:
        top, left = tl.maximum(top, 0), tl.maximum(left, 0)
        bottom, right = tl.minimum(bottom, H), tl.minimum(right, W)
    # Where there is no window the total is 0, and so it stays.
    return total / tl.maximum((bottom - top) * (right - left), 1).to(tl.float32)


@triton.jit
def lanes_of(total, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr, INNER: tl.constexpr, FAR: tl.constexpr):
    """(position [POSITIONS, 1], channel [1, CHANNELS], which are some [POSITIONS, 1], which channels are
    [POSITIONS, CHANNELS]) of this program. Positions after the last are the last one again: loads need no mask."""
    program = tl.program_id(0)
    cuts: tl.constexpr = (INNER + CHANNELS - 1) // CHANNELS
    number = program // cuts
    channel = (program - number * cuts) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    position = (number.to(tl.int64) if FAR else number) * POSITIONS + tl.arange(0, POSITIONS)[:, None]
    inside = position < total
    lanes = tl.full((POSITIONS, CHANNELS), 1, tl.int1)
    if INNER % CHANNELS != 0:
        lanes = lanes & (channel < INNER)
    return tl.minimum(position, total - 1), channel, inside, lanes


@triton.jit
def with_row(
    result, place, at, lanes, ow, i, W: tl.constexpr, OW: tl.constexpr, INNER: tl.constexpr, KW: tl.constexpr,
    SW: tl.constexpr, PW: tl.constexpr, DW: tl.constexpr, MAX: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """(result, place) with row i of each window."""
    value, column = row_of_windows(at, lanes, ow, W, OW, INNER, KW, SW, PW, DW, MAX, PLACES)
    return with_value(result, place, value, column != 255, i * KW + column, MAX, PLACES)


@triton.jit(do_not_specialize=("total",))
def pool_windows(
    x_ptr, y_ptr, place_ptr, total, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    INNER: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr,
    PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr,
    ROWS: tl.constexpr, MAX: tl.constexpr, PLACES: tl.constexpr, COUNTED: tl.constexpr, UNROLL: tl.constexpr,
    FAR: tl.constexpr,
):  # fmt: skip
    """ROWS results below one another of POSITIONS columns, of `total` in all planes, and CHANNELS channels of each."""
    strips: tl.constexpr = (OH + ROWS - 1) // ROWS
    position, channel, inside, lanes = lanes_of(total, POSITIONS, CHANNELS, INNER, FAR)
    line = position // OW
    ow = (position - line * OW).to(tl.int32)
    plane = line // strips
    strip = (line - plane * strips).to(tl.int32)
    x_at = x_ptr + (plane * (H * W * INNER) + ((strip * (ROWS * SH * W) + ow * SW) * INNER + channel))
    results, places = (), ()
    # All is read before anything is written: rows that windows share are then read once.
    for r in tl.static_range(ROWS):
        result = tl.full((POSITIONS, CHANNELS), float("-inf") if MAX else 0.0, tl.float32)
        place = tl.full((POSITIONS, CHANNELS), 255, tl.int32)
        if UNROLL:
            for i in tl.static_range(KH):
                here = edged(lanes, strip, r * SH + i * DH - PH, 1, H, strips, ROWS * SH)
                result, place = with_row(result, place, x_at + (r * SH + i * DH - PH) * (W * INNER), here, ow, i, W,
                                         OW, INNER, KW, SW, PW, DW, MAX, PLACES)  # fmt: skip
        else:
            for i in range(KH):
                row = r * SH + i * DH - PH
                ih = strip * (ROWS * SH) + row
                result, place = with_row(result, place, x_at + row * (W * INNER), lanes & (ih >= 0) & (ih < H), ow, i,
                                         W, OW, INNER, KW, SW, PW, DW, MAX, PLACES)  # fmt: skip
        if not MAX:
            result = divided(result, strip * ROWS + r, ow, H, W, OH, OW, KH, KW, SH, SW, PH, PW, COUNTED)
        results = results + (result,)  # noqa: RUF005 - Triton has no other way
        places = places + (place,)  # noqa: RUF005
    y_at = plane * (OH * OW * INNER) + ((strip * (ROWS * OW) + ow) * INNER + channel)
    for r in tl.static_range(ROWS):
        here = edged(lanes & inside, strip, r, 1, OH, strips, ROWS)
        tl.store(y_ptr + y_at + r * (OW * INNER), rounded(results[r], y_ptr), mask=here)
        if PLACES:
            tl.store(place_ptr + y_at + r * (OW * INNER), places[r].to(tl.uint8), mask=here)


VECTOR_BYTES = 16
"""Of the widest access: what a thread takes of the channels of one position."""
TILES = ((1, 4, 4), (1, 8, 4), (1, 2, 4), (1, 4, 8), (2, 2, 4), (1, 1, 8))
"""(accesses of a thread in each row, most rows, warps)."""
MOST_ROWS = max(rows for _, rows, _ in TILES)
TUNED = ("POSITIONS", "CHANNELS", "ROWS")
MOST_WORK = 72
"""Positions of all windows of a thread that its code is unrolled for."""


def tiles(warps: int, accesses: int, inner: int, itemsize: int) -> tuple[tuple[str, int], tuple[str, int]]:
    """POSITIONS and CHANNELS of a program: a thread has one position, or of channels what one access takes."""
    # Of 96 channels 32 at a time, so that none is for nothing; 64 bytes, so that what is moved is used.
    channels = min((128, 64, 32), key=lambda n: triton.cdiv(inner, n) * n)
    channels = min(channels, triton.next_power_of_2(inner))
    each = min(VECTOR_BYTES // itemsize, channels)
    return ("POSITIONS", max(1, warps * 32 * each * accesses // channels)), ("CHANNELS", channels)


def sized(sizes: Sequence[int], window: Window) -> tuple[tuple[str, object], ...]:
    """The constants of plane and window. sizes: H, W, OH, OW, INNER."""
    return (*zip(("H", "W", "OH", "OW", "INNER"), sizes, strict=True), *window.constants)


def is_far(planes: int, sizes: Sequence[int], window: Window) -> bool:
    """Whether offsets do not fit in 32 bits: those of the rows over the last plane's edge as well."""
    h, w, oh, ow, inner = sizes
    over = (window.padding[0] + 2 * MOST_ROWS * window.strides[0]) * max(w, ow) * inner
    return planes * max(h * w, oh * ow) * inner + over + (1 << 16) >= 1 << 31


def space(
    window: Window, planes: int, sizes: Sequence[int], itemsize: int, constants: Sequence[tuple[str, object]]
) -> list[Variant]:
    """Variants worth timing. sizes: H, W, OH, OW, INNER; planes: how many there are of each tensor."""
    oh, inner = sizes[2], sizes[4]
    unroll = math.prod(window.size) <= UNROLLED.value
    fixed = (*sized(sizes, window), *constants, ("UNROLL", unroll), ("FAR", is_far(planes, sizes, window)))
    most = most_rows(math.prod(window.size), inner) if unroll else 1
    return [
        Variant(pool_windows, (*tiles(w, accesses, inner, itemsize), ("ROWS", rows), *fixed), w, tuned=TUNED)
        for accesses, rows, w in rows_of(oh, most)
    ]


def most_rows(work: int, inner: int) -> int:
    """Rows of a thread that has `work` positions in each: half as many where it has channels, in registers."""
    return max(1, MOST_WORK // work // (1 if inner == 1 else 2))


def rows_of(length: int, most: int) -> list[tuple[int, int, int]]:
    """TILES of at most `most` rows (of more the code would grow and compile for longer) that share an axis of this
    length evenly: 7 and not 8 of 28."""
    made = []
    for accesses, rows, warps in TILES:
        strips = triton.cdiv(length, min(rows, most))
        made.append((accesses, triton.cdiv(length, strips), warps))
    return list(dict.fromkeys(made))


def launch(variant: Variant, planes: int, *tensors: torch.Tensor) -> None:
    """Run one variant on dense tensors x, y, places of one layout with as many planes each."""
    meta = variant.meta
    total = planes * triton.cdiv(meta["OH"], meta["ROWS"]) * meta["OW"]
    cuts = triton.cdiv(meta["INNER"], meta["CHANNELS"])
    pool_windows[(triton.cdiv(total, meta["POSITIONS"]) * cuts,)](*tensors, total, **meta)


def checked(name: str, x: torch.Tensor) -> torch.Tensor:
    """Dense. Raises TypeError and ValueError for what the kernels do not take."""
    if x.dtype not in DTYPES:
        raise TypeError(f"{name} takes f32, f16 or bf16, not {x.dtype}")
    if x.dim() != 4 or (x.numel() and math.prod(x.shape[1:]) >= LARGEST_SAMPLE):
        raise ValueError(
            f"{name} takes [N, C, H, W] of fewer than {LARGEST_SAMPLE:,} numbers a sample, not {[*x.shape]}"
        )
    return x if is_channels_last(x) else x.contiguous()


def like(x: torch.Tensor, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Not filled, laid out like x."""
    layout = torch.channels_last if is_channels_last(x) else torch.contiguous_format
    return torch.empty(tuple(shape), dtype=dtype, device=x.device, memory_format=layout)


def _forward(
    name: str, x: torch.Tensor, window: Window, largest: bool, placed: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    x = checked(name, x)
    n, c, h, w = x.shape
    if not n or not c:
        return x.new_empty((n, c, window.of(h, 0), window.of(w, 1))), x
    last = is_channels_last(x)
    shape = (n, c, window.of(h, 0), window.of(w, 1))
    y = like(x, shape, x.dtype)
    places = like(x, shape, torch.uint8) if placed else y
    sizes = (h, w, *shape[2:], c if last else 1)
    planes = n if last else n * c
    constants = (("MAX", largest), ("PLACES", placed), ("COUNTED", window.counted))
    key = (n, c, *sizes, x.dtype, window, constants)

    def variants() -> list[Variant]:
        return space(window, planes, sizes, x.dtype.itemsize, constants)

    launch(tuner.pick(key, variants, launch, planes, x, y, places, uncopied=(x,)), planes, x, y, places)
    return y, places


def max_pool(x: torch.Tensor, window: Window) -> torch.Tensor:
    """The largest number of each window of x [N, C, H, W] in f32, f16 or bf16, laid out like x; NaN if one is there.

    x is copied where it is neither contiguous nor channels-last. Raises TypeError for other dtypes, ValueError for
    other shapes and where no window fits.
    """
    return _forward("max_pool", x, window, True, False)[0]


def max_pool_with_places(x: torch.Tensor, window: Window) -> tuple[torch.Tensor, torch.Tensor]:
    """max_pool, and where in its window each result was, row by row, in u8: what max_pool_backward takes."""
    return _forward("max_pool", x, window, True, True)


def average_pool(x: torch.Tensor, window: Window) -> torch.Tensor:
    """The mean of each window of x, as max_pool; without dilation, else ValueError."""
    if window.dilation != (1, 1):
        raise ValueError("average_pool takes no dilation")
    return _forward("average_pool", x, window, False, False)[0]


def max_pool2d(
    x: torch.Tensor, size: Pair, stride: Pair | None = None, padding: Pair = (0, 0), dilation: Pair = (1, 1),
    ceil: bool = False,
) -> torch.Tensor:  # fmt: skip
    """max_pool of a window of these settings, in the order of F.max_pool2d."""
    return max_pool(x, Window(size, stride, padding, dilation, ceil))


def avg_pool2d(
    x: torch.Tensor, size: Pair, stride: Pair | None = None, padding: Pair = (0, 0), ceil: bool = False,
    counted: bool = True,
) -> torch.Tensor:  # fmt: skip
    """average_pool of a window of these settings, in the order of F.avg_pool2d."""
    return average_pool(x, Window(size, stride, padding, ceil=ceil, counted=counted))


def window_of(c: Case) -> Window:
    """Of a case: k, and s, p, d, or pairs of them."""

    def pair(name: str, absent: int) -> Pair:
        value = c.get(name, absent)
        return value if isinstance(value, tuple) else (value, value)

    stride = pair("s", 0)
    return Window(
        pair("k", 2), stride if stride[0] else None, pair("p", 0), pair("d", 1), bool(c.get("ceil")),
        bool(c.get("counted", True)),
    )  # fmt: skip


def placed_as(x: torch.Tensor, c: Case) -> torch.Tensor:
    """x in the layout that the case asks for."""
    return x.to(memory_format=torch.channels_last) if c.get("last") else x


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, Window]:
    """Arguments to try it on."""
    return placed_as(make.normal(c["shape"], c.torch_dtype), c), window_of(c)


def cost(c: Case, each: int = 0) -> Cost:
    """x and y once; each: bytes of a place."""
    window, (n, channels, h, w) = window_of(c), c["shape"]
    results = window.of(h, 0) * window.of(w, 1)
    return Cost(bytes=n * channels * (h * w * c.itemsize + results * (c.itemsize + each)))


def _build(largest: bool, window: Window, inner: int, choice: int) -> Build:
    sizes = (112, 112, window.of(112, 0), window.of(112, 1), inner)
    constants = (("MAX", largest), ("PLACES", largest), ("COUNTED", True))
    chosen = space(window, 64, sizes, 2, constants)[choice]
    return Build(chosen, {"x_ptr": "*bf16", "y_ptr": "*bf16", "place_ptr": "*u8", "total": "i32"})


THREE, WIDE = Window((3, 3), (2, 2), (1, 1)), Window((7, 7), (2, 2), (3, 3))
SHAPES = (
    {"shape": (2, 3, 7, 9), "k": 3, "s": 2, "p": 1}, {"shape": (1, 5, 8, 6), "k": 2},
    {"shape": (1, 2, 10, 11), "k": (3, 2), "s": (1, 3), "ceil": True, "p": (1, 0)},
)  # fmt: skip


def _case(dtype: str, **sizes: object) -> Case:
    return Case(dtype, tuple(sizes.items()))


CHECKS = (
    *(_case(d, **s) for d in ("f32", "f16", "bf16") for s in SHAPES),
    *(_case(d, **s, last=True) for d in ("f32", "bf16") for s in SHAPES),
    _case("f32", shape=(0, 3, 8, 8), k=2), _case("bf16", shape=(3, 16, 1, 40), k=(1, 4), s=(1, 3)),
    *(_case("f32", shape=(1, 2, 12, 14), k=(5, 6), s=(2, 3), p=(2, 3), last=last) for last in (False, True)),
    _case("bf16", shape=(2, 8, 12, 12), k=3, s=2, p=1, last=True),
)  # fmt: skip
CASES = (
    _case("bf16", shape=(128, 64, 112, 112), k=3, s=2, p=1), _case("bf16", shape=(128, 64, 112, 112), k=2),
    _case("bf16", shape=(128, 64, 112, 112), k=3, s=2, p=1, last=True),
    _case("f32", shape=(64, 256, 28, 28), k=3, s=1, p=1),
)  # fmt: skip
DILATED = _case("f32", shape=(1, 3, 12, 13), k=3, s=2, p=1, d=2)
UNCOUNTED = tuple(_case("f32", **s, counted=False) for s in SHAPES)
FORMS = ("plain", "strided", "misaligned")
BEYOND = _case("bf16", shape=(172, 64, 448, 448), k=2)
OPERATIONS = (
    Operation(
        name="max_pool", run=max_pool, reference=reference_max, inputs=inputs, cost=cost, beyond=BEYOND,
        checks=(DILATED, *CHECKS), cases=CASES, forms=(*FORMS, "special"),
        builds=(_build(True, THREE, 1, 0), _build(True, THREE, 64, 1), _build(True, WIDE, 64, 0)),
    ),
    Operation(
        name="average_pool", run=average_pool, reference=reference_average, inputs=inputs, cost=cost, beyond=BEYOND,
        checks=(*UNCOUNTED, *CHECKS), cases=CASES, forms=(*FORMS, "special"),
        builds=(_build(False, THREE, 1, 0), _build(False, THREE, 64, 1), _build(False, WIDE, 64, 0)),
    ),
)  # fmt: skip
