"""What the backwards of the normalisations over the last axis share: tuning space and launcher.

Kernels: backward_kernels.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from triton import knobs

from kernels.ops.norm.backward_kernels import (
    gradient_chunks,
    gradient_finish,
    gradient_packed,
    gradient_rows,
    gradient_sums,
    gradient_team,
    row_statistics,
    sum_partials,
)
from kernels.ops.norm.forward import SHORT, halves_of, resident
from kernels.ops.shared.rows import DTYPES, held_dtype, rows_of
from kernels.tuning import Tuner, Variant, multiprocessors

HELD_ROWS = 4096
"""Longest row of single elements that a program holds with its sums."""
LONG = 4096
"""From so many 32-bit words on a row may be shared by a team."""
MOST_TEAM = 64
CHUNK_BYTES = 8 << 20
"""Of x and dy in the rows that are taken at once by strips of columns: several such chunks stay in 50 MB of L2."""


@dataclass(frozen=True, slots=True)
class Form:
    """Which of the family: of LayerNorm, with weight, with the bias's gradient, mean and rstd given."""

    centered: bool = False
    weight: bool = True
    bias: bool = False
    given: bool = True

    @property
    def constants(self) -> tuple[tuple[str, bool], ...]:
        return (("CENTERED", self.centered), ("WEIGHT", self.weight), ("BIAS", self.bias))


def held(words: int, halves: int, dtype: torch.dtype, form: Form) -> list[Variant]:
    """Programs that hold whole rows: those that fit into the registers by the model."""
    variants = []
    for warps, stages in ((16, 3), (16, 2), (8, 3), (8, 2), (4, 3), (4, 1), (32, 3), (32, 2)):
        if words >= warps * 64 and words <= warps * 32 * 16:
            variants.append(packed(words, halves, dtype, form, warps, stages))
    if form.weight and form.given and not any(map(_fits, variants)):
        late = words >= 1024 and (halves == 1 or (words % 2048 == 0 and words <= 8192))  # others spill
        variants += [packed(words, halves, dtype, form, 16, stages, late=True) for stages in (3, 2) if late]
    return [v for v in variants if _fits(v) and v.shared_bytes <= 220 << 10]


def _fits(variant: Variant) -> bool:
    return variant.registers * variant.warps * 32 <= 65536


def packed(
    words: int, halves: int, dtype: torch.dtype, form: Form, warps: int, stages: int, late: bool = False
) -> Variant:
    """gradient_packed with 128 bits a thread and piece. late: the weight is not held."""
    block = min(warps * 32 * 4, triton.next_power_of_2(words))
    chunks = triton.cdiv(words, block)
    settings = (("WORDS", words), ("BLOCK", block), ("CHUNKS", chunks), ("HALVES", halves), ("DTYPE", DTYPES[dtype]))
    return Variant(
        gradient_packed,
        (*settings, *form.constants, ("GIVEN", form.given), ("STAGES", stages), ("LATE", late)),
        warps,
        tuned=("BLOCK", "STAGES"),
        shared_bytes=(stages - 1) * words * 8,
        registers=registers_late(chunks * 4, halves, form) if late else registers(chunks * 4, halves, form, 2),
    )


def team(words: int, halves: int, dtype: torch.dtype, form: Form, warps: int, chunks: int) -> Variant:
    """gradient_team with 128 bits a thread and piece."""
    block = warps * 32 * 4
    members = triton.next_power_of_2(triton.cdiv(words, block * chunks))
    settings = (("WORDS", words), ("BLOCK", block), ("CHUNKS", chunks), ("HALVES", halves), ("DTYPE", DTYPES[dtype]))
    whole = words == members * block * chunks
    return Variant(
        gradient_team,
        (*settings, *form.constants, ("TEAM", members), ("WHOLE", whole)),
        warps,
        tuned=("BLOCK", "CHUNKS"),
        registers=registers(chunks * 4, halves, form, 6) + 13,
    )


def chunked(
    words: int, halves: int, dtype: torch.dtype, form: Form, chunk: int, held: int = 4, stages: int = 3
) -> Variant:
    """gradient_chunks with 128 bits a thread and access, 8 warps: a row of a strip each."""
    warps, block, rows = 8, 128, 8
    lanes = max(warps * 64, triton.next_power_of_2(triton.cdiv(words, block)))
    return Variant(
        gradient_chunks,
        (("WORDS", words), ("BLOCK", block), ("ROWS", rows), ("CHUNK", chunk), ("PIECE", warps * 32 * 4),
         ("HELD", held), ("LANES", lanes), ("HALVES", halves), ("DTYPE", DTYPES[dtype]), *form.constants,
         ("STAGES", stages)),
        warps,
        tuned=("CHUNK", "HELD", "STAGES"),
        shared_bytes=(stages - 1) * rows * block * 8 + 256,
        registers=64,
    )  # fmt: skip


