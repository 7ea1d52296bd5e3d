"""The body of a matrix product's kernel: a tile of the result, walked along K, then what is computed of the tile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernels.codegen.expressions import ops
from kernels.codegen.expressions.values import Value
from kernels.codegen.plan import Store
from kernels.codegen.product_plan import Product, Side, Space
from kernels.codegen.text.names import Names
from kernels.codegen.text.shapes import Body, power_of_two
from kernels.codegen.text.writer import Writer

GROUP = 8
"""Rows of tiles that are walked down before the next column of tiles: the right operand is read from L2 then."""

Tile = tuple[int, int, int, int, int]
"""Rows, columns, K at a time, stages, warps."""

LARGE: Sequence[Tile] = (
    (128, 256, 64, 3, 8), (128, 128, 64, 4, 8), (128, 128, 64, 3, 4), (64, 256, 64, 3, 4), (128, 64, 64, 4, 4),
    (64, 64, 64, 4, 4),
)  # fmt: skip
FEW_ROWS: Sequence[Tile] = (
    (64, 32, 128, 4, 4), (64, 64, 128, 4, 4), (64, 32, 256, 3, 4), (64, 128, 64, 4, 4), (64, 64, 64, 5, 4),
)  # fmt: skip
EXACT: Sequence[Tile] = ((128, 64, 16, 3, 4), (64, 64, 32, 3, 4), (128, 128, 16, 3, 8), (64, 64, 16, 4, 4))
WHOLE_ROWS: Sequence[Tile] = ((128, 0, 64, 3, 8), (64, 0, 64, 3, 4), (64, 0, 32, 4, 4), (32, 0, 64, 4, 4))
"""The columns are the row's."""


def tiles(product: Product) -> list[Tile]:
    """What is tuned over: no tile larger than the next power of two of what it walks over, 16 at least."""
    if product.result.reduces:
        wanted = [(m, power_of_two(product.n), k, stages, warps) for m, _, k, stages, warps in WHOLE_ROWS]
    elif product.left.dtype == "f32":
        wanted = list(EXACT)
    else:
        wanted = list(FEW_ROWS if product.m <= 64 else LARGE)
    least = 32 if product.left.dtype == "i8" else 16
    sizes = [max(16, power_of_two(product.m)), max(16, power_of_two(product.n)), max(least, power_of_two(product.k))]
    fitting = [
        (min(m, sizes[0]), max(16, min(n, sizes[1])), min(k, sizes[2]), stages, warps)
        for m, n, k, stages, warps in wanted
    ]
    return list(dict.fromkeys(fitting))


def body(product: Product, parameters: Mapping[str, str], lines: Mapping[int, str]) -> Body:
    """The kernel's text and what it is tuned over."""
    return _Text(product, parameters, lines).write()


