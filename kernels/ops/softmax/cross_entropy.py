"""Cross entropy over the last axis, class indices as targets: the loss alone, or with it the gradient of the logits.

With the gradient it is what a training step needs in one pass: largest logit and sum of exponentials of a row, its
loss, and softmax minus target, times 1 / (rows that count) for the mean, before the next row is begun.
Traffic: logits read once, gradient written once, if what does not fit into registers is still in L2 when it is read
again: a row of 128256 bf16 is 256 KB, 33 MB for 132 programs. Rows that are ignored are not read at all.
Takes f32, f16, bf16 logits; the loss is f32, the gradient like the logits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kernels.ops.shared.pairs import (
    WORDS,
    chunks_of,
    exp_of,
    high_half,
    kept,
    low_half,
    lowest_pair,
    pair_of,
    pairs_at,
    registers,
    rounded,
    store_pairs,
)
from kernels.ops.shared.rows import DTYPES, HELD_PACKED, paired, rows_of
from kernels.ops.softmax.cross_entropy_backward import BUILD as SCALED
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

tuner = Tuner("cross_entropy")
REDUCTIONS = ("mean", "sum", "none")
IGNORE = -100
"""torch's own default of the target that does not count."""


def reference(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int = IGNORE, label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> torch.Tensor:  # fmt: skip
    """The loss as torch has it, in f32 as training computes it."""
    return torch.nn.functional.cross_entropy(
        wide(logits), target, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction
    )


def reference_gradient(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int = IGNORE, label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The loss and its gradient as autograd has them."""
    leaf = logits.detach().requires_grad_()
    loss = reference(leaf, target, ignore_index, label_smoothing, reduction)
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), gradient


@triton.jit
def one_over_counted(target_ptr, scale_ptr, rows, ignore, BLOCK: tl.constexpr):
    """1 / (number of targets that are not ignored); one program."""
    counted = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, rows, BLOCK):
        at = start + tl.arange(0, BLOCK)
        target = tl.load(target_ptr + at, mask=at < rows, other=ignore)
        counted += (target != ignore).to(tl.int32)
    tl.store(scale_ptr, 1.0 / tl.sum(counted, 0).to(tl.float32))


@triton.jit
def _loss(largest, full, hit, mean, smoothing, SMOOTH: tl.constexpr):
    """From largest logit, sum of exponentials, the target's logit and the mean of all; large parts cancel first."""
    loss = (largest - hit) + tl.log(full)
    if SMOOTH:
        loss = (1.0 - smoothing) * loss + smoothing * ((largest - mean) + tl.log(full))
    return loss


@triton.jit
def cross_entropy_packed(
    x_ptr, target_ptr, loss_ptr, d_ptr, scale_ptr, x_stride, d_stride, ignore, smoothing, zero, PAIRS: tl.constexpr,
    BLOCK: tl.constexpr, HELD: tl.constexpr, DTYPE: tl.constexpr, UNROLL: tl.constexpr, STAGES: tl.constexpr,
    GRADIENT: tl.constexpr, SMOOTH: tl.constexpr,
):  # fmt: skip
    """One row a program: HELD pieces of BLOCK pairs in registers, the rest read twice; strides in pairs."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    d_ptr += row * d_stride
    target = tl.load(target_ptr + row)
    if target == ignore:
        tl.store(loss_ptr + row, 0.0)
        if GRADIENT:
            for start in range(0, PAIRS, BLOCK):
                store_pairs(d_ptr, start, tl.zeros((BLOCK,), tl.int32), BLOCK, PAIRS, False)
    else:
        REST: tl.constexpr = HELD * BLOCK
        STEP: tl.constexpr = UNROLL * BLOCK
        STEPS: tl.constexpr = (PAIRS - REST + STEP - 1) // STEP if PAIRS > REST else 0
        EVEN: tl.constexpr = (PAIRS - REST) % STEP == 0
        nothing = lowest_pair(DTYPE)
        # The target's own pair, as a tensor of one: pairs are packed in tensors only. NaN where there is no such class.
        valid = (target >= 0) & (target < 2 * PAIRS)
        at_hit = target // 2 + tl.arange(0, 1)
        odd = target % 2 == 1
        hit_pair = tl.load(x_ptr + at_hit, mask=valid, other=0)
        hit_low, hit_high = low_half(hit_pair, DTYPE), high_half(hit_pair, DTYPE)
        hit = tl.where(valid, tl.sum(tl.where(odd, hit_high, hit_low), 0), float("nan"))
        pieces = ()
        for i in tl.static_range(HELD):
            piece = pairs_at(x_ptr, i * BLOCK, BLOCK, PAIRS, nothing, (i + 1) * BLOCK <= PAIRS, "evict_first")
            pieces = pieces + (piece,)  # noqa: RUF005 - Triton's tuples know only this
        top = tl.full((BLOCK,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)
        plain = tl.zeros((BLOCK,), tl.float32)
        for step in tl.range(0, STEPS, num_stages=STAGES):
            read = ()
            for i in tl.static_range(UNROLL):
                start = REST + step * STEP + i * BLOCK
                piece = pairs_at(x_ptr, start, BLOCK, PAIRS, nothing, EVEN, "evict_last")
                read = read + (piece,)  # noqa: RUF005
            larger = top
            for i in tl.static_range(UNROLL):
                larger = tl.maximum(larger, tl.maximum(low_half(read[i], DTYPE), high_half(read[i], DTYPE)))
            shift = tl.where(larger == float("-inf"), 0.0, larger)  # a lane that has seen nothing stays at 0
            total = total * exp_of(top - shift)
            for i in tl.static_range(UNROLL):
                low, high = low_half(read[i], DTYPE), high_half(read[i], DTYPE)
                total += exp_of(low - shift) + exp_of(high - shift)
                if SMOOTH:
                    at = REST + step * STEP + i * BLOCK + tl.arange(0, BLOCK)
                    plain += tl.where(at < PAIRS, low + high, 0.0)
            top = larger
        most = top
        for i in tl.static_range(HELD):
            low, high = low_half(pieces[i], DTYPE), high_half(pieces[i], DTYPE)
            most = tl.maximum(most, tl.maximum(low, high))
            if SMOOTH:
                plain += tl.where(i * BLOCK + tl.arange(0, BLOCK) < PAIRS, low + high, 0.0)
        largest = tl.max(most, 0)
        # A lane of -inf alone adds 0 * exp(-inf); one that saw NaN has it in its sum, not in its largest value.
        total = total * exp_of(top - largest)
        for i in tl.static_range(HELD):
            x = kept(pieces[i], largest, zero)
            total += exp_of(low_half(x, DTYPE) - largest) + exp_of(high_half(x, DTYPE) - largest)
        full = tl.sum(total, 0)
        mean = tl.sum(plain, 0) / (2 * PAIRS)
        tl.store(loss_ptr + row, _loss(largest, full, hit, mean, smoothing, SMOOTH))
        if GRADIENT:
            once = tl.load(scale_ptr)
            scale = once / full
            # Without smoothing `less` is 0: the compiler sees it and leaves the subtraction out.
            less = smoothing / (2 * PAIRS) * once if SMOOTH else 0.0
            for i in tl.static_range(HELD):
                x = kept(pieces[i], full, zero)
                low = exp_of(low_half(x, DTYPE) - largest) * scale - less
                high = exp_of(high_half(x, DTYPE) - largest) * scale - less
                store_pairs(d_ptr, i * BLOCK, pair_of(low, high, DTYPE), BLOCK, PAIRS, (i + 1) * BLOCK <= PAIRS)
            for back in tl.range(0, STEPS, num_stages=STAGES):
                for i in tl.static_range(UNROLL):
                    start = REST + (STEPS - 1 - back) * STEP + i * BLOCK
                    x = pairs_at(x_ptr, start, BLOCK, PAIRS, nothing, EVEN, "evict_first")
                    low = exp_of(low_half(x, DTYPE) - largest) * scale - less
                    high = exp_of(high_half(x, DTYPE) - largest) * scale - less
                    store_pairs(d_ptr, start, pair_of(low, high, DTYPE), BLOCK, PAIRS, EVEN)
            tl.debug_barrier()  # the target's pair is written again, by whichever thread, after all others
            own = (1.0 - smoothing) * once if SMOOTH else once
            low = exp_of(hit_low - largest) * scale - less - tl.where(odd, 0.0, own)
            high = exp_of(hit_high - largest) * scale - less - tl.where(odd, own, 0.0)
            tl.store(d_ptr + at_hit, pair_of(low, high, DTYPE), mask=valid, eviction_policy="evict_first")


@triton.jit
def cross_entropy_loop(
    x_ptr, target_ptr, loss_ptr, d_ptr, scale_ptr, x_stride, d_stride, ignore, smoothing, N: tl.constexpr,
    BLOCK: tl.constexpr, LANE: tl.constexpr, STAGES: tl.constexpr, GRADIENT: tl.constexpr, SMOOTH: tl.constexpr,
):  # fmt: skip
    """One row a program in two walks, the second from the end. LANE neighbours share one largest value."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    d_ptr += row * d_stride
    target = tl.load(target_ptr + row)
    col = tl.arange(0, BLOCK // LANE)[:, None] * LANE + tl.arange(0, LANE)[None, :]
    STEPS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    if target == ignore:
        tl.store(loss_ptr + row, 0.0)
        if GRADIENT:
            for step in range(STEPS):
                tl.store(d_ptr + step * BLOCK + col, tl.zeros_like(col).to(tl.float32), mask=step * BLOCK + col < N)
    else:
        valid = (target >= 0) & (target < N)
        hit = tl.load(x_ptr + target, mask=valid, other=float("nan")).to(tl.float32)
        top = tl.full((BLOCK // LANE,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK // LANE,), tl.float32)
        plain = tl.zeros((BLOCK // LANE,), tl.float32)
        for step in tl.range(0, STEPS, num_stages=STAGES):
            at = step * BLOCK + col
            x = tl.load(x_ptr + at, mask=at < N, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
            larger = tl.maximum(top, tl.max(x, 1))
            shift = tl.where(larger == float("-inf"), 0.0, larger)
            total = total * exp_of(top - shift) + tl.sum(exp_of(x - shift[:, None]), 1)
            if SMOOTH:
                plain += tl.sum(tl.where(at < N, x, 0.0), 1)
            top = larger
        largest = tl.max(top, 0)
        full = tl.sum(total * exp_of(top - largest), 0)
        tl.store(loss_ptr + row, _loss(largest, full, hit, tl.sum(plain, 0) / N, smoothing, SMOOTH))
        if GRADIENT:
            once = tl.load(scale_ptr)
            scale = once / full
            less = smoothing / N * once if SMOOTH else 0.0
            for back in tl.range(0, STEPS, num_stages=STAGES):
                at = (STEPS - 1 - back) * BLOCK + col
                x = tl.load(x_ptr + at, mask=at < N, other=0.0, eviction_policy="evict_first").to(tl.float32)
                d = rounded(exp_of(x - largest) * scale - less, d_ptr)
                tl.store(d_ptr + at, d, mask=at < N, eviction_policy="evict_first")
            tl.debug_barrier()  # the target's element is written again, by whichever thread, after all others
            own = (1.0 - smoothing) * once if SMOOTH else once
            d = exp_of(hit - largest) * scale - less - own
            tl.store(d_ptr + target, rounded(d, d_ptr), mask=valid)


def space(columns: int, dtype: torch.dtype, packable: bool, gradient: bool, smooth: bool) -> list[Variant]:
    """Variants worth timing: for the gradient as much of a row held as fits, for the loss alone none of it."""
    flags = (("GRADIENT", gradient), ("SMOOTH", smooth))
    if packable and columns >= 4096:
        pairs = columns // 2
        shares = [(8, 0, 4, 3), (16, 0, 2, 4), (16, 0, 4, 3), (32, 0, 2, 3)]
        if gradient and columns > HELD_PACKED:
            shares = [(16, 16, 2, 3), (16, 8, 4, 3), (16, 8, 4, 1), (32, 6, 2, 2), (32, 4, 2, 3), (32, 0, 2, 4),
                      (16, 0, 4, 3)]  # fmt: skip
        elif gradient:
            shares = [(w, chunks_of(pairs, w), 1, 1) for w in (4, 8, 16, 32)]
            shares = [s for s in shares if s[1] <= 16 and registers(s[1]) * s[0] * 32 <= 65536]
        return [_packed(pairs, dtype, flags, *s) for s in shares]
    block, lane = max(16, triton.next_power_of_2(columns)), 16 // dtype.itemsize
    sizes = [(b, w, s) for b, w, s in ((1024, 2, 1), (4096, 8, 1), (8192, 16, 3), (16384, 32, 3)) if b < 2 * block]
    return [_loop(columns, b, lane, w, s, flags, dtype) for b, w, s in sizes or [(block, 1, 1)]]


Flags = tuple[tuple[str, bool], ...]


def _packed(
    pairs: int, dtype: torch.dtype, flags: Flags, warps: int, held: int, unroll: int = 1, stages: int = 1
) -> Variant:
    block = warps * 32 * WORDS
    constants = (
        ("PAIRS", pairs), ("BLOCK", block), ("HELD", held), ("DTYPE", DTYPES[dtype]), ("UNROLL", unroll),
        ("STAGES", stages), *flags,
    )  # fmt: skip
    whole = held * block >= pairs  # HELD follows from the row's length then
    return Variant(
        cross_entropy_packed, constants, warps, tuned=("BLOCK",) if whole else ("HELD", "UNROLL", "STAGES"),
        shared_bytes=4 * (stages - 1) * unroll * block + 1024, registers=registers(held),
    )  # fmt: skip


def _loop(
    columns: int, block: int, lane: int, warps: int, stages: int, flags: Flags, dtype: torch.dtype
) -> Variant:  # fmt: skip
    constants = (("N", columns), ("BLOCK", block), ("LANE", lane), ("STAGES", stages), *flags)
    shared = (stages - 1) * block * dtype.itemsize + 1024
    return Variant(cross_entropy_loop, constants, warps, tuned=("BLOCK", "STAGES"), shared_bytes=shared)


def launch(
    variant: Variant, x: torch.Tensor, target: torch.Tensor, losses: torch.Tensor, d: torch.Tensor,
    scale: torch.Tensor, ignore: int, smoothing: float,
) -> None:  # fmt: skip
    """Run one variant: x [rows, N], target and losses [rows], d like x (x itself: in place), scale of one f32."""
    rows = x.shape[0]
    if variant.kernel is cross_entropy_packed:
        a, b = x.view(torch.int32), d.view(torch.int32)
        cross_entropy_packed[(rows,)](
            a, target, losses, b, scale, a.stride(0), b.stride(0), ignore, smoothing, 0, **variant.meta
        )
    else:
        cross_entropy_loop[(rows,)](
            x, target, losses, d, scale, x.stride(0), d.stride(0), ignore, smoothing, **variant.meta
        )


def over_rows(
    x: torch.Tensor, target: torch.Tensor, losses: torch.Tensor, d: torch.Tensor | None, scale: torch.Tensor,
    ignore: int, smoothing: float = 0.0,
) -> None:  # fmt: skip
    """losses [rows] of x [rows, N] and target [rows], and into d, like x or x itself, the gradient times scale [1]."""
    # Where the gradient goes into the logits, those are written, and must have a copy.
    read = (target, scale) if d is x else (x, target, scale)
    variant = choose_over_rows(x, target, losses, d, scale, ignore, smoothing, read)
    launch(variant, x, target, losses, x if d is None else d, scale, ignore, smoothing)


def choose_over_rows(
    x: torch.Tensor, target: torch.Tensor, losses: torch.Tensor, d: torch.Tensor | None, scale: torch.Tensor,
    ignore: int, smoothing: float = 0.0, uncopied: Sequence[torch.Tensor] = (),
) -> Variant:  # fmt: skip
    """The variant that `over_rows` takes for these, timed here where there is none yet; uncopied: as Tuner.pick has it.

    Who calls it before the logits are there, on the memory that they will have, needs none for copies.
    """
    into = x if d is None else d
    packable = x.element_size() == 2 and paired(x) and paired(into)
    key = (*x.shape, x.dtype, x.stride(0), into.stride(0), packable, d is not None, smoothing > 0)
    return tuner.pick(
        key, lambda: space(x.shape[1], x.dtype, packable, d is not None, smoothing > 0), launch,
        x, target, losses, into, scale, ignore, smoothing, uncopied=uncopied,
    )  # fmt: skip


def _run(
    logits: torch.Tensor, target: torch.Tensor, ignore: int, smoothing: float, reduction: str, d: torch.Tensor | None
) -> torch.Tensor:
    """The loss; the gradient goes into d [..., N] where there is one: rows contiguous, maybe the logits themselves."""
    if logits.dtype not in DTYPES:
        raise TypeError(f"cross entropy takes logits of f32, f16 or bf16, not {logits.dtype}")
    if target.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"cross entropy takes targets of i64 or i32, not {target.dtype}")
    if logits.dim() < 2 or target.shape != logits.shape[:-1] or not logits.shape[-1]:
        raise ValueError(f"logits {[*logits.shape]} take targets {[*logits.shape[:-1]]}, not {[*target.shape]}")
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction is one of {', '.join(REDUCTIONS)}, not {reduction!r}")
    if not 0.0 <= smoothing <= 1.0:
        raise ValueError(f"label_smoothing is from 0 to 1, not {smoothing}")
    losses = torch.empty(target.shape, dtype=torch.float32, device=logits.device)
    mean = reduction == "mean"
    scale = torch.ones(1, dtype=torch.float32, device=logits.device) if not mean else losses.new_empty(1)
    x, t = rows_of(logits), target.reshape(-1).contiguous()
    if mean:
        one_over_counted[(1,)](t, scale, t.numel(), ignore, BLOCK=4096, num_warps=16)
    if losses.numel():
        over_rows(x, t, losses.view(-1), None if d is None else d.view(x.shape), scale, ignore, smoothing)
    if reduction == "none":
        return losses
    return losses.sum() * scale[0] if mean else losses.sum()


def cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int = IGNORE, label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> torch.Tensor:  # fmt: skip
    """Cross entropy of logits [..., N] in f32, f16 or bf16 for classes target [...] in i64 or i32: f32, no gradient.

    reduction: "mean" over the rows whose target is not ignore_index (NaN if there is none), "sum", "none" (shape of
    target, 0 where ignored). A target that is no class gives NaN. Raises TypeError for other dtypes, ValueError for
    shapes that do not fit, another reduction, smoothing beyond 0 to 1.
    """
    return _run(logits, target, ignore_index, label_smoothing, reduction, None)


def cross_entropy_with_gradient(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int = IGNORE, label_smoothing: float = 0.0,
    reduction: str = "mean", in_place: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """`cross_entropy` and the gradient of its sum for the logits, of their shape and dtype, in one pass.

    in_place: the gradient is written over the logits, which saves their size; they must be contiguous then, else
    ValueError. The other arguments and errors are those of `cross_entropy`.
    """
    if in_place and not logits.is_contiguous():
        raise ValueError("in_place takes contiguous logits")
    d = logits.detach() if in_place else torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    return _run(logits.detach(), target, ignore_index, label_smoothing, reduction, d), d


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor, int, float, str]:
    """Logits, classes (every `ignored`th of them -100), and the settings."""
    target = make.integers(c["columns"], (c["rows"],))
    if every := c.get("ignored", 0):
        # Not of special rows: autograd's formula multiplies an ignored row's NaN by 0, this writes the 0.
        target[5 if make.form == "special" else 0 :: every] = IGNORE
    logits = make.normal((c["rows"], c["columns"]), c.torch_dtype, scale=2.0)
    return logits, target, IGNORE, c.get("smoothing", 0.0), c.get("reduction", "mean")


CHECKS = (
    *(case(d, rows=r, columns=n) for d in ("f32", "f16", "bf16") for r, n in ((1, 1), (5, 1000), (7, 130), (2, 4096))),
    case("f32", rows=6, columns=1000, ignored=3), case("bf16", rows=6, columns=4098, ignored=4, smoothing=0.1),
    case("f32", rows=5, columns=257, smoothing=0.2, reduction="sum"), case("f16", rows=3, columns=5001, smoothing=0.1),
    case("f32", rows=3, columns=2, reduction="sum"), case("bf16", rows=1, columns=66002, smoothing=0.1),
    case("f16", rows=1, columns=16386, reduction="none"), case("f32", rows=0, columns=9, reduction="none"),
    case("f32", rows=6, columns=400, reduction="none"),
)  # fmt: skip
_PAIRS = {"x_ptr": "*i32", "target_ptr": "*i64", "loss_ptr": "*fp32", "d_ptr": "*i32", "scale_ptr": "*fp32",
          "x_stride": "i32", "d_stride": "i32", "ignore": "i32", "smoothing": "fp32", "zero": "i32"}  # fmt: skip
_LOOP = {**{k: v for k, v in _PAIRS.items() if k != "zero"}, "x_ptr": "*fp32", "d_ptr": "*fp32"}
_STRIDES = ("x_stride", "d_stride")
_BF16 = torch.bfloat16
OPERATIONS = (
    Operation(
        name="cross_entropy", run=cross_entropy, reference=reference, inputs=inputs,
        beyond=case("bf16", rows=16_800, columns=128256, reduction="none"),
        cost=lambda c: Cost(bytes=c["rows"] * c["columns"] * c.itemsize),
        checks=CHECKS,
        cases=(
            case("bf16", rows=8192, columns=128256, peer="cross_entropy_fwd"), case("f32", rows=8192, columns=50257),
        ),
        forms=("plain", "strided", "misaligned", "special"),
        builds=(
            Build(Variant(one_over_counted, (("BLOCK", 4096),), 16),
                  {"target_ptr": "*i64", "scale_ptr": "*fp32", "rows": "i32", "ignore": "i32"}),
            Build(space(128256, _BF16, True, False, False)[1], _PAIRS, divisible=_STRIDES),
        ),
    ),
    Operation(
        name="cross_entropy_with_gradient", run=cross_entropy_with_gradient, reference=reference_gradient,
        beyond=case("bf16", rows=16_800, columns=128256, reduction="sum"),
        inputs=inputs,
        # Rows that are ignored are written, not read.
        cost=lambda c: Cost(bytes=c["columns"] * c.itemsize * (2 * c["rows"] - c["rows"] // c.get("ignored", 1 << 62))),
        checks=CHECKS,
        cases=(
            case("bf16", rows=8192, columns=128256, peer="cross_entropy_fwdbwd"),
            case("bf16", rows=8192, columns=32000), case("f32", rows=8192, columns=50257),
            case("bf16", rows=8192, columns=128256, ignored=2, smoothing=0.1),
        ),
        forms=("plain", "strided", "misaligned", "special"),
        builds=(
            Build(space(128256, _BF16, True, True, False)[1], _PAIRS, divisible=_STRIDES),
            Build(space(128256, _BF16, True, True, True)[4], _PAIRS, divisible=_STRIDES),
            Build(space(131072, torch.float32, False, True, False)[1], _LOOP, divisible=_STRIDES),
            SCALED,
        ),
    ),
)  # fmt: skip