def chunks_of(words: int, halves: int, dtype: torch.dtype, form: Form) -> list[Variant]:
    """gradient_chunks for these rows: fewer rows a chunk leave more partial sums, more of them more to find in L2."""
    fit = CHUNK_BYTES // (words * 8)
    rows = max(16, min(128, 1 << max(fit, 1).bit_length() - 1))
    shapes = ((rows, 4, 3), (rows, 4, 4), (rows * 2, 4, 3), (max(16, rows // 2), 4, 3), (rows, 2, 3))
    return list(dict.fromkeys(chunked(words, halves, dtype, form, *shape) for shape in shapes))


def registers(words: int, halves: int, form: Form, rows: int) -> int:
    """By what a thread holds: sums in f32, `rows` rows of x or dy, the weight. Close to ptxas's for sm_90 (12.8)."""
    return int(1.4 * words * (halves * (form.weight + form.bias) + rows + form.weight)) + 12


def registers_late(words: int, halves: int, form: Form) -> int:
    """The same where the weight is not held: a few less and ptxas spills (sm_90, 12.8)."""
    return words * (halves * (form.weight + form.bias) + 2) + halves * words // 4 + 24


def split(columns: int, form: Form) -> list[Variant]:
    """Two kernels: sums over rows and columns in one walk, then dx. Takes rows of any length, reads twice."""
    settings = (("N", columns), *form.constants)
    return [
        Variant(gradient_sums, (*settings, ("BLOCK", b), ("ROWS", r)), w, tuned=("BLOCK", "ROWS"))
        for b, r, w in ((2048, 2, 8), (4096, 1, 8))
    ]


def space(rows: int, columns: int, dtype: torch.dtype, halves: int, form: Form) -> list[Variant]:
    """Variants worth timing. halves: floats in a 32-bit word, 0 where rows are not whole words."""
    words = columns // halves if halves else 0
    variants = held(words, halves, dtype, form) if words >= SHORT else []
    strips = [] if any(not v["LATE"] for v in variants) or words < LONG else chunks_of(words, halves, dtype, form)
    # In the interpreter one program runs after another: nobody there can wait for a later one.
    if words >= LONG and form.given and not knobs.runtime.interpret:
        shared = [team(words, halves, dtype, form, w, c) for w, c in ((16, 2), (16, 1), (8, 1))]
        variants += [v for v in shared if v["TEAM"] <= MOST_TEAM and _fits(v)]
    variants += strips if form.given else []
    if variants:
        return variants
    if columns > HELD_ROWS:
        return split(columns, form)
    block = triton.next_power_of_2(max(1, columns))
    tiles = ((1024, 2), (2048, 4), (4096, 8)) if block <= 1024 else ((block, 8), (block, 16))
    settings = (("N", columns), ("BLOCK", block), *form.constants, ("GIVEN", form.given))
    counts = dict.fromkeys((min(size // block, triton.next_power_of_2(rows)), w) for size, w in tiles)
    return [
        Variant(gradient_rows, (*settings, ("ROWS", c)), w, tuned=("ROWS",), registers=c * block // (w * 32) * 5 + 32)
        for c, w in counts
    ]


def launch(
    variant: Variant, dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor,
    dx: torch.Tensor, dw: torch.Tensor, db: torch.Tensor, eps: float,
) -> None:  # fmt: skip
    """Run one variant: dy, x [rows, N] with contiguous rows, mean and rstd [rows] in f32 -> dx [rows, N], dw, db [N].

    Any tensor for what the variant leaves out.
    """
    rows, columns = x.shape
    kernel, device = variant.kernel, x.device
    count = programs(variant, rows, device)
    sums = [out for out, there in ((dw, variant["WEIGHT"]), (db, variant["BIAS"])) if there]
    parts = torch.empty((2, count, columns) if len(sums) == 2 else (1, count, columns), device=device)
    tensors = (dy, x, weight, mean, rstd)
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    if kernel is gradient_sums:
        blocks = triton.cdiv(columns, variant["BLOCK"])
        c = torch.empty((rows, 2, blocks), device=device)
        kernel[(blocks, count)](*tensors, c, parts[0], parts[-1], rows, *strides[:2], blocks, **variant.meta)
        constants = {k: variant[k] for k in ("N", "CENTERED", "WEIGHT")}
        gradient_finish[(rows, triton.cdiv(columns, 4096))](
            *tensors, c, dx, *strides, blocks, BLOCK=4096, MOST=triton.next_power_of_2(blocks), **constants, num_warps=8
        )  # fmt: skip
    elif kernel is gradient_rows:
        kernel[(count,)](*tensors, dx, parts[0], parts[-1], rows, *strides, eps, **variant.meta)
    else:
        inside = tuple(s // variant["HALVES"] for s in strides)
        if kernel is gradient_chunks:
            strips = triton.cdiv(variant["WORDS"], variant["BLOCK"])
            turn = strips + variant["CHUNK"] * triton.cdiv(variant["WORDS"], variant["HELD"] * variant["PIECE"])
            # Pieces start when the strips that they wait for have left the GPU.
            lag = triton.cdiv(resident(variant, device), turn)
            sync = torch.zeros(1 + rows * strips * (1 + variant["CENTERED"]), dtype=torch.int32, device=device)
            kernel[((count + lag) * turn,)](
                *tensors, dx, parts[0], parts[-1], sync, rows, *inside, count, lag, 0, **variant.meta
            )
        elif kernel is gradient_team:
            sync = torch.zeros(1 + rows * 2 * variant["TEAM"], dtype=torch.int32, device=device)
            grid = (count * variant["TEAM"],)
            kernel[grid](*tensors, dx, parts[0], parts[-1], sync, rows, *inside, 0, **variant.meta)
        else:
            kernel[(count,)](*tensors, dx, parts[0], parts[-1], rows, *inside, eps, 0, **variant.meta)
    if sums:
        high = min(256, triton.next_power_of_2(count))
        block = min(1024, 8192 // high)
        sum_partials[(triton.cdiv(columns, block), len(sums))](
            parts[0], parts[-1], sums[0], sums[-1], count, N=columns, BLOCK=block, ROWS=high, num_warps=8
        )


def programs(variant: Variant, rows: int, device: torch.device) -> int:
    """How many sets of partial sums a variant makes: programs, teams, or groups of rows."""
    if variant.kernel is gradient_chunks:
        return -(-rows // int(variant["CHUNK"]))
    there = resident(variant, device)
    if variant.kernel is gradient_sums:
        blocks = -(-int(variant["N"]) // int(variant["BLOCK"]))
        there = 4 * multiprocessors(device) // blocks
    elif variant.kernel is gradient_team:
        there //= int(variant["TEAM"])
    each = int(variant["ROWS"]) if variant.kernel in (gradient_sums, gradient_rows) else 1
    return max(1, min(-(-rows // each), there))


def backward(
    tuner: Tuner, form: Form, dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None,
    mean: torch.Tensor | None, rstd: torch.Tensor | None, eps: float, sums: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Run the family on checked arguments: dx like x, dw and db [N] in the dtype `sums`, any tensor if left out."""
    columns = x.shape[-1]
    if not x.numel():
        nothing = torch.zeros(columns, dtype=sums, device=x.device)
        return torch.empty_like(x), nothing, nothing.clone()
    flat, up = rows_of(x), rows_of(dy)
    rows = flat.shape[0]
    w = flat if weight is None else weight.contiguous()
    halves = halves_of(columns, (flat, up), () if weight is None else (w,))
    mean = flat if mean is None else mean.reshape(-1).contiguous()
    if rstd is None:
        words = columns // halves if halves else 0
        if (words >= SHORT or columns > HELD_ROWS) and not held(words, halves, x.dtype, form):
            mean, rstd = _statistics(flat, form.centered, eps)
            form = Form(form.centered, form.weight, form.bias)
        else:
            rstd = flat
    else:
        rstd = rstd.reshape(-1).contiguous()
    key = (*flat.shape, x.dtype, dy.dtype, w.dtype, halves, flat.stride(0), up.stride(0), form)
    # The interpreter's tuner takes the first, which decides what is stored.
    first = space(rows, columns, x.dtype, halves, form)[0].kernel
    kept = x.dtype if first in (gradient_packed, gradient_team, gradient_chunks) else held_dtype(x.dtype)
    dx = torch.empty(x.shape, dtype=kept, device=x.device)
    dw = torch.empty(columns if form.weight else 0, dtype=held_dtype(sums), device=x.device)
    db = torch.empty(columns if form.bias else 0, dtype=held_dtype(sums), device=x.device)
    arguments = (up, flat, w, mean, rstd, dx.view(flat.shape), dw, db, eps)
    variant = tuner.pick(key, lambda: space(rows, columns, x.dtype, halves, form), launch, *arguments)
    launch(variant, *arguments)
    return (dx if kept == x.dtype else dx.to(x.dtype)), dw.to(sums), db.to(sums)


def _statistics(x: torch.Tensor, centered: bool, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = x.shape
    rstd = torch.empty(rows, device=x.device)
    mean = torch.empty_like(rstd) if centered else rstd
    row_statistics[(rows,)](x, mean, rstd, x.stride(0), eps, N=columns, BLOCK=4096, CENTERED=centered, num_warps=16)
    return mean, rstd


def checked_gradient(dy: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor | None, mean: torch.Tensor | None) -> None:
    """Raises TypeError for dtypes that the kernels do not take, ValueError where sizes do not belong together."""
    if dy.dtype not in DTYPES:
        raise TypeError(f"the gradient is {dy.dtype}, not f32, f16 or bf16")
    if dy.shape != x.shape:
        raise ValueError(f"the gradient has shape {tuple(dy.shape)}, the input {tuple(x.shape)}")
    for name, t in (("rstd", rstd), ("mean", mean)):
        if t is not None and t.dtype != torch.float32:
            raise TypeError(f"{name} is {t.dtype}, not f32")
        if t is not None and t.shape != x.shape[:-1]:
            raise ValueError(f"{name} has shape {tuple(t.shape)}, not one number for each row of {tuple(x.shape)}")
