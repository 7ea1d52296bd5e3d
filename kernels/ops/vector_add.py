"""Vector add: z = x + y. The shortest file of its kind; every other operation's has the same parts in the same order.

Traffic: x and y read once, z written once: 3 n itemsize bytes. Its limit is the copy rate, which torch's own kernel
reaches. A reference to learn from, not one to use."""

import torch
import triton
import triton.language as tl

from kernels.ops.shared.rows import DTYPES
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    return x + y


@triton.jit
def vector_add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """BLOCK elements a program."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # from 2^31 elements on, 32 bits are too few
    x, y = tl.load(x_ptr + at, mask=at < n), tl.load(y_ptr + at, mask=at < n)
    tl.store(z_ptr + at, x.to(tl.float32) + y.to(tl.float32), mask=at < n)


tuner = Tuner("vector_add")
SPACE = tuple(Variant(vector_add_kernel, (("BLOCK", b),), warps) for b, warps in ((1024, 4), (2048, 4), (8192, 8)))


def launch(variant: Variant, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> None:
    """Run one variant on three contiguous tensors of one size."""
    vector_add_kernel[(triton.cdiv(z.numel(), variant["BLOCK"]),)](x, y, z, z.numel(), **variant.meta)


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y of one shape (else ValueError), both f32, f16 or bf16 (else TypeError); strided ones are copied."""
    if x.dtype not in DTYPES or x.dtype != y.dtype:
        raise TypeError(f"vector_add takes two of f32, f16 or bf16, not {x.dtype} and {y.dtype}")
    if x.shape != y.shape:
        raise ValueError(f"vector_add takes one shape, not {[*x.shape]} and {[*y.shape]}")
    x, y = x.contiguous(), y.contiguous()
    if (z := torch.empty_like(x)).numel():
        launch(tuner.pick((z.dtype, z.numel()), SPACE, launch, x, y, z), x, y, z)
    return z


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor]:
    """Arguments to try it on."""
    return make.normal((c["n"],), c.torch_dtype), make.normal((c["n"],), c.torch_dtype)


OPERATIONS = (Operation(
    name="vector_add", run=vector_add, reference=reference, inputs=inputs, beyond=case("bf16", n=(1 << 31) + 4099),
    cost=lambda c: Cost(bytes=3 * c["n"] * c.itemsize),
    checks=tuple(case(d, n=n) for d in ("f32", "f16", "bf16") for n in (0, 1, 1000, 8192, 100_003)),
    cases=(case("bf16", n=1 << 28), case("f32", n=1 << 27)),
    builds=(Build(SPACE[-1], {**dict.fromkeys(("x_ptr", "y_ptr", "z_ptr"), "*bf16"), "n": "i32"}, ("n",)),),
),)  # fmt: skip
