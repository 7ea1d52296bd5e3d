"""The body of a kernel as text: values to statements, addresses, masks. What the kernel's shapes have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kernels.codegen.expressions import ops
from kernels.codegen.expressions.values import Value, literal
from kernels.codegen.index import Linear
from kernels.codegen.plan import Plan, Store
from kernels.codegen.text.names import Names, comment
from kernels.codegen.text.runs import Run, together

LOWEST = {"i64": -(2**63), "i32": -(2**31), "i16": -(2**15), "i8": -(2**7), "u8": 0}
PLACES = {"argmax": "first_largest", "argmin": "first_smallest"}
"""Reductions that give a place, and what joins two elements with theirs."""
WARP = 32
"""Threads of a warp: a histogram has a place for each at least."""
HIGHEST = {"i64": 2**63 - 1, "i32": 2**31 - 1, "i16": 2**15 - 1, "i8": 2**7 - 1, "u8": 255}


def identity(how: str, dtype: str) -> str:
    """What a masked-out element contributes to a reduction."""
    if how in ("sum", "mean", "m2", "prod", "log_sums"):
        start = {"prod": 1.0, "log_sums": float("-inf")}.get(how, 0)
        return literal(start, dtype)
    lowest = how in ("max", "nan_max", "whole_max", "argmax", "latest_largest")
    if dtype.startswith("f"):
        return literal(float("-inf") if lowest else float("inf"), dtype)
    return repr((LOWEST if lowest else HIGHEST)[dtype])


@dataclass
class Writer:
    """Writes statements. axes: name of each domain dimension in the text; masks: what guards rows and columns.

    block: shape of a whole tile, such as "(BLOCK,)"; flat reductions give scalars, others keep their axis.
    """

    plan: Plan
    parameters: Mapping[str, str]  # operand or output name -> pointer parameter
    lines: Mapping[int, str]  # region text by line, for comments
    axes: Mapping[int, str]
    row_mask: str = ""
    col_mask: str = ""
    both_mask: str = ""
    two_dimensional: bool = False
    hints: str = ""  # extra arguments of full loads, such as an eviction policy
    names: Names = field(default_factory=Names)
    text: list[str] = field(default_factory=list)
    indent: int = 1
    written: dict[int, str] = field(default_factory=dict)
    carries: dict[int, tuple[str, ...]] = field(default_factory=dict)  # scans: what the columns before gave
    last_line: int = 0
    runs: tuple[Run, ...] = ()

    def say(self, line: str) -> None:
        self.text.append("    " * self.indent + line if line else "")

    # addresses and masks

    def linear(self, linear: Linear) -> str:
        """An index or address as an expression, largest steps first."""
        several, singles = together(linear, self.runs)
        named = [*several, *((step, self.axes[dim]) for dim, step in singles)]
        parts = []
        for coefficient, name in sorted(named, key=lambda t: -t[0]):
            step = abs(coefficient)
            parts.append((coefficient, name if step == 1 else f"{name} * {step}"))
        if linear.offset or not parts:
            parts.append((linear.offset, repr(abs(linear.offset))))
        parts.sort(key=lambda part: part[0] < 0)  # what is taken away comes last
        text = "".join(f" {'-' if sign < 0 else '+'} {part}" for sign, part in parts)
        return text.removeprefix(" + ").replace(" - ", "-", 1) if parts[0][0] < 0 else text.removeprefix(" + ")

    def mask(self, rows: bool, columns: bool, guard: Value | None = None) -> str:
        row, col = (self.row_mask if rows else ""), (self.col_mask if columns else "")
        chosen = [self.both_mask] if row and col and self.both_mask else [m for m in (row, col) if m]
        if guard is not None:
            chosen.append(self.written[id(guard)])
        return " & ".join(dict.fromkeys(chosen))

    # values

    def operand(self, value: Value, dtype: str | None = None) -> str:
        if value.kind == "number":
            return literal(value.number if value.number is not None else 0, dtype or value.dtype)
        return self.written[id(value)]

    def expression(self, value: Value) -> str:
        text = value.text.format(*(self.operand(a) for a in value.args))
        if value.dtype == "bool" and not (value.rows or value.columns):
            # The interpreter broadcasts a comparison of scalars in the type of what was compared.
            return f"({text}).to(tl.int32) != 0"
        return text

    def load(self, value: Value) -> str:
        pointer = self.parameters[value.operand]
        where = self.linear(value.where)
        if value.args:
            spot = self.operand(value.args[0])
            where = (f"{where} + " if where != "0" else "") + f"{spot} * {value.stride}"
        arguments = [f"{pointer} + {where}" if where != "0" else pointer]
        mask = self.mask(value.rows, value.columns, value.guard)
        if mask:
            arguments.append(f"mask={mask}")
        if value.columns and self.hints:
            arguments.append(self.hints)
        text = f"tl.load({', '.join(arguments)})"
        if value.stored != value.dtype:
            text += f".to({ops.TRITON_DTYPES[value.dtype]})"
        return text

    def explain(self, value: Value) -> None:
        """The region's line above the statements that compute it."""
        if value.line and value.line != self.last_line and value.line in self.lines:
            self.say(comment(self.lines[value.line]))
            self.last_line = value.line

    def assign(self, value: Value, text: str) -> None:
        name = self.names.new(value.name or "v")
        self.written[id(value)] = name
        self.say(f"{name} = {text}")

    def statement(self, value: Value) -> None:
        """One statement for a value whose arguments are written."""
        if id(value) in self.written or value.kind == "number":
            return
        if value.kind != "load":
            self.explain(value)
        if value.kind == "load":
            self.assign(value, self.load(value))
        elif value.kind == "position":
            self.assign(value, f"({self.linear(value.where)}).to({ops.TRITON_DTYPES[value.dtype]})")
        elif value.kind == "expression":
            self.assign(value, self.expression(value))
        elif value.kind == "scan":
            self.scan(value)
        elif value.kind == "sort":
            self.order(value)
        else:
            self.reduction(value)

    def statements(self, values: Iterable[Value]) -> None:
        for value in values:
            self.statement(value)

    def reduction(self, value: Value) -> None:
        """A reduction over a whole row held at once."""
        argument = self.operand(value.args[0])
        width = float(value.width)
        mask = self.col_mask if value.guard is None else self.operand(value.guard)
        if value.text == "m2":
            off = f"{argument} - {self.operand(value.args[1])}"
            if mask:
                off = f"tl.where({mask}, {off}, {literal(0, value.dtype)})"
            off_name = self.names.new("off")
            self.say(f"{off_name} = {off}")
            self.assign(value, self.over("sum", f"{off_name} * {off_name}"))
            return
        if mask:
            argument = f"tl.where({mask}, {argument}, {identity(value.text, value.args[0].dtype)})"
        if value.text in PLACES:
            self.first_place(value, argument, self.operand(value.args[1]))
            return
        how = "sum" if value.text == "mean" else value.text
        total = self.over(how, argument)
        self.assign(value, f"{total} / {width!r}" if value.text == "mean" else total)

    @property
    def axis(self) -> int:
        """The columns' axis of a tile."""
        return 1 if self.two_dimensional else 0

    def first_place(self, value: Value, argument: str, place: str) -> None:
        """The place of the first largest or smallest element of each row."""
        if self.two_dimensional:
            wide, places = self.names.new("wide"), self.names.new("places")
            self.say(f"{wide}, {places} = tl.broadcast({argument}, {place})")
            argument, place = wide, places
        keep = ", keep_dims=True" if self.two_dimensional else ""
        name = self.names.new(value.name or "v")
        self.written[id(value)] = name
        most = self.names.new("most")
        self.say(f"{most}, {name} = tl.reduce(({argument}, {place}), {self.axis}, {PLACES[value.text]}{keep})")

    def scan(self, value: Value) -> None:
        """The running result along the columns, after what the columns before gave."""
        arguments = [self.operand(a) for a in value.args]
        carry = self.carries.get(id(value), ())
        if len(arguments) == 2:
            self.scan_pair(value, arguments, carry)
            return
        if value.text == "log_sums":
            self.scan_logarithms(value, arguments[0], carry)
            return
        simple = {"sum": ("tl.cumsum", "{1} + {0}"), "prod": ("tl.cumprod", "{1} * {0}")}
        if value.text in simple:
            call, joined = simple[value.text]
            self.assign(value, f"{call}({arguments[0]}, axis={self.axis})")
        else:
            joined = value.text + "({1}, {0})"
            self.assign(value, f"tl.associative_scan({arguments[0]}, {self.axis}, {value.text})")
        if carry:
            name = self.written[id(value)]
            self.say(f"{name} = {joined.format(name, carry[0])}")
            self.say(f"{carry[0]} = {self.last_column(name, value.dtype)}")

    def scan_pair(self, value: Value, arguments: list[str], carry: tuple[str, ...]) -> None:
        """The running largest or smallest element's place."""
        if self.two_dimensional:
            wide, places = self.names.new("wide"), self.names.new("places")
            self.say(f"{wide}, {places} = tl.broadcast({arguments[0]}, {arguments[1]})")
            arguments = [wide, places]
        most, name = self.names.new("most"), self.names.new(value.name or "v")
        self.written[id(value)] = name
        self.say(f"{most}, {name} = tl.associative_scan(({', '.join(arguments)}), {self.axis}, {value.text})")
        if carry:
            self.say(f"{most}, {name} = {value.text}({carry[0]}, {carry[1]}, {most}, {name})")
            self.say(f"{carry[0]} = {self.last_column(most, value.args[0].dtype)}")
            self.say(f"{carry[1]} = {self.last_column(name, value.dtype)}")

    def scan_logarithms(self, value: Value, argument: str, carry: tuple[str, ...]) -> None:
        """The running logarithm of a sum of exponentials: pairs of an exponent and how often it counts."""
        tops, shares = self.names.new("tops"), self.names.new("shares")
        self.say(f"{shares} = tl.full({argument}.shape, 1.0, {ops.TRITON_DTYPES[value.dtype]})")
        self.say(f"{tops}, {shares} = tl.associative_scan(({argument}, {shares}), {self.axis}, log_sums)")
        if carry:
            self.say(f"{tops}, {shares} = log_sums({carry[0]}, {carry[1]}, {tops}, {shares})")
            for kept, now in zip(carry, (tops, shares), strict=True):
                self.say(f"{kept} = {self.last_column(now, value.dtype)}")
        self.assign(value, f"{tops} + tl.log({shares})")

    def last_column(self, name: str, dtype: str) -> str:
        """What the last column of a block holds."""
        kept = f".to({ops.TRITON_DTYPES[dtype]})" if dtype in ("i8", "u8", "i16") else ""  # a sum is of 32 bits
        return f"tl.sum(tl.where(col == start + BLOCK - 1, {name}, 0), axis={self.axis}, keep_dims=True){kept}"

    def carried(self, value: Value) -> None:
        """Names for what a scan hands on from block to block, before the first."""
        shape = "(ROWS, 1)" if self.two_dimensional else "(1,)"
        names = []
        parts = [*value.args, *value.args] if value.text == "log_sums" else value.args  # an exponent and its share
        for place, part in enumerate(parts):
            start = "0" if place else identity(value.text, part.dtype)
            names.append(self.names.new(f"{value.name or 'v'}_before"))
            self.say(f"{names[-1]} = tl.full({shape}, {start}, {ops.TRITON_DTYPES[part.dtype]})")
        self.carries[id(value)] = tuple(names)

    def order(self, value: Value) -> None:
        """A row of packed values and places in order, or its first ones."""
        packed, col = (self.operand(a) for a in value.args)
        if self.col_mask:
            packed = f"tl.where({self.col_mask}, {packed}, {hex(2**63 - 1)})"
        if value.text:
            self.assign(value, f"first_of({packed}, {col}, {value.text}, {self.axis})")
        else:
            self.assign(value, f"tl.sort({packed}, dim={self.axis})")

    def over(self, how: str, argument: str) -> str:
        """Reduce a tile along its columns."""
        how = {"prod": "product"}.get(how, how)
        if how in ("nan_max", "nan_min", "whole_max", "whole_min", "product"):
            keep = "1, {0}, keep_dims=True" if self.two_dimensional else "0, {0}"
            wide = f"({argument}).to(tl.int64)" if how.startswith("whole_") else argument
            return f"tl.reduce({wide}, {keep.format(how)})"
        keep = "axis=1, keep_dims=True" if self.two_dimensional else "axis=0"
        return f"tl.{how}({argument}, {keep})"

    def store(self, store: Store) -> None:
        pointer = self.parameters[store.name]
        if store.how:
            self.scatter(store, pointer)
            return
        where = self.linear(store.where)
        first = self.plan.domain.first_column
        dims = [d for d, _ in store.where.terms]
        rows, columns = any(d < first for d in dims), any(d >= first for d in dims)
        arguments = [f"{pointer} + {where}" if where != "0" else pointer, self.operand(store.value)]
        mask = self.mask(rows, columns, store.guard)
        if mask:
            arguments.append(f"mask={mask}")
        self.say(f"tl.store({', '.join(arguments)})")

    def scatter(self, store: Store, pointer: str) -> None:
        """Every element at a place that was read, by an atomic unless it is only set."""
        mask = self.mask(True, True)
        if store.within is not None:
            asserted = f", mask={mask}" if mask else ""
            self.say(f'tl.device_assert({self.operand(store.within)}, "an index out of range"{asserted})')
        guards = [mask, *(self.operand(g) for g in (store.within, store.chosen) if g is not None)]
        guarded = " & ".join(g for g in guards if g)
        if store.how == "count":
            self.count(store, pointer, guarded)
            return
        arguments = [self.places(store, pointer), self.operand(store.value)]
        if guarded:
            arguments.append(f"mask={guarded}")
        if store.how == "set":
            self.say(f"tl.store({', '.join(arguments)})")
        else:
            self.say(f'tl.atomic_{store.how}({", ".join(arguments)}, sem="relaxed")')

    def places(self, store: Store, pointer: str) -> str:
        """The address of every element of the block, also where several have the same."""
        steps = zip(store.spots, store.steps, strict=True)
        spots = [self.operand(s) + (f" * {step}" if step != 1 else "") for s, step in steps]
        plain = self.linear(store.where)
        parts = [*([plain] if plain != "0" or not spots else []), *spots]
        first = self.plan.domain.first_column
        rows = any(d < first for d, _ in store.where.terms) or any(s.rows for s in store.spots)
        columns = any(d >= first for d, _ in store.where.terms) or any(s.columns for s in store.spots)
        tile = self.plan.domain.columns > 0
        if not rows:
            parts.append("row * 0" if tile else "at * 0")
        if tile and not columns:
            parts.append("col * 0")
        return " + ".join([pointer, *parts])

    def count(self, store: Store, pointer: str, guard: str) -> None:
        """How often each place occurs in the block, added once for all of it."""
        size, spot = store.shape[0], self.operand(store.spots[0])
        bins = max(WARP, 1 << max(0, size - 1).bit_length())
        counts, places = self.names.new("counts"), self.names.new("places")
        self.say(f"{places} = tl.arange(0, {bins})")
        block = spot if store.spots[0].rows else f"({spot} + at * 0)"
        self.say(f"{counts} = tl.histogram({block}.to(tl.int32), {bins}{f', mask={guard}' if guard else ''})")
        times = self.operand(store.value)
        kind = ops.TRITON_DTYPES[store.dtype]
        added = f"{counts}.to({kind})" + (f" * {times}" if times not in ("1", "1.0") else "")
        where = f"{pointer} + {places}" + (f" * {store.steps[0]}" if store.steps[0] != 1 else "")
        some = f"{counts} > 0" if bins == size else f"({counts} > 0) & ({places} < {size})"
        self.say(f'tl.atomic_add({where}, {added}, mask={some}, sem="relaxed")')
