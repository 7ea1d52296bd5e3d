"""The four shapes a kernel has: flat, tile, rows held at once, rows walked in a loop. Each writes a body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernels.codegen.plan import Plan
from kernels.codegen.text.names import Names
from kernels.codegen.text.runs import Run, single_dims, split_axes
from kernels.codegen.text.writer import Writer

MAX_HELD = 32768
"""Elements of a row times full loads that one program keeps in registers: 32 a thread of 1024."""

MAX_ACROSS, MAX_ACROSS_ONCE = 512, 128
"""Elements of a row times full loads that are held where neighbours in memory lie along the rows: 32 rows and more, 64
bytes that memory gives at once; and where each element is needed once, so that holding it saves no second read."""

INNER, INNER_TURNED = 128, 32
"""Columns from which a tile of rows and columns beats a flat block with a division: a row of 256 bytes in bf16; and
where an operand lies along the rows, of which a flat block would read each element by itself.
"""


@dataclass(frozen=True, slots=True)
class Body:
    """Kernel text and how to launch it. configs: (constants, warps); grid: an expression over `meta` in launch().

    stages: of each configuration, where they are not Triton's own number. options: further arguments of the launch.
    """

    form: str
    parameters: tuple[str, ...]  # tl.constexpr names
    lines: tuple[str, ...]
    configs: tuple[tuple[tuple[tuple[str, int], ...], int], ...]
    grid: str
    stages: tuple[int, ...] = ()
    options: str = ""


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def choose(plan: Plan) -> str:
    """Which shape fits: `flat`, `tile`, `rows` or `loop`."""
    domain = plan.domain
    if any(v.kind == "sort" for v in plan.values):
        return "rows"  # an order is of all of a row at once
    if plan.reduces:
        held = power_of_two(domain.width) * max(1, plan.full_loads)
        if plan.strided:
            return "rows" if held <= (MAX_ACROSS_ONCE if _passes(plan) == 1 else MAX_ACROSS) else "loop"
        return "rows" if held <= MAX_HELD or domain.width <= 4096 else "loop"
    counts = any(s.how == "count" for s in plan.stores)  # of a block with one dimension
    least = INNER_TURNED if _turned(plan) else INNER
    if len(domain.sizes) == 1 or domain.sizes[-1] < least or counts:
        return "flat"
    return "tile"


def _turned(plan: Plan) -> bool:
    """Some operand's neighbours lie along the rows of a tile."""
    last = len(plan.domain.sizes) - 1
    return any(
        v.kind == "load" and abs(v.where.coefficient(last)) > 1 and any(c == 1 for _, c in v.where.terms)
        for v in plan.values
    )


def _passes(plan: Plan) -> int:
    """How often a row is walked along where it is not held."""
    from kernels.codegen.text.loops import levels_of

    level, _ = levels_of(plan.values)
    columns = plan.domain.first_column
    wide = any(d >= columns for s in plan.stores for d, _ in s.where.terms)
    return max((level[id(v)] for v in plan.values if v.kind == "reduce"), default=0) + wide


def body(plan: Plan, parameters: Mapping[str, str], lines: Mapping[int, str]) -> Body:
    """The kernel's text in the shape that fits."""
    write = {"flat": _flat, "tile": _tile, "rows": _rows, "loop": _loop}[choose(plan)]
    return write(plan, parameters, lines)


def _number(plan: Plan, text: str) -> str:
    """A program's number, in 64 bits where an address needs them."""
    return f"{text}.to(tl.int64)" if plan.wide_addresses else text


def _columns(plan: Plan, text: str) -> str:
    """A row's columns, in 64 bits where the step between two makes an address need them."""
    return f"{text}.to(tl.int64)" if plan.wide_columns else text


def _writer(
    plan: Plan, parameters: Mapping[str, str], lines: Mapping[int, str], axes: Mapping[int, str], *runs: Run
) -> Writer:
    return Writer(plan, parameters, lines, axes, names=Names(parameters.values()), runs=runs)


