"""Which operand is which value over a whole step, inferred: a trace records sizes, not identities.

The rule is "the most recent output of these sizes, strides and dtype that nothing has read yet". It fails where a value
is read again (`x + f(x)`, `x * rsqrt(...)`) and where parallel values wait for their turn (q, k, v). What is known
about those is below, measured against execution traces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from profiler.region.trace_join import Edges, Slot, Source
from profiler.region.trace_ops import Sig, Unit
from profiler.region.trace_patterns import letter
from profiler.region.trace_shapes import alike, call
from profiler.region.trace_values import swaps_last

WINDOW = 64
"""Values of equal sizes and dtype that are looked through, from the latest."""
SCALAR_REACH = 12
"""Units back over which a tensor without dimensions is looked for: it has no sizes to tell it by."""
DEPTH = 24
"""Values on the way back from an operand to what it was computed from."""

HEAVY = frozenset("LMGCA")
GATES = frozenset("ohe")
SQUARES = frozenset("p")
REDUCING = frozenset("mvb")
PARAMETERS = frozenset({"weight", "bias", "running_mean", "running_var"})
SYMMETRIC = frozenset("ax")
TURNS = {"cos": "sin"}
LATEST = frozenset({"neg"})
"""Reads the last of several halves: `cat((-x2, x1))`."""
INDEXING = frozenset({"unsqueeze", "slice", "select", "expand"})
"""`x[:, None, :n]` is a chain of these."""
PAIRED = 4
"""Units between two values that are read in turn, again and again: cos and sin of a rotation."""
REACH = 48
"""Units between values of one kind that wait for their turn."""
HALVES = frozenset({"slice", "chunk", "split", "split_with_sizes", "narrow", "unbind", "select"})


@dataclass(slots=True, eq=False)
class _Made:
    """A value: output `index` of a unit. touched: the position of its last use, or of its making."""

    sig: Sig
    unit: Unit
    index: int
    letter: str
    from_: tuple[_Made, ...]
    at: int
    touched: int
    readers: int = 0


@dataclass(slots=True)
class _Operand:
    place: int
    member: int
    name: str
    sig: Sig


def infer(units: Sequence[Unit]) -> Edges:
    """Edges among the forward units of one thread, in order. An operand without an edge comes from outside the step."""
    walk = _Walk(units)
    for at in range(len(units)):
        walk.visit(at)
    return Edges(walk.sources)


@dataclass(slots=True)
class _Walk:
    units: Sequence[Unit]
    sources: dict[Slot, Source] = field(default_factory=dict)
    made: dict[object, list[_Made]] = field(default_factory=lambda: defaultdict(list))
    read: list[tuple[Unit, list[_Made]]] = field(default_factory=list)
    at: int = 0
    norm_last: bool = False  # a dropout read a norm's output: the norms of this model follow its residual adds (BERT)

    def visit(self, at: int) -> None:
        self.at = at
        unit = self.units[at]
        if not unit.args or not unit.aten:
            return
        found = call(unit.written or unit.name, unit.args, unit.overload)
        names = found.names if found is not None else ()
        operands = [
            _Operand(place, member, names[place] if place < len(names) else "", sig)
            for place, argument in enumerate(unit.args)
            if argument.kind in ("tensor", "tensors")
            for member, sig in enumerate(argument.sigs)
        ]
        symbol = letter(unit)
        bound: dict[int, _Made] = {}
        for group in _groups(operands):
            values = self._bind(unit, symbol, [operands[i] for i in group], bound)
            bound |= {i: v for i, v in zip(group, values, strict=True) if v is not None}
        if bound:
            self.read.append((unit, [bound[i] for i in sorted(bound)]))
        for i, value in bound.items():
            value.readers += 1
            self.norm_last |= symbol == "D" and value.letter == "N"
            value.touched = at
            self.sources[unit.op, operands[i].place, operands[i].member] = (value.unit.op, value.index)
        if found is None:
            return
        gives = dict(zip([o.name for o in operands], range(len(operands)), strict=True))
        for index, (sig, given) in enumerate(zip(found.outputs, found.gives, strict=True)):
            same = bound.get(gives.get(given, -1)) if given else None
            if given and not found.changes and not unit.inner:  # one that ran something was a copy between devices
                if same is not None:
                    same.readers -= 1  # handed through: whoever reads the result reads it
                continue
            if symbol == "C":
                sig = Sig(sig.dtype, sig.dims, None)  # the library chooses the layout
            value = _Made(sig, unit, index, symbol, tuple(bound[i] for i in sorted(bound)), at, at)
            if same is not None:
                same.readers += 1
                self._forget(same)
            self.made[sig.dims, sig.dtype].append(value)

    def _forget(self, value: _Made) -> None:
        """Changed in place: whoever reads it from now on reads the change."""
        values = self.made[value.sig.dims, value.sig.dtype]
        if value in values:
            values.remove(value)

    def _matching(self, sig: Sig) -> list[_Made]:
        """Values that look like sig, the latest first."""
        found = self.made.get((sig.dims, sig.dtype), ()) if sig.dtype else [
            v for (dims, _), values in self.made.items() if dims == sig.dims for v in values[-WINDOW:]
        ]  # fmt: skip
        if not sig.elements or not sig.dims:
            counted = self.units[self.at].name  # batch norm counts its batches in a scalar
            return [
                v for v in reversed(found[-WINDOW:])
                if not v.readers and self.at - v.touched <= SCALAR_REACH
                and not (counted.endswith("_") and v.unit.name == counted)
            ]  # fmt: skip
        return [v for v in reversed(found[-WINDOW:]) if alike(sig, v.sig)]

    def _bind(self, unit: Unit, symbol: str, group: Sequence[_Operand], bound: dict[int, _Made]) -> list[_Made | None]:
        """Values for operands that look alike; None for one from outside."""
        matching = self._matching(group[0].sig)
        if symbol == "L" and group[0].place == 0:  # nobody writes linear(linear(x)): parallel ones read one x
            matching = [v for v in matching if v.letter != "L"]
        if not matching:
            return [None] * len(group)
        fresh = [v for v in matching if not v.readers]
        if len(group) == 1:
            return [self._one(unit, symbol, group[0], matching, fresh, list(bound.values()))]
        return self._several(symbol, group, matching, fresh)

    def _one(
        self, unit: Unit, symbol: str, operand: _Operand, matching: list[_Made], fresh: list[_Made], others: list[_Made]
    ) -> _Made | None:  # fmt: skip
        told = self._told(unit, operand.sig)
        if told is not None:
            return told
        likewise = self._likewise(unit, fresh, others) or (symbol == "s" and _mean(matching)) or None
        if likewise is not None:
            return likewise
        if fresh:
            if fresh[0].from_ and fresh[0].letter == "X" and _twice(unit, symbol):
                return fresh[0].from_[0]
            chained = unit.base in INDEXING and fresh[0].unit.base in INDEXING and fresh[0].at == self.at - 1
            return fresh[0] if chained or unit.base in LATEST else self._turn(unit, fresh)
        if operand.name in PARAMETERS and symbol != "Z":
            return None
        for other in others:
            source = _reduced_from(other, operand.sig)
            if source is not None:
                return source
            if other.letter in REDUCING and not other.from_ and alike(operand.sig, other.unit.args[0].sigs[0]):
                return None  # reduced from a tensor that comes from outside
        last = max(matching, key=lambda v: v.touched)
        above = {id(v) for v, _, _ in _ancestors(last)}
        pair = [
            v for v in matching
            if v.unit.name == last.unit.name and abs(last.at - v.at) <= PAIRED and id(v) not in above
        ]  # fmt: skip
        return min(pair, key=lambda v: (v.readers, v.at))

    def _told(self, unit: Unit, sig: Sig) -> _Made | None:
        """What the operations just before tell: halves of one value, cos and sin of one angle, q * cos + rotated q."""
        before = self.read[-1] if self.read else None
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

    def _likewise(self, unit: Unit, fresh: list[_Made], others: list[_Made]) -> _Made | None:
        """q * cos was computed: k * cos is of k, made like q, rather than of the latest value."""
        for last, values in reversed(self.read[-REACH:]) if letter(unit) == "x" else ():
            same = any(v is others[0] for v in values) if others else last.args == unit.args
            if last.name == unit.name and same:
                names = {v.unit.name for v in values if v not in others[:1]}
                return next((v for v in reversed(fresh) if v.unit.name in names and self.at - v.at <= REACH), None)
        return None

    def _turn(self, unit: Unit, fresh: list[_Made]) -> _Made:
        """The latest; of several that one kind of operation made shortly after each other (q, k, v) the first.

        k where q, k and v wait and the last two dimensions are swapped.
        """
        last = fresh[0]
        waiting = [v for v in fresh if _kind(v) == _kind(last) and last.at - v.at <= REACH]
        if len(waiting) > 2 and last.sig.dims and swaps_last(unit):
            return waiting[1]
        return waiting[-1]

    def _several(
        self, symbol: str, group: Sequence[_Operand], matching: list[_Made], fresh: list[_Made]
    ) -> list[_Made | None]:  # fmt: skip
        count = len(group)
        if symbol == "A" and count == 3 and len(fresh) >= 3:
            return list(_query_key_value(fresh[:3]))
        cubed = _cubed(fresh[0]) if symbol == "a" and fresh else None
        if cubed is not None:
            return [cubed, fresh[0]]
        if len(fresh) >= count:
            return list(reversed(fresh[:count]))
        if count > 2 or not fresh:
            again = sorted(matching, key=lambda v: v.touched)[-count:]
            return [*again, *[again[-1]] * (count - len(again))]
        new = fresh[0]
        if symbol == "c":
            return [new, new]
        again_ = self._again(symbol, new)
        return [again_, new] if symbol not in SYMMETRIC else [new, again_]

    def _again(self, symbol: str, new: _Made) -> _Made | None:
        """The other operand beside a new one of its sizes: something that it was computed from, or from outside."""
        before = [(v, heavy, way) for v, heavy, way in _ancestors(new) if alike(new.sig, v.sig)]
        if symbol in "xds":
            letters = GATES if symbol == "x" else REDUCING
            near = [v for v, heavy, way in before if not heavy and set(way) & letters and "x" not in way]
            return near[-1] if near else None
        far = [v for v, heavy, _ in before if heavy]
        stream = [v for v in far if (v.letter == "N" if self.norm_last else _stream(v))]
        return (stream or [None])[0]


def _kind(value: _Made) -> tuple[str, str]:
    """Equal for what was made alike: the operation, and the one before it."""
    before = value.from_[0].unit.name if value.from_ else ""
    return value.unit.name, TURNS.get(before, before)


def _stream(value: _Made) -> bool:
    """What residuals are: a sum, its activation, an embedding of words or patches, a dropout of these."""
    sizes = [a.sigs[0].dims for a in value.unit.args if a.kind == "tensor"]
    if value.letter == "a":
        return all(sum(d > 1 for d in dims) > 1 for dims in sizes)  # with a vector it is the bias of a norm
    if value.letter == "u":
        return bool(value.from_) and value.from_[0].letter == "a"
    if value.letter == "C":
        return sizes[0][2:] != value.sig.dims[2:]
    return value.letter in "ZD"


def _cubed(new: _Made) -> _Made | None:
    """x of `x + 0.044715 * x ** 3`."""
    at = new.from_[0] if new.letter == "X" and new.from_ else None
    return at.from_[0] if at is not None and at.letter == "p" and at.from_ and _twice(at.unit, "p") else None


def _twice(unit: Unit, symbol: str) -> bool:
    """Reads x of `0.5 * x * (1 + tanh(... x ** 3))` or of `0.5 * x * (1 + erf(x / 1.41))`, not the half of it."""
    return symbol == "V" or (symbol == "p" and len(unit.args) > 1 and unit.args[1].value in (3, 3.0))


def _square(value: _Made) -> bool:
    return value.letter in SQUARES or (value.letter == "x" and len(value.from_) == 2 and value.from_[0] is value.from_[1])


def _mean(matching: Sequence[_Made]) -> _Made | None:
    """The mean of values, where the mean of their squares is at hand too: `x - mean`."""
    means = [v for v in matching if v.letter == "m"]
    return next((v for v in means if not any(map(_square, v.from_))), None) if len(means) > 1 else None


def _groups(operands: Sequence[_Operand]) -> Iterator[list[int]]:
    """Operands that look alike together; small ones first, as what is reduced tells what it was reduced from."""
    left = sorted(range(len(operands)), key=lambda i: (operands[i].sig.elements, i))
    while left:
        first = operands[left[0]].sig
        group = [i for i in left if alike(first, operands[i].sig) or i == left[0]]
        left = [i for i in left if i not in group]
        yield sorted(group)


def _path(value: _Made) -> tuple[object, ...]:
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


def _ancestors(value: _Made) -> Iterator[tuple[_Made, bool, str]]:
    """What value was computed from, the nearest first, whether a library's operation lies between, and the letters."""
    seen = {id(value)}
    front = [(value, value.letter in HEAVY, value.letter)]
    for _ in range(DEPTH):
        following = []
        for at, heavy, way in front:
            for source in at.from_:
                if id(source) not in seen:
                    seen.add(id(source))
                    yield source, heavy, way
                    following.append((source, heavy or source.letter in HEAVY, way + source.letter))
        front = following


def _reduced_from(value: _Made, sig: Sig) -> _Made | None:
    """x for `x * rsqrt(mean(x ** 2))`, e for `e / e.sum()`: what value was reduced from, before squares."""
    at = value
    for _ in range(8):
        if at.letter in REDUCING:
            break
        if not at.from_:
            return None
        at = at.from_[0]
    else:
        return None
    for _ in range(4):
        if not at.from_:
            return None
        at = at.from_[0]
        if alike(sig, at.sig) and not _square(at):
            return at
    return None


def _query_key_value(fresh: Sequence[_Made]) -> tuple[_Made, _Made, _Made]:
    """In the order of making; but where two were computed alike and the third otherwise, that is the values (RoPE)."""
    one, two, three = reversed(fresh)
    names = [[n for n in _path(v)[:-1]] for v in (one, two, three)]
    if names[0] != names[1] and names[1] == names[2]:
        return two, three, one
    return one, two, three