class _Text:
    def __init__(self, product: Product, parameters: Mapping[str, str], lines: Mapping[int, str]) -> None:
        self.product = product
        self.parameters, self.lines = parameters, lines
        self.tiles = tiles(product)
        self.names = Names([*parameters.values(), "acc", "a", "b", "k", "batch", "in_k", "tile", "first", "height"])
        self.text: list[str] = []
        self.indent = 1
        self.ragged_k = product.k % max(t[2] for t in self.tiles) != 0

    def say(self, line: str) -> None:
        self.text.append("    " * self.indent + line)

    def write(self) -> Body:
        p = self.product
        self.place()
        in_row = "in_row" if p.m % max(t[0] for t in self.tiles) else ""
        in_col = "in_col" if p.n % max(t[1] for t in self.tiles) else ""
        if in_row:
            self.say(f"in_row = row < {p.m}")
        if in_col:
            self.say(f"in_col = col < {p.n}")
        left = self.writer(p.left.space, p.left, ("batch", "row", "k[None, :]"), (in_row, self.k_mask("[None, :]")))
        right = self.writer(p.right.space, p.right, ("batch", "k[:, None]", "col"), (self.k_mask("[:, None]"), in_col))
        self.before(left, p.left, 2)
        self.before(right, p.right, 1)
        kind = "tl.int32" if p.acc.dtype == "i32" else "tl.float32"
        self.say(f"acc = tl.zeros((BLOCK_M, BLOCK_N), {kind})")
        self.say(f"for start in range(0, {p.k}, BLOCK_K):")
        self.indent += 1
        self.say(f"k = start + tl.arange(0, BLOCK_K){'.to(tl.int64)' if p.wide else ''}")
        if self.ragged_k:
            self.say(f"in_k = k < {p.k}")
        self.operand("a", left, p.left, 2, "(BLOCK_M, BLOCK_K)", "in_k[None, :]")
        self.operand("b", right, p.right, 1, "(BLOCK_K, BLOCK_N)", "in_k[:, None]")
        self.say(f"acc = {self.sum()}")
        self.indent -= 1
        self.behind(in_row, in_col)
        configs = tuple(((("BLOCK_M", m), ("BLOCK_N", n), ("BLOCK_K", k)), warps) for m, n, k, _, warps in self.tiles)
        grid = f"triton.cdiv({p.m}, meta['BLOCK_M']) * triton.cdiv({p.n}, meta['BLOCK_N'])"
        options = ', PRECISION="tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"'
        return Body(
            "product", ("BLOCK_M", "BLOCK_N", "BLOCK_K", *(["PRECISION"] if p.left.dtype == "f32" else [])),
            tuple(self.text), configs, f"{p.batch} * {grid}" if p.batch > 1 else grid,
            stages=tuple(t[3] for t in self.tiles), options=options if p.left.dtype == "f32" else "",
        )  # fmt: skip

    def place(self) -> None:
        """Which tile of which product a program computes."""
        p, wide = self.product, ".to(tl.int64)" if self.product.wide else ""
        self.say(f"across = tl.cdiv({p.n}, BLOCK_N)")
        if p.batch > 1:
            self.say(f"tile = tl.program_id(0) % (tl.cdiv({p.m}, BLOCK_M) * across)")
            self.say(f"batch = (tl.program_id(0) // (tl.cdiv({p.m}, BLOCK_M) * across)){wide}")
        else:
            self.say("tile = tl.program_id(0)")
        self.say(f"# {GROUP} rows of tiles, column by column, so that what they share is read from L2")
        self.say(f"first = tile // ({GROUP} * across) * {GROUP}")
        self.say(f"height = tl.minimum(tl.cdiv({p.m}, BLOCK_M) - first, {GROUP})")
        down, right = f"first + tile % ({GROUP} * across) % height", f"tile % ({GROUP} * across) // height"
        self.say(f"row = (({down}) * BLOCK_M + tl.arange(0, BLOCK_M)){wide}[:, None]")
        self.say(f"col = ({right} * BLOCK_N + tl.arange(0, BLOCK_N)){wide}[None, :]")

    def k_mask(self, side: str) -> str:
        return f"in_k{side}" if self.ragged_k else ""

    def writer(
        self, space: Space, side: Side | None, sources: tuple[str, str, str], masks: tuple[str, str]
    ) -> tuple[Writer, list[tuple[int, str]]]:
        """A writer into the same text, and the statements that find dimensions which a reshape split, by part."""
        p = self.product
        plan = p.result if side is None else side.plan
        axes, statements = axes_of(space, sources, self.names, "c" if side is None else "a" if side is p.left else "b")
        row_mask, col_mask = masks
        made = Writer(
            plan, self.parameters, self.lines, axes, row_mask=row_mask, col_mask=col_mask, two_dimensional=True,
            names=self.names, text=self.text,
        )  # fmt: skip
        return made, statements

    def before(self, writer: tuple[Writer, list[tuple[int, str]]], side: Side, part: int) -> None:
        """What of an operand is the same for all of K. part: of its space that is K."""
        made, statements = writer
        for own, line in statements:
            if own != part:
                self.say(line)
        made.indent = self.indent
        made.statements(v for v in side.plan.values if not _along(v, part) and v is not side.value)

    def operand(
        self, name: str, writer: tuple[Writer, list[tuple[int, str]]], side: Side, part: int, shape: str, in_k: str
    ) -> None:
        """A tile of one operand, of the dtype that is multiplied and without a number where K has ended."""
        made, statements = writer
        for own, line in statements:
            if own == part:
                self.say(line)
        made.indent = self.indent
        value = side.value
        if side.plain:
            text = self.loaded(made, side)
            if self.ragged_k and not _along(value, part):  # its mask knows nothing of K
                text = f"tl.where({in_k}, {text}, {0 if side.dtype == 'i8' else 0.0})"
            self.say(f"{name} = {text}")
        else:
            made.statements(v for v in side.plan.values if _along(v, part) or v is value)
            text = made.operand(value)
            if side.dtype == "bf16":
                text = text if value.text.startswith("round_to(") else f"round_to({text}, tl.bfloat16)"
            if value.dtype != side.dtype:
                text = f"{text}.to({ops.TRITON_DTYPES[side.dtype]})"
            if self.ragged_k:
                text = f"tl.where({in_k}, {text}, {0 if side.dtype == 'i8' else 0.0})"
            self.say(f"{name} = {text}")
        if not (value.rows and value.columns):
            self.say(f"{name} = tl.broadcast_to({name}, {shape})")

    def loaded(self, writer: Writer, side: Side) -> str:
        value = side.value
        where = writer.linear(value.where)
        pointer = self.parameters[value.operand]
        arguments = [f"{pointer} + {where}" if where != "0" else pointer]
        mask = writer.mask(value.rows, value.columns)
        if mask:
            arguments += [f"mask={mask}", f"other={0 if side.dtype == 'i8' else 0.0}"]
        return f"tl.load({', '.join(arguments)})"

    def sum(self) -> str:
        dtype = self.product.left.dtype
        if dtype == "bf16":
            return "dot_bf16(a, b, acc)"
        if dtype == "i8":
            return "tl.dot(a, b, acc, out_dtype=tl.int32)"
        return f"tl.dot(a, b, acc{', input_precision=PRECISION' if dtype == 'f32' else ''})"

    def behind(self, in_row: str, in_col: str) -> None:
        p = self.product
        writer, statements = self.writer(p.space, None, ("batch", "row", "col"), (in_row, in_col))
        for _, line in statements:
            self.say(line)
        writer.indent = self.indent
        writer.written[id(p.acc)] = "acc"
        writer.statements(v for v in p.result.values if v is not p.acc)
        for store in p.result.stores:
            self.say(store_tile(writer, store, p.space, in_row, in_col))


