"""Max and average pooling of planes, forward and backward, contiguous and channels-last.

Reference: F.max_pool2d and F.avg_pool2d; an axis of one position makes them the 1d ones. Traffic forward: x read, y
written once, what windows share comes from L1; with places, one byte a result more, which says where in its window the
largest number was (torch keeps eight). Backward: every input gathers from the windows that it is in, so nothing is
added by atomics and nothing is cleared before: dy (and places) read, dx written once.

Both layouts are one kernel: a plane's positions have INNER numbers, 1 or all channels. The window is a constant and the
plane is not: images of any size share what is compiled for one window. Positions are found by multiplications with
numbers that the host makes of the plane's sizes. Windows of more than UNROLLED positions are walked over, smaller ones
unrolled.
"""

from __future__ import annotations

import dataclasses
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
from kernels.spec import Build, Case, Cost, Maker, Operation, wide
from kernels.tuning import Tuner, Variant

LARGEST_WINDOW = 255
"""Positions of a window: a place is one byte."""
UNROLLED = 16
"""Positions of a window whose loop is unrolled: of more the code would grow and compile for longer."""
LARGEST_SAMPLE = 1 << 30
"""Numbers of one sample: they are counted in 32 bits."""

tuner = Tuner("pool")
backward_tuner = Tuner("pool_backward")

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


def reference_max_backward(
    dy: torch.Tensor, places: torch.Tensor, shape: Sequence[int], window: Window
) -> torch.Tensor:
    """The gradient of x, of this shape, in plain PyTorch. places: in the window, as max_pool_with_places gives them."""
    place = places.long()
    row = torch.arange(dy.shape[2], device=dy.device)[:, None] * window.strides[0] - window.padding[0]
    col = torch.arange(dy.shape[3], device=dy.device)[None, :] * window.strides[1] - window.padding[1]
    row = row + place // window.size[1] * window.dilation[0]
    col = col + place % window.size[1] * window.dilation[1]
    dx = torch.zeros((shape[0], shape[1], shape[2] * shape[3]), dtype=wide(dy).dtype, device=dy.device)
    dx.scatter_add_(2, (row * shape[3] + col).flatten(2), wide(dy).flatten(2))
    return dx.view(*shape).to(dy.dtype)


def reference_average_backward(dy: torch.Tensor, shape: Sequence[int], window: Window) -> torch.Tensor:
    """The gradient of x, of this shape, in plain PyTorch."""
    x = torch.zeros(tuple(shape), dtype=dy.dtype, device=dy.device)
    dx: torch.Tensor = torch.ops.aten.avg_pool2d_backward(
        dy, x, window.size, window.strides, window.padding, window.ceil, window.counted, None
    )
    return dx


@triton.jit
def over(n, magic, shift):
    """n // d of 0 <= n < 2^31, by what `divisor` gives for d: four instructions, where a division is some thirty."""
    high = tl.umulhi(n.to(tl.uint32), tl.full(n.shape, 0, tl.uint32) + magic.to(tl.uint32, bitcast=True))
    return ((high + n.to(tl.uint32)) >> shift.to(tl.uint32)).to(tl.int32)


def divisor(d: int) -> tuple[int, int]:
    """(factor as int32, shift) by which `over` divides by d, which is below 2^31.

    n // d = n * (2^32 + factor) >> 32 + shift, with shift = ceil(log2 d): the factor is rounded up, by so little that
    it shows from n = 2^31 on.
    """
    shift = (d - 1).bit_length()
    factor = ((1 << 32) * ((1 << shift) - d)) // d + 1
    return factor - (1 << 32) if factor >= 1 << 31 else factor, shift