def _flat(plan: Plan, parameters: Mapping[str, str], lines: Mapping[int, str]) -> Body:
    domain = plan.domain
    count = domain.rows * domain.width
    run = Run(tuple(range(len(domain.sizes))), domain.sizes, "at")
    axes, statements = split_axes(run, single_dims(plan, [run]))
    writer = _writer(plan, parameters, lines, axes, run)
    # In a flat kernel every dimension is a row: scalars are what uses none.
    sizes = (256, 512, 1024) if count < 2**20 or _windowed(plan) else (1024, 2048, 4096)
    blocks = tuple(dict.fromkeys(min(b, power_of_two(count)) for b in sizes))
    writer.say(f"at = {_number(plan, 'tl.program_id(0)')} * BLOCK + tl.arange(0, BLOCK)")
    if count % blocks[-1]:
        writer.say(f"inside = at < {count}")
        writer.row_mask = "inside"
    for line in statements:
        writer.say(line)
    writer.statements(plan.values)
    for store in plan.stores:
        writer.store(store)
    configs = [((("BLOCK", b),), w) for b in blocks for w in _warps(b)]
    return Body("flat", ("BLOCK",), tuple(writer.text), tuple(configs), f"triton.cdiv({count}, meta['BLOCK'])")


MANY_LOADS = 7
"""Loads from which an element of a tile is a window of others: fewer elements a thread, each with all its taps."""


def _windowed(plan: Plan) -> bool:
    """Each element is made of many."""
    return sum(v.kind == "load" for v in plan.values) >= MANY_LOADS


def _warps(block: int) -> tuple[int, ...]:
    """Warps for a block of elements: 4 to 32 elements a thread."""
    if block <= 256:
        return (2,)
    return {512: (4,), 1024: (4,), 2048: (4, 8)}.get(block, (8, 16))


def _tile(plan: Plan, parameters: Mapping[str, str], lines: Mapping[int, str]) -> Body:
    domain = plan.domain
    sizes = domain.sizes
    columns = sizes[-1]
    rows = domain.rows * domain.width // columns
    last = len(sizes) - 1
    run = Run(tuple(range(last)), sizes[:last], "row")
    axes, statements = split_axes(run, single_dims(plan, [run]))
    axes = {**axes, last: "col"}
    writer = _writer(plan, parameters, lines, axes, run)
    configs = _tile_configs(plan, rows, columns)
    most_rows = max(dict(c)["BLOCK_M"] for c, _ in configs)
    most_columns = max(dict(c)["BLOCK_N"] for c, _ in configs)
    writer.say(f"pid = {_number(plan, 'tl.program_id(0)')}")
    writer.say(f"row = (pid // tl.cdiv({columns}, BLOCK_N) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]")
    writer.say(f"col = (pid % tl.cdiv({columns}, BLOCK_N) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]")
    if rows % most_rows:
        writer.say(f"in_row = row < {rows}")
        writer.row_mask = "in_row"
    if columns % most_columns:
        writer.say(f"in_col = col < {columns}")
        writer.col_mask = "in_col"
    for line in statements:
        writer.say(line)
    _by_last_dimension(plan, last)
    writer.plan = _with_columns(plan)
    writer.statements(plan.values)
    for store in plan.stores:
        writer.store(store)
    grid = f"triton.cdiv({rows}, meta['BLOCK_M']) * triton.cdiv({columns}, meta['BLOCK_N'])"
    return Body("tile", ("BLOCK_M", "BLOCK_N"), tuple(writer.text), configs, grid)


def _by_last_dimension(plan: Plan, last: int) -> None:
    """In a tile the last dimension is the columns: mark what depends on it."""
    for value in plan.values:
        if value.kind in ("load", "position"):
            dims = [d for d, _ in value.where.terms]
            value.columns = last in dims or any(a.columns for a in value.args)
            value.rows = any(d != last for d in dims) or any(a.rows for a in value.args)
        elif value.kind == "expression":
            value.columns = any(a.columns for a in value.args)
            value.rows = any(a.rows for a in value.args)
        if value.guard is not None:
            value.columns, value.rows = value.columns or value.guard.columns, value.rows or value.guard.rows


def _with_columns(plan: Plan) -> Plan:
    return replace(plan, domain=replace(plan.domain, columns=1))


