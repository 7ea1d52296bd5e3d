"""What the normalisations over the last axis share: the forward's tuning space and launcher, checks, limits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
from triton import knobs

from kernels.ops.norm.forward_kernels import norm_loop, norm_packed, norm_rows, norm_together
from kernels.ops.norm.rms_norm_cluster import launch_cluster, rms_norm_cluster
from kernels.ops.norm.rms_norm_cluster import variants as cluster_variants
from kernels.ops.shared.cluster import takes
from kernels.ops.shared.rows import DTYPES, HELD, HELD_PACKED, held_dtype, paired, rows_of
from kernels.tuning import Tuner, Variant, multiprocessors

SHORT = 512
"""Rows of fewer 32-bit words go several to a program."""
SMALL = ((2048, 8), (4096, 16))
"""Elements and warps of norm_loop where a row would also be held."""


@dataclass(frozen=True, slots=True)
class Form:
    """Which of the family: a residual is added, the mean subtracted, with weight, with bias, statistics returned."""

    residual: bool = False
    centered: bool = False
    weight: bool = True
    bias: bool = False
    stats: bool = False

    @property
    def constants(self) -> tuple[tuple[str, bool], ...]:
        names = ("RESIDUAL", "CENTERED", "WEIGHT", "BIAS", "STATS")
        return tuple(zip(names, (self.residual, self.centered, self.weight, self.bias, self.stats), strict=True))

    @property
    def by_clusters(self) -> bool:
        """Whether there is a kernel of it for clusters of programs (rms_norm_cluster)."""
        return not (self.centered or self.bias or self.stats)


def space(
    rows: int, columns: int, dtype: torch.dtype, halves: int, form: Form, clustered: bool = False
) -> list[Variant]:
    """Variants worth timing. halves: floats in a 32-bit word, 0 where rows are not whole words.

    clustered: clusters of programs compute these rows as well (shared/cluster.py).
    """
    first = cluster_variants(columns, dtype, halves, form.residual, form.weight) if clustered else []
    return first + _unclustered(rows, columns, dtype, halves, form)


def _unclustered(rows: int, columns: int, dtype: torch.dtype, halves: int, form: Form) -> list[Variant]:
    words = columns // halves if halves else 0
    block = triton.next_power_of_2(max(1, columns))
    together = [] if columns <= HELD // 2 or knobs.runtime.interpret else teams(columns, dtype, halves, form)
    settings = (("N", columns), ("DTYPE", DTYPES[dtype]), *form.constants)
    if words >= SHORT and columns <= (HELD_PACKED if halves == 2 else HELD):
        variants = [pieces(words, halves, dtype, form, w, 1) for w in (16, 8, 4, 2, 1, 32) if fits(words, w, 32)]
        variants += [
            pieces(words, halves, dtype, form, w, stages)
            for w, stages in ((4, 3), (8, 3), (16, 3))
            if fits(words, w, 16) and words >= w * 64
        ]
        if words > HELD // 2:
            variants += [pieces(words, halves, dtype, form, *choice) for choice in asking(form)]
        if 4096 <= columns <= HELD // 2:  # twice from L1, by so few registers that many rows are under way
            variants += [Variant(norm_loop, (*settings, ("BLOCK", b)), w, tuned=("BLOCK",)) for b, w in SMALL]
        return variants + together
    if block <= HELD and block * 4 > SHORT:
        widths = [w for w in (4, 8, 16, 32) if 8 <= block // (32 * w) <= 64] or [4]
        tiles = [(max(1, 2048 // block), w) for w in widths]
    elif block <= HELD:
        tiles = [(2048 // block, 2), (2048 // block, 4), (4096 // block, 4), (8192 // block, 8)]
    else:
        return [
            Variant(norm_loop, (*settings, ("BLOCK", b)), w, tuned=("BLOCK",))
            for b, w in ((2048, 8), (4096, 16), (8192, 32), (16384, 32))
        ] + together
    counts = dict.fromkeys((min(count, triton.next_power_of_2(rows)), w) for count, w in tiles)
    return [
        Variant(norm_rows, (*settings, ("BLOCK", block), ("ROWS", count)), w, tuned=("ROWS",)) for count, w in counts
    ]


def asking(form: Form) -> tuple[tuple[int, int, int, bool], ...]:
    """Warps, stages, quarters of the next row asked for, and whether in bulk, of programs that fill a multiprocessor.

    With two inputs not all of it: on every multiprocessor, and with what is being written, that is more than L2 holds.
    """
    if form.residual:
        return (32, 1, 2, True), (32, 1, 2, False), (32, 1, 4, True)
    return (32, 1, 4, True), (32, 1, 4, False), (16, 1, 4, True)


def teams(columns: int, dtype: torch.dtype, halves: int, form: Form) -> list[Variant]:
    """Several programs a row that walk. Not for the interpreter, where none can wait for another."""
    sizes = [(4096, 2, 3), (4096, 4, 3), (8192, 4, 3)]
    if halves == 2 and not (form.residual or form.centered):
        sizes += [(16384, 16, 3)]
    return [team(columns, dtype, max(halves, 1), form, *s) for s in sizes if 1 < triton.cdiv(columns, s[0]) <= 32]


def team(columns: int, dtype: torch.dtype, halves: int, form: Form, block: int, warps: int, stages: int) -> Variant:
    """norm_together with `block` elements a program. halves: floats in a word that is loaded, 1 or 2."""
    words, block = columns // halves, block // halves
    size = triton.cdiv(words, block)
    constants = (("WORDS", words), ("BLOCK", block), ("TEAM", size), ("HALVES", halves), ("DTYPE", DTYPES[dtype]),
                 *form.constants, ("WHOLE", size * block == words), ("STAGES", stages))  # fmt: skip
    held = block // (32 * warps)
    ahead = stages == 1
    registers = held * (1 + form.residual + ahead + form.weight + form.bias) + (
        40 if form.residual or ahead or warps > 4 else 32
    )
    if ahead and (form.residual or form.centered):
        registers += held // 2
    if halves == 1:  # conversions are not repeated, single 16-bit elements are unpacked
        registers += held * 4 // dtype.itemsize
    shared = (stages - 1) * (1 + form.residual) * block * halves * dtype.itemsize + 1024
    return Variant(norm_together, constants, warps, None, ("BLOCK", "STAGES"), shared, registers)


def fits(words: int, warps: int, most: int) -> bool:
    """At most so many words a thread, and every thread has one; of many warps each has two loads of 128 bits."""
    least = warps * 128 + 1 if warps >= 16 else min(32, most) // 8 * warps * 8
    return least <= words <= most * warps * 32


def pieces(
    words: int, halves: int, dtype: torch.dtype, form: Form, warps: int, stages: int, ahead: int = 0, bulk: bool = False
) -> Variant:
    """norm_packed with 128 bits a thread and piece. ahead: quarters of the next row asked for, bulk: how."""
    block = min(warps * 32 * 4, triton.next_power_of_2(words))
    chunks = triton.cdiv(words, block)
    settings = (("WORDS", words), ("BLOCK", block), ("CHUNKS", chunks), ("HALVES", halves), ("DTYPE", DTYPES[dtype]))
    held = chunks * 4
    early = stages > 1 or (form.weight + form.bias) * held <= 16
    extra = (form.weight + form.bias) * held if early else 0
    return Variant(
        norm_packed,
        (*settings, *form.constants, ("STAGES", stages), ("EARLY", early), ("AHEAD", ahead), ("BULK", bulk)),
        warps,
        tuned=("BLOCK", "STAGES", "AHEAD", "BULK"),
        shared_bytes=(stages - 1) * words * 4 * (1 + form.residual),
        registers=held * (2 if halves == 1 and form.residual else 1) + extra + 26,
    )


def resident(variant: Variant, device: torch.device) -> int:
    """Programs that run at once, by the variant's model of registers and shared memory: the grid of those that walk.

    2 in the interpreter, so that they do walk.
    """
    if device.type != "cuda":
        return 2
    threads = variant.warps * 32
    each = min(2048 // threads, 65536 // (max(variant.registers, 32) * threads), 32)
    if variant.shared_bytes:
        each = min(each, (227 << 10) // (variant.shared_bytes + 1024))
    return max(1, each) * multiprocessors(device)


def launch(
    variant: Variant, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor,
    y: torch.Tensor, added: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, eps: float,
) -> None:  # fmt: skip
    """Run one variant on x, residual -> y, added, all [rows, N] with contiguous rows; any tensor for what is not used.

    y and added have one stride, mean and rstd are [rows] in f32.
    """
    if variant.kernel is rms_norm_cluster:
        launch_cluster(variant, x, residual, weight, y, added, eps)
        return
    rows = x.shape[0]
    tensors = (x, residual, weight, bias, y, added, mean, rstd, rows)
    if variant.kernel is norm_packed:
        halves = variant["HALVES"]
        strides = (x.stride(0) // halves, residual.stride(0) // halves, y.stride(0) // halves)
        walks = variant["STAGES"] > 1 or variant["AHEAD"]
        grid = min(rows, resident(variant, x.device)) if walks else rows
        norm_packed[(grid,)](*tensors, *strides, eps, 0, **variant.meta)
        return
    if variant.kernel is norm_together:
        size, halves = variant["TEAM"], variant["HALVES"]
        strides = (x.stride(0) // halves, residual.stride(0) // halves, y.stride(0) // halves)
        programs = size * max(1, min(rows, resident(variant, x.device) // size))
        sync = torch.zeros(1 + rows * size, dtype=torch.int64, device=x.device)
        norm_together[(programs,)](*tensors[:-1], sync, rows, *strides, eps, 0, **variant.meta)
        return
    strides = (x.stride(0), residual.stride(0), y.stride(0))
    grid = rows if variant.kernel is norm_loop else triton.cdiv(rows, variant["ROWS"])
    variant.kernel[(grid,)](*tensors, *strides, eps, **variant.meta)


def halves_of(columns: int, rows: tuple[torch.Tensor, ...], vectors: tuple[torch.Tensor, ...]) -> int:
    """How many floats of these a 32-bit word holds; 0 where they do not lie in whole words."""
    dtype = rows[0].dtype
    if any(t.dtype != dtype for t in (*rows, *vectors)):
        return 0
    if dtype == torch.float32:
        return 1
    whole = all(paired(t) for t in rows) and all(t.data_ptr() % 4 == 0 for t in (*rows, *vectors))
    return 2 if whole and columns % 2 == 0 else 0


def checked(x: torch.Tensor, name: str, **vectors: torch.Tensor | None) -> None:
    """Raises TypeError for a dtype that the kernels do not take, ValueError for a vector that is not a row long."""
    for label, t in (("x", x), *vectors.items()):
        if t is not None and t.dtype not in DTYPES:
            raise TypeError(f"{name} takes f32, f16 or bf16, not {t.dtype} ({label})")
        if t is not None and t is not x and t.shape != x.shape[-1:]:
            raise ValueError(f"the {label} has shape {tuple(t.shape)}, a row {x.shape[-1]} elements")


def packs(columns: int, halves: int) -> bool:
    """Whether rows are held as words."""
    return halves > 0 and columns // halves >= SHORT and columns <= (HELD_PACKED if halves == 2 else HELD)


def forward(
    tuner: Tuner, form: Form, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor | None,
    bias: torch.Tensor | None, eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Run the family on checked arguments: result and sum like x, mean and rstd [*leading] in f32.

    What the form leaves out is another of the tensors.
    """
    shape, there = x.shape[:-1], x.device
    if not x.numel():
        nothing = torch.full(shape, math.nan, dtype=torch.float32, device=there)
        return torch.empty_like(x), torch.empty_like(x), nothing, nothing.clone()
    flat = rows_of(x)
    rows, columns = flat.shape
    other = flat if residual is None else rows_of(residual)
    w = flat if weight is None else weight.contiguous()
    b = flat if bias is None else bias.contiguous()
    vectors = tuple(v for v, given in ((w, form.weight), (b, form.bias)) if given)
    halves = halves_of(columns, (flat, other), vectors)
    dtype = x.dtype if packs(columns, halves) else held_dtype(x.dtype)
    y = torch.empty(x.shape, dtype=dtype, device=there)
    added = torch.empty_like(y) if form.residual else y
    rstd = torch.empty(shape, dtype=torch.float32, device=there) if form.stats else y
    mean = torch.empty_like(rstd) if form.stats and form.centered else rstd
    result = y.view(rows, columns)
    clustered = form.by_clusters and halves > 0 and takes((flat, other, result), vectors)
    arguments = (flat, other, w, b, result, added.view(rows, columns), mean, rstd, eps)
    key = (rows, columns, x.dtype, halves, flat.stride(0), other.stride(0), form, tuple(v.dtype for v in vectors),
           clustered)  # fmt: skip
    variant = tuner.pick(key, lambda: space(rows, columns, x.dtype, halves, form, clustered), launch, *arguments)
    launch(variant, *arguments)
    if dtype != x.dtype:
        y, added = y.to(x.dtype), added.to(x.dtype)
    return y, added, mean, rstd
