"""Rows too long to hold: one walk along the row for each level of reductions, one more for what is stored.

Partial results are kept per lane and joined after the walk. exp(x - max) is summed in the same walk as max
(the online softmax of Milakov and Gimelshein, arXiv:1805.02867), mean and variance in one by Welford's update.
"""

from __future__ import annotations

from kernels.codegen.expressions import ops
from kernels.codegen.expressions.values import Value
from kernels.codegen.text.writer import PLACES, Writer, identity


def online_pairs(values: tuple[Value, ...]) -> dict[int, Value]:
    """id of a sum of exp(x - max(x)) -> that max: both can be had in one walk."""
    pairs = {}
    for value in values:
        if value.kind != "reduce" or value.text != "sum":
            continue
        power = value.args[0]
        if power.kind != "expression" or power.text != "tl.exp({0})":
            continue
        difference = power.args[0]
        if difference.kind == "expression" and difference.text == "{0} - {1}":
            x, top = difference.args
            if top.kind == "reduce" and top.text in ("max", "nan_max") and top.args[0] is x:
                pairs[id(value)] = top
    return pairs


def levels_of(values: tuple[Value, ...]) -> tuple[dict[int, int], dict[int, Value]]:
    """The walk after which each value is known (0: before any), and the online pairs."""
    pairs = online_pairs(values)
    level: dict[int, int] = {}
    for value in values:
        below = max((level[id(a)] for a in value.args), default=0)
        if value.kind != "reduce":
            level[id(value)] = below
        elif id(value) in pairs:
            level[id(value)] = level[id(pairs[id(value)])]
        elif value.text == "m2":
            level[id(value)] = level[id(value.args[1])]
        else:
            level[id(value)] = below + 1
    return level, pairs


def write_loops(writer: Writer, width: int, col_lines: list[str], step: int) -> None:
    """All walks, the row's own values between them, and the stores. step: most columns taken at once."""
    values = writer.plan.values
    level, pairs = levels_of(values)
    reductions = [v for v in values if v.kind == "reduce"]
    last = max((level[id(v)] for v in reductions), default=0)  # none: the same number in every column
    ragged = width % step != 0
    wide = [s for s in writer.plan.stores if any(d >= writer.plan.domain.first_column for d, _ in s.where.terms)]
    for walk in range(1, last + 1):
        _row_values(writer, level, walk - 1)
        wanted = [v for v in reductions if level[id(v)] == walk]
        accumulators = _Accumulators(writer, pairs, width)
        for value in wanted:
            accumulators.start(value, wanted)
        needed = _needed([a for v in wanted if id(v) not in pairs for a in v.args if a.kind != "reduce"])
        policy = "evict_last" if walk < last or wide else "evict_first"  # for another walk, or for none
        _walk(writer, width, col_lines, ragged, needed, f'eviction_policy="{policy}"', accumulators, wanted)
        for value in wanted:
            accumulators.finish(value)
    _row_values(writer, level, last)
    for store in writer.plan.stores:
        if store not in wide:
            writer.store(store)
    if wide:
        needed = _needed([v for s in wide for v in (s.value, s.guard) if v is not None])
        _carry(writer, needed)
        _open(writer, width, col_lines, ragged)
        kept = dict(writer.written)
        writer.hints = 'eviction_policy="evict_first"'
        writer.statements(v for v in values if id(v) in needed)
        for store in wide:
            writer.store(store)
        writer.written, writer.hints, writer.col_mask = kept, "", ""
        writer.indent -= 1


def _row_values(writer: Writer, level: dict[int, int], known: int) -> None:
    """Values that the whole row shares and that are known by now."""
    for value in writer.plan.values:
        if value.kind != "reduce" and not value.columns and level[id(value)] <= known:
            writer.statement(value)


def _needed(wanted: list[Value]) -> set[int]:
    seen: set[int] = set()
    pending = list(wanted)
    while pending:
        value = pending.pop()
        if id(value) not in seen:
            seen.add(id(value))
            if value.kind != "reduce":
                pending.extend(value.args)
                pending.extend([value.guard] if value.guard is not None else [])
    return seen


def _carry(writer: Writer, needed: set[int]) -> None:
    """Scans begin anew in every walk that needs them."""
    for value in writer.plan.values:
        if value.kind == "scan" and id(value) in needed:
            writer.carried(value)


def _open(writer: Writer, width: int, col_lines: list[str], ragged: bool) -> None:
    writer.say(f"for start in range(0, {width}, BLOCK):")
    writer.indent += 1
    wide = ".to(tl.int64)" if writer.plan.wide_columns else ""
    side = "[None, :]" if writer.two_dimensional else ""
    writer.say(f"col = start + tl.arange(0, BLOCK){wide}{side}")
    if ragged:
        writer.say(f"in_col = col < {width}")
        writer.col_mask = "in_col"
    for line in col_lines:
        writer.say(line)


def _walk(
    writer: Writer,
    width: int,
    col_lines: list[str],
    ragged: bool,
    needed: set[int],
    hints: str,
    accumulators: _Accumulators,
    wanted: list[Value],
) -> None:
    _carry(writer, needed)
    _open(writer, width, col_lines, ragged)
    kept = dict(writer.written)
    writer.hints = hints
    writer.statements(v for v in writer.plan.values if id(v) in needed and v.kind != "reduce")
    for value in wanted:
        accumulators.add(value)
    writer.written, writer.hints, writer.col_mask = kept, "", ""
    writer.indent -= 1