def _tile_configs(plan: Plan, rows: int, columns: int) -> tuple[tuple[tuple[tuple[str, int], ...], int], ...]:
    wanted: tuple[tuple[int, int, int], ...]
    if _turned(plan):  # square tiles keep both sides in whole sectors
        wanted = ((32, 32, 4), (64, 32, 4), (32, 64, 4), (64, 64, 4), (64, 64, 8))
    elif _windowed(plan):
        wanted = ((1, 256, 4), (1, 512, 4), (2, 256, 4), (4, 128, 4), (4, 256, 8))
    elif rows * columns < 2**20:
        wanted = ((1, 256, 2), (1, 512, 4), (2, 256, 4), (1, 1024, 4))
    else:
        wanted = ((1, 1024, 4), (2, 1024, 4), (4, 512, 4), (4, 1024, 8), (8, 256, 4), (1, 2048, 8))
    configs = {}
    for m, n, warps in wanted:
        block_m, block_n = min(m, power_of_two(rows)), min(n, power_of_two(columns))
        configs[(("BLOCK_M", block_m), ("BLOCK_N", block_n))] = warps
    return tuple(configs.items())


# rows


UNEVEN = 9
"""Neighbours along the rows from which on a program keeps to those of one outer row where their number is odd."""


def _uneven(plan: Plan) -> int:
    """How many rows are neighbours in memory where their number is odd: of rows that are counted through Triton cannot
    see then that they are. 0 elsewhere, and where all rows are.
    """
    first = plan.domain.first_column
    count = plan.domain.sizes[first - 1] if first > 1 else 0
    return count if plan.strided and count % 2 and count >= UNEVEN else 0


def _row_frame(
    plan: Plan, parameters: Mapping[str, str], lines: Mapping[int, str], col: str
) -> tuple[Writer, list[str], list[str]]:
    """A writer with its axes, and the statements that find several row and column dimensions."""
    domain = plan.domain
    first = domain.first_column
    last = first - 1 if _uneven(plan) else first  # of the dimensions that one number runs through
    row_run = Run(tuple(range(last)), domain.sizes[:last], "outer" if last < first else "row")
    col_run = Run(tuple(range(first, len(domain.sizes))), domain.sizes[first:], col)
    used = single_dims(plan, [row_run, col_run])
    row_axes, rows = split_axes(row_run, used) if first else ({}, [])
    col_axes, cols = split_axes(col_run, used)
    inner = {last: "inner"} if last < first else {}
    return _writer(plan, parameters, lines, {**row_axes, **inner, **col_axes}, row_run, col_run), rows, cols


def _rows(plan: Plan, parameters: Mapping[str, str], lines: Mapping[int, str]) -> Body:
    domain = plan.domain
    width, rows = domain.width, domain.rows
    block = power_of_two(width)
    several = rows > 1 and (block <= 1024 or plan.strided)
    writer, row_lines, col_lines = _row_frame(plan, parameters, lines, "col")
    writer.two_dimensional = several
    configs = _row_configs(plan, block) if several else _long_row_configs(block, max(1, plan.full_loads))
    if sorts(plan) and not several:
        configs = configs[:1]
    if several:
        _several_rows(writer, max(dict(c)["ROWS"] for c, _ in configs))
        writer.say(f"col = {_columns(plan, f'tl.arange(0, {block})')}[None, :]")
    else:
        writer.say(f"row = {_number(plan, 'tl.program_id(0)')}")
        writer.say(f"col = {_columns(plan, f'tl.arange(0, {block})')}")
    if block != width:
        writer.say(f"in_col = col < {width}")
        writer.col_mask = "in_col"
    for line in [*row_lines, *col_lines]:
        writer.say(line)
    writer.statements(plan.values)
    for store in plan.stores:
        writer.store(store)
    grid = _tall_grid(plan) if several else str(rows)
    return Body("rows", ("ROWS",) if several else (), tuple(writer.text), configs, grid)


def _several_rows(writer: Writer, most: int) -> None:
    """The numbers of a program's rows, at most `most`, and what guards them."""
    plan, rows = writer.plan, _uneven(writer.plan)
    program = _number(plan, "tl.program_id(0)")
    if rows:
        writer.say(f"inner = ({program} % tl.cdiv({rows}, ROWS) * ROWS + tl.arange(0, ROWS))[:, None]")
        # A block as well: a mask of rows does not fit the address of a single element.
        writer.say(f"outer = {program} // tl.cdiv({rows}, ROWS) + inner * 0")
    else:
        rows = plan.domain.rows
        writer.say(f"row = ({program} * ROWS + tl.arange(0, ROWS))[:, None]")
    if rows % most:
        writer.say(f"in_row = {'inner' if _uneven(plan) else 'row'} < {rows}")
        writer.row_mask = "in_row"


