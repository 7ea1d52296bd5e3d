"""What is done to many tensors in turn, as the text of one tensor that has all their elements.

An optimizer's step, gradients that are added up or scaled, one operation over many tensors. Nothing in them depends on
where one tensor ends and the next begins, so bytes and FLOPs are those of one tensor of all elements; launches are not,
and `assumed` says it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from profiler.region.mining.partition import Part
from profiler.region.mining.texts.call_arguments import UnwritableError
from profiler.region.mining.texts.optimizer_recipes import STEPS, Line, Recipe, sections
from profiler.region.mining.units import DTYPES, SCALAR_TYPES, Argument, Unit
from profiler.region.model import FLOATING
from profiler.trace.model import NONE, Floats, Longs, Step, Trace

Bools = npt.NDArray[np.bool_]
ACCUMULATE = "torch::autograd::AccumulateGrad"
ADDS = ("aten::add_", "aten::add")
STATE = ("p", "g", "m", "v", "c")
"""Names that a step reads, in the order of its inputs."""
EACH: Mapping[str, str] = {
    "add": "{a} + {b}", "sub": "{a} - {b}", "mul": "{a} * {b}", "div": "{a} / {b}", "copy": "{b}{cast}",
    "to": "{a}.to({to})", "clone": "{a}.clone()", "zero": "zeros_like({a})", "sqrt": "sqrt({a})", "neg": "-{a}",
}  # fmt: skip
"""Operations that are written over many tensors in turn. cast: to the type of what a copy is written into."""


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradients that a step's backward ended in: how many parameters, and their elements by type."""

    tensors: int = 0
    elements: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Written:
    """A text before it is checked, and what of it the trace does not record."""

    lines: list[str]
    assumed: list[str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


@dataclass(frozen=True, slots=True)
class Accumulations:
    """Events in which autograd hands a gradient to a parameter, and of each whether it adds to what is there."""

    ops: Longs
    start_us: Floats
    adds: Bools


def accumulations(trace: Trace) -> Accumulations:
    """Those of a whole trace, to be asked for each of its steps."""
    ops = trace.ops
    events, adding = (np.flatnonzero(_named(trace, names)) for names in ((ACCUMULATE,), ADDS))
    return Accumulations(events, ops.start_us[events], np.isin(events, ops.parent[adding]))


def _named(trace: Trace, names: Sequence[str]) -> Bools:
    """Of each operation whether it has one of the names."""
    return np.isin(trace.ops.name, [i for i, name in enumerate(trace.names) if name in names])


def gradients_of(trace: Trace, step: Step, handed: Accumulations) -> Gradients:
    """What autograd handed to the parameters in the step. Gradients added to what is there are further micro-batches'
    where others of the step are not: those count once.
    """
    ops = trace.ops
    within = (step.start_us <= handed.start_us) & (handed.start_us < step.end_us)
    first = within & ~handed.adds
    events: list[int] = handed.ops[first if first.any() else within].tolist()
    elements: dict[str, int] = {}
    count = 0
    for op in events:
        detail = int(ops.detail[op])
        types = trace.details[detail].types if detail != NONE else ()
        dims = trace.details[detail].dims[0] if types else ()
        if not types or types[0] not in DTYPES or not all(isinstance(d, int) for d in dims):
            continue
        size = 1
        for d in dims:
            size *= d if isinstance(d, int) else 1
        elements[DTYPES[types[0]]] = elements.get(DTYPES[types[0]], 0) + size
        count += 1
    return Gradients(count, elements)


def is_over_many(part: Part) -> bool:
    """The part is one of those that this module writes."""
    return part.kind in ("optimizer", "accumulation") or bool(part.period and "over many tensors" in part.title)


def write_many(part: Part, gradients: Gradients) -> Written:
    """The part as a text of one tensor. Raises UnwritableError where sizes or the kind of the step are not known."""
    if part.kind == "optimizer" or any(u.name.startswith("_foreach_") for u in part.units):
        return _step(part, gradients)
    return _each(part)


# -- an optimizer's step


def _step(part: Part, gradients: Gradients) -> Written:
    units = _without_counters(part.units)
    if not any(u.args for u in units):
        raise UnwritableError("shapes were not recorded: profile with record_shapes=True")
    names = [_name(u) for u in units]
    fused = [u for u in units if u.name in FUSED]
    if fused and len(fused) == len(units):
        code, assumed = FUSED[fused[0].name](fused[0].args)
        return _of_state(code, assumed, _size(part, [u.args[0] for u in fused], gradients))
    period = _period(names)
    recipes = sections(names[:period])
    if recipes is None:
        raise UnwritableError("which optimizer this is, its operations do not tell")
    steps = [r for r in recipes if r in STEPS]
    if len({r.name for r in steps}) > 1 or (steps and len(steps) < len(recipes) and len(steps) > 1):
        raise UnwritableError("groups of parameters are stepped differently, and which belong to which is not recorded")
    size = _size(part, [u.args[0] for u in _firsts(units, recipes, period)], gradients)
    code, assumed = _code(units, recipes)
    which = [f"which list each operation takes, as {r.name} does" for r in steps[:1] if len(r.lines) > 1]
    return _of_state(code, [*which, *assumed], size)


def _without_counters(units: Sequence[Unit]) -> list[Unit]:
    """Without what counts the steps, a number beside each tensor, and without a leading number added to a list."""
    stepping = [u for u in units if not _is_of_numbers(u)]
    while len(stepping) > 1 and _counts(stepping[0]):
        del stepping[0]
    return stepping


def _is_of_numbers(unit: Unit) -> bool:
    """Its first tensors have no dimensions; a gradient that is one number keeps its optimizer's text from being."""
    return bool(unit.args) and bool(unit.args[0].sigs) and not any(s.dims for s in unit.args[0].sigs)


def _counts(unit: Unit) -> bool:
    number = unit.args[1] if len(unit.args) > 1 else Argument("none")
    alone = number.kind in ("value", "lost") or (number.kind == "tensor" and not number.sigs[0].dims)
    return _name(unit) == "add_" and alone


def _name(unit: Unit) -> str:
    return unit.name.removeprefix("_foreach_")


def _period(names: Sequence[str]) -> int:
    """Operations of one round: the shortest sequence that names are made of."""
    size = len(names)
    return next(p for p in range(1, size + 1) if size % p == 0 and list(names[:p]) * (size // p) == list(names))


def _firsts(units: Sequence[Unit], recipes: Sequence[Recipe], period: int) -> list[Unit]:
    """Of each round the operation whose first tensors tell how many elements it is over."""
    step = next((r for r in recipes if r in STEPS), recipes[0])
    before = sum(len(r.lines) for r in recipes[: list(recipes).index(step)])
    at = before + next((i for i, line in enumerate(step.lines) if line.code[0] in "pgmv"), 0)
    return [units[i + at] for i in range(0, len(units), period)]


def _code(units: Sequence[Unit], recipes: Iterable[Recipe]) -> tuple[list[str], list[str]]:
    lines: list[str] = []
    assumed: list[str] = []
    at = 0
    for recipe in dict.fromkeys(recipes):
        for line in recipe.lines:
            text, missing = _line(line, units[at].args)
            lines += text.splitlines()
            assumed += missing
            at += 1
    return lines, assumed


def _line(line: Line, args: Sequence[Argument]) -> tuple[str, list[str]]:
    if "#" not in line.code:
        return line.code, []
    argument = args[line.place] if line.place < len(args) else Argument("none")
    numbers = argument.value if isinstance(argument.value, tuple) else (argument.value,)
    recorded = len(set(numbers)) == 1 and isinstance(numbers[0], int | float) and not isinstance(numbers[0], bool)
    value = numbers[0] if recorded else line.default
    text = line.code.replace("# * ", "") if value == 1 and "# * " in line.code else line.code.replace("#", repr(value))
    return text, [] if recorded else [f"{line.what} {value!r}"]


@dataclass(frozen=True, slots=True)
class _Size:
    """What a step is over. note: how that is known."""

    dtype: str
    elements: int
    note: str


def _size(part: Part, firsts: Sequence[Argument], gradients: Gradients) -> _Size:
    """Of the lists where they were recorded, else of the step's gradients."""
    if len(gradients.elements) > 1:
        raise UnwritableError("the parameters are of several types, and which list has which is not recorded")
    sigs = [s for a in firsts for s in a.sigs]
    dtypes = {s.dtype for s in sigs if s.dtype}
    if sigs and all(a.sigs for a in firsts) and len(dtypes) == 1 and all(s.dims or s.elements for s in sigs):
        elements = sum(s.elements for s in sigs)
        return _Size(dtypes.pop(), elements, _as_one(len(sigs), elements))
    if not part.title.startswith(OF_PARAMETERS):
        raise UnwritableError("the sizes of the tensors in its lists are not recorded")
    if not gradients.elements:
        raise UnwritableError("the sizes of the parameters are not recorded: neither with the step nor with gradients")
    ((dtype, elements),) = gradients.elements.items()
    return _Size(dtype, elements, f"{_as_one(gradients.tensors, elements)}, by the sizes of the step's gradients")


OF_PARAMETERS = ("optimizer step", "gradient clipping", "loss scaling")
"""Titles of what is done to all parameters or their gradients."""


def _of_state(code: list[str], assumed: list[str], size: _Size) -> Written:
    """The step over p, g and its moments."""
    if size.dtype not in FLOATING:
        raise UnwritableError(f"parameters of type {size.dtype} are not stepped")
    targets = list(dict.fromkeys(line.split(" = ")[0] for line in code))
    reads = [n for n in STATE if _is_read_first(n, code)]
    results = [t for t in targets if t != "d" and (t in reads or t not in STATE)]
    if any(t in results for t in "pmv") and "g" in results:
        results.remove("g")  # a penalty's sum is inside
    head = [f"{n}: {size.dtype}[{size.elements}]" if n != "c" else "c: f32[()]" for n in reads]
    return Written([*head, *code, "return " + ", ".join(results)], [size.note, *assumed])


def _is_read_first(name: str, code: Sequence[str]) -> bool:
    for line in code:
        target, value = line.split(" = ", 1)
        if re.search(rf"\b{name}\b", value):
            return True
        if target == name:
            return False
    return False


def _fused_adam(args: Sequence[Argument], decoupled: bool) -> tuple[list[str], list[str]]:
    lr, beta1, beta2, decay, eps = _numbers(args, 6, (1e-3, 0.9, 0.999, 0.01, 1e-8))
    if len(args) > 11 and args[11].value is True:
        raise UnwritableError("AMSGrad's step is not written as a region")
    lines = [f"p = p * {1 - lr * decay!r}" if decoupled else f"g = g + {decay!r} * p"] if decay else []
    lines += [f"m = lerp(m, g, {1 - beta1!r})", f"v = v * {beta2!r}", f"v = addcmul(v, g, g, value={1 - beta2!r})"]
    return [*lines, f"d = sqrt(v) + {eps!r}", f"p = addcdiv(p, m, d, value={-lr!r})"], [f"{CORRECTED} 1.0"]


CORRECTED = "the bias corrections"


def _fused_adamw(args: Sequence[Argument]) -> tuple[list[str], list[str]]:
    return _fused_adam(args, True)


def _fused_adam_penalty(args: Sequence[Argument]) -> tuple[list[str], list[str]]:
    return _fused_adam(args, False)


def _fused_sgd(args: Sequence[Argument]) -> tuple[list[str], list[str]]:
    decay, momentum, lr, dampening = _numbers(args, 3, (0.0, 0.0, 0.1, 0.0))
    lines = [f"g = g + {decay!r} * p"] if decay else []
    if not momentum:
        return [*lines, f"p = p + {-lr!r} * g"], []
    added = "g" if not dampening else f"{1 - dampening!r} * g"
    return [*lines, f"m = m * {momentum!r} + {added}", f"p = p + {-lr!r} * m"], []


def _numbers(args: Sequence[Argument], at: int, defaults: Sequence[float]) -> list[float]:
    values = [a.value for a in args[at : at + len(defaults)]]
    values += [None] * (len(defaults) - len(values))
    return [float(v) if isinstance(v, int | float) else d for v, d in zip(values, defaults, strict=True)]


FUSED = {"_fused_adamw_": _fused_adamw, "_fused_adam_": _fused_adam_penalty, "_fused_sgd_": _fused_sgd}
"""torch's own step in one kernel -> what it computes."""


def _as_one(tensors: int, elements: int) -> str:
    return f"{tensors:,} tensor{'s' if tensors != 1 else ''} as one of {elements:,} elements"


# -- one operation over many tensors in turn


def _each(part: Part) -> Written:
    """Operations of one name and of the same types are one statement over all their elements."""
    sums: dict[tuple[str, tuple[str, ...], str], tuple[int, int]] = {}
    assumed: list[str] = []
    for unit in part.units:
        key, elements = _kind(unit, assumed)
        before = sums.get(key, (0, 0))
        sums[key] = (before[0] + elements, before[1] + 1)
    heads, lines, results, notes = [], [], [], []
    for number, ((base, dtypes, value), (elements, tensors)) in enumerate(sums.items(), start=1):
        suffix = "" if number == 1 else str(number)
        names = [f"{n}{suffix}" for n in ("x", "a")][: len(dtypes)]
        read = names[1:] if base == "copy" else names
        heads += [f"{n}: {d}[{elements}]" for n, d in zip(names, dtypes, strict=True) if n in read]
        other = names[1] if len(names) > 1 else value
        cast = ".clone()" if len(set(dtypes)) == 1 else f".to({dtypes[0]})"
        code = EACH[base].format(a=names[0], b=other, to=value, cast=cast)
        lines.append(f"y{suffix} = {code}")
        results.append(f"y{suffix}")
        notes.append(_as_one(tensors, elements))
    return Written([*heads, *lines, "return " + ", ".join(results)], [*notes, *dict.fromkeys(assumed)])


def _kind(unit: Unit, assumed: list[str]) -> tuple[tuple[str, tuple[str, ...], str], int]:
    """((operation, types of its tensors, its number or the type it casts to), elements) of one of the operations."""
    if not unit.args:
        raise UnwritableError("shapes were not recorded: profile with record_shapes=True")
    tensors = [a.sigs[0] for a in unit.args if a.kind == "tensor"]
    number, value = unit.args[1] if len(unit.args) > 1 else Argument("none"), ""
    if unit.base not in EACH or not tensors:
        raise UnwritableError("one operation over many tensors in turn is not written as a region")
    if unit.base == "to":
        value = _cast_to(unit)
        tensors = tensors[:1]
    elif len(tensors) < 2 and "{b}" in EACH[unit.base]:
        recorded = isinstance(number.value, int | float)
        value = repr(number.value) if recorded else "0.5"
        assumed += [] if recorded else ["the number 0.5"]
    if any(t.elements != tensors[0].elements for t in tensors):
        raise UnwritableError("one operation over many tensors in turn is not written as a region")
    return (unit.base, tuple(t.dtype for t in tensors), value), tensors[0].elements


def _cast_to(unit: Unit) -> str:
    number = unit.args[1].value if len(unit.args) > 1 else None
    if not isinstance(number, int) or number not in SCALAR_TYPES:
        raise UnwritableError("the trace does not record the type of a cast")
    return SCALAR_TYPES[number]