class _Accumulators:
    """Per-lane partial results of the reductions of one walk."""

    def __init__(self, writer: Writer, pairs: dict[int, Value], width: int) -> None:
        self.writer = writer
        self.width = width
        self.online = {id(top): v for v in writer.plan.values if (top := pairs.get(id(v))) is not None}
        self.sums = set(pairs)
        self.names: dict[int, str] = {}
        self.welford: dict[int, Value] = {}
        self.most: dict[int, str] = {}  # of a place: the lanes' elements there

    def start(self, value: Value, wanted: list[Value]) -> None:
        write = self.writer
        self.names[id(value)] = name = write.names.new(f"{value.name or 'v'}_lanes")
        if value.text == "m2":
            self.welford[id(value.args[1])] = value
        if value.text in PLACES:
            self.start_place(value, name)
            return
        kind = ops.TRITON_DTYPES[value.dtype]
        start = "0" if id(value) in self.sums else identity(value.text, value.dtype)
        shape = "(ROWS, BLOCK)" if write.two_dimensional else "(BLOCK,)"
        write.say(f"{name} = tl.full({shape}, {start}, {kind})")
        if value.text == "mean" and any(w.text == "m2" and w.args[1] is value for w in wanted):
            write.say("# Welford's update: mean and squared distance from it in one walk")

    def masked(self, value: Value) -> str:
        argument = self.writer.operand(value.args[0])
        mask = self.writer.col_mask
        return f"tl.where({mask}, {argument}, {identity(value.text, value.args[0].dtype)})" if mask else argument

    def start_place(self, value: Value, name: str) -> None:
        """A pair of each lane's largest element and its place, which comes after every place of the row."""
        write, dtype = self.writer, value.args[0].dtype
        self.most[id(value)] = most = write.names.new(f"{value.name or 'v'}_most")
        shape = "(ROWS, BLOCK)" if write.two_dimensional else "(BLOCK,)"
        start = identity(value.text, dtype)
        write.say(f"{most} = tl.full({shape}, {start}, {ops.TRITON_DTYPES[dtype]})")
        write.say(f"{name} = tl.full({shape}, {self.width}, {ops.TRITON_DTYPES[value.dtype]})")

    def add(self, value: Value) -> None:
        """Take the current block in."""
        write, name = self.writer, self.names[id(value)]
        if id(value) in self.sums or value.text == "m2":
            return  # taken in together with its max or mean
        if id(value) in self.online:
            total = self.names[id(self.online[id(value)])]
            x, top = write.names.new("x_now"), write.names.new("top")
            write.say(f"{x} = {self.masked(value)}")
            write.say(f"{top} = {self.larger(value, name, x)}")
            shift = write.names.new("shift")  # -inf - -inf is no number: a lane that has seen nothing stays at 0
            write.say(f'{shift} = tl.where({top} == float("-inf"), 0.0, {top})')
            write.say(f"{total} = {total} * tl.exp({name} - {shift}) + tl.exp({x} - {shift})")
            write.say(f"{name} = {top}")
        elif id(value) in self.welford:
            m2 = self.names[id(self.welford[id(value)])]
            step = write.names.new("step")
            argument = write.operand(value.args[0])
            off = f"{argument} - {name}"
            masked = f"tl.where({write.col_mask}, {off}, 0.0)" if write.col_mask else off
            write.say(f"{step} = {masked}")
            if value.dtype == "f64":
                write.say(f"{name} += {step} / (start // BLOCK + 1)")
            else:  # one division for all lanes
                write.say(f"{name} += {step} * (1.0 / (start // BLOCK + 1))")
            again = f"tl.where({write.col_mask}, {off}, 0.0)" if write.col_mask else f"({off})"
            write.say(f"{m2} += {step} * {again}")
        elif value.text in PLACES:
            pair = f"{self.masked(value)}, {write.operand(value.args[1])}"
            write.say(f"{self.most[id(value)]}, {name} = {PLACES[value.text]}({self.most[id(value)]}, {name}, {pair})")
        elif value.text == "prod":
            write.say(f"{name} *= {self.masked(value)}")
        elif value.text in ("sum", "mean"):
            write.say(f"{name} += {self.masked(value)}")
        else:
            write.say(f"{name} = {self.larger(value, name, self.masked(value))}")

    def larger(self, value: Value, one: str, other: str) -> str:
        side = "max" if "max" in value.text else "min"
        if value.text.startswith("nan_"):
            return f"nan_{side}({one}, {other})"
        return f"tl.{side}imum({one}, {other})"

    def finish(self, value: Value) -> None:
        """Join the lanes."""
        write, name = self.writer, self.names[id(value)]
        width = float(self.width)
        if id(value) in self.sums:
            return  # joined with its max
        if value.text == "m2":
            return  # joined with its mean
        if value.text in PLACES:
            write.first_place(value, self.most[id(value)], name)
            return
        if id(value) in self.online:
            total = self.online[id(value)]
            write.assign(value, write.over(value.text, name))
            top = write.written[id(value)]
            lanes = self.names[id(total)]
            # A lane that saw only -inf holds 0, one that saw NaN holds NaN: neither is chosen by its largest value.
            write.assign(total, write.over("sum", f"{lanes} * tl.exp({name} - {top})"))
        elif id(value) in self.welford:
            m2 = self.welford[id(value)]
            count = write.names.new("lane_count")
            side = "[None, :]" if write.two_dimensional else ""
            write.say(f"{count} = (({self.width} - tl.arange(0, BLOCK){side} + BLOCK - 1) // BLOCK).to(tl.float32)")
            write.assign(value, f"{write.over('sum', f'{name} * {count}')} / {width!r}")
            off = write.names.new("off")
            write.say(f"{off} = {name} - {write.written[id(value)]}")
            write.assign(m2, write.over("sum", f"{self.names[id(m2)]} + {count} * {off} * {off}"))
        else:
            how = "sum" if value.text == "mean" else value.text
            text = write.over(how, name)
            write.assign(value, f"{text} / {width!r}" if value.text == "mean" else text)
