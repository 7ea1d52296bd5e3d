"""Which calls of `flash_attention` a kernel of warp groups with work of their own may take on Hopper, and its launch.

Every program takes a list of tiles that is made here: a tile is given to whoever is free first, as a scheduler on the
GPU would, but without one. Under a causal mask the tiles of the last queries, which have most keys, come first, a few
heads at a time, whose keys and values stay in L2. The lists are made and copied to the GPU at the first call of a
shape, about 1 us of the host a tile; where that cannot be (a CUDA graph is being captured), Triton's variants take the
call.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import torch
import triton
from triton.compiler.errors import CompilationError
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.runtime.errors import PTXASError

from kernels.ops.attention.flash_attention_hopper import BM, flash_attention_hopper_kernel
from kernels.ops.shared.pairs import INTERPRETED
from kernels.spec import Build
from kernels.tuning import Variant, multiprocessors

VERSIONS = ((3, 6), (3, 7))
"""Of Triton, by which it was compiled and looked at: Gluon is experimental, what its calls mean may change."""
HOPPER = (9, 0)
DTYPES = (torch.float16, torch.bfloat16)
GROUP_ROWS = 64
"""Queries of a warp group: the rows of one instruction of the matrix units."""
TILE_KEYS = 80
"""What beginning and ending a tile takes, as keys: first scores and last products, during which little else runs."""

TILE = BM.value
"""Queries of a tile."""
SHAPES = {64: ((128, 3, 3, False), (128, 3, 3, True)), 128: ((128, 2, 3, True), (128, 2, 3, False))}
"""By head dimension: keys of a block, buffers of keys and of values, whether groups take turns. Of values one more than
of keys, where there is room for one: they are free half a step later."""
REGISTERS, BEGIN = 240, 168
"""Of a thread that computes, and of every thread when the program begins. The warp that loads keeps 24; together they
are what was there at the beginning."""


def offered(q: torch.Tensor, d: int, tma: bool, fold: bool, plain: bool) -> bool:
    """Whether a call may have it here. plain: without bias, cap and window. fold: the scale is above 0."""
    return tma and fold and plain and d in SHAPES and q.dtype in DTYPES and runs_on(q.device)


def runs_on(device: torch.device) -> bool:
    """Whether this is a Hopper, and Triton one of VERSIONS."""
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    known = version in VERSIONS and not INTERPRETED.value
    return known and device.type == "cuda" and torch.version.hip is None and _capability(device) == HOPPER


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def space(d: int, columns: int, causal: bool, logsumexp: bool) -> list[Variant]:
    """Variants for a head dimension of SHAPES, the likeliest first."""
    return [variant(d, *shape, causal, columns % shape[0] == 0, logsumexp) for shape in SHAPES[d]]


def variant(
    d: int, bn: int, keys: int, values: int, turns: bool, causal: bool, whole: bool, logsumexp: bool
) -> Variant:
    """One of them. whole: blocks of bn divide the keys."""
    constants = (
        ("D", d), ("BN", bn), ("KEYS", keys), ("VALUES", values), ("CAUSAL", causal), ("WHOLE", whole),
        ("LSE", logsumexp), ("TURNS", turns), ("REGISTERS", REGISTERS),
    )  # fmt: skip
    shared = 2 * d * (2 * TILE + (keys + values) * bn) + 1024
    return Variant(
        flash_attention_hopper_kernel, constants, 4, None, ("BN", "KEYS", "VALUES", "TURNS"), shared, REGISTERS,
        (("maxnreg", BEGIN),),
    )  # fmt: skip


def launch(
    v: Variant, q: torch.Tensor, k: torch.Tensor, v_: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, factor: float,
    table: torch.Tensor,
) -> None:  # fmt: skip
    """Run one variant. factor: the scale times log2(e). table: of `tiles_for`.

    Raises PTXASError where this Triton does not take its text, RuntimeError where a pass of its compiler gives up: a
    tuner takes both for a refusal.
    """
    batch, heads, rows, d = q.shape
    columns, bn = k.shape[2], v["BN"]
    layout = layout_of(q.dtype.itemsize)
    described = (
        TensorDescriptor(t, list(t.shape), list(t.stride()), [1, 1, b, d], layout)
        for t, b in ((q, GROUP_ROWS), (k, bn), (v_, bn), (o, GROUP_ROWS))
    )
    try:
        v.kernel[(table.shape[0],)](
            *described, lse, table, table.shape[1], heads, batch * heads, heads // k.shape[1], rows, columns, factor,
            **v.meta,
        )  # fmt: skip
    except CompilationError as fault:
        raise PTXASError(f"{fault}"[:300]) from fault


def layout_of(itemsize: int) -> gl.NVMMASharedLayout:
    """How a block of [1, 1, rows, D] lies in shared memory: rows of 128 bytes, their sixteenths swapped."""
    return gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=8 * itemsize, rank=4)


# ---- the order of tiles


def key_blocks(block: int, columns: int, bn: int, causal: bool) -> int:
    """Blocks of bn keys that this tile of queries sees."""
    return -(-min(columns, (block + 1) * TILE) // bn) if causal else -(-columns // bn)


def plan(blocks: int, heads: int, together: int, programs: int, bn: int, columns: int, causal: bool) -> list[list[int]]:
    """For each program the tiles that it takes, block * heads + head; every tile once, no program without one.

    together: heads that take turns, their last blocks first.
    """
    programs = min(programs, blocks * heads)
    order = (
        block * heads + head
        for first in range(0, heads, together)
        for block in range(blocks - 1, -1, -1)
        for head in range(first, min(first + together, heads))
    )
    lists: list[list[int]] = [[] for _ in range(programs)]
    if not causal:  # all tiles are alike
        for program, tile in zip(itertools.cycle(range(programs)), order, strict=False):
            lists[program].append(tile)
        return lists
    takes = [key_blocks(block, columns, bn, causal) * bn + TILE_KEYS for block in range(blocks)]
    free = [(0, program) for program in range(programs)]
    for tile in order:
        at, program = free[0]
        lists[program].append(tile)
        heapq.heapreplace(free, (at + takes[tile // heads], program))
    return lists


def as_table(lists: Sequence[Sequence[int]]) -> list[list[int]]:
    """One row for each program, as the kernel reads it: how many, then these, then zeros, one at least."""
    longest = max(map(len, lists)) + 2
    return [[len(tiles), *tiles, *[0] * (longest - 1 - len(tiles))] for tiles in lists]


class Shape(NamedTuple):
    """What a plan depends on; together: heads that take turns, programs: multiprocessors."""

    device: torch.device
    blocks: int
    heads: int
    together: int
    programs: int
    bn: int
    columns: int
    causal: bool


def shape_of(q: torch.Tensor, columns: int, bn: int, causal: bool, together: int, programs: int) -> Shape:
    """Of a call. Without a mask all tiles are alike, whatever their keys; with one whole blocks of keys count."""
    blocks, heads = triton.cdiv(q.shape[2], TILE), q.shape[0] * q.shape[1]
    bn, columns = (bn, triton.cdiv(columns, bn) * bn) if causal else (0, 0)
    return Shape(q.device, blocks, heads, together, programs, bn, columns, causal)


_tables: dict[Shape, torch.Tensor] = {}
"""Every one is kept: a captured graph reads it at each replay. 4 bytes a tile."""
_one_at_a_time = threading.Lock()


def tiles_for(v: Variant, q: torch.Tensor, k: torch.Tensor, together: int) -> torch.Tensor | None:
    """The plan of a call as int32 [programs, longest] on its GPU. together: heads that take turns.

    None, where another kernel has to take the call: while a CUDA graph is captured a plan that is not there yet cannot
    be copied, and torch.compile would take a Gluon kernel in its trace for one of Triton's.
    """
    if torch.compiler.is_dynamo_compiling():
        return None
    shape = shape_of(q, k.shape[2], v["BN"], v["CAUSAL"], together, multiprocessors(q.device))
    table = _tables.get(shape)
    if table is None and not _captures(q.device):
        with _one_at_a_time:
            table = _tables.get(shape)
            if table is None:
                table = _tables[shape] = _made(shape)
    return table


def _captures(device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):  # whose stream may be another than the current device's
        return torch.cuda.is_current_stream_capturing()


def _made(shape: Shape) -> torch.Tensor:
    """By another thread: this one's memory may be of a pool of CUDA graphs, which would be given out again."""
    device, blocks, heads, together, programs, bn, columns, causal = shape
    lists = as_table(plan(blocks, heads, together, programs, bn, columns, causal))
    with ThreadPoolExecutor(1) as other:
        return other.submit(lambda: torch.tensor(lists, dtype=torch.int32).to(device)).result()


# ---- what is compiled offline
def build_of(v: Variant, dtype: str = "bf16") -> Build:
    """A variant as it is compiled offline."""

    def described(rows: int) -> str:
        return f"tensordesc<{dtype}[1, 1, {rows}, {v['D']}],{layout_of(2)!r}>"

    rows = {"q": GROUP_ROWS, "k": v["BN"], "v": v["BN"], "o": GROUP_ROWS}
    signature = {n: described(r) for n, r in rows.items()} | {"lse": "*fp32", "plan": "*i32"}
    signature |= dict.fromkeys(("longest", "heads", "all_heads", "sharing", "height", "width"), "i32")
    others = ("sm_80", "sm_100", "sm_120", "gfx942", "gfx950")
    return Build(
        v, signature | {"factor": "fp32"}, (), dict.fromkeys(others, "has none of Hopper's products of a warp group")
    )