def axes_of(
    space: Space, sources: tuple[str, str, str], names: Names, letter: str
) -> tuple[dict[int, str], list[tuple[int, str]]]:
    """Names of the dimensions, and the statements that find those which a reshape split, with the part of each."""
    axes: dict[int, str] = {}
    statements: list[tuple[int, str]] = []
    for part, source in enumerate(sources):
        dims = space.dims(part)
        inner = 1
        own: list[tuple[int, str]] = []
        for dim in reversed(dims):
            size = space.domain.sizes[dim]
            if len(dims) == 1:
                axes[dim] = source
                continue
            axes[dim] = names.new(f"{letter}{dim}")
            rest = f" % {size}" if dim != dims[0] else ""
            own.append((part, f"{axes[dim]} = {source}{f' // {inner}' if inner > 1 else ''}{rest}"))
            inner *= size
        statements += own[::-1]
    return axes, statements


def store_tile(writer: Writer, store: Store, space: Space, in_row: str, in_col: str, tall: bool = True) -> str:
    """The statement that stores a tile, or a number for each of its rows; a dimension of one place is one all the same.

    tall: the tile has several rows.
    """
    full = math.prod(store.shape) == space.domain.rows * space.domain.width
    parts = {space.part(d) for d, _ in store.where.terms}
    plain = writer.linear(store.where)
    where = [writer.parameters[store.name], *([plain] if plain != "0" else [])]
    where += ["row * 0"] if tall and 1 not in parts else []
    where += ["col * 0"] if full and 2 not in parts else []
    where += ["tl.arange(0, 1)[None, :]"] if not (tall or full) else []  # as the one number of a row is shaped
    mask = " & ".join(m for m in (in_row, in_col if full else "") if m)
    value = writer.operand(store.value)
    return f"tl.store({' + '.join(where)}, {value}{f', mask={mask}' if mask else ''})"


def _along(value: Value, part: int) -> bool:
    """It differs along K."""
    return value.columns if part == 2 else value.rows
