"""Sampling of a token from each row of logits, among its k likeliest and those that make up a share p.

In this order, as serving engines have it: logits / temperature; all that are not below the k-th largest stay; of these,
each stays whose more likely ones hold less than p of what stayed; the first token is drawn whose cumulated probability
exceeds u times that of all. Numbers that are alike stay or go together. u, uniform in [0, 1), is given: a call can be
repeated, and held to float64.

Nothing is sorted. One program takes a row: its largest number, then bisection by value, six walks over the row, finds a
number that is certainly not above the last one that stays; what is not below it is listed, in order: of peaked rows a
few hundred of 128,000. Both thresholds are then found exactly, bit by bit of the numbers' order, in the list. Traffic:
the row from memory once, and 7 or 8 times from L2, where it stays (256 kB for 128,000 bf16, a row a multiprocessor).
Steps of 4096 and 8192 numbers spill 24 to 60 bytes a thread on some targets (24 on sm_90), of 2048 12 on sm_90.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kernels.ops.shared.pairs import exp_of
from kernels.ops.shared.rows import DTYPES, rows_of
from kernels.ops.shared.sort_keys import rank_of
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant, multiprocessors

BISECTIONS = 6
"""Bisections by value: to 1/64 of FARTHEST."""
FARTHEST = 32.0
"""Logits below the largest by more than that, in units of the temperature, are listed only if all are."""
CLOSE = 1e-4
"""Probability that rounding of sums over a row may cost: by so much a draw may miss its place."""

tuner = Tuner("top_k_top_p_sample")


def _kept(
    logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None, temperature: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities that stay, not normalised, 0 elsewhere; and the share that is more likely than each."""
    x = wide(logits)
    x = x if temperature is None else x / temperature[:, None]
    if k is not None:
        least = x.sort(-1, descending=True).values.gather(-1, k.long().clamp(1, x.shape[-1])[:, None] - 1)
        x = x.masked_fill(x < least, -torch.inf)
    shares = x.softmax(-1)
    if p is None:
        return shares, torch.zeros_like(shares)
    ordered, order = shares.sort(-1, descending=True)
    first = torch.searchsorted(-ordered, -ordered).clamp(max=x.shape[-1] - 1)  # of NaN: beyond the end
    before = (ordered.cumsum(-1) - ordered).gather(-1, first)
    above = torch.empty_like(before).scatter_(-1, order, before)
    return shares.masked_fill((above >= p[:, None]) & (above > 0), 0.0), above


def reference(
    logits: torch.Tensor, uniform: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None,
    temperature: torch.Tensor | None,
) -> torch.Tensor:  # fmt: skip
    """What is computed, in plain PyTorch."""
    shares, _ = _kept(logits, k, p, temperature)
    cumulated = shares.cumsum(-1)
    token = (cumulated <= uniform[:, None] * cumulated[:, -1:]).sum(-1)
    last = logits.shape[-1] - 1 - (shares > 0).flip(-1).int().argmax(-1)
    return torch.minimum(token, last).where(cumulated[:, -1].isfinite(), _largest(logits))


def _largest(logits: torch.Tensor) -> torch.Tensor:
    """The first place of each row's largest number; NaN is none, of a row without numbers 0."""
    return logits.masked_fill(logits.isnan(), -torch.inf).argmax(-1)


@triton.jit
def order_of(x, DTYPE: tl.constexpr):
    """rank_of, with -0.0 as the 0.0 that it is equal to."""
    return rank_of(tl.where(x == 0.0, tl.zeros_like(x), x), DTYPE)


@triton.jit
def first_place(x_ptr, N, number, BLOCK: tl.constexpr):
    """The first column of a row with this number; 0 for minus infinity, since NaN is not more."""
    place = tl.full((BLOCK,), 0x7FFFFFFF, tl.int32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < N, other=float("-inf")).to(tl.float32)
        place = tl.minimum(place, tl.where((at < N) & (x == number), at, 0x7FFFFFFF))
    return tl.where(number == float("-inf"), 0, tl.min(place, 0))


