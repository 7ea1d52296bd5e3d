"""Cross entropy of a linear layer: of the rows of X [T, H] @ W [V, H]^T for classes [T], without the logits [T, V].

The loss alone: programs walk over strips of tiles of their rows, as in `matmul_logsumexp`, and keep the largest logit,
the sum of exponentials and the target's logit; a second kernel joins the strips. Traffic: X, W and targets once, a few
numbers a row written; 2 T H V floating-point operations, which bind it: T V / (T + V) of them a byte. (Tiles of 128 x
128 read by pointers spill some bytes on sm_80 and sm_120, none on sm_90.)

With both gradients, for training: the logits' gradient is needed twice, for dX = d @ W and dW = d^T @ X, and to make it
in tiles would cost the logits a second time, 8 T H V operations and not 6. So a piece of rows at a time has its logits
written, by the library's product, which nothing after it slows; one kernel makes losses and gradient of them in place,
while a row is in L2 (`cross_entropy`); and two more products read it. A piece is as many rows as PIECE_BYTES hold: not
all logits, but enough rows that a product reads W seldom. dW is added to, and rounded, after each piece.
torch.compile has the logits written whole, and reads and writes them for every step.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.ops.matmul.gemm import build_of, checked, descriptor, product, strips, tma_takes
from kernels.ops.matmul.matmul_logsumexp import finite
from kernels.ops.softmax.cross_entropy import IGNORE, choose_over_rows, one_over_counted, over_rows
from kernels.ops.softmax.cross_entropy import OPERATIONS as LOSSES
from kernels.spec import Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

tuner = Tuner("linear_cross_entropy")
REDUCTIONS = ("mean", "sum", "none")
PIECE_BYTES = 1 << 30
"""Of logits that are there at once, with gradients: a piece of 4,096 rows and 128,256 classes in bf16 has this size."""
WHOLE_TILES = 256
"""Rows of a piece are a multiple of this, so that no tile of a product is cut."""


def reference(
    x: torch.Tensor, w: torch.Tensor, target: torch.Tensor, ignore_index: int = IGNORE, reduction: str = "mean"
) -> torch.Tensor:
    """The loss as training computes it: logits in the dtype, the loss of them in f32."""
    logits = wide(x @ w.T)
    return torch.nn.functional.cross_entropy(logits, target, ignore_index=ignore_index, reduction=reduction)


def reference_gradient(
    x: torch.Tensor, w: torch.Tensor, target: torch.Tensor, ignore_index: int = IGNORE, reduction: str = "mean"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The loss and the gradients of X and W as autograd has them."""
    a, b = (t.detach().requires_grad_() for t in (x, w))
    loss = reference(a, b, target, ignore_index, reduction)
    dx, dw = torch.autograd.grad(loss, (a, b))
    return loss.detach(), dx, dw