def _tall_grid(plan: Plan) -> str:
    """Programs of several rows each."""
    rows = _uneven(plan)
    if not rows:
        return f"triton.cdiv({plan.domain.rows}, meta['ROWS'])"
    return f"{plan.domain.rows // rows} * triton.cdiv({rows}, meta['ROWS'])"


Configs = tuple[tuple[tuple[tuple[str, int], ...], int], ...]


SORTED = ((1024, 4), (2048, 8))
"""Elements of a program that puts rows in order, and warps: few, since each takes seconds to compile."""


def sorts(plan: Plan) -> bool:
    """Whole rows are put in order."""
    return any(v.kind == "sort" and not v.text for v in plan.values)


def _row_configs(plan: Plan, block: int) -> Configs:
    """Rows a program and warps, so that a thread holds 4 to 32 elements of each full load."""
    rows = power_of_two(plan.domain.rows)
    if sorts(plan):
        counts = dict.fromkeys((max(1, min(elements // block, rows)), w) for elements, w in SORTED)
        return tuple(((("ROWS", count),), warps) for count, warps in counts)
    if plan.strided:
        return _held_across(block, power_of_two(_uneven(plan) or rows))
    configs: dict[tuple[tuple[tuple[str, int], ...], int], None] = {}
    for elements, warps in ((1024, 2), (2048, 4), (4096, 4), (4096, 8), (8192, 8)):
        configs[((("ROWS", max(1, min(elements // block, rows, 128))),), warps)] = None
    return tuple(configs)


def _held_across(block: int, rows: int) -> Configs:
    """Rows that are neighbours in memory, 16 to 256, and warps, so that a thread holds 16 or 32 elements of a load."""
    configs: dict[tuple[tuple[tuple[str, int], ...], int], None] = {}
    for count in (min(n, rows) for n in (32, 64, 128, 256, 16)):
        elements = count * block
        if elements <= 16384 or not configs:
            for each in (32, 16):
                configs[((("ROWS", count),), max(2, min(16, power_of_two(elements) // (32 * each))))] = None
    return tuple(configs)[:MOST_CONFIGS]


MOST_CONFIGS = 6
"""Of a kernel: each is compiled."""


def _long_row_configs(block: int, loads: int) -> Configs:
    """Warps for one row, so that a thread holds 4 to 32 elements of each full load."""
    most = 32 if loads * block >= 8192 else 16
    least = max(4, power_of_two(loads * block // (32 * 64)))
    warps = [w for w in (4, 8, 16, 32) if least <= w <= most] or [min(32, max(1, block // 32))]
    return tuple(((), w) for w in warps[:3])


def _loop(plan: Plan, parameters: Mapping[str, str], lines: Mapping[int, str]) -> Body:
    from kernels.codegen.text.loops import write_loops

    domain = plan.domain
    writer, row_lines, col_lines = _row_frame(plan, parameters, lines, "col")
    writer.two_dimensional = plan.strided
    configs = _across_configs(plan) if plan.strided else LOOPS
    if plan.strided:
        _several_rows(writer, max(dict(c)["ROWS"] for c, _ in configs))
    else:
        writer.say(f"row = {_number(plan, 'tl.program_id(0)')}")
    for line in row_lines:
        writer.say(line)
    write_loops(writer, domain.width, col_lines, max(dict(c)["BLOCK"] for c, _ in configs))
    grid = _tall_grid(plan) if plan.strided else str(domain.rows)
    return Body("loop", ("ROWS", "BLOCK") if plan.strided else ("BLOCK",), tuple(writer.text), configs, grid)


LOOPS: Configs = tuple(
    ((("BLOCK", b),), w) for b, w in ((2048, 8), (4096, 8), (4096, 16), (8192, 16), (8192, 32))
)  # fmt: skip


def _across_configs(plan: Plan) -> Configs:
    """Rows a program and columns a step: 8 to 32 elements a thread, wide rows of memory first, many programs last."""
    rows, configs = power_of_two(_uneven(plan) or plan.domain.rows), {}
    for tall, broad, warps in ((256, 16, 8), (128, 32, 8), (128, 16, 4), (64, 32, 4), (32, 64, 4), (16, 128, 4)):
        count = min(tall, rows)
        configs[(("ROWS", count), ("BLOCK", min(broad * tall // count, 1024)))] = warps
    return tuple(configs.items())
