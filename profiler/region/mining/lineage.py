"""What a value of a step was computed from: small questions about its ancestors, as a trace's edges are inferred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from profiler.region.mining.handwritten_patterns import letter
from profiler.region.mining.output_shapes import alike
from profiler.region.mining.units import Sig, Unit

DEPTH = 24
"""Values on the way back from an operand to what it was computed from."""
HEAVY = frozenset("LMGCA")
SQUARES = frozenset("p")
REDUCING = frozenset("mvbWH")
TURNS = {"cos": "sin"}
"""Tables of both wait for their turn as if made alike."""


@dataclass(slots=True, eq=False)
class Made:
    """A value: output `index` of a unit. touched: the position of its last use, or of its making."""

    sig: Sig
    unit: Unit
    index: int
    letter: str
    from_: tuple[Made, ...]
    at: int
    touched: int
    readers: int = 0


def kind_of_making(value: Made) -> tuple[str, str]:
    """Equal for what was made alike: the operation, and the one before it."""
    before = value.from_[0].unit.name if value.from_ else ""
    return value.unit.name, TURNS.get(before, before)


def is_stream(value: Made) -> bool:
    """What residuals are: a sum, its activation, an embedding of words or patches, a dropout of these."""
    sizes = [a.sigs[0].dims for a in value.unit.args if a.kind == "tensor"]
    if value.letter == "a":
        return all(sum(d > 1 for d in dims) > 1 for dims in sizes)  # with a vector it is the bias of a norm
    if value.letter == "u":
        return bool(value.from_) and value.from_[0].letter == "a"
    if value.letter == "C":
        return sizes[0][2:] != value.sig.dims[2:]
    return value.letter in "ZD"


def cubed_operand(new: Made) -> Made | None:
    """x of `x + 0.044715 * x ** 3`."""
    at = new.from_[0] if new.letter == "X" and new.from_ else None
    if at is None or not at.from_ or not cubes(at.unit):
        return None
    source = at.from_[0]
    return source.from_[0] if source.letter == "t" and source.from_ else source


def cubes(unit: Unit) -> bool:
    """x ** 3 of a GELU: of x, not of the half of it that was computed before."""
    return letter(unit) == "p" and len(unit.args) > 1 and unit.args[1].value in (3, 3.0)


def _square(value: Made) -> bool:
    product = value.letter == "x" and len(value.from_) == 2 and value.from_[0] is value.from_[1]
    return product or value.letter in SQUARES


def plain_mean(matching: Sequence[Made]) -> Made | None:
    """The mean of values, where the mean of their squares is at hand too: `x - mean`."""
    means = [v for v in matching if v.letter in "mv"]
    return next((v for v in means if v.letter == "m" and not any(map(_square, v.from_))), None) if means[1:] else None


def _path(value: Made) -> tuple[object, ...]:
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


def ancestors(value: Made) -> Iterator[tuple[Made, bool, str]]:
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


def _main(value: Made) -> Made:
    """What a value was computed from: the first operand, the last of a scatter."""
    return value.from_[-1] if value.letter == "W" else value.from_[0]


def reduced_from(value: Made, sig: Sig) -> Made | None:
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


def query_key_value(fresh: Sequence[Made]) -> tuple[Made, Made, Made]:
    """In the order of making; but where two were computed alike and the third otherwise, that is the values (RoPE)."""
    one, two, three = reversed(fresh)
    names = [_path(v)[:-1] for v in (one, two, three)]
    if names[0] != names[1] and names[1] == names[2]:
        return two, three, one
    return one, two, three