@triton.jit
def linear_cross_entropy_kernel(
    a, b, target, tops, sums, hits, M, N, K, a_row, a_col, b_row, b_col, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, STRIP: tl.constexpr, FLATTEN: tl.constexpr, TMA: tl.constexpr, A_T: tl.constexpr,
    B_T: tl.constexpr, EVEN_K: tl.constexpr, WHOLE_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """STRIP tiles of BM rows: their largest logit and sum of exponentials, and the target's logit if it is there."""
    down = tl.cdiv(M, BM)
    # Programs that run together read the same rows of W.
    row, strip = tl.program_id(0) % down * BM, tl.program_id(0) // down
    rows = row + tl.arange(0, BM)
    wanted = tl.load(target + rows, mask=rows < M, other=-1).to(tl.int32)
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    hit = tl.zeros((BM,), tl.float32)
    first = strip * STRIP * BN
    last = tl.minimum(first + STRIP * BN, N)
    for col in tl.range(first, last, BN, flatten=FLATTEN):
        x = product(
            a, b, row, col, M, N, K, a_row, a_col, b_row, b_col, BM, BN, BK, TMA, A_T, B_T, EVEN_K, PRECISION
        )  # fmt: skip
        cols = col + tl.arange(0, BN)
        hit += tl.sum(tl.where(cols[None, :] == wanted[:, None], x, 0.0), 1)
        if not WHOLE_N:
            x = tl.where(cols[None, :] < N, x, float("-inf"))
        larger = tl.maximum(top, tl.max(x, 1))
        at = finite(larger)
        grown = tl.exp2((top - at) * 1.4426950408889634)
        total = total * grown + tl.sum(tl.exp2((x - at[:, None]) * 1.4426950408889634), 1)
        top = larger
    into = strip.to(tl.int64) * M + rows
    tl.store(tops + into, top, mask=rows < M)
    tl.store(sums + into, total, mask=rows < M)
    tl.store(hits + rows, hit, mask=(rows < M) & (wanted >= first) & (wanted < last))


@triton.jit
def join_losses(tops, sums, hits, target, losses, M, N, strips, ignore, BLOCK: tl.constexpr):
    """losses [M] of tops and sums [strips, M]: 0 where ignored, NaN where the target is no class."""
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
        grown = tl.exp2(tl.minimum(mine - relative, 0.0) * 1.4426950408889634)
        total += tl.load(sums + at, mask=inside, other=0.0) * grown
        at += M
    wanted = tl.load(target + rows, mask=inside, other=ignore)
    valid = (wanted >= 0) & (wanted < N)
    hit = tl.load(hits + rows, mask=inside & valid, other=0.0)
    # The large parts cancel first: a loss near 0 keeps its digits.
    loss = tl.where(valid, (relative - hit) + tl.log(total), float("nan"))
    tl.store(losses + rows, tl.where(wanted == ignore, 0.0, loss), mask=inside)


def space(x: torch.Tensor, w: torch.Tensor, tma: bool, precision: str = "ieee") -> list[Variant]:
    """Variants worth timing for these operands, the likeliest first."""
    return strips(linear_cross_entropy_kernel, x, w.T, tma, precision, ())


def launch(
    variant: Variant, x: torch.Tensor, w: torch.Tensor, target: torch.Tensor, losses: torch.Tensor, ignore: int
) -> None:
    """Run one variant on X [T, H], W [V, H] and target [T] into losses [T] of f32."""
    (m, k), n = x.shape, w.shape[0]
    bm, bn, bk = variant["BM"], variant["BN"], variant["BK"]
    count = triton.cdiv(n, bn * variant["STRIP"])
    tops, sums = torch.empty((2, count, m), dtype=torch.float32, device=x.device)
    hits, b = torch.empty(m, dtype=torch.float32, device=x.device), w.T
    a, z = (descriptor(x, (bm, bk)), descriptor(b, (bk, bn))) if variant["TMA"] else (x, b)
    linear_cross_entropy_kernel[(triton.cdiv(m, bm) * count,)](
        a, z, target, tops, sums, hits, m, n, k, *x.stride(), *b.stride(), **variant.meta
    )
    join_losses[(triton.cdiv(m, 128),)](
        tops, sums, hits, target, losses, m, n, count, ignore, BLOCK=128, num_warps=4
    )  # fmt: skip


def _checked(
    x: torch.Tensor, w: torch.Tensor, target: torch.Tensor, reduction: str, reductions: tuple[str, ...], precision: str
) -> None:
    """Raises TypeError, ValueError."""
    if w.dim() != 2:
        raise ValueError(f"linear_cross_entropy takes W [V, H], not {[*w.shape]}")
    checked(x, w.T, precision, "linear_cross_entropy")
    if target.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"linear_cross_entropy takes targets of i64 or i32, not {target.dtype}")
    if target.shape != x.shape[:1] or target.device != x.device or not w.shape[0]:
        raise ValueError(
            f"rows {[*x.shape]} and {w.shape[0]} classes take targets {[x.shape[0]]}, not {[*target.shape]}"
        )
    if reduction not in reductions:
        raise ValueError(f"reduction is one of {', '.join(reductions)}, not {reduction!r}")


