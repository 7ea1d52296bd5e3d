"""Which operand is which value over a whole step, inferred: a trace records sizes, not identities.

The rule is "the most recent output of these sizes, strides and dtype that nothing has read yet". It fails where a value
is read again (`x + f(x)`, `x * rsqrt(...)`) and where parallel values wait for their turn (q, k, v). What is known
about those is below, measured against execution traces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from profiler.region.mining.dataflow import SIZED, TYPED, swaps_last
from profiler.region.mining.execution_edges import Edges, Guess, Slot, Source, slot_of
from profiler.region.mining.output_shapes import alike, call
from profiler.region.mining.unit_letters import letter
from profiler.region.mining.units import Sig, Unit

WINDOW = 64
"""Values of equal sizes and dtype that are looked through, from the latest."""
SCALAR_REACH = 12
"""Units back over which a tensor without dimensions is looked for: it has no sizes to tell it by."""

GATES = frozenset("ohe")
PARAMETERS = frozenset({"weight", "bias", "running_mean", "running_var"})
SYMMETRIC = frozenset("ax")
AGAIN = frozenset("mvbtWpI")
"""Letters of what reads a tensor from outside again: x.var() after x.mean(), one index for several gathers."""
LATEST = frozenset({"neg"})
"""Reads the last of several halves: `cat((-x2, x1))`."""
INDEXING = frozenset({"unsqueeze", "slice", "select", "expand"})
"""`x[:, None, :n]` is a chain of these."""
PAIRED = 8
"""Units between two values that are read in turn, again and again: cos and sin of a rotation."""
REACH = 48
"""Units between values of one kind that wait for their turn."""
HALVES = frozenset({"slice", "chunk", "split", "split_with_sizes", "narrow", "unbind", "select"})
DEPTH = 24
"""Values on the way back from an operand to what it was computed from."""
HEAVY = frozenset("LMGCA")
SQUARES = frozenset("p")
REDUCING = frozenset("mvbWH")
TURNS = {"cos": "sin"}
"""Tables of both wait for their turn as if made alike."""


@dataclass(slots=True, eq=False)
class StepValue:
    """A value: output `index` of a unit. touched: the position of its last use, or of its making."""

    sig: Sig
    unit: Unit
    index: int
    letter: str
    from_: tuple[StepValue, ...]
    at: int
    touched: int
    readers: int = 0


@dataclass(slots=True)
class _Operand:
    place: int
    member: int
    name: str
    sig: Sig


def infer(units: Sequence[Unit], on_units: Callable[[int], None] | None = None) -> Edges:
    """Edges among the forward units of one thread, in order. An operand without an edge comes from outside the step.

    on_units: is told how many it has come to.
    """
    walk = _Walk(units)
    for at in range(len(units)):
        walk.visit(at)
        if on_units is not None:
            on_units(at + 1)
    return Edges(walk.sources, walk.outside, guesses=walk.guesses)


@dataclass(slots=True)
class _Walk:
    units: Sequence[Unit]
    sources: dict[Slot, Source] = field(default_factory=dict)
    outside: dict[Slot, object] = field(default_factory=dict)
    guesses: dict[int, Guess] = field(default_factory=dict)
    values: dict[tuple[tuple[int, ...], str], list[StepValue]] = field(default_factory=lambda: defaultdict(list))
    read: list[tuple[Unit, list[StepValue]]] = field(default_factory=list)
    at: int = 0
    norm_last: bool = False  # a dropout read a norm's output: the norms of this model follow its residual adds (BERT)

    def visit(self, at: int) -> None:
        self.at = at
        unit = self.units[at]
        if not unit.args or not unit.aten:
            return
        operation = call(unit.written or unit.name, unit.args, unit.overload)
        names = operation.names if operation is not None else ()
        operands = [
            _Operand(place, member, names[place] if place < len(names) else "", sig)
            for place, argument in enumerate(unit.args)
            if argument.kind in ("tensor", "tensors")
            for member, sig in enumerate(argument.sigs)
        ]
        if unit.base in TYPED and len(operands) == 2:
            self.outside[slot_of(unit, operands[1].place, 0)] = (unit.op, -2)
            del operands[1]
        symbol = letter(unit)
        bound: dict[int, StepValue] = {}
        for group in self._in_order(operands):
            values = self._bind(unit, symbol, [operands[i] for i in group], bound)
            self._note_guess(unit, symbol, values, bound)
            bound |= {i: v for i, v in zip(group, values, strict=True) if v is not None}
        for i, value in bound.items():
            value.readers += unit.base not in SIZED or not i
            self.norm_last |= symbol == "D" and value.letter == "N"
            value.touched = at
            slot = slot_of(unit, operands[i].place, operands[i].member)
            if value.index < 0:
                self.outside[slot] = (value.unit.op, value.index)
            else:
                self.sources[slot] = (value.unit.op, value.index)
        read = dict(bound)
        for i, operand in enumerate(operands):
            if i not in bound:
                same_value = next((read[j] for j in read if j < i and self._squares(symbol, operands)), None)
                read[i] = same_value or self._arrives(unit, i, operand)
                if same_value is not None:
                    self.outside[slot_of(unit, operand.place, operand.member)] = (unit.op, same_value.index)
        if read:
            self.read.append((unit, [read[i] for i in sorted(read)]))
        if operation is None:
            return
        number_of = dict(zip([o.name for o in operands], range(len(operands)), strict=True))
        for index, (sig, returned) in enumerate(zip(operation.outputs, operation.gives, strict=True)):
            same = bound.get(number_of.get(returned, -1)) if returned else None
            # One with operations inside was a copy between devices.
            if returned and not operation.changes and not unit.inner:
                if same is not None:
                    same.readers -= 1  # returned as it is: whoever reads the result reads it
                continue
            if symbol == "C":
                sig = Sig(sig.dtype, sig.dims, None)  # the library chooses the layout
            value = StepValue(sig, unit, index, symbol, tuple(read[i] for i in sorted(read)), at, at)
            if same is not None:
                same.readers += 1
                self._forget(same)
            self.values[sig.dims, sig.dtype].append(value)

    def _note_guess(
        self, unit: Unit, symbol: str, values: Sequence[StepValue | None], bound: Mapping[int, StepValue]
    ) -> None:
        """Operands that look alike were taken from more values that wait to be read than the operation reads, or in
        an order that it minds and nothing tells.
        """
        taken = {id(v): v for v in values if v is not None and v.index >= 0}
        if not taken:
            return
        others = {id(v) for v in bound.values()}
        matching = self._matching(next(iter(taken.values())).sig)
        waiting = {id(v): v for v in matching if v.index >= 0 and not v.readers and id(v) not in others}
        if len(waiting) > len(values):
            text = f"which of {len(waiting)} equal tensors {unit.base} reads"
        elif symbol not in SYMMETRIC and len({id(v) for v in values}) > 1:
            text = f"which of its equal operands is which in {unit.base}"
        else:
            return
        makers = tuple(v.unit.op for v in (taken | waiting).values())
        self.guesses[unit.op] = Guess(text, makers)

    def _in_order(self, operands: Sequence[_Operand]) -> list[list[int]]:
        """Groups of operands that look alike: small ones first, as what was reduced tells of what, then the newest."""
        new = {
            tuple(group): max((v.at for v in self._matching(operands[group[0]].sig) if not v.readers), default=-1)
            for group in _groups(operands)
        }
        return [list(g) for g in sorted(new, key=lambda g: (operands[g[0]].sig.elements, -new[g], g))]

    def _squares(self, symbol: str, operands: Sequence[_Operand]) -> bool:
        """`x * x` before a mean."""
        after = next((letter(u) for u in self.units[self.at + 1 : self.at + 2]), "")
        return symbol == "x" and after == "m" and len(operands) == 2 and operands[0].sig == operands[1].sig

    def _arrives(self, unit: Unit, number: int, operand: _Operand) -> StepValue:
        """A tensor from outside: read once now, and perhaps again."""
        value = StepValue(operand.sig, unit, -1 - number, "", (), self.at, self.at, 1)
        self.outside[slot_of(unit, operand.place, operand.member)] = (unit.op, value.index)
        if operand.name not in PARAMETERS and operand.sig.dims:
            self.values[operand.sig.dims, operand.sig.dtype].append(value)
        return value

    def _forget(self, value: StepValue) -> None:
        """Changed in place: whoever reads it from now on reads the change."""
        values = self.values[value.sig.dims, value.sig.dtype]
        if value in values:
            values.remove(value)

    def _matching(self, sig: Sig) -> list[StepValue]:
        """Values that look like sig, the latest first."""
        candidates = (
            self.values.get((sig.dims, sig.dtype), [])
            if sig.dtype
            else [v for (dims, _), values in self.values.items() if dims == sig.dims for v in values[-WINDOW:]]
        )
        if not sig.elements or not sig.dims:
            counter = self.units[self.at].name  # batch norm counts its batches in a scalar
            return [
                v for v in reversed(candidates[-WINDOW:])
                if not v.readers and self.at - v.touched <= SCALAR_REACH
                and not (counter.endswith("_") and v.unit.name == counter)
            ]  # fmt: skip
        return [v for v in reversed(candidates[-WINDOW:]) if alike(sig, v.sig)]

    def _bind(
        self, unit: Unit, symbol: str, group: Sequence[_Operand], bound: dict[int, StepValue]
    ) -> list[StepValue | None]:
        """Values for operands that look alike; None for one from outside."""
        matching = self._matching(group[0].sig)
        if symbol == "L" and group[0].place == 0:  # nobody writes linear(linear(x)): parallel ones read one x
            matching = [v for v in matching if v.letter != "L"]
        if all(o.name in PARAMETERS for o in group):  # each its own, unless a cast of it was made
            matching = [v for v in matching if v.index >= 0 and not v.readers]
        if not matching:
            return [None] * len(group)
        bound_ids = {id(v) for v in bound.values()}
        fresh = [v for v in matching if not v.readers and id(v) not in bound_ids]
        if len(group) == 1:
            return [self._one(unit, symbol, group[0], matching, fresh, list(bound.values()))]
        if self._squares(symbol, group):
            return [self._one(unit, symbol, group[0], matching, fresh, [])] * 2
        return self._several(symbol, group, matching, fresh)

    def _one(
        self, unit: Unit, symbol: str, operand: _Operand, matching: list[StepValue], fresh: list[StepValue],
        others: list[StepValue],
    ) -> StepValue | None:  # fmt: skip
        if unit.base in SIZED and operand.place:
            return matching[0]
        paired = self._made_by_neighbours(unit, operand.sig)
        if paired is not None:
            return paired
        cubic = (
            [c for c in map(_cubed_operand, others) if c is not None and alike(operand.sig, c.sig)]
            if symbol == "a"
            else []
        )
        if cubic:
            return cubic[0]
        likewise = self._likewise(unit, fresh, others) or (symbol == "s" and _plain_mean(matching)) or None
        if likewise is not None:
            return likewise
        if fresh:
            after = self.units[self.at + 1 : self.at + 2]
            twice = (
                _cubes(unit)
                or (symbol == "t" and any(_cubes(u) for u in after))
                or (symbol == "V" and any(u.base == "erf" for u in after))
            )
            if fresh[0].from_ and fresh[0].letter == "X" and twice:
                return fresh[0].from_[0]
            chained = unit.base in INDEXING and fresh[0].unit.base in INDEXING and fresh[0].at == self.at - 1
            return fresh[0] if chained or unit.base in LATEST else self._turn(unit, fresh)
        if operand.name in PARAMETERS and symbol != "Z":
            return None
        if symbol == "a" and others and operand.sig.dims == others[0].sig.dims:  # a residual of another dtype
            return self._again(symbol, others[0], operand.sig)
        for other in others:
            source = _reduced_from(other, operand.sig)
            if source is not None:
                return source
        if symbol in "MA":  # reads what nothing read yet, or from outside, or weights of which a copy was made
            return next((v for v in matching if v.letter in ("S", "D")), None)
        if symbol not in AGAIN:
            matching = [v for v in matching if v.index >= 0]
        if not matching:
            return None
        last = max(matching, key=lambda v: v.touched)
        above = {id(v) for v, _, _ in _ancestors(last)}
        pair = [
            v for v in matching
            if v.unit.name == last.unit.name and abs(last.at - v.at) <= PAIRED and id(v) not in above
        ]  # fmt: skip
        return min(pair, key=lambda v: (v.readers, v.at))

    def _made_by_neighbours(self, unit: Unit, sig: Sig) -> StepValue | None:
        """By the operations just before: halves of one value, cos and sin of one angle, q * cos + rotated q."""
        before = next((r for r in reversed(self.read[-3:]) if r[0].base != "neg"), None)
        if unit.base in HALVES and before is not None:
            last, values = before
            if last.base in HALVES or (
                letter(last) == "x" and any(u.base in ("neg", "cat") for u in self.units[self.at + 1 : self.at + 4])
            ):
                return next((v for v in values if alike(sig, v.sig)), None)
        pair = {"sin": "cos", "cos": "sin"}.get(unit.base)
        for last, values in reversed(self.read[-4:]) if pair else ():
            if last.base == pair and alike(sig, values[0].sig):
                return values[0]
        return None

    def _likewise(self, unit: Unit, fresh: list[StepValue], others: list[StepValue]) -> StepValue | None:
        """q * cos was computed: k * cos is of k, made like q, rather than of the latest value."""
        for last, values in reversed(self.read[-REACH:]) if letter(unit) == "x" else ():
            same = last.args == unit.args or any(v is others[0] for v in values[: len(others)])
            if last.name != unit.name or not same:
                continue
            names = {v.unit.name for v in values if v not in others[:1] and v.index >= 0}
            similar = [v for v in fresh if v.unit.name in names and v.index >= 0 and self.at - v.at <= REACH]
            if similar:
                return similar[-1]
        return None

    def _turn(self, unit: Unit, fresh: list[StepValue]) -> StepValue | None:
        """The latest; of several that one kind of operation made shortly after each other (q, k, v) the first.

        k where q, k and v wait and the last two dimensions are swapped.
        """
        last = fresh[0]
        waiting = [v for v in fresh if _kind_of_making(v) == _kind_of_making(last) and last.at - v.at <= REACH]
        if last.sig.dims and unit.args[0].sigs and swaps_last(unit):
            if len(waiting) > 2:
                return waiting[-2]
            scaled = last.from_[0] if last.letter == "X" and last.from_ else None  # q was scaled, then k is transposed
            if scaled is not None and scaled.index < 0:
                return None
            others = [v for v in fresh[1:] if scaled is not None and _kind_of_making(v) == _kind_of_making(scaled)]
            if others:
                return others[-1]
        return waiting[-1]

    def _several(
        self, symbol: str, group: Sequence[_Operand], matching: list[StepValue], fresh: list[StepValue]
    ) -> list[StepValue | None]:  # fmt: skip
        count = len(group)
        if symbol == "A" and count == 3 and len(fresh) >= 3:
            return list(_query_key_value(fresh[:3]))
        cubic = _cubed_operand(fresh[0]) if symbol == "a" and fresh else None
        if cubic is not None:
            return [cubic, fresh[0]]
        if len(fresh) >= count:
            return list(reversed(fresh[:count]))
        if count > 2 or not fresh:
            matching = [v for v in matching if v.index >= 0]
            if not matching:
                return [None] * count
            if symbol == "A":
                return [None] * count
            again = sorted(matching, key=lambda v: v.touched)[-count:]
            return [*again, *[None] * (count - len(again))]
        new = fresh[0]
        if symbol == "c":
            return [new, new]
        again_ = self._again(symbol, new, new.sig)
        return [again_, new] if symbol not in SYMMETRIC else [new, again_]

    def _again(self, symbol: str, new: StepValue, sig: Sig) -> StepValue | None:
        """The other operand of two of one size, one of them new: its ancestor, or one from outside."""
        before = [(v, heavy, way) for v, heavy, way in _ancestors(new) if alike(sig, v.sig)]
        if symbol in "xds":
            letters = GATES if symbol == "x" else REDUCING
            near = [v for v, heavy, way in before if not heavy and set(way) & letters and "x" not in way]
            return (near[-1] if symbol == "x" else near[0]) if near else None
        if symbol != "a":
            return None
        far = [v for v, heavy, _ in before if heavy]
        stream = [v for v in far if (v.letter == "N" if self.norm_last else _is_stream(v))]
        return stream[0] if stream else None


def _groups(operands: Sequence[_Operand]) -> Iterator[list[int]]:
    """Operands that look alike, together."""
    remaining = list(range(len(operands)))
    while remaining:
        first = operands[remaining[0]].sig
        group = [i for i in remaining if alike(first, operands[i].sig) or i == remaining[0]]
        remaining = [i for i in remaining if i not in group]
        yield sorted(group)


# -- what a value was computed from


def _kind_of_making(value: StepValue) -> tuple[str, str]:
    """Equal for what was made alike: the operation, and the one before it."""
    before = value.from_[0].unit.name if value.from_ else ""
    return value.unit.name, TURNS.get(before, before)


def _is_stream(value: StepValue) -> bool:
    """What residuals are: a sum, its activation, an embedding of words or patches, a dropout of these."""
    sizes = [a.sigs[0].dims for a in value.unit.args if a.kind == "tensor"]
    if value.letter == "a":
        return all(sum(d > 1 for d in dims) > 1 for dims in sizes)  # with a vector it is the bias of a norm
    if value.letter == "u":
        return bool(value.from_) and value.from_[0].letter == "a"
    if value.letter == "C":
        return sizes[0][2:] != value.sig.dims[2:]
    return value.letter in "ZD"


def _cubed_operand(new: StepValue) -> StepValue | None:
    """x of `x + 0.044715 * x ** 3`."""
    at = new.from_[0] if new.letter == "X" and new.from_ else None
    if at is None or not at.from_ or not _cubes(at.unit):
        return None
    source = at.from_[0]
    return source.from_[0] if source.letter == "t" and source.from_ else source


def _cubes(unit: Unit) -> bool:
    """x ** 3 of a GELU: of x, not of the half of it that was computed before."""
    return letter(unit) == "p" and len(unit.args) > 1 and unit.args[1].value in (3, 3.0)


def _square(value: StepValue) -> bool:
    product = value.letter == "x" and len(value.from_) == 2 and value.from_[0] is value.from_[1]
    return product or value.letter in SQUARES


def _plain_mean(matching: Sequence[StepValue]) -> StepValue | None:
    """The mean of values, where the mean of their squares is at hand too: `x - mean`."""
    means = [v for v in matching if v.letter in "mv"]
    return next((v for v in means if v.letter == "m" and not any(map(_square, v.from_))), None) if means[1:] else None


def _path(value: StepValue) -> tuple[object, ...]:
    """How a value was computed from the last one that several operations read: names, then that value."""
    names: list[object] = []
    at = value
    for _ in range(8):
        names.append(at.unit.name)
        if not at.from_:
            break
        at = at.from_[0]
        if at.readers > 1:
            return (*names, id(at))
    return (*names, id(at))


def _ancestors(value: StepValue) -> Iterator[tuple[StepValue, bool, str]]:
    """What value was computed from, the nearest first, whether a library's operation lies between, and the letters."""
    visited = {id(value)}
    front = [(value, value.letter in HEAVY, value.letter)]
    for _ in range(DEPTH):
        following = []
        for at, heavy, way in front:
            for source in at.from_:
                if id(source) not in visited:
                    visited.add(id(source))
                    yield source, heavy, way
                    following.append((source, heavy or source.letter in HEAVY, way + source.letter))
        front = following


def _main(value: StepValue) -> StepValue:
    """What a value was computed from: the first operand, the last of a scatter."""
    return value.from_[-1] if value.letter == "W" else value.from_[0]


def _reduced_from(value: StepValue, sig: Sig) -> StepValue | None:
    """x for `x * rsqrt(mean(x ** 2))`, e for `e / e.sum()`: what value was reduced from, before squares."""
    at = value
    for _ in range(8):
        if at.letter in REDUCING:
            break
        if not at.from_:
            return None
        at = _main(at)
    else:
        return None
    for _ in range(4):
        if not at.from_:
            return None
        at = _main(at)
        if alike(sig, at.sig) and not _square(at):
            return at
    return None


def _query_key_value(fresh: Sequence[StepValue]) -> tuple[StepValue, StepValue, StepValue]:
    """In the order of making; but where two were computed alike and the third otherwise, that is the values (RoPE)."""
    one, two, three = reversed(fresh)
    names = [_path(v)[:-1] for v in (one, two, three)]
    if names[0] != names[1] and names[1] == names[2]:
        return two, three, one
    return one, two, three