@triton.jit
def numbers_at(x_ptr, list_ptr, at, inside, LISTED: tl.constexpr):
    """Numbers of a row, or those that a list selects; -inf outside."""
    if LISTED:
        at = tl.load(list_ptr + at, mask=inside, other=0)
    return tl.load(x_ptr + at, mask=inside, other=float("-inf"), eviction_policy="evict_last")


@triton.jit
def tallied(
    x_ptr, list_ptr, length, bound, top, scale, BLOCK: tl.constexpr, MASS: tl.constexpr, LISTED: tl.constexpr,
    RANKED: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """How many numbers reach a bound, or if MASS the sum of their exponentials, in f32 (exact below 2^24).

    RANKED: bound is the uint32 of a number's place in the order, else how far a scaled number may be below the top.
    """
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        inside = start + lane < length
        x = numbers_at(x_ptr, list_ptr, start + lane, inside, LISTED)
        below = (x.to(tl.float32) - top) * scale
        reaches = order_of(x, DTYPE) >= bound if RANKED else below >= -bound
        counted = exp_of(below) if MASS else 1.0
        total += tl.where(inside & reaches, counted, 0.0)
    return tl.sum(total, 0)


@triton.jit
def threshold(
    x_ptr, list_ptr, length, low, high, wanted, top, scale, BLOCK: tl.constexpr, MASS: tl.constexpr, DTYPE: tl.constexpr
):
    """The largest place in the order, from low to high, that `wanted` of the list (in number, or in mass) reach.

    Only bits in which low and high differ are searched, and of 16-bit numbers only the upper half.
    """
    LAST: tl.constexpr = 1 if DTYPE == tl.float32 else 1 << 16  # noqa: SIM300 - DTYPE is the variable
    bit = tl.full((), 1 << 31, tl.uint32)
    while (bit > (low ^ high)) & (bit > LAST):
        bit = bit >> 1
    bound = high & ((bit | (bit - 1)) ^ 0xFFFFFFFF)
    while bit >= LAST:
        amount = tallied(x_ptr, list_ptr, length, bound | bit, top, scale, BLOCK, MASS, True, True, DTYPE)
        bound = tl.where(amount >= wanted, bound | bit, bound)
        bit = bit >> 1
    return bound


@triton.jit
def sample_rows(
    x_ptr, u_ptr, k_ptr, p_ptr, t_ptr, list_ptr, token_ptr, rows, N, stride, BLOCK: tl.constexpr, TOP_K: tl.constexpr,
    TOP_P: tl.constexpr, HEATED: tl.constexpr, DTYPE: tl.constexpr, BISECTIONS: tl.constexpr, FARTHEST: tl.constexpr,
):  # fmt: skip
    """Rows in turn. list_ptr: room for N indices a program."""
    lane = tl.arange(0, BLOCK)
    list_ptr += tl.program_id(0).to(tl.int64) * N
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        at_row = x_ptr + row * stride
        scale = 1.0
        if HEATED:
            scale = 1.0 / tl.load(t_ptr + row).to(tl.float32)
        tops = tl.full((BLOCK,), float("-inf"), tl.float32)
        for start in range(0, N, BLOCK):
            x = tl.load(at_row + start + lane, mask=start + lane < N, other=float("-inf"), eviction_policy="evict_last")
            tops = tl.maximum(tops, x.to(tl.float32))
        top = tl.max(tops, 0)
        length = N
        bound = tl.full((), 0, tl.uint32)
        LISTED: tl.constexpr = TOP_K or TOP_P
        if LISTED:
            if TOP_K:
                wanted = tl.minimum(tl.maximum(tl.load(k_ptr + row), 1), N).to(tl.float32)
            else:
                wanted = tallied(at_row, list_ptr, N, FARTHEST * 8, top, scale, BLOCK, True, False, False, DTYPE)
                wanted *= tl.load(p_ptr + row).to(tl.float32)
            near = 0.0
            far = FARTHEST
            for _ in range(BISECTIONS):
                middle = (near + far) * 0.5
                amount = tallied(at_row, list_ptr, N, middle, top, scale, BLOCK, not TOP_K, False, False, DTYPE)
                near = tl.where(amount >= wanted, near, middle)
                far = tl.where(amount >= wanted, middle, far)
            far = tl.where(far == FARTHEST, float("inf"), far)
            length = tl.full((), 0, tl.int32)
            lowest = tl.full((BLOCK,), 0xFFFFFFFF, tl.uint32)
            highest = tl.full((BLOCK,), 0, tl.uint32)
            for start in range(0, N, BLOCK):
                at = start + lane
                x = tl.load(at_row + at, mask=at < N, other=float("-inf"), eviction_policy="evict_last")
                stays = (at < N) & ((x.to(tl.float32) - top) * scale >= -far)
                place = length + tl.cumsum(stays.to(tl.int32), 0) - 1
                tl.store(list_ptr + place, at, mask=stays)
                length += tl.sum(stays.to(tl.int32), 0)
                rank = order_of(x, DTYPE)
                lowest = tl.minimum(lowest, tl.where(stays, rank, 0xFFFFFFFF).to(tl.uint32))
                highest = tl.maximum(highest, tl.where(stays, rank, 0).to(tl.uint32))
            tl.debug_barrier()  # what other threads have listed is read
            bound = tl.min(lowest, 0)
            high = tl.max(highest, 0)
            if TOP_K:
                bound = threshold(at_row, list_ptr, length, bound, high, wanted, top, scale, BLOCK, False, DTYPE)
            if TOP_P:
                if TOP_K:
                    wanted = tallied(at_row, list_ptr, length, bound, top, scale, BLOCK, True, True, True, DTYPE)
                    wanted *= tl.load(p_ptr + row).to(tl.float32)
                more = threshold(at_row, list_ptr, length, bound, high, wanted, top, scale, BLOCK, True, DTYPE)
                bound = tl.maximum(bound, more)
        total = tallied(at_row, list_ptr, length, bound, top, scale, BLOCK, True, LISTED, True, DTYPE)
        wanted_mass = tl.load(u_ptr + row) * total
        before = 0.0
        token = tl.full((), -1, tl.int32)
        # The largest alone is 1: without numbers, or where the largest is infinite or the temperature 0, it is not.
        drawn = (total > 0.0) & (total < float("inf"))
        if drawn == 0:
            token = first_place(at_row, N, top, BLOCK)
        last = tl.full((), 0, tl.int32)
        start = tl.full((), 0, tl.int32)
        while (start < length) & (token < 0):
            inside = start + lane < length
            x = numbers_at(at_row, list_ptr, start + lane, inside, LISTED)
            stays = inside & (order_of(x, DTYPE) >= bound)
            mass = tl.where(stays, exp_of((x.to(tl.float32) - top) * scale), 0.0)
            reached = stays & (mass > 0.0) & (before + tl.cumsum(mass, 0) > wanted_mass)
            first = tl.min(tl.where(reached, start + lane, 0x7FFFFFFF), 0)
            token = tl.where(first < 0x7FFFFFFF, first, token)
            last = tl.maximum(last, tl.max(tl.where(stays & (mass > 0.0), start + lane, 0), 0))
            before += tl.sum(mass, 0)
            start += BLOCK
        token = tl.where(token < 0, last, token)  # the sums of blocks round otherwise than that of all
        if LISTED:
            token = tl.where(drawn, tl.load(list_ptr + token, mask=drawn, other=0), token)
        tl.store(token_ptr + row, token.to(tl.int64))
        if LISTED:
            tl.debug_barrier()  # before the next row's list overwrites this one


Constants = Sequence[tuple[str, object]]
TILES = ((4096, 16, 2), (8192, 32, 1), (4096, 32, 1), (2048, 8, 4), (1024, 4, 8))
"""Numbers of a step, warps, programs of a multiprocessor."""


def space(columns: int, constants: Constants) -> list[Variant]:
    """Variants worth timing: no step much wider than a row."""
    fixed = (*constants, ("BISECTIONS", BISECTIONS), ("FARTHEST", FARTHEST))
    widest = max(triton.next_power_of_2(columns), 1024)
    chosen = [t for t in TILES if t[0] <= widest]
    return [Variant(sample_rows, (("BLOCK", b), *fixed), w, tuned=("BLOCK",)) for b, w, _ in chosen]


def launch(
    variant: Variant, logits: torch.Tensor, uniform: torch.Tensor, k: torch.Tensor, p: torch.Tensor,
    temperature: torch.Tensor, tokens: torch.Tensor,
) -> None:  # fmt: skip
    """Run one variant on logits [rows, N], rows contiguous; any tensor for what is not used."""
    rows, columns = logits.shape
    each = next(n for b, w, n in TILES if (b, w) == (variant["BLOCK"], variant.warps))
    programs = min(rows, each * multiprocessors(logits.device))
    listed = columns if variant["TOP_K"] or variant["TOP_P"] else 1
    lists = torch.empty(programs * listed, dtype=torch.int32, device=logits.device)
    sample_rows[(programs,)](
        logits, uniform, k, p, temperature, lists, tokens, rows, columns, logits.stride(0), **variant.meta
    )  # fmt: skip


def top_k_top_p_sample(
    logits: torch.Tensor, uniform: torch.Tensor, k: torch.Tensor | None = None, p: torch.Tensor | None = None,
    temperature: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """A token for each row of logits [rows, N] in f32, f16 or bf16: [rows] in i64.

    uniform [rows] in f32, in [0, 1). k [rows] in i32, p and temperature [rows] in f32, or None for what is not wanted;
    k is cut to 1 .. N, temperatures are above 0. Where shares have no sum (only -inf or NaN, an infinite number, a
    temperature of 0) the token is the first of the largest number, 0 where there is none; a row with NaN among others
    gives any of its columns. Raises TypeError for other dtypes, ValueError for other shapes and for rows of 2^24
    numbers or more.
    """
    if logits.dtype not in DTYPES:
        raise TypeError(f"top_k_top_p_sample takes f32, f16 or bf16, not {logits.dtype}")
    if logits.dim() != 2 or not 0 < logits.shape[1] < 1 << 24:
        raise ValueError(f"top_k_top_p_sample takes [rows, up to 2^24 - 1], not {[*logits.shape]}")
    rows = logits.shape[0]
    for name, t, dtype in (("uniform", uniform, torch.float32), ("k", k, torch.int32), ("p", p, torch.float32),
                           ("temperature", temperature, torch.float32)):  # fmt: skip
        if t is not None and (t.dtype != dtype or t.shape != (rows,)):
            raise ValueError(f"{name} is {t.dtype}{[*t.shape]}, not {dtype}[{rows}]")
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if not rows:
        return tokens
    x = rows_of(logits)
    given = [uniform if t is None else t.contiguous() for t in (k, p, temperature)]
    constants = (("TOP_K", k is not None), ("TOP_P", p is not None), ("HEATED", temperature is not None),
                 ("DTYPE", DTYPES[x.dtype]))  # fmt: skip
    arguments = (x, uniform.contiguous(), *given, tokens)
    key = (rows, x.shape[1], x.dtype, x.stride(0), *(value for _, value in constants[:3]))
    launch(tuner.pick(key, lambda: space(x.shape[1], constants), launch, *arguments), *arguments)
    return tokens


def agree(outputs: Sequence[torch.Tensor], arguments: Sequence[torch.Tensor | None]) -> None:
    """Raises AssertionError where a token is none that stays, or is not where u falls, by more than CLOSE."""
    logits, uniform, k, p, temperature = arguments
    assert logits is not None
    assert uniform is not None
    tokens = outputs[0].to(logits.device)
    assert bool(((tokens >= 0) & (tokens < logits.shape[1])).all()), "a token that there is not"
    if not len(tokens):
        return
    exact = [None if t is None else t.double() for t in (k, p, temperature)]
    shares, above = _kept(logits.double(), *exact)
    cumulated = shares.cumsum(-1)
    none = ~cumulated[:, -1].isfinite()
    assert bool((tokens == _largest(logits))[none].all()), "not the largest of a row whose shares have no sum"
    at = tokens[:, None]
    x = wide(logits)
    if k is not None:
        larger = (x > x.gather(-1, at)).sum(-1)
        assert bool((larger < k.clamp(min=1))[~none].all()), "a token below the k-th largest"
    if p is not None:
        assert bool((above.gather(-1, at)[:, 0] < p.double() + CLOSE)[~none].all()), "a token beyond the share p"
    wanted = uniform.double() * cumulated[:, -1]
    after = cumulated.gather(-1, at)[:, 0]
    before = after - shares.gather(-1, at)[:, 0]
    falls = (before <= wanted + CLOSE) & (after >= wanted - CLOSE)
    assert bool(falls[~none].all()), "a token where u does not fall"


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor | None, ...]:
    """Arguments to try it on."""
    rows = c["rows"]
    logits = make.normal((rows, c["columns"]), c.torch_dtype, scale=c.get("spread", 3.0))
    uniform = make.integers(1 << 24, (rows,)).float() / (1 << 24)
    k = torch.full((rows,), c["k"], dtype=torch.int32, device=make.device) if c.get("k") else None
    p = torch.full((rows,), c["p"], device=make.device) if c.get("p") else None
    temperature = torch.full((rows,), c["t"], device=make.device) if c.get("t") else None
    return logits, uniform, k, p, temperature


SIGNATURE = {
    "x_ptr": "*bf16", **dict.fromkeys(("u_ptr", "p_ptr", "t_ptr"), "*fp32"), "k_ptr": "*i32", "list_ptr": "*i32",
    "token_ptr": "*i64", **dict.fromkeys(("rows", "N", "stride"), "i32"),
}  # fmt: skip


def _build(index: int, dtype: torch.dtype, top_k: bool, top_p: bool) -> Build:
    constants = (("TOP_K", top_k), ("TOP_P", top_p), ("HEATED", True), ("DTYPE", DTYPES[dtype]))
    signature = {**SIGNATURE, "x_ptr": "*fp32" if dtype == torch.float32 else "*bf16"}
    return Build(space(1 << 17, constants)[index], signature, divisible=("N", "stride"))


OPERATIONS = (
    Operation(
        name="top_k_top_p_sample", run=top_k_top_p_sample, reference=reference, inputs=inputs, indices=(0,),
        agree=agree, fixed=("k",), cost=lambda c: Cost(bytes=c["rows"] * c["columns"] * c.itemsize),
        checks=(
            *(case(d, rows=4, columns=n, k=5, p=0.8) for d in ("f32", "f16", "bf16") for n in (1000, 5000, 1)),
            *(case(d, rows=3, columns=3000, p=0.9, t=0.7) for d in ("f32", "bf16")),
            case("bf16", rows=5, columns=2000, k=50), case("f32", rows=5, columns=2000),
            case("bf16", rows=3, columns=700, k=1), case("f32", rows=3, columns=300, k=400, p=0.5),
            case("bf16", rows=4, columns=2000, p=0.99, spread=0.1), case("f32", rows=0, columns=10, k=3),
            case("bf16", rows=6, columns=1500, k=20, p=0.9, t=1.5),
        ),
        cases=(
            case("bf16", rows=64, columns=128_256, k=50, p=0.9), case("f32", rows=512, columns=128_256, k=50, p=0.9),
            case("f32", rows=64, columns=128_256, p=0.95, t=0.8), case("bf16", rows=512, columns=32_000, k=40),
        ),
        builds=(_build(0, torch.bfloat16, True, True), _build(1, torch.float32, True, True),
                _build(3, torch.float32, False, True)),
    ),
)  # fmt: skip