@triton.jit
def divisor_of(
    oh, ow, H, W, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr,
    PW: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    """By how many positions the sum of a window is divided, in f32."""
    top, left = oh * SH - PH, ow * SW - PW
    bottom, right = tl.minimum(top + KH, H + PH), tl.minimum(left + KW, W + PW)
    if not COUNTED:
        top, left = tl.maximum(top, 0), tl.maximum(left, 0)
        bottom, right = tl.minimum(bottom, H), tl.minimum(right, W)
    return ((bottom - top) * (right - left)).to(tl.float32)


@triton.jit
def window_number(
    result, place, x_ptr, base, oh, ow, inside, i, j, H, W, INNER, KW: tl.constexpr, SH: tl.constexpr,
    SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, MAX: tl.constexpr,
):  # fmt: skip
    """(result, place) with position i, j of each window."""
    ih = oh * SH + (i * DH - PH)
    iw = ow * SW + (j * DW - PW)
    there = inside & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
    x = tl.load(x_ptr + (base + (ih * W + iw) * INNER), mask=there, other=0.0).to(tl.float32)
    if MAX:
        larger = there & ((x > result) | (x != x) | (place == 255))
        result = tl.where(larger, x, result)
        place = tl.where(larger, i * KW + j, place)
    else:
        result += x
    return result, place


MAGIC = ("by_width", "width_shift", "by_inner", "inner_shift", "by_plane", "plane_shift")
"""Arguments that are numbers like any other: none has a kernel of its own where it is 1 or a multiple of 16."""


@triton.jit(do_not_specialize=MAGIC)
def pool_windows(
    x_ptr, y_ptr, place_ptr, total, H, W, OH, OW, INNER, by_width, width_shift, by_inner, inner_shift, by_plane,
    plane_shift, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr,
    SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, BLOCK: tl.constexpr,
    MAX: tl.constexpr, PLACES: tl.constexpr, COUNTED: tl.constexpr, UNROLL: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """BLOCK of all `total` results, in the order in which they lie. FAR: its planes of x may be 2^31 numbers apart."""
    plane_size = OH * OW * INNER
    start = tl.program_id(0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    inside = start + lane < total
    plane = start // plane_size
    rest = (start - plane * plane_size).to(tl.int32) + lane
    x_ptr += plane * (H * W * INNER)
    # A block may go on into further planes: they are as far apart as planes of x are.
    further = over(rest, by_plane, plane_shift)
    rest -= further * plane_size
    position = over(rest, by_inner, inner_shift)
    oh = over(position, by_width, width_shift)
    ow = position - oh * OW
    base = (further.to(tl.int64) if FAR else further) * (H * W * INNER) + (rest - position * INNER)
    result = tl.full((BLOCK,), float("-inf") if MAX else 0.0, tl.float32)
    place = tl.full((BLOCK,), 255, tl.int32)
    if UNROLL:
        for i in tl.static_range(KH):
            for j in tl.static_range(KW):
                result, place = window_number(result, place, x_ptr, base, oh, ow, inside, i, j, H, W, INNER, KW, SH,
                                              SW, PH, PW, DH, DW, MAX)  # fmt: skip
    else:
        for at in range(KH * KW):
            i = at // KW
            result, place = window_number(result, place, x_ptr, base, oh, ow, inside, i, at - i * KW, H, W, INNER, KW,
                                          SH, SW, PH, PW, DH, DW, MAX)  # fmt: skip
    if not MAX:
        result /= divisor_of(oh, ow, H, W, KH, KW, SH, SW, PH, PW, COUNTED)
    tl.store(y_ptr + start + lane, rounded(result, y_ptr), mask=inside)
    if PLACES:
        tl.store(place_ptr + start + lane, place.to(tl.uint8), mask=inside)


@triton.jit
def gathered(
    dy_ptr, place_ptr, base, ih, iw, inside, i, j, H, W, OH, OW, INNER, KH: tl.constexpr, KW: tl.constexpr,
    SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr,
    MAX: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    """What the windows in which numbers are at position i, j give them."""
    down = ih + (PH - i * DH)
    oh = down // SH
    across = iw + (PW - j * DW)
    ow = across // SW
    there = inside & (down >= 0) & (down - oh * SH == 0) & (oh < OH)
    there = there & (across >= 0) & (across - ow * SW == 0) & (ow < OW)
    at = base + (oh * OW + ow) * INNER
    if MAX:
        # Its number is read where it counts only: most windows' largest one is another.
        there = there & (tl.load(place_ptr + at, mask=there, other=255).to(tl.int32) == i * KW + j)
    g = tl.load(dy_ptr + at, mask=there, other=0.0).to(tl.float32)
    if not MAX:
        g = tl.where(there, g / divisor_of(oh, ow, H, W, KH, KW, SH, SW, PH, PW, COUNTED), 0.0)
    return g


@triton.jit(do_not_specialize=MAGIC)
def pool_gather(
    dy_ptr, place_ptr, dx_ptr, total, H, W, OH, OW, INNER, by_width, width_shift, by_inner, inner_shift, by_plane,
    plane_shift, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr,
    SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, BLOCK: tl.constexpr,
    MAX: tl.constexpr, COUNTED: tl.constexpr, UNROLL: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """BLOCK of all `total` numbers of dx, each from the windows that it is in. FAR: as pool_windows, of dy."""
    plane_size = H * W * INNER
    start = tl.program_id(0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    inside = start + lane < total
    plane = start // plane_size
    rest = (start - plane * plane_size).to(tl.int32) + lane
    dy_ptr += plane * (OH * OW * INNER)
    place_ptr += plane * (OH * OW * INNER)
    further = over(rest, by_plane, plane_shift)
    rest -= further * plane_size
    position = over(rest, by_inner, inner_shift)
    ih = over(position, by_width, width_shift)
    iw = position - ih * W
    base = (further.to(tl.int64) if FAR else further) * (OH * OW * INNER) + (rest - position * INNER)
    result = tl.zeros((BLOCK,), tl.float32)
    if UNROLL:
        for i in tl.static_range(KH):
            for j in tl.static_range(KW):
                result += gathered(dy_ptr, place_ptr, base, ih, iw, inside, i, j, H, W, OH, OW, INNER, KH, KW, SH, SW,
                                   PH, PW, DH, DW, MAX, COUNTED)  # fmt: skip
    else:
        for at in range(KH * KW):
            i = at // KW
            result += gathered(dy_ptr, place_ptr, base, ih, iw, inside, i, at - i * KW, H, W, OH, OW, INNER, KH, KW,
                               SH, SW, PH, PW, DH, DW, MAX, COUNTED)  # fmt: skip
    tl.store(dx_ptr + start + lane, rounded(result, dx_ptr), mask=inside)


TILES = ((256, 2), (512, 4), (1024, 4), (2048, 8), (2048, 4), (1024, 8))
"""Results of a program, warps: 4 to 16 a thread."""


def space(
    kernel: object, window: Window, sizes: Sequence[int], constants: Sequence[tuple[str, object]]
) -> list[Variant]:
    """Variants worth timing. sizes: H, W, OH, OW, INNER."""
    h, w, oh, ow, inner = sizes
    own, read = (oh * ow * inner, h * w * inner) if kernel is pool_windows else (h * w * inner, oh * ow * inner)
    planes = max(b for b, _ in TILES) // own + 2  # that a block may reach
    fixed = (*window.constants, *constants, ("UNROLL", math.prod(window.size) <= UNROLLED),
             ("FAR", planes * read >= 1 << 31))  # fmt: skip
    return [Variant(kernel, (("BLOCK", b), *fixed), w, tuned=("BLOCK",)) for b, w in TILES]


def launch(variant: Variant, sizes: Sequence[int], *tensors: torch.Tensor) -> None:
    """Run one variant on dense tensors of one layout; the kernel's first output decides how many programs. sizes: H, W,
    OH, OW, INNER."""
    forward = variant.kernel is pool_windows
    total = tensors[1 if forward else 2].numel()
    height, width = sizes[2:4] if forward else sizes[:2]
    magic = (n for d in (width, sizes[4], height * width * sizes[4]) for n in divisor(d))
    variant.kernel[(triton.cdiv(total, variant["BLOCK"]),)](*tensors, total, *sizes, *magic, **variant.meta)


def _checked(name: str, x: torch.Tensor) -> torch.Tensor:
    """Dense. Raises TypeError and ValueError for what the kernels do not take."""
    if x.dtype not in DTYPES:
        raise TypeError(f"{name} takes f32, f16 or bf16, not {x.dtype}")
    if x.dim() != 4 or (x.numel() and math.prod(x.shape[1:]) >= LARGEST_SAMPLE):
        raise ValueError(
            f"{name} takes [N, C, H, W] of fewer than {LARGEST_SAMPLE:,} numbers a sample, not {[*x.shape]}"
        )
    return x if is_channels_last(x) else x.contiguous()


def _like(x: torch.Tensor, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Not filled, laid out like x."""
    layout = torch.channels_last if is_channels_last(x) else torch.contiguous_format
    return torch.empty(tuple(shape), dtype=dtype, device=x.device, memory_format=layout)


def _forward(
    name: str, x: torch.Tensor, window: Window, largest: bool, placed: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    x = _checked(name, x)
    n, c, h, w = x.shape
    if not n or not c:
        return x.new_empty((n, c, window.of(h, 0), window.of(w, 1))), x
    last = is_channels_last(x)
    shape = (n, c, window.of(h, 0), window.of(w, 1))
    y = _like(x, shape, x.dtype)
    places = _like(x, shape, torch.uint8) if placed else y
    sizes = (h, w, *shape[2:], c if last else 1)
    constants = (("MAX", largest), ("PLACES", placed), ("COUNTED", window.counted))
    variants = space(pool_windows, window, sizes, constants)
    key = (n, c, *sizes, x.dtype, window, constants)
    launch(tuner.pick(key, variants, launch, sizes, x, y, places, uncopied=(x,)), sizes, x, y, places)
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


def _backward(
    name: str, dy: torch.Tensor, places: torch.Tensor | None, shape: Sequence[int], window: Window
) -> torch.Tensor:
    dy = _checked(name, dy)
    n, c, h, w = shape
    wanted = (n, c, window.of(h, 0), window.of(w, 1))
    if dy.shape != wanted:
        raise ValueError(f"dy has shape {[*dy.shape]}, the windows of {[*shape]} {[*wanted]}")
    dx = _like(dy, shape, dy.dtype)
    if not dx.numel():
        return dx
    _checked(name, dx)
    at = dy
    if places is not None:
        if places.shape != dy.shape or places.dtype != torch.uint8:
            raise ValueError(f"places are {places.dtype}{[*places.shape]}, not u8{[*wanted]}")
        at = _like(dy, wanted, torch.uint8).copy_(places) if places.stride() != dy.stride() else places
    sizes = (h, w, *wanted[2:], c if is_channels_last(dy) else 1)
    constants = (("MAX", places is not None), ("COUNTED", window.counted))
    variants = space(pool_gather, window, sizes, constants)
    key = (n, c, *sizes, dy.dtype, window, constants)
    variant = backward_tuner.pick(key, variants, launch, sizes, dy, at, dx, uncopied=(dy, at))
    launch(variant, sizes, dy, at, dx)
    return dx


def max_pool_backward(dy: torch.Tensor, places: torch.Tensor, shape: Sequence[int], window: Window) -> torch.Tensor:
    """The gradient of max_pool's x, of this shape, laid out like dy. Raises as max_pool does."""
    return _backward("max_pool_backward", dy, places, shape, window)


def average_pool_backward(dy: torch.Tensor, shape: Sequence[int], window: Window) -> torch.Tensor:
    """The gradient of average_pool's x, of this shape, laid out like dy. Raises as average_pool does."""
    if window.dilation != (1, 1):
        raise ValueError("average_pool takes no dilation")
    return _backward("average_pool_backward", dy, None, shape, window)


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


def _placed(x: torch.Tensor, c: Case) -> torch.Tensor:
    return x.to(memory_format=torch.channels_last) if c.get("last") else x


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, Window]:
    """Arguments to try it on."""
    return _placed(make.normal(c["shape"], c.torch_dtype), c), window_of(c)


def _gradient(c: Case, make: Maker) -> torch.Tensor:
    window, (n, channels, h, w) = window_of(c), c["shape"]
    return _placed(make.normal((n, channels, window.of(h, 0), window.of(w, 1)), c.torch_dtype), c)


def max_backward_inputs(c: Case, make: Maker) -> tuple[object, ...]:
    """Arguments to try it on; places by torch's indices."""
    x, window = inputs(c, make)
    dy = _gradient(c, make)
    _, indices = F.max_pool2d(
        x.float(), window.size, window.strides, window.padding, window.dilation, window.ceil, return_indices=True
    )
    height = torch.arange(dy.shape[2], device=dy.device)[:, None] * window.strides[0] - window.padding[0]
    width = torch.arange(dy.shape[3], device=dy.device)[None, :] * window.strides[1] - window.padding[1]
    row = (indices // x.shape[3] - height) // window.dilation[0]
    places = row * window.size[1] + (indices % x.shape[3] - width) // window.dilation[1]
    return dy, _placed(places.to(torch.uint8), c), c["shape"], window


def average_backward_inputs(c: Case, make: Maker) -> tuple[object, ...]:
    """Arguments to try it on."""
    return _gradient(c, make), c["shape"], window_of(c)


def _cost(c: Case, each: int = 0) -> Cost:
    """x and y once; each: bytes of a place."""
    window, (n, channels, h, w) = window_of(c), c["shape"]
    results = window.of(h, 0) * window.of(w, 1)
    return Cost(bytes=n * channels * (h * w * c.itemsize + results * (c.itemsize + each)))


SIGNATURE = {**dict.fromkeys(("x_ptr", "y_ptr", "dy_ptr", "dx_ptr"), "*bf16"), "place_ptr": "*u8",
             **dict.fromkeys(("total", "H", "W", "OH", "OW", "INNER", *MAGIC), "i32")}  # fmt: skip


def _build(kernel: object, largest: bool, window: Window, inner: int) -> Build:
    """Of one size, which is no constant; but an argument of 1 is, as Triton has it."""
    constants = (("MAX", largest), ("PLACES", largest), ("COUNTED", True))
    constants = constants if kernel is pool_windows else (constants[0], constants[2])
    chosen = space(kernel, window, (112, 112, window.of(112, 0), window.of(112, 1), inner), constants)[2]
    if inner == 1:
        chosen = dataclasses.replace(chosen, constants=(*chosen.constants, ("INNER", 1)))
    names = [n for n in kernel.arg_names if n in SIGNATURE and n not in dict(chosen.constants)]  # type: ignore[attr-defined]
    return Build(chosen, {n: SIGNATURE[n] for n in names}, ("total",))


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
        name="max_pool", run=max_pool, reference=reference_max, inputs=inputs, cost=_cost, beyond=BEYOND,
        checks=(DILATED, *CHECKS), cases=CASES, forms=(*FORMS, "special"),
        builds=(_build(pool_windows, True, THREE, 1), _build(pool_windows, True, WIDE, 64)),
    ),
    Operation(
        name="average_pool", run=average_pool, reference=reference_average, inputs=inputs, cost=_cost, beyond=BEYOND,
        checks=(*UNCOUNTED, *CHECKS), cases=CASES, forms=(*FORMS, "special"),
        builds=(_build(pool_windows, False, THREE, 1), _build(pool_windows, False, WIDE, 64)),
    ),
    Operation(
        name="max_pool_backward", run=max_pool_backward, reference=reference_max_backward, inputs=max_backward_inputs,
        cost=lambda c: _cost(c, 1), checks=(DILATED, *CHECKS), cases=CASES, forms=FORMS,
        builds=(_build(pool_gather, True, THREE, 1), _build(pool_gather, True, WIDE, 64)),
    ),
    Operation(
        name="average_pool_backward", run=average_pool_backward, reference=reference_average_backward,
        inputs=average_backward_inputs, cost=_cost, checks=(*UNCOUNTED, *CHECKS), cases=CASES, forms=FORMS,
        builds=(_build(pool_gather, False, THREE, 1), _build(pool_gather, False, WIDE, 64)),
    ),
)  # fmt: skip
