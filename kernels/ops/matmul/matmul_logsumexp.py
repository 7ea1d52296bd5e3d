"""Logsumexp over the rows of a matrix product, without the product: log(sum_j exp(scale * (A @ B)[i, j])), f32.

Traffic: A and B read once, one f32 for each row written: the logits, M N elements, never leave registers. 2 M N K
floating-point operations and M N exponentials, at 16 a clock and multiprocessor: at K = 512 an eighth of the
product's own time. Each program walks over STRIP tiles of its rows and keeps their largest value and sum (online
softmax); a second kernel joins the strips. Contrastive losses and language-model heads are this.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from kernels.ops.matmul.gemm import build_of, checked, descriptor, product, strips, tma_takes
from kernels.spec import Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

tuner = Tuner("matmul_logsumexp")


def reference(a: torch.Tensor, b: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    return torch.logsumexp(wide(a @ b) * scale, 1)


@triton.jit
def finite(x):
    """x, and 0 where it is infinite: what exponents are taken relative to."""
    return tl.where(tl.abs(x) == float("inf"), 0.0, x)


@triton.jit
def matmul_logsumexp_kernel(
    a, b, tops, sums, M, N, K, a_row, a_col, b_row, b_col, scale, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, STRIP: tl.constexpr, FLATTEN: tl.constexpr, TMA: tl.constexpr, A_T: tl.constexpr,
    B_T: tl.constexpr, EVEN_K: tl.constexpr, WHOLE_N: tl.constexpr, PRECISION: tl.constexpr, NEGATIVE: tl.constexpr,
):  # fmt: skip
    """STRIP tiles of BM rows: their largest value and sum of exponentials. scale: its size times log2(e)."""
    down = tl.cdiv(M, BM)
    # Programs that run together read the same columns of B.
    row, strip = tl.program_id(0) % down * BM, tl.program_id(0) // down
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    first = strip * STRIP * BN
    for col in tl.range(first, tl.minimum(first + STRIP * BN, N), BN, flatten=FLATTEN):
        x = product(
            a, b, row, col, M, N, K, a_row, a_col, b_row, b_col, BM, BN, BK, TMA, A_T, B_T, EVEN_K, PRECISION
        )  # fmt: skip
        if NEGATIVE:
            x = -x
        if WHOLE_N:
            larger = tl.maximum(top, tl.max(x, 1) * scale)
            at = finite(larger)
            parts = tl.exp2(x * scale - at[:, None])
        else:
            x = tl.where((col + tl.arange(0, BN))[None, :] < N, x * scale, float("-inf"))  # a scale may be 0
            larger = tl.maximum(top, tl.max(x, 1))
            at = finite(larger)
            parts = tl.exp2(x - at[:, None])
        total = total * tl.exp2(top - at) + tl.sum(parts, 1)
        top = larger
    rows = row + tl.arange(0, BM)
    into = strip.to(tl.int64) * M + rows
    tl.store(tops + into, top, mask=rows < M)
    tl.store(sums + into, total, mask=rows < M)


@triton.jit
def join_strips(tops, sums, y, M, strips, BLOCK: tl.constexpr):
    """y [M] of tops and sums [strips, M]."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < M
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    at = rows.to(tl.int64)
    for _ in range(strips):
        top = tl.maximum(top, tl.load(tops + at, mask=inside, other=float("-inf")))
        at += M
    relative = finite(top)
    total = tl.zeros((BLOCK,), tl.float32)
    at = rows.to(tl.int64)
    for _ in range(strips):
        mine = tl.load(tops + at, mask=inside, other=float("-inf"))
        # A strip of -inf alone has 0 to add, whatever the rest is relative to.
        total += tl.load(sums + at, mask=inside, other=0.0) * tl.exp2(tl.minimum(mine - relative, 0.0))
        at += M
    tl.store(y + rows, (tl.log2(total) + relative) * 0.6931471805599453, mask=inside)


def space(
    a: torch.Tensor, b: torch.Tensor, tma: bool, precision: str = "ieee", negative: bool = False
) -> list[Variant]:
    """Variants worth timing for these operands, the likeliest first."""
    return strips(matmul_logsumexp_kernel, a, b, tma, precision, (("NEGATIVE", negative),))