def _share(target: torch.Tensor, ignore: int, reduction: str) -> torch.Tensor:
    """What every row's loss counts: 1, or 1 / (rows that are not ignored)."""
    if reduction != "mean":
        return torch.ones(1, dtype=torch.float32, device=target.device)
    scale = torch.empty(1, dtype=torch.float32, device=target.device)
    one_over_counted[(1,)](target, scale, target.numel(), ignore, BLOCK=4096, num_warps=16)
    return scale


def linear_cross_entropy(
    x: torch.Tensor, w: torch.Tensor, target: torch.Tensor, ignore_index: int = IGNORE, reduction: str = "mean",
    precision: str = "ieee",
) -> torch.Tensor:  # fmt: skip
    """Cross entropy of X [T, H] @ W [V, H]^T, both f32, f16 or bf16 in any strides, for classes [T]: f32, no gradient.

    reduction: "mean" over the rows whose target is not ignore_index (NaN if there is none), "sum", "none" (0 where
    ignored). A target that is no class gives NaN. precision: of products of f32. Raises TypeError for other dtypes,
    ValueError for shapes that do not fit, another reduction or precision.
    """
    _checked(x, w, target, reduction, REDUCTIONS, precision)
    (m, k), n = x.shape, w.shape[0]
    target = target.contiguous()
    losses = torch.empty(m, dtype=torch.float32, device=x.device)
    if m:
        tma = k > 0 and tma_takes(x, w)
        key = (m, n, k, x.dtype, precision, tma, *(min(s, 2) for s in (*x.stride(), *w.stride())))
        variant = tuner.pick(
            key, lambda: space(x, w, tma, precision), launch, x, w, target, losses, ignore_index,
            uncopied=(x, w, target),
        )  # fmt: skip
        launch(variant, x, w, target, losses, ignore_index)
    if reduction == "none":
        return losses
    return losses.sum() * _share(target, ignore_index, reduction)[0]


