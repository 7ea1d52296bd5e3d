"""Bias, activation and mask behind a matmul: y = activation(z + bias) * mask.

Reference: the same line in PyTorch, every step rounded to z's dtype; the kernel rounds once. Traffic: z and mask read
once, y written once, (2 itemsize + mask's itemsize) * rows * columns bytes, and the bias once a tile of rows. The copy
rate is the limit, but a near one is arithmetic: at 4.3 TB/s an H200 has 41 instructions for each element in bf16, as
many as the whole with `tl.erf` takes (sm_90, Triton 3.7.1); `activations.normal_below` makes that 25. A bool mask moves
a sixth less than one in bf16.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.ops.shared.activations import PLAIN, activation, known
from kernels.ops.shared.rows import DTYPES, rows_of
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant

tuner = Tuner("bias_activation_mask")


def reference(z: torch.Tensor, bias: torch.Tensor, mask: torch.Tensor | None, activation: str = "gelu") -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    y = PLAIN[activation](z + bias)
    return y if mask is None else y * mask


@triton.jit
def bias_activation_mask_kernel(
    z_ptr, bias_ptr, mask_ptr, y_ptr, rows, columns, z_stride, mask_stride, ACTIVATION: tl.constexpr,
    MASKED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """A tile of ROWS rows and BLOCK columns a program. WHOLE: no element of any tile is outside."""
    tiles = tl.cdiv(columns, BLOCK)
    tile = tl.program_id(0)
    row = (tile // tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = (tile % tiles) * BLOCK + tl.arange(0, BLOCK)[None, :]
    if WHOLE:
        z = tl.load(z_ptr + row * z_stride + col)
        if MASKED:
            mask = tl.load(mask_ptr + row * mask_stride + col)
        bias = tl.load(bias_ptr + col)
    else:
        inside = (row < rows) & (col < columns)
        z = tl.load(z_ptr + row * z_stride + col, mask=inside, other=0.0)
        if MASKED:
            mask = tl.load(mask_ptr + row * mask_stride + col, mask=inside, other=0)
        bias = tl.load(bias_ptr + col, mask=col < columns, other=0.0)
    y = activation(z.to(tl.float32) + bias.to(tl.float32), ACTIVATION)
    if MASKED:
        y *= mask.to(tl.float32)
    at = y_ptr + row * columns + col
    if WHOLE:
        tl.store(at, y)
    else:
        tl.store(at, y, mask=inside)


TILES = ((1, 1024, 4), (2, 1024, 4), (4, 1024, 4), (2, 2048, 8), (4, 2048, 8), (8, 512, 4))
"""Rows, columns, warps: 8 to 32 elements a thread, each of its columns the same in every row that it holds."""


def space(rows: int, columns: int, activation: str, masked: bool) -> list[Variant]:
    """Variants worth timing; tiles of narrow rows are taller instead."""
    variants = []
    for count, width, warps in TILES:
        block = min(width, triton.next_power_of_2(columns))
        count = min(count * (width // block), triton.next_power_of_2(rows))
        whole = rows % count == 0 and columns % block == 0
        follows = (("ACTIVATION", activation), ("MASKED", masked))
        constants = (*follows, ("ROWS", count), ("BLOCK", block), ("WHOLE", whole))
        variants.append(Variant(bias_activation_mask_kernel, constants, warps, tuned=("ROWS", "BLOCK")))
    return list(dict.fromkeys(variants))


def launch(variant: Variant, z: torch.Tensor, bias: torch.Tensor, mask: torch.Tensor, y: torch.Tensor) -> None:
    """Run one variant on z and mask [rows, N] with contiguous rows into a contiguous y."""
    rows, columns = z.shape
    grid = (triton.cdiv(rows, variant["ROWS"]) * triton.cdiv(columns, variant["BLOCK"]),)
    bias_activation_mask_kernel[grid](
        z, bias, mask, y, rows, columns, z.stride(0), mask.stride(0), **variant.meta
    )  # fmt: skip


def bias_activation_mask(
    z: torch.Tensor, bias: torch.Tensor, mask: torch.Tensor | None, activation: str = "gelu"
) -> torch.Tensor:
    """activation(z + bias) * mask for z [..., N] in f32, f16 or bf16; computed in f32, the result is contiguous.

    bias: [N] in z's dtype. mask: z's shape, in z's dtype or bool; None for none. activation: relu, gelu (by erf),
    gelu_tanh or silu. z and mask are copied where their rows are not contiguous or not one stride apart. Raises
    TypeError for other dtypes, ValueError for other shapes and activations.
    """
    if z.dtype not in DTYPES or bias.dtype != z.dtype:
        raise TypeError(f"z and bias are both f32, f16 or bf16, not {z.dtype} and {bias.dtype}")
    if z.dim() == 0 or bias.shape != z.shape[-1:]:
        raise ValueError(f"z has shape {[*z.shape]}, the bias {[*bias.shape]}")
    if mask is not None and mask.dtype not in (z.dtype, torch.bool):
        raise TypeError(f"the mask is {z.dtype} or bool, not {mask.dtype}")
    if mask is not None and mask.shape != z.shape:
        raise ValueError(f"z has shape {[*z.shape]}, the mask {[*mask.shape]}")
    known(activation)
    y = torch.empty(z.shape, dtype=z.dtype, device=z.device)
    if y.numel() == 0:
        return y
    flat, into = rows_of(z), y.view(-1, z.shape[-1])
    marks = flat if mask is None else rows_of(mask)
    if marks.dtype == torch.bool:
        marks = marks.view(torch.uint8)
    rows, columns = flat.shape
    key = (rows, columns, z.dtype, activation, mask is None or mask.dtype, flat.stride(0), marks.stride(0))
    made = (flat, bias.contiguous(), marks, into)
    variant = tuner.pick(key, lambda: space(rows, columns, activation, mask is not None), launch, *made)
    launch(variant, *made)
    return y


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, str]:
    """Arguments to try it on. mask: "same" (z's dtype), "bool" or "none"."""
    shape, kind = (c["rows"], c["columns"]), c.get("mask", "same")
    dtype = torch.bool if kind == "bool" else c.torch_dtype
    mask = None if kind == "none" else make.mask(0.9, shape, dtype)
    return make.normal(shape, c.torch_dtype), make.normal(shape[1:], c.torch_dtype), mask, c.get("activation", "gelu")


def cost(c: Case) -> Cost:
    """z and mask read, y written, the bias read once."""
    mask = {"same": c.itemsize, "bool": 1, "none": 0}[c.get("mask", "same")]
    return Cost(bytes=c["rows"] * c["columns"] * (2 * c.itemsize + mask) + c["columns"] * c.itemsize)


SIZES = ((0, 8), (1, 1), (1, 1000), (7, 33), (5, 4096), (3, 2500))
PAIR = {"z_ptr": "*bf16", "bias_ptr": "*bf16", "mask_ptr": "*bf16", "y_ptr": "*bf16"}
SIGNATURE = {**PAIR, "rows": "i32", "columns": "i32", "z_stride": "i32", "mask_stride": "i32"}
OPERATIONS = (
    Operation(
        name="bias_activation_mask", run=bias_activation_mask, reference=reference, inputs=inputs, cost=cost,
        beyond=case("bf16", rows=131_200, columns=16384),
        checks=(
            *(case(d, rows=r, columns=n) for d in ("f32", "f16", "bf16") for r, n in SIZES),
            *(case("bf16", rows=9, columns=520, activation=a, mask=m)
              for a, m in (("relu", "bool"), ("silu", "none"), ("gelu_tanh", "bool"))),
            case("f32", rows=9, columns=70, activation="gelu_tanh"),
            case("f32", rows=9, columns=70, activation="silu", mask="bool"),
            case("f16", rows=12, columns=48, activation="gelu"),
        ),
        cases=(
            case("bf16", "tail_bias_gelu_mask", rows=8192, columns=16384),
            case("bf16", "tail_bias_gelu_mask", rows=4096, columns=4096),
            case("bf16", "tail_bias_gelu_mask", rows=64, columns=14336),
            case("bf16", region="bias_gelu_mask", rows=8192, columns=4096),
            case("bf16", rows=8192, columns=16384, mask="bool"),
        ),
        builds=tuple(
            Build(v, SIGNATURE, divisible=("rows", "columns", "z_stride", "mask_stride"))
            for v in space(8192, 16384, "gelu", True)[2:3]
        ),
        forms=("plain", "strided", "misaligned", "special"),
    ),
)  # fmt: skip
