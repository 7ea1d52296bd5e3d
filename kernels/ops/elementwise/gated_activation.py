"""SwiGLU and GeGLU: y = activation(a) * b, and the gradients of both factors.

Reference: the same line in PyTorch. Traffic forward: a and b read once, y written once, 3 n itemsize bytes; backward:
dy, a and b read once, da and db written once, 5 n itemsize bytes, the activation computed again instead of kept. The
copy rate is the limit of both, and one kernel of torch.compile reaches it forward. Two tensors, or the halves of the
last axis of one: what a projection to both at once gives is read where it lies.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.ops.shared.activations import BACKWARD, PLAIN, activation, activation_and_slope, known
from kernels.ops.shared.rows import DTYPES, rows_of
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant

tuner = Tuner("gated_activation")


def reference(a: torch.Tensor, b: torch.Tensor | None, activation: str = "silu") -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    gate, value = a.chunk(2, -1) if b is None else (a, b)
    return PLAIN[activation](gate) * value


def backward_reference(
    dy: torch.Tensor, a: torch.Tensor, b: torch.Tensor, activation: str = "silu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """What autograd computes of it."""
    return BACKWARD[activation](dy * b, a), dy * PLAIN[activation](a)


@triton.jit
def gated_forward(
    a_ptr, b_ptr, y_ptr, columns, a_stride, b_stride, y_stride, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """BLOCK elements of one row a program. WHOLE: rows are whole blocks."""
    blocks = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a_ptr += row * a_stride
    b_ptr += row * b_stride
    y_ptr += row * y_stride
    if WHOLE:
        a = tl.load(a_ptr + col)
        b = tl.load(b_ptr + col)
        tl.store(y_ptr + col, activation(a.to(tl.float32), ACTIVATION) * b.to(tl.float32))
    else:
        a = tl.load(a_ptr + col, mask=col < columns, other=0.0)
        b = tl.load(b_ptr + col, mask=col < columns, other=0.0)
        tl.store(y_ptr + col, activation(a.to(tl.float32), ACTIVATION) * b.to(tl.float32), mask=col < columns)


@triton.jit
def gated_backward(
    dy_ptr, a_ptr, b_ptr, da_ptr, db_ptr, columns, dy_stride, a_stride, b_stride, da_stride, db_stride,
    ACTIVATION: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Both gradients of BLOCK elements of one row a program. WHOLE: rows are whole blocks."""
    blocks = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = col < columns
    if WHOLE:
        dy = tl.load(dy_ptr + row * dy_stride + col).to(tl.float32)
        a = tl.load(a_ptr + row * a_stride + col).to(tl.float32)
        b = tl.load(b_ptr + row * b_stride + col).to(tl.float32)
    else:
        dy = tl.load(dy_ptr + row * dy_stride + col, mask=inside, other=0.0).to(tl.float32)
        a = tl.load(a_ptr + row * a_stride + col, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + row * b_stride + col, mask=inside, other=0.0).to(tl.float32)
    value, slope = activation_and_slope(a, ACTIVATION)
    da = dy * b * slope
    if ACTIVATION == "relu":
        da = tl.where(a <= 0, 0.0, dy * b)  # where the slope is 0, an infinite gradient counts for nothing
    if WHOLE:
        tl.store(da_ptr + row * da_stride + col, da)
        tl.store(db_ptr + row * db_stride + col, dy * value)
    else:
        tl.store(da_ptr + row * da_stride + col, da, mask=inside)
        tl.store(db_ptr + row * db_stride + col, dy * value, mask=inside)


BLOCKS = ((1024, 4), (2048, 4), (4096, 8), (4096, 4), (8192, 8), (512, 2))
"""Elements and warps of a program: 8 to 32 elements a thread and tensor."""


def space(kernel: object, columns: int, activation: str) -> list[Variant]:
    """Variants worth timing for rows of this length."""
    variants = []
    for width, warps in BLOCKS:
        block = min(width, triton.next_power_of_2(columns))
        constants = (("ACTIVATION", activation), ("BLOCK", block), ("WHOLE", columns % block == 0))
        variants.append(Variant(kernel, constants, warps, tuned=("BLOCK",)))
    return list(dict.fromkeys(variants))


def launch(variant: Variant, *tensors: torch.Tensor) -> None:
    """Run one variant on inputs, then outputs, of one shape [rows, N]; rows contiguous, strides as they are."""
    rows, columns = tensors[0].shape
    strides = [t.stride(0) for t in tensors]
    variant.kernel[(rows * triton.cdiv(columns, variant["BLOCK"]),)](*tensors, columns, *strides, **variant.meta)


def _run(kernel: object, activation: str, *tensors: torch.Tensor) -> None:
    """Pick and launch; tensors that are all contiguous are one long row."""
    if all(t.is_contiguous() for t in tensors):
        tensors = tuple(t.view(1, -1) for t in tensors)
    else:
        tensors = tuple(rows_of(t) for t in tensors)
    rows, columns = tensors[0].shape
    key = (kernel is gated_forward, rows, columns, tensors[0].dtype, activation, *(t.stride(0) for t in tensors))
    launch(tuner.pick(key, lambda: space(kernel, columns, activation), launch, *tensors), *tensors)


def _checked(activation: str, *tensors: torch.Tensor) -> None:
    known(activation)
    if any(t.dtype not in DTYPES or t.dtype != tensors[0].dtype for t in tensors):
        raise TypeError(f"all are f32, f16 or bf16 alike, not {', '.join(str(t.dtype) for t in tensors)}")
    if tensors[0].dim() == 0 or any(t.shape != tensors[0].shape for t in tensors):
        raise ValueError(f"all have one shape [..., N], not {', '.join(str([*t.shape]) for t in tensors)}")