def launch(variant: Variant, a: torch.Tensor, b: torch.Tensor, y: torch.Tensor, scale: float) -> None:
    """Run one variant on A [M, K] and B [K, N] into y [M] of f32."""
    (m, k), n = a.shape, b.shape[1]
    bm, bn, bk = variant["BM"], variant["BN"], variant["BK"]
    count = triton.cdiv(n, bn * variant["STRIP"])
    tops, sums = torch.empty((2, count, m), dtype=torch.float32, device=a.device)
    x, z = (descriptor(a, (bm, bk)), descriptor(b, (bk, bn))) if variant["TMA"] else (a, b)
    relative = abs(scale) * math.log2(math.e)
    matmul_logsumexp_kernel[(triton.cdiv(m, bm) * count,)](
        x, z, tops, sums, m, n, k, *a.stride(), *b.stride(), relative, **variant.meta
    )
    join_strips[(triton.cdiv(m, 128),)](tops, sums, y, m, count, BLOCK=128, num_warps=4)


def matmul_logsumexp(
    a: torch.Tensor, b: torch.Tensor, scale: float = 1.0, precision: str = "ieee"
) -> torch.Tensor:  # fmt: skip
    """logsumexp over the rows of scale * (A [M, K] @ B [K, N]) as f32 [M]; f32, f16 or bf16, in any strides.

    No column: -inf. precision: of products of f32. Raises TypeError for other dtypes, ValueError for shapes that do
    not fit.
    """
    m, n, k = checked(a, b, precision, "matmul_logsumexp")
    y = torch.full((m,), -math.inf, device=a.device)
    if m == 0 or n == 0:
        return y
    tma = k > 0 and tma_takes(a, b)
    negative = math.copysign(1.0, scale) < 0
    key = (m, n, k, a.dtype, precision, tma, negative, *(min(s, 2) for s in (*a.stride(), *b.stride())))
    variant = tuner.pick(key, lambda: space(a, b, tma, precision, negative), launch, a, b, y, scale)
    launch(variant, a, b, y, scale)
    return y


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Arguments to try it on: rows against rows, logits of size `scale`."""
    m, n, k = c["m"], c["n"], c["k"]
    b = make.normal((n, k), c.torch_dtype, max(k, 1) ** -0.5).T
    return make.normal((m, k), c.torch_dtype), b, c.get("scale", 1.0)


def cost(c: Case) -> Cost:
    """A and B once, and the result."""
    m, n, k = c["m"], c["n"], c["k"]
    return Cost((m + n) * k * c.itemsize + 4 * m, 2 * m * n * k)


A = torch.empty((32768, 512), dtype=torch.bfloat16, device="meta")
BESIDE = {"tops": "*fp32", "sums": "*fp32", "scale": "fp32"}
OPERATIONS = (
    Operation(
        name="matmul_logsumexp", run=matmul_logsumexp, reference=reference, inputs=inputs, cost=cost,
        loses={
            "bf16 m=8192 k=4096 n=128256":
                "torch.compile takes 12.08 ms, this 12.46: at K = 4096 the product is all, cuBLAS's is a little "
                "faster than Triton's, and the 4 GB of logits that it writes and reads are a millisecond of twelve. "
                "Tried: tiles of 128 x 128, 128 x 256 and 256 x 128, by TMA or pointers, strips of 4 and 8 tiles "
                "(12.6 to 26 ms).",
        },
        beyond=case("bf16", m=8_400_000, k=256, n=64),
        checks=(
            *(case(d, m=m, k=k, n=n) for d in ("f32", "f16")
              for m, k, n in ((1, 1, 1), (5, 40, 300), (0, 4, 4), (3, 0, 9))),
            case("f16", m=70, k=64, n=256, scale=20.0), case("f32", m=33, k=20, n=70, scale=-3.0),
            case("bf16", m=64, k=64, n=512), case("f16", m=40, k=72, n=1100, scale=2.0),
        ),
        cases=(
            case("bf16", region="gemm_logsumexp", m=32768, k=512, n=32768, scale=20.0),
            case("bf16", m=8192, k=4096, n=128256),
        ),
        builds=tuple(
            build_of(space(A, A.T, tma)[i], beside=BESIDE, b_transposed=True)
            for tma, i in ((True, 0), (True, 2), (False, 2))
        ),
        forms=("plain", "strided", "misaligned", "special"), wrong_interpreted=("bf16",),
    ),
)  # fmt: skip
