"""Depthwise convolution in two dimensions: every channel with its own k x k filter, stride 1.

Reference: F.conv2d(x, w, bias, padding=p, groups=channels). Traffic: x read once, y written once. A program walks down
a strip of rows and keeps k rows of sums, so that every input row is loaded k times, once for each shift, not k * k
times, and from DRAM once but for the k - 1 rows that neighbouring strips share.
Takes NCHW and channels_last, f32, f16 and bf16, square filters of 1 to 7, one filter a channel, any padding below k.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.ops.shared.rows import DTYPES, held_dtype
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant

MAX_K = 7

tuner = Tuner("depthwise_conv")


def reference(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, padding: int) -> torch.Tensor:
    """As torch has it."""
    return torch.nn.functional.conv2d(x, w, bias, padding=padding, groups=x.shape[1])


@triton.jit
def depthwise_planes(
    x_ptr, w_ptr, b_ptr, y_ptr, planes, C, H, W, OH, OW, n_stride, c_stride, h_stride, K: tl.constexpr,
    PAD: tl.constexpr, PLANES: tl.constexpr, BLOCK: tl.constexpr, TALL: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """NCHW: PLANES planes, BLOCK columns, TALL rows of the result a program. sums[i]: row r + i - K + 1, so far."""
    across = tl.cdiv(OW, BLOCK)
    tiles = tl.cdiv(OH, TALL) * across
    tile = tl.program_id(0) % tiles
    top = (tile // across) * TALL
    col = (tile % across) * BLOCK + tl.arange(0, BLOCK)[None, :]
    plane = (tl.program_id(0) // tiles) * PLANES + tl.arange(0, PLANES)[:, None]
    kept = (plane < planes) & (col < OW)
    # What lies outside is not stored, so that it may read anything that exists: loads need a mask for padding only.
    plane = tl.minimum(plane, planes - 1)
    col = tl.minimum(col, OW - 1)
    channel = plane % C
    x_ptr += (plane // C).to(tl.int64) * n_stride + channel.to(tl.int64) * c_stride + (col - PAD)
    y_ptr += plane.to(tl.int64) * OH * OW + col
    taps = ()
    for i in tl.static_range(K * K):
        taps = taps + (tl.load(w_ptr + channel * (K * K) + i).to(tl.float32),)  # noqa: RUF005 - tuples know only this
    bias = tl.load(b_ptr + channel).to(tl.float32) if BIAS else 0.0
    inside = ()
    for j in tl.static_range(K):
        inside = inside + ((col + (j - PAD) >= 0) & (col + (j - PAD) < W),)  # noqa: RUF005
    sums = ()
    for _ in tl.static_range(K):
        sums = sums + (tl.zeros((PLANES, BLOCK), tl.float32),)  # noqa: RUF005
    for r in tl.static_range(TALL + K - 1):
        line = top + r - PAD
        row_there = (line >= 0) & (line < H)
        line_ptr = x_ptr + tl.minimum(line, H - 1).to(tl.int64) * h_stride
        shifted = ()
        for j in tl.static_range(K):
            if PAD == 0:
                x = tl.load(line_ptr + j)
            else:
                x = tl.load(line_ptr + j, mask=inside[j] & row_there, other=0.0)
            shifted = shifted + (x.to(tl.float32),)  # noqa: RUF005
        later = ()
        for i in tl.static_range(K):
            total = sums[i]
            for j in tl.static_range(K):
                total += taps[(K - 1 - i) * K + j] * shifted[j]
            if i == 0:
                if r >= K - 1:
                    row = top + r - (K - 1)
                    tl.store(y_ptr + row.to(tl.int64) * OW, total + bias, mask=kept & (row < OH))
            else:
                later = later + (total,)  # noqa: RUF005
        sums = later + (tl.zeros((PLANES, BLOCK), tl.float32),)  # noqa: RUF005


@triton.jit
def depthwise_strips(
    x_ptr, w_ptr, b_ptr, y_ptr, lines, H, W, OH, OW, n_stride, h_stride, C: tl.constexpr, STEP: tl.constexpr,
    K: tl.constexpr, PAD: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, TALL: tl.constexpr,
    BIAS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """channels_last: BLOCK channels of COLUMNS of the lines (columns of all images), TALL rows of the result a program.

    STEP: elements from a column to the next; it and C are constants, so that the loads of a row share one address.
    w is [K * K, C]; its taps stay in registers, so that a value is loaded and widened K times, not K * K times.
    WHOLE: no channel of the tile is outside. sums[i]: row r + i - K + 1, so far.
    """
    deep = tl.cdiv(C, BLOCK)
    strips = tl.cdiv(OH, TALL)
    rest = tl.program_id(0) // deep
    top = (rest % strips) * TALL
    line = (rest // strips) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    channel = (tl.program_id(0) % deep) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = (line < lines) & (channel < C)
    image = (line // OW).to(tl.int64)
    col = line % OW
    x_ptr += image * n_stride + (col - PAD).to(tl.int64) * STEP + channel
    y_ptr += (image * OH * OW + col) * C + channel
    # As many pointers as results, so that each thread loads the taps of its own channels.
    w_ptr += tl.zeros((COLUMNS, BLOCK), tl.int32) + channel
    taps = ()
    for i in tl.static_range(K * K):
        if WHOLE:
            tap = tl.load(w_ptr + i * C)
        else:
            tap = tl.load(w_ptr + i * C, mask=there, other=0.0)
        taps = taps + (tap.to(tl.float32),)  # noqa: RUF005 - tuples know only this
    bias = tl.load(b_ptr + channel, mask=channel < C, other=0.0).to(tl.float32) if BIAS else 0.0
    inside = ()
    for j in tl.static_range(K):
        within = (line < lines) & (col + (j - PAD) >= 0) & (col + (j - PAD) < W)
        inside = inside + (within if WHOLE else within & there,)  # noqa: RUF005
    sums = ()
    for _ in tl.static_range(K):
        sums = sums + (tl.zeros((COLUMNS, BLOCK), tl.float32),)  # noqa: RUF005
    x_ptr += (top - PAD).to(tl.int64) * h_stride
    y_ptr += top.to(tl.int64) * OW * C
    for r in tl.static_range(TALL + K - 1):
        row_there = (top + r - PAD >= 0) & (top + r - PAD < H)
        shifted = ()
        for j in tl.static_range(K):
            x = tl.load(x_ptr + j * STEP, mask=inside[j] & row_there, other=0.0)
            shifted = shifted + (x.to(tl.float32),)  # noqa: RUF005
        later = ()
        for i in tl.static_range(K):
            total = sums[i]
            if (r + i >= K - 1) & (r + i < TALL + K - 1):
                for j in tl.static_range(K):
                    total += taps[(K - 1 - i) * K + j] * shifted[j]
            if i == 0:
                if r >= K - 1:
                    tl.store(y_ptr, total + bias, mask=there & (top + r - (K - 1) < OH))
                    y_ptr += OW * C
            else:
                later = later + (total,)  # noqa: RUF005
        x_ptr += h_stride
        sums = later + (tl.zeros((COLUMNS, BLOCK), tl.float32),)  # noqa: RUF005


@triton.jit
def depthwise_pixels(
    x_ptr, w_ptr, b_ptr, y_ptr, C, H, W, OH, OW, n_stride, h_stride, w_stride, K: tl.constexpr, PAD: tl.constexpr,
    PIXELS: tl.constexpr, BLOCK: tl.constexpr, BIAS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """channels_last: BLOCK channels of PIXELS results, along rows and on into the next; w is [K * K, C].

    WHOLE: no channel of the tile is outside.
    """
    deep = tl.cdiv(C, BLOCK)
    tiles = tl.cdiv(OH * OW, PIXELS) * deep
    tile = tl.program_id(0) % tiles
    image = (tl.program_id(0) // tiles).to(tl.int64)
    channel = (tile % deep) * BLOCK + tl.arange(0, BLOCK)[None, :]
    pixel = (tile // deep) * PIXELS + tl.arange(0, PIXELS)[:, None]
    there = channel < C
    col = pixel % OW - PAD
    row = pixel // OW - PAD
    x_ptr += image * n_stride + row.to(tl.int64) * h_stride + col.to(tl.int64) * w_stride + channel
    w_ptr += channel
    total = tl.zeros((PIXELS, BLOCK), tl.float32)
    for i in range(K):
        row_there = (row + i >= 0) & (row + i < H) & (pixel < OH * OW)
        for j in tl.static_range(K):
            inside = row_there & (col + j >= 0) & (col + j < W)
            if WHOLE:
                tap = tl.load(w_ptr + (i * K + j) * C)
            else:
                tap = tl.load(w_ptr + (i * K + j) * C, mask=there, other=0.0)
                inside = inside & there
            x = tl.load(x_ptr + j * w_stride, mask=inside, other=0.0)
            total += tap.to(tl.float32) * x.to(tl.float32)
        x_ptr += h_stride
    if BIAS:
        total += tl.load(b_ptr + channel, mask=there, other=0.0).to(tl.float32)
    y_ptr += (image * OH * OW + pixel) * C + channel
    tl.store(y_ptr, total, mask=there & (pixel < OH * OW))


def space_planes(height: int, width: int, k: int, padding: int, bias: bool) -> list[Variant]:
    """For a result of height x width. One element a thread: shifted loads are not aligned, and are 4 bytes each."""
    block = max(8, triton.next_power_of_2(width))
    fixed = (("K", k), ("PAD", padding), ("BIAS", bias))
    variants: list[Variant] = []
    for elements, warps in ((128, 4), (256, 8), (256, 4)):
        broad = min(block, elements)
        for tall in (16, 32) if k <= 3 else (8, 16):
            rows = min(tall, triton.next_power_of_2(height))
            constants = (*fixed, ("PLANES", elements // broad), ("BLOCK", broad), ("TALL", rows))
            variants.append(Variant(depthwise_planes, constants, warps, tuned=("PLANES", "BLOCK", "TALL")))
    return list(dict.fromkeys(variants))


def space_strips(
    images: int, height: int, width: int, channels: int, step: int, k: int, padding: int, bias: bool
) -> list[Variant]:
    """For results of height x width, channels_last; step: elements between columns of x.

    Channels a thread: 2 or 4, whose k * k taps leave it registers for sums and for loads under way.
    """
    fixed = (("C", channels), ("STEP", step), ("K", k), ("PAD", padding), ("BIAS", bias))
    variants: list[Variant] = []
    for deep, tall in ((32, 14), (32, 7), (64, 14), (16, 14)) if k > 4 else ((64, 16), (64, 8), (32, 16)):
        block = max(16, min(deep, triton.next_power_of_2(channels)))
        columns = min((256 if k > 4 else 512) // block, triton.next_power_of_2(images * width))
        constants = (
            *fixed, ("COLUMNS", columns), ("BLOCK", block), ("TALL", min(tall, height)),
            ("WHOLE", channels % block == 0),
        )  # fmt: skip
        variants.append(Variant(depthwise_strips, constants, 4, tuned=("COLUMNS", "BLOCK", "TALL")))
    return list(dict.fromkeys(variants))


def space_pixels(pixels: int, channels: int, k: int, padding: int, bias: bool, itemsize: int) -> list[Variant]:
    """For results of so many pixels, channels_last: 16 bytes of channels a thread, of 2 or 4 pixels."""
    lanes = 16 // itemsize
    variants: list[Variant] = []
    for deep, held, warps in ((8, 2, 4), (4, 4, 4)):
        block = max(16, min(deep * lanes, triton.next_power_of_2(channels)))
        count = max(1, min(32 * warps * lanes * held // block, triton.next_power_of_2(pixels)))
        constants = (
            ("K", k), ("PAD", padding), ("BIAS", bias), ("PIXELS", count), ("BLOCK", block),
            ("WHOLE", channels % block == 0),
        )  # fmt: skip
        variants.append(Variant(depthwise_pixels, constants, warps, tuned=("PIXELS", "BLOCK")))
    return list(dict.fromkeys(variants))


def launch(variant: Variant, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, y: torch.Tensor) -> None:
    """Run one variant on x [N, C, H, W] into y; w [C, k * k], or [k * k, C] for channels_last, contiguous."""
    images, channels, height, width = x.shape
    out_height, out_width = y.shape[2:]
    if variant.kernel is depthwise_planes:
        tiles = triton.cdiv(out_height, variant["TALL"]) * triton.cdiv(out_width, variant["BLOCK"])
        grid = (tiles * triton.cdiv(images * channels, variant["PLANES"]),)
        depthwise_planes[grid](
            x, w, bias, y, images * channels, channels, height, width, out_height, out_width,
            x.stride(0), x.stride(1), x.stride(2), **variant.meta,
        )  # fmt: skip
    elif variant.kernel is depthwise_strips:
        lines = images * out_width
        tiles = triton.cdiv(lines, variant["COLUMNS"]) * triton.cdiv(out_height, variant["TALL"])
        depthwise_strips[(tiles * triton.cdiv(channels, variant["BLOCK"]),)](
            x, w, bias, y, lines, height, width, out_height, out_width, x.stride(0), x.stride(2), **variant.meta
        )
    else:
        tiles = triton.cdiv(out_height * out_width, variant["PIXELS"])
        grid = (tiles * triton.cdiv(channels, variant["BLOCK"]) * images,)
        depthwise_pixels[grid](
            x, w, bias, y, channels, height, width, out_height, out_width,
            x.stride(0), x.stride(2), x.stride(3), **variant.meta,
        )  # fmt: skip


def _last(x: torch.Tensor) -> bool:
    """Channels lie side by side, and columns do not."""
    return x.stride(1) == 1 and x.shape[1] > 1 and x.stride(3) != 1


def depthwise_conv(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None, padding: int = 0
) -> torch.Tensor:
    """F.conv2d(x, w, bias, padding=padding, groups=C), of x's dtype, f32, f16 or bf16; summed in f32.

    x [N, C, H, W], contiguous columns or channels_last (then so is the result); anything else is copied. w
    [C, 1, k, k], bias [C] or None. Raises TypeError for other dtypes, ValueError for other shapes, k above 7, padding
    that is not from 0 to k - 1 and filters larger than the padded image. Stride and dilation are 1.
    """
    if x.dtype not in DTYPES or w.dtype not in DTYPES:
        raise TypeError(f"depthwise_conv takes f32, f16 or bf16, not {x.dtype} and {w.dtype}")
    if x.dim() != 4 or w.dim() != 4 or w.shape[:2] != (x.shape[1], 1) or w.shape[2] != w.shape[3]:
        raise ValueError(f"depthwise_conv takes x [N, C, H, W] and w [C, 1, k, k], not {[*x.shape]} and {[*w.shape]}")
    images, channels, height, width = x.shape
    k = w.shape[2]
    out_height, out_width = height + 2 * padding - k + 1, width + 2 * padding - k + 1
    if not (1 <= k <= MAX_K and 0 <= padding < k and out_height >= 1 and out_width >= 1):
        raise ValueError(
            f"depthwise_conv takes k up to {MAX_K} and padding below k, not {k}, {padding} on {[*x.shape]}"
        )
    if bias is not None and bias.shape != (channels,):
        raise ValueError(f"bias is [{channels}], not {[*bias.shape]}")
    if bias is not None and bias.dtype not in DTYPES:
        raise TypeError(f"depthwise_conv takes f32, f16 or bf16, not a bias of {bias.dtype}")
    last = _last(x)
    if not last and x.stride(3) != 1:
        x = x.contiguous()
    y = torch.empty(
        (images, channels, out_height, out_width), dtype=held_dtype(x.dtype), device=x.device,
        memory_format=torch.channels_last if last else torch.contiguous_format,
    )  # fmt: skip
    if y.numel():
        flat = w.reshape(channels, k * k)
        flat = flat.t().contiguous() if last else flat.contiguous()
        bias = None if bias is None else bias.contiguous()
        key = (images, channels, height, width, k, padding, x.dtype, w.dtype, x.stride(), bias is None, last)
        variant = tuner.pick(
            key,
            lambda: (
                [
                    *space_strips(images, out_height, out_width, channels, x.stride(3), k, padding, bias is not None),
                    *space_pixels(out_height * out_width, channels, k, padding, bias is not None, x.element_size()),
                ]
                if last
                else space_planes(out_height, out_width, k, padding, bias is not None)
            ),
            launch, x, flat, bias, y,
        )  # fmt: skip
        launch(variant, x, flat, bias, y)
    return y if y.dtype == x.dtype else y.to(x.dtype)


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, int]:
    """Arguments to try it on."""
    k = c["k"]
    x = make.normal((c["images"], c["channels"], c["height"], c["width"]), c.torch_dtype)
    w = make.normal((c["channels"], 1, k, k), c.torch_dtype, scale=1 / k)
    bias = make.normal((c["channels"],), c.torch_dtype) if c.get("bias") else None
    return (x.to(memory_format=torch.channels_last) if c.get("last") else x), w, bias, c["padding"]


def _cost(c: Case) -> Cost:
    pixels = c["height"] * c["width"] + (c["height"] + 2 * c["padding"] - c["k"] + 1) * (
        c["width"] + 2 * c["padding"] - c["k"] + 1
    )
    return Cost(bytes=c["images"] * c["channels"] * pixels * c.itemsize)


def _sizes(images: int, channels: int, height: int, width: int, k: int, padding: int) -> dict[str, Any]:
    return {
        "images": images, "channels": channels, "height": height, "width": width, "k": k, "padding": padding
    }  # fmt: skip


def _signature(dtype: str, names: str) -> dict[str, str]:
    return {"x_ptr": dtype, "w_ptr": dtype, "b_ptr": dtype, "y_ptr": dtype, **dict.fromkeys(names.split(), "i32")}


PLANES_SIGNATURE = _signature("*fp32", "planes C H W OH OW n_stride c_stride h_stride")
STRIPS_SIGNATURE = _signature("*bf16", "lines H W OH OW n_stride h_stride")
PIXELS_SIGNATURE = _signature("*bf16", "C H W OH OW n_stride h_stride w_stride")
OPERATIONS = (
    Operation(
        name="depthwise_conv", run=depthwise_conv, reference=reference, inputs=inputs, cost=_cost,
        beyond=case("bf16", **_sizes(130, 64, 512, 512, 3, 0)),
        checks=(
            *(case(d, **_sizes(*sizes)) for d in ("f32", "f16", "bf16")
              for sizes in ((0, 3, 5, 5, 3, 1), (1, 1, 1, 1, 1, 0), (1, 2, 3, 3, 3, 0), (1, 3, 17, 9, 3, 1))),
            case("f32", **_sizes(1, 2, 5, 130, 3, 1), bias=True),
            case("bf16", **_sizes(1, 2, 4, 5, 7, 3)),
            case("f32", **_sizes(1, 2, 4, 4, 3, 2)),
            *(case(d, **_sizes(2, 18, 7, 6, 3, 1), last=True) for d in ("f32", "f16", "bf16")),
            case("f32", **_sizes(1, 16, 5, 6, 7, 3), last=True, bias=True),
            case("f16", **_sizes(1, 5, 12, 11, 3, 0), bias=True),
        ),
        cases=(
            case("f32", region="depthwise_conv2d_k3", **_sizes(16, 64, 512, 512, 3, 0)),
            case("bf16", **_sizes(64, 96, 56, 56, 7, 3), last=True, bias=True),
            case("bf16", **_sizes(64, 384, 14, 14, 7, 3), last=True, bias=True),
        ),
        builds=(
            *(Build(v, PLANES_SIGNATURE, divisible=("C", "H", "W", "n_stride", "c_stride", "h_stride"))
              for v in space_planes(510, 510, 3, 0, False)[:2]),
            *(Build(v, STRIPS_SIGNATURE, divisible=("n_stride", "h_stride"))
              for v in space_strips(64, 56, 56, 96, 96, 7, 3, True)[:2]),
            Build(space_pixels(56 * 56, 96, 7, 3, True, 2)[1], PIXELS_SIGNATURE,
                  divisible=("C", "n_stride", "h_stride", "w_stride")),
        ),
        forms=("plain", "strided", "misaligned"),
    ),
)  # fmt: skip
