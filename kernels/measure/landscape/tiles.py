"""Tiles of a kernel from tiny to large: what else a constant may be than its file tunes over, and what follows from it.

A kernel that is not listed keeps the tiles of its own tuning space. Constants that depend on a tile (how many pieces a
row has, whether the last one is whole) are made anew here, as the kernel's file makes them; every point is checked
against the reference all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.ops.matmul.gemm import shared_bytes
from kernels.ops.shared.pairs import registers as packed_registers
from kernels.tuning import Variant

Constants = Mapping[str, Any]
Arguments = Sequence[Any]
Tiles = Callable[[Constants, Arguments], Iterator[Constants]]

PIECES = 32
"""Most pieces of a row that are unrolled: more take minutes to compile."""
ROW_ELEMENTS = 65536
"""Most elements of a tile of several rows."""
BLOCKS = (4, 16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
"""From the tile of 4 that the sources warn of."""
PRODUCTS = (
    (16, 16, 16), (32, 32, 32), (64, 64, 32), (64, 64, 64), (64, 128, 64), (128, 64, 64), (128, 128, 32),
    (128, 128, 64), (128, 128, 128), (128, 256, 64), (256, 128, 64), (256, 256, 64),
)  # fmt: skip
"""Rows, columns and depth of a matrix product's tile; the matrix units take no less than 16 of each."""


@dataclass(frozen=True, slots=True)
class Family:
    """tiles: constants with their launch's arguments -> what else they may be, whole sets of changes.
    follow: what the changed ones, with the stages, decide. needs: shared memory in bytes and registers a thread, as the
    kernel's own file has them; None where it has no model.
    """

    tiles: Tiles
    follow: Callable[[Constants, Arguments, int], Constants] = lambda constants, arguments, warps: {}
    needs: Callable[[Constants, Arguments, int, int | None], tuple[int, int]] | None = None


def remade(variant: Variant, changes: Constants, arguments: Arguments, warps: int, stages: int | None) -> Variant:
    """This variant with other constants, warps and stages; what follows from them and its model made anew.

    stages: of the launch, or of the kernel's own pipeline where it has the constant STAGES; None leaves them.
    """
    constants = {**dict(variant.constants), **changes}
    launched = variant.stages
    if stages is not None and "STAGES" in constants:
        constants["STAGES"] = stages
    elif stages is not None:
        launched = stages
    family = FAMILIES.get(variant.kernel.__name__)
    if family is not None:
        constants |= family.follow(constants, arguments, warps)
    if family is not None and family.needs is not None:
        shared, registers = family.needs(constants, arguments, warps, launched)
    else:
        shared, registers = _scaled(variant, constants, warps, launched)
    order = [name for name, _ in variant.constants]
    return Variant(
        variant.kernel, tuple((name, constants[name]) for name in order), warps, launched, variant.tuned, shared,
        registers, variant.options,
    )  # fmt: skip


BASE_REGISTERS = 32
"""What every thread needs, whatever it holds."""