def rows_of_a_piece(classes: int, itemsize: int, piece_bytes: int = PIECE_BYTES) -> int:
    """How many rows have their logits at once."""
    return max(1, piece_bytes // (classes * itemsize) // WHOLE_TILES) * WHOLE_TILES


def linear_cross_entropy_with_gradient(
    x: torch.Tensor, w: torch.Tensor, target: torch.Tensor, ignore_index: int = IGNORE, reduction: str = "mean",
    piece_bytes: int = PIECE_BYTES,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """`linear_cross_entropy`, and the gradients of X and W, of their shapes and dtypes; contiguous.

    reduction: "mean" or "sum". piece_bytes: the most of logits that is there at once. Rows that are ignored have no
    gradient. Raises the errors of `linear_cross_entropy`.
    """
    loss, dx, dw = wanted_gradients(x, w, target, (True, True), ignore_index, reduction, piece_bytes)
    assert dx is not None and dw is not None
    return loss, dx, dw


def wanted_gradients(
    x: torch.Tensor, w: torch.Tensor, target: torch.Tensor, wanted: tuple[bool, bool], ignore_index: int = IGNORE,
    reduction: str = "mean", piece_bytes: int = PIECE_BYTES,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:  # fmt: skip
    """`linear_cross_entropy_with_gradient`, with None for that of X or W which is not wanted and costs nothing."""
    _checked(x, w, target, reduction, REDUCTIONS[:2], "ieee")
    x, w, target = x.detach(), w.detach(), target.contiguous()
    (t, _), v = x.shape, w.shape[0]
    losses = torch.empty(t, dtype=torch.float32, device=x.device)
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device) if wanted[0] else None
    dw = torch.zeros(w.shape, dtype=w.dtype, device=w.device) if wanted[1] else None
    scale = _share(target, ignore_index, reduction)
    step = rows_of_a_piece(v, x.element_size(), piece_bytes)
    logits = torch.empty((min(t, step), v), dtype=x.dtype, device=x.device)
    for rows_at_once in {min(t, step), t % step} - {0}:
        # Before there are logits: a copy of them, to choose a kernel by, would be a second piece.
        part = (logits[:rows_at_once], target[:rows_at_once], losses[:rows_at_once])
        choose_over_rows(*part, part[0], scale, ignore_index, 0.0, (*part, scale))
    for first in range(0, t, step):
        piece = slice(first, min(first + step, t))
        d, rows = logits[: piece.stop - first], x[piece]
        torch.mm(rows, w.T, out=d)
        over_rows(d, target[piece], losses[piece], d, scale, ignore_index)
        if dx is not None:
            torch.mm(d, w, out=dx[piece])
        if dw is None:
            continue
        if first:
            dw.addmm_(d.T, rows)
        else:
            torch.mm(d.T, rows, out=dw)
    return losses.sum() * scale[0], dx, dw


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, str]:
    """Arguments to try it on: logits of size 2. ignored: every how manieth target is -100."""
    t, v, h = c["t"], c["v"], c["h"]
    target = make.integers(v, (t,))
    if every := c.get("ignored", 0):
        target[::every] = IGNORE
    w = make.normal((v, h), c.torch_dtype, 2 * max(h, 1) ** -0.5)
    return make.normal((t, h), c.torch_dtype), w, target, IGNORE, c.get("reduction", "mean")


def cost(c: Case) -> Cost:
    """X, W and targets once."""
    t, v, h = c["t"], c["v"], c["h"]
    return Cost((t + v) * h * c.itemsize + 8 * t, 2 * t * v * h)


def cost_with_gradient(c: Case) -> Cost:
    """X and W once, their gradients once, and three products: the logits are no output."""
    t, v, h = c["t"], c["v"], c["h"]
    return Cost(2 * (t + v) * h * c.itemsize + 8 * t, 6 * t * v * h)


X = torch.empty((8192, 4096), dtype=torch.bfloat16, device="meta")
W = torch.empty((128256, 4096), dtype=torch.bfloat16, device="meta")
OTHERS = {"target": "*i64", "tops": "*fp32", "sums": "*fp32", "hits": "*fp32"}
CHECKS = (
    *(case(d, t=t, h=h, v=v) for d in ("f32", "f16") for t, h, v in ((1, 1, 1), (5, 40, 300), (33, 20, 70))),
    case("f16", t=70, h=64, v=256, ignored=3), case("f32", t=20, h=33, v=130, reduction="sum"),
)  # fmt: skip
MODELS = (
    case("bf16", t=8192, h=4096, v=128256), case("bf16", t=8192, h=2048, v=151936),
    case("bf16", t=16384, h=4096, v=32000),
)  # fmt: skip
"""Llama 3 of 8 billion parameters, Qwen 3 of 1.7, Llama 2 of 7."""
OPERATIONS = (
    Operation(
        name="linear_cross_entropy", run=linear_cross_entropy, reference=reference, inputs=inputs, cost=cost,
        beyond=case("bf16", t=8_400_000, h=256, v=64, reduction="none"),
        checks=(
            *CHECKS, case("f16", t=0, h=4, v=5, reduction="none"), case("f32", t=3, h=0, v=9, reduction="none"),
            case("f16", t=40, h=72, v=1100, ignored=4, reduction="none"), case("bf16", t=64, h=64, v=512),
            case("f16", t=70, h=64, v=264, ignored=5),
        ),
        cases=MODELS,
        builds=tuple(
            build_of(space(X, W, tma)[i], ("a", "b"), None, OTHERS, (), True)
            for tma, i in ((True, 0), (True, 2), (False, 2))
        ),
        wrong_interpreted=("bf16",),
    ),
    Operation(
        name="linear_cross_entropy_with_gradient", run=linear_cross_entropy_with_gradient, reference=reference_gradient,
        inputs=inputs, cost=cost_with_gradient, beyond=None,
        checks=(*CHECKS, case("bf16", t=40, h=64, v=300), case("bf16", t=30, h=48, v=130, ignored=3)), cases=MODELS,
        # The library's products, and the kernel of the logits that `cross_entropy` records for every target too.
        builds=LOSSES[1].builds[:1],
    ),
)  # fmt: skip
