"""The body of a kernel that reduces runs of rows: one run a program and some columns, several rows at a time."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.codegen.expressions import ops
from kernels.codegen.segment_plan import Segments
from kernels.codegen.text.names import Names
from kernels.codegen.text.product import axes_of, store_tile
from kernels.codegen.text.shapes import Body, Configs, power_of_two
from kernels.codegen.text.writer import Writer, identity

MOST_COLUMNS = 256


def columns_of(made: Segments) -> int:
    """Columns of a program: all of a row where it is reduced."""
    return power_of_two(made.width) if made.result.reduces else min(MOST_COLUMNS, power_of_two(made.width))


def configs_of(block: int) -> Configs:
    """Rows at a time: 8 to 32 elements a thread."""
    shapes = ((512, 1), (1024, 2), (2048, 4), (4096, 4), (256, 1))
    tiles = {(max(1, elements // block), warps): None for elements, warps in shapes}
    return tuple(((("ROWS", rows),), warps) for rows, warps in tiles)


def body(made: Segments, parameters: Mapping[str, str], lines: Mapping[int, str]) -> Body:
    """The kernel's text and what it is tuned over."""
    block = columns_of(made)
    names = Names([*parameters.values(), "acc", "segment", "in_run", "lanes"])
    text: list[str] = []
    wide = ".to(tl.int64)" if made.wide else ""

    def say(line: str, depth: int = 1) -> None:
        text.append("    " * depth + line)

    blocks = -(-made.width // block)
    if blocks > 1:
        say(f"segment = (tl.program_id(0) // {blocks}){wide}")
        say(f"col = (tl.program_id(0) % {blocks} * {block} + tl.arange(0, {block})){wide}[None, :]")
    else:
        say(f"segment = tl.program_id(0){wide}")
        say(f"col = tl.arange(0, {block}){wide}[None, :]")
    in_col = "in_col" if made.width % block else ""
    if in_col:
        say(f"in_col = col < {made.width}")
    bounds = Writer(made.bounds, parameters, lines, {0: "0", 1: "segment", 2: "0"}, names=names, text=text)
    bounds.statements(made.bounds.values)
    begin, end = bounds.operand(made.begin), bounds.operand(made.end)
    kind, how = ops.TRITON_DTYPES[made.acc.dtype], {"max": "nan_max", "min": "nan_min"}.get(made.how, made.how)
    nothing = identity(how, made.acc.dtype)
    say(f"lanes = tl.full((ROWS, {block}), {nothing}, {kind})")
    say(f"for start in range({begin}, {end}, ROWS):")
    say("at = start + tl.arange(0, ROWS)[:, None]", 2)
    say(f"in_run = at < {end}", 2)
    axes, statements = axes_of(made.source.space, ("0", "at", "col"), names, "a")
    for _, line in statements:
        say(line, 2)
    source = Writer(
        made.source.plan, parameters, lines, axes, row_mask="in_run", col_mask=in_col, two_dimensional=True,
        names=names, text=text, indent=2,
    )  # fmt: skip
    source.statements(made.source.plan.values)
    mask = " & ".join(m for m in ("in_run", in_col) if m)
    element = f"tl.where({mask}, {source.operand(made.source.value)}, {nothing})"
    if how in ("nan_max", "nan_min"):
        say(f"lanes = {how}(lanes, {element})", 2)
        say(f"acc = tl.reduce(lanes, 0, {how}, keep_dims=True)")
    else:
        say(f"lanes += {element}", 2)
        say("acc = tl.sum(lanes, axis=0, keep_dims=True)")
    if how == "mean":
        say(f"acc = acc / ({end} - {begin})")
    axes, statements = axes_of(made.space, ("0", "segment", "col"), names, "c")
    for _, line in statements:
        say(line)
    writer = Writer(made.result, parameters, lines, axes, col_mask=in_col, two_dimensional=True, names=names, text=text)
    writer.written[id(made.acc)] = "acc"
    writer.statements(v for v in made.result.values if v is not made.acc)
    for store in made.result.stores:
        say(store_tile(writer, store, made.space, "", in_col, tall=False))
    return Body("segments", ("ROWS",), tuple(text), configs_of(block), str(made.count * blocks))