def _scaled(variant: Variant, constants: Constants, warps: int, stages: int | None) -> tuple[int, int]:
    """The variant's own model for other warps and stages of the same tile: what a thread holds is shared by more."""
    registers = variant.registers
    if registers > BASE_REGISTERS:
        registers = BASE_REGISTERS + math.ceil((registers - BASE_REGISTERS) * variant.warps / warps)
    before, after = dict(variant.constants).get("STAGES"), constants.get("STAGES")
    shared = variant.shared_bytes
    if before and after and before > 1:
        shared = shared * (after - 1) // (before - 1)
    elif variant.stages and stages:
        shared = shared * stages // variant.stages
    return shared, registers


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _blocks(name: str, length: Callable[[Constants, Arguments], int], least: int = 1, pieces: int = 0) -> Tiles:
    """`name` over BLOCKS, no wider than `length` needs; pieces: into so many at most it may cut that length."""

    def tiles(constants: Constants, arguments: Arguments) -> Iterator[Constants]:
        whole = length(constants, arguments)
        for block in BLOCKS:
            if least <= block <= _power_of_two(whole) and (not pieces or -(-whole // block) <= pieces):
                yield {name: block}

    return tiles


def _rows(constants: Constants, arguments: Arguments) -> Iterator[Constants]:
    """ROWS rows of BLOCK elements a program."""
    for rows in (1, 2, 4, 8, 16, 32, 64):
        if rows * constants["BLOCK"] <= ROW_ELEMENTS and rows <= _power_of_two(arguments[0].shape[0]):
            yield {"ROWS": rows}


def _whole_rows(constants: Constants, arguments: Arguments, warps: int) -> Constants:
    rows, columns = arguments[0].shape
    return {"WHOLE": columns == constants["BLOCK"] and rows % constants["ROWS"] == 0}


def _norm_pieces(constants: Constants, arguments: Arguments, warps: int) -> Constants:
    chunks = -(-constants["WORDS"] // constants["BLOCK"])
    held = -(-chunks * constants["BLOCK"] // (32 * warps))
    early = constants["STAGES"] > 1 or (constants["WEIGHT"] + constants["BIAS"]) * held <= 16
    return {"CHUNKS": chunks, "EARLY": early}


def _norm_needs(c: Constants, arguments: Arguments, warps: int, stages: int | None) -> tuple[int, int]:
    held = -(-c["CHUNKS"] * c["BLOCK"] // (32 * warps))
    extra = (c["WEIGHT"] + c["BIAS"]) * held if c["EARLY"] else 0
    registers = held * (2 if c["HALVES"] == 1 and c["RESIDUAL"] else 1) + extra + 26
    return (c["STAGES"] - 1) * c["WORDS"] * 4 * (1 + c["RESIDUAL"]), registers


def _held_whole(constants: Constants, arguments: Arguments, warps: int) -> Constants:
    return {"HELD": -(-constants["PAIRS"] // constants["BLOCK"])}


def _packed_tiles(constants: Constants, arguments: Arguments) -> Iterator[Constants]:
    """Rows that are held whole: pieces of other sizes. Of longer ones a part is held: more or less of it."""
    if constants["HELD"] * constants["BLOCK"] >= constants["PAIRS"]:
        for tile in _blocks("BLOCK", lambda c, a: c["PAIRS"], 64, PIECES)(constants, arguments):
            yield {**tile, "HELD": -(-constants["PAIRS"] // tile["BLOCK"])}
    else:
        for held in (0, 2, 4, 8, 16):
            if held * constants["BLOCK"] < constants["PAIRS"]:
                yield {"HELD": held}


def _held_registers(c: Constants, warps: int) -> int:
    return packed_registers(-(-c["HELD"] * c["BLOCK"] // (32 * warps * 4)))


def _packed_needs(c: Constants, arguments: Arguments, warps: int, stages: int | None) -> tuple[int, int]:
    ahead = 4 * (c["STAGES"] - 1) * c["UNROLL"] * c["BLOCK"]
    return ahead + (8 * c["BLOCK"] if c["WIDEN"] else 0) + 1024, _held_registers(c, warps)


def _ahead_needs(c: Constants, arguments: Arguments, warps: int, stages: int | None) -> tuple[int, int]:
    return (1024 if c["AHEAD"] else 4 * c["HELD"] * c["BLOCK"] + 1024), _held_registers(c, warps)


def _products(constants: Constants, arguments: Arguments) -> Iterator[Constants]:
    for bm, bn, bk in PRODUCTS:
        yield {"BM": bm, "BN": bn, "BK": bk}


def _product_follows(constants: Constants, arguments: Arguments, warps: int) -> Constants:
    follows: dict[str, int] = {"EVEN_K": arguments[0].shape[1] % constants["BK"] == 0}
    return follows | ({"PIECES": 4 if constants["BN"] >= 64 else 2} if "PIECES" in constants else {})


def _product_needs(c: Constants, arguments: Arguments, warps: int, stages: int | None) -> tuple[int, int]:
    size, tile = arguments[0].element_size(), c["BM"] * c["BN"]
    kept_bytes = tile * size // 2 if "PIECES" in c and c["FLATTEN"] else tile if "PIECES" not in c and c["TMA"] else 0
    shared = shared_bytes(c["BM"], c["BN"], c["BK"], stages or 1, size, kept_bytes)
    return shared, tile // (32 * warps) + (96 if "PIECES" in c else 40)


def _split_needs(c: Constants, arguments: Arguments, warps: int, stages: int | None) -> tuple[int, int]:
    size = arguments[0].element_size()
    return shared_bytes(c["BM"], c["BN"], c["BK"], stages or 1, size), 0


def _attention_tiles(constants: Constants, arguments: Arguments) -> Iterator[Constants]:
    for bm, bn in ((16, 16), (16, 64), (32, 32), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128), (256, 64)):
        yield {"BM": bm, "BN": bn}


def _attention_follows(constants: Constants, arguments: Arguments, warps: int) -> Constants:
    return {"WHOLE": arguments[1].shape[2] % constants["BN"] == 0}


def _attention_needs(c: Constants, arguments: Arguments, warps: int, stages: int | None) -> tuple[int, int]:
    bm, bn, dp, size = c["BM"], c["BN"], c["DP"], arguments[0].element_size()
    scores = bm * bn * (2 if c.get("AHEAD") else 1)
    return (bm + 2 * (stages or 1) * bn) * dp * size, (bm * dp + scores + bm * bn * size // 4) // (32 * warps) + 30


def _whole_columns(constants: Constants, arguments: Arguments, warps: int) -> Constants:
    return {"WHOLE": arguments[0].shape[1] % constants["BLOCK"] == 0}


def _bands(constants: Constants, arguments: Arguments) -> Iterator[Constants]:
    rows, columns = arguments[0].shape
    for count, block in ((1, 4), (1, 64), (1, 256), (1, 1024), (2, 512), (4, 256), (4, 1024), (8, 512), (16, 256),
                         (1, 4096), (32, 128), (8, 2048)):  # fmt: skip
        if count <= _power_of_two(rows) and block <= _power_of_two(columns):
            yield {"ROWS": count, "BLOCK": block}


def _whole_bands(constants: Constants, arguments: Arguments, warps: int) -> Constants:
    rows, columns = arguments[0].shape
    return {"WHOLE": rows % constants["ROWS"] == 0 and columns % constants["BLOCK"] == 0}


def _of_row(constants: Constants, arguments: Arguments) -> int:
    return int(arguments[0].shape[-1])


FAMILIES: Mapping[str, Family] = {
    "norm_packed": Family(_blocks("BLOCK", lambda c, a: c["WORDS"], 64, PIECES), _norm_pieces, _norm_needs),
    "norm_loop": Family(_blocks("BLOCK", _of_row)),
    "norm_rows": Family(_rows),
    "softmax_rows": Family(_rows, _whole_rows),
    "softmax_packed": Family(_packed_tiles, needs=_packed_needs),
    "softmax_ahead": Family(
        _blocks("BLOCK", lambda c, a: c["PAIRS"], 512, PIECES), _held_whole, _ahead_needs
    ),
    "softmax_loop": Family(_blocks("BLOCK", _of_row, 64)),
    "matmul_kernel": Family(_products, _product_follows, _product_needs),
    "matmul_epilogue_kernel": Family(_products, _product_follows, _product_needs),
    "matmul_split": Family(_products, needs=_split_needs),
    "flash_attention_kernel": Family(_attention_tiles, _attention_follows, _attention_needs),
    "gated_forward": Family(_blocks("BLOCK", _of_row), _whole_columns),
    "bias_activation_mask_kernel": Family(_bands, _whole_bands),
    "vector_add_kernel": Family(_blocks("BLOCK", lambda c, a: 32768)),
}  # fmt: skip
"""By the name of the jit function."""