def gated_activation(a: torch.Tensor, b: torch.Tensor | None = None, activation: str = "silu") -> torch.Tensor:
    """activation(a) * b for a, b [..., N] alike in f32, f16 or bf16; computed in f32, the result is contiguous.

    b None: the last axis of a holds both, a first; the result has half of it. activation: silu (SwiGLU), gelu or
    gelu_tanh (GeGLU), relu. Tensors are copied where their rows are not contiguous or not one stride apart. Raises
    TypeError for other dtypes, ValueError for other shapes and activations.
    """
    if b is None:
        if a.dim() == 0 or a.shape[-1] % 2:
            raise ValueError(f"the last axis of {[*a.shape]} has no halves")
        a, b = a.chunk(2, -1)
    _checked(activation, a, b)
    y = torch.empty(a.shape, dtype=a.dtype, device=a.device)
    if y.numel():
        _run(gated_forward, activation, a, b, y)
    return y


def gated_activation_backward(
    dy: torch.Tensor, a: torch.Tensor, b: torch.Tensor, activation: str = "silu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of a and b, where dy is that of activation(a) * b; shapes, dtypes and errors as forward.

    The two are the halves of one tensor [..., 2 N] where a and b are (as `chunk` gives them), so that the gradient of
    the projection to both needs no copy; else two contiguous ones.
    """
    _checked(activation, dy, a, b)
    halves = a.shape[-1] and b.data_ptr() - a.data_ptr() == a.shape[-1] * a.element_size() and not a.is_contiguous()
    if halves and a.stride() == b.stride():
        both = torch.empty((*a.shape[:-1], 2 * a.shape[-1]), dtype=a.dtype, device=a.device)
        da, db = both.chunk(2, -1)
    else:
        da, db = (torch.empty(a.shape, dtype=a.dtype, device=a.device) for _ in range(2))
    if dy.numel():
        _run(gated_backward, activation, dy, a, b, da, db)
    return da, db


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor | None, str]:
    """Arguments to try it on. packed: both factors in one tensor."""
    shape, activation = (c["rows"], c["columns"]), c.get("activation", "silu")
    if c.get("packed"):
        return make.normal((shape[0], 2 * shape[1]), c.torch_dtype), None, activation
    return make.normal(shape, c.torch_dtype), make.normal(shape, c.torch_dtype), activation


def backward_inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, str]:
    """Arguments to try the backward on; packed: a and b are the halves of one tensor."""
    dy = make.normal((c["rows"], c["columns"]), c.torch_dtype)
    a, b, activation = inputs(c, make)
    a, b = a.chunk(2, -1) if b is None else (a, b)
    return dy, a, b, activation


SIZES = ((0, 8), (1, 1), (3, 1000), (7, 1024), (2, 5001))
CHECKS = (
    *(case(d, rows=r, columns=n) for d in ("f32", "f16", "bf16") for r, n in SIZES),
    *(case("f32", rows=5, columns=300, activation=a) for a in ("gelu", "gelu_tanh", "relu")),
    case("bf16", rows=5, columns=129, packed=True),
    case("bf16", rows=6, columns=512, activation="gelu_tanh", packed=True),
    case("f16", rows=9, columns=96, activation="gelu"),
    case("f32", rows=9, columns=96),
)
CASES = (
    case("bf16", rows=3072, columns=12288),
    case("bf16", rows=16384, columns=14336, activation="gelu_tanh"),
    case("bf16", rows=16384, columns=14336, packed=True),
)
FACTORS = {"a_ptr": "*bf16", "b_ptr": "*bf16"}
FORWARD = {**FACTORS, "y_ptr": "*bf16", "columns": "i32", "a_stride": "i32", "b_stride": "i32", "y_stride": "i32"}
RETURNED = {
    "dy_ptr": "*bf16", **FACTORS, "da_ptr": "*bf16", "db_ptr": "*bf16", "columns": "i32", "dy_stride": "i32",
    "a_stride": "i32", "b_stride": "i32", "da_stride": "i32", "db_stride": "i32",
}  # fmt: skip
FORMS = ("plain", "strided", "misaligned", "special")
OPERATIONS = (
    Operation(
        name="gated_activation", run=gated_activation, reference=reference, inputs=inputs,
        beyond=case("bf16", rows=150_000, columns=14336),
        cost=lambda c: Cost(bytes=3 * c["rows"] * c["columns"] * c.itemsize),
        checks=CHECKS, cases=(case("bf16", "swiglu_fwd", rows=16384, columns=14336), *CASES),
        builds=tuple(
            Build(v, FORWARD, divisible=("columns", "a_stride", "b_stride", "y_stride"))
            for v in space(gated_forward, 1 << 24, "silu")[1:2]
        ),
        forms=FORMS,
    ),
    Operation(
        name="gated_activation_backward", run=gated_activation_backward, reference=backward_reference,
        beyond=case("bf16", rows=150_000, columns=14336),
        inputs=backward_inputs, cost=lambda c: Cost(bytes=5 * c["rows"] * c["columns"] * c.itemsize),
        checks=CHECKS, cases=(case("bf16", rows=16384, columns=14336), *CASES),
        builds=tuple(
            Build(v, RETURNED, divisible=tuple(n for n, kind in RETURNED.items() if kind == "i32"))
            for v in space(gated_backward, 1 << 24, "gelu_tanh")[1:2]
        ),
        forms=FORMS,
    ),
)  # fmt: skip
