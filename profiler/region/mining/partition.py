"""Units -> parts: which operations of a step are one region. Patterns first, then chains that data flows along."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from profiler.region.mining import titles
from profiler.region.mining.attention_flow import Thread, Values, find_attention
from profiler.region.mining.backward_pairs import Maker, pair_backward
from profiler.region.mining.compiled_attention import find_compiled_attention
from profiler.region.mining.compiled_pairs import GraphForward, in_compiled_graph
from profiler.region.mining.complete_arguments import complete
from profiler.region.mining.handwritten_patterns import PATTERNS, Pattern
from profiler.region.mining.loops import find_loops, loop_units
from profiler.region.mining.output_shapes import outputs, reads
from profiler.region.mining.unit_letters import (
    ALONE,
    CHAINS,
    CONVOLUTION_TAIL,
    COPIES,
    OPTIMIZER,
    OTHER,
    ROTATION,
    TAIL,
    TAIL_STARTS,
    letter,
    rotates,
)
from profiler.region.mining.units import Unit, Units
from profiler.trace.model import NONE, Trace

PIECES = frozenset({"slice", "narrow", "chunk", "split", "split_with_sizes", "select", "unbind"})
"""Views whose backward has kernels of its own: zeros and a copy, or the pieces put together."""
MAX_CHAIN = 40
"""Units in one chain; a longer one is several regions."""


@dataclass(slots=True)
class Part:
    """One occurrence of a region: the units it takes, forward, then the backward units autograd ran for them."""

    kind: str
    title: str
    by_hand: bool
    units: list[Unit]
    backward: list[Unit] = field(default_factory=list)
    letters: str = ""
    period: int = 0  # units of one round where the part is a loop
    makers: list[Unit] = field(default_factory=list)  # of a backward part: forward units whose gradients it computes

    @property
    def round(self) -> list[Unit]:
        """The units, or those of a loop's first round."""
        return self.units[: self.period] if self.period else self.units

    @property
    def time_us(self) -> float:
        return sum(u.time_us for u in self.units) + sum(u.time_us for u in self.backward)

    @property
    def backward_time_us(self) -> float:
        """Kernel time in autograd's nodes."""
        every = self.kind == "accumulation"
        return sum(u.time_us for u in (*self.units, *self.backward) if every or u.backward)

    @property
    def kernels(self) -> list[int]:
        return [k for u in (*self.units, *self.backward) for k in u.kernels]


def partition(trace: Trace, step_units: Units) -> list[Part]:
    """Every unit that launched kernels is in exactly one part."""
    forward: list[Part] = []
    accumulated = [u for u in step_units.units if u.kernels and _accumulates(trace, u)]
    accumulated_ops = {u.op for u in accumulated}
    threads: dict[int, list[Unit]] = {}
    backward: dict[int, list[Unit]] = {}
    for unit in step_units.units:
        if unit.backward:
            backward.setdefault(unit.thread, []).append(unit)
        elif unit.op not in accumulated_ops:
            threads.setdefault(unit.thread, []).append(unit)
    for units in backward.values():
        complete(units)
    views: list[tuple[Unit, Part]] = []
    for thread in sorted(threads):
        complete(threads[thread])
        thread_parts = _Cutter(threads[thread]).cut()
        views += _inside(threads[thread], thread_parts)
        forward += thread_parts
    backward_parts = _backward(trace, step_units, forward, views, accumulated_ops)
    if accumulated:
        letters = "".join(letter(u) for u in accumulated)
        adds = any(u.base != "mul" and u.base != "div" for u in accumulated)
        title = "gradient accumulation" if adds else "gradient scaling"
        backward_parts.append(Part("accumulation", title, False, accumulated, letters=letters, period=1))
    return forward + backward_parts


def _accumulates(trace: Trace, unit: Unit) -> bool:
    """A parameter's gradient is added to what it has already."""
    above = int(trace.ops.parent[unit.op])
    name = unit.node or (trace.names[int(trace.ops.name[above])] if above != NONE else "")
    return name.endswith("AccumulateGrad") and unit.base in ("add", "copy", "clone", "detach", "to", "mul", "div")


def _inside(thread: Sequence[Unit], thread_parts: Sequence[Part]) -> list[tuple[Unit, Part]]:
    """Views whose backward is a part's: those between two of its units, and the pieces that its first unit reads."""
    part_of = {u.op: p for p in thread_parts for u in p.units}
    owned_views: list[tuple[Unit, Part]] = []
    before: Part | None = None
    pending_views: list[Unit] = []
    for unit in thread:
        if not unit.kernels:
            pending_views.append(unit)
            continue
        part = part_of[unit.op]
        owned_views += [
            (v, part) for v in pending_views if part is before or (v.base in PIECES and reads(unit, outputs(v)))
        ]
        before, pending_views = part, []
    return owned_views


class _Cutter:
    """Cuts the units of one thread."""

    def __init__(self, units: Sequence[Unit], backward: bool = False) -> None:
        self.all = units
        self.backward = backward
        self.busy = [u for u in units if u.kernels]
        self.position = {u.op: i for i, u in enumerate(units)}
        self.letters = [self._letter(u) for u in self.busy]
        self.taken = [False] * len(self.busy)

    def cut(self) -> list[Part]:
        parts = self._optimizer()
        parts += self._loops()
        parts += self._casts()
        for pattern in (p for p in PATTERNS if p.kind == "attention"):
            parts += self._matches(pattern)
        parts += self._attention()
        for pattern in (p for p in PATTERNS if p.kind != "attention"):
            parts += self._matches(pattern)
        parts += self._tails()
        parts += self._rest()
        return parts

    def _letter(self, unit: Unit) -> str:
        at = self.position[unit.op] + 1
        if rotates(unit, self.all[at : at + 2]):
            return ROTATION
        return "_" if _is_lone_cast(unit) else letter(unit)

    def _take(self, kind: str, title: str, by_hand: bool, indices: Iterable[int]) -> Part:
        chosen = sorted(indices)
        for i in chosen:
            self.taken[i] = True
        letters = "".join(self.letters[i] for i in chosen)
        return Part(kind, title, by_hand, [self.busy[i] for i in chosen], letters=letters)

    def _optimizer(self) -> list[Part]:
        """What runs in the optimizer's windows; foreach outside of them, as clipping runs it, is a part of its own, as
        is what unscales the gradients of a scaled loss.
        """
        chosen = [i for i, s in enumerate(self.letters) if s == OPTIMIZER]
        scaling = [i for i in chosen if "_amp_" in self.busy[i].name]
        parts = [self._take("optimizer", "loss scaling (foreach)", False, scaling)] if scaling else []
        chosen = [i for i in chosen if not self.taken[i]]
        inside = [i for i in chosen if self.busy[i].optimizer]
        if not inside:
            return parts + self._updates(chosen, "optimizer step ({})")
        outside = [i for i in chosen if not self.busy[i].optimizer]
        clips = any("_norm" in self.busy[i].name for i in outside)
        other = "gradient clipping ({})" if clips else "over many tensors ({})"
        return parts + self._updates(inside, "optimizer step ({})") + self._updates(outside, other)

    def _updates(self, chosen: Sequence[int], title: str) -> list[Part]:
        if not chosen:
            return []
        names_run = " ".join({self.busy[i].name for i in chosen})
        how = "fused" if "_fused_" in names_run else "foreach" if "_foreach_" in names_run else "one tensor at a time"
        return [self._take("optimizer", title.format(how), False, chosen)]

    def _loops(self) -> list[Part]:
        parts = []
        for loop in find_loops(self.all, self.busy, self.letters, self.backward):
            part = self._take(loop.kind, loop.title, True, loop_units(loop, self.letters, self.taken))
            part.period = loop.period
            parts.append(part)
        return parts

    def _casts(self) -> list[Part]:
        return [
            self._take("copy", "autocast cast", False, [i])
            for i, u in enumerate(self.busy)
            if _is_lone_cast(u) and not self.taken[i]
        ]

    def _string(self) -> str:
        return "".join("_" if taken else s for s, taken in zip(self.letters, self.taken, strict=True))

    def _matches(self, pattern: Pattern) -> list[Part]:
        parts = []
        string, at = self._string(), 0
        while (match := pattern.expression.search(string, at)) is not None:
            at = match.start() + 1  # where it is refused, another may begin inside
            spans = [match.span(g) for g in range(1, match.re.groups + 1)] or [match.span()]
            chosen = [i for a, b in spans for i in range(a, b)]
            chosen = [i for i in chosen if not self.taken[i]]
            units, letters = [self.busy[i] for i in chosen], "".join(self.letters[i] for i in chosen)
            chosen = [chosen[i] for i in pattern.check(units, letters)]
            if chosen:
                at = match.end()
                parts.append(self._take(pattern.kind, pattern.title, pattern.by_hand, chosen))
        return parts

    def _attention(self) -> list[Part]:
        """Attention that no pattern names."""
        thread = Thread(self.all, self.busy, self.letters, [*self.taken], self.position)
        compiled = find_compiled_attention(self.busy, self.letters, self.taken)
        every = [*find_attention(thread), *compiled]
        return [self._take("attention", "attention by hand", True, places) for places in every]

    def _tails(self) -> list[Part]:
        """A product or a convolution with the operations that follow it and read what it made."""
        parts = []
        for i, symbol in enumerate(self.letters):
            if self.taken[i] or symbol not in "LMC":
                continue
            tail = self._tail(i)
            if tail and symbol == "C":
                steps = dict.fromkeys(titles.label(self.busy[j], self.letters[j]) for j in (i, *tail))
                parts.append(self._take("convolution_tail", ", ".join(steps), False, [i, *tail]))
            elif tail:
                labels = list(dict.fromkeys(self._tail_label(j) for j in tail))
                labels = [n for n in labels if n != "bias" or len(labels) == 1]
                title = f"GEMM with {' and '.join(filter(None, [', '.join(labels[:-1]), labels[-1]]))} tail"
                parts.append(self._take("gemm_tail", title, False, [i, *tail]))
        return parts

    def _tail(self, start: int) -> list[int]:
        flow = _Flow(self, start)
        joins = CONVOLUTION_TAIL if self.letters[start] == "C" else TAIL
        tail: list[int] = []
        for j in range(start + 1, min(start + 9, len(self.busy))):
            if self.letters[j] == OTHER and titles.counter(self.busy[j]):
                continue  # batch norm counts its batches between the two
            if self.taken[j] or self.letters[j] not in joins or not flow.reaches(j):
                break
            tail.append(j)
            flow.add(j)
        while tail and (self.letters[tail[-1]] == "t" or (self.letters[tail[-1]] == "D" and not self._acted(tail))):
            tail.pop()
        return tail if any(self._in_epilogue(j) for j in tail) else []

    def _acted(self, tail: Sequence[int]) -> bool:
        """An activation is among them: what drops elements behind it is of the same kernel."""
        return any(self.letters[j] in TAIL_STARTS for j in tail)

    def _in_epilogue(self, j: int) -> bool:
        """An activation or a bias: a residual add, a factor or a dropout alone make no tail."""
        symbol = self.letters[j]
        if symbol in TAIL_STARTS or symbol == "B":
            return True
        unit = self.busy[j]
        return bool(unit.args) and symbol == "a" and not titles.residual(unit)

    def _tail_label(self, j: int) -> str:
        symbol, unit = self.letters[j], self.busy[j]
        if symbol == "a":
            return "residual" if titles.residual(unit) else "bias"
        if symbol == "x":
            return "mask" if titles.residual(unit) or not unit.args else "scale"
        if symbol in "XVPT":
            return "scale"
        return {"t": "cast"}.get(symbol) or titles.label(unit, symbol)

    def _rest(self) -> list[Part]:
        parts = []
        i = 0
        while i < len(self.busy):
            if self.taken[i]:
                i += 1
                continue
            chain, flow = [i], _Flow(self, i)
            j = i + 1
            if self.letters[i] in CHAINS:
                while j < len(self.busy) and not self.taken[j] and len(chain) < MAX_CHAIN:
                    copies = self.letters[j - 1] in COPIES and self.letters[j] in COPIES
                    if copies or self.letters[j] not in CHAINS or not flow.reaches(j):
                        break
                    chain.append(j)
                    flow.add(j)
                    j += 1
            kind, title, by_hand = titles.name([self.busy[c] for c in chain], "".join(self.letters[c] for c in chain))
            parts.append(self._take(kind, title, by_hand, chain))
            i = j
        return parts


def _is_lone_cast(unit: Unit) -> bool:
    """An autocast cast for a library call: its own region, as bf16 weights would remove it."""
    if not unit.cast:
        return False
    return letter(Unit(0, unit.calls, True, 0, (), NONE, NONE, 0.0)) in ALONE | {"N", "B"}


class _Flow:
    """Values that a growing chain has made, with the views of them, and whether the next unit reads one."""

    def __init__(self, cutter: _Cutter, first: int) -> None:
        self.cutter = cutter
        self.unread = Values()
        self.at = cutter.position[cutter.busy[first].op]
        self.has_outputs = False
        self.add(first)

    def add(self, index: int) -> None:
        unit = self.cutter.busy[index]
        self.at = self.cutter.position[unit.op]
        produced = outputs(unit)
        self.has_outputs = bool(produced)
        self.unread.take(unit)
        self.unread.add(produced)

    def reaches(self, index: int) -> bool:
        """The unit reads a value that nothing has read yet, directly or through views; without shapes: is adjacent."""
        unit = self.cutter.busy[index]
        if not unit.args or not self.has_outputs:
            return self.cutter.letters[index] in CHAINS - {"B"}
        for between in self.cutter.all[self.at + 1 : self.cutter.position[unit.op]]:
            if not between.kernels and self.unread.read_by(between):
                self.unread.add(outputs(between))
        return self.unread.read_by(unit)


def _backward(
    trace: Trace,
    step_units: Units,
    forward: Sequence[Part],
    views: Sequence[tuple[Unit, Part]],
    accumulated_ops: AbstractSet[int],
) -> list[Part]:
    """Backward units to the parts whose forward they belong to; the others are parts of their own."""
    part_of = {u.op: p for p in forward for u in p.units} | {u.op: p for u, p in views}
    maker_of = pair_backward(trace, step_units)
    unpaired: dict[tuple[int, int], list[Unit]] = {}
    makers: dict[int, Unit] = {}
    sources: dict[int, _Source] = {}
    for unit in step_units.units:
        if not unit.backward or not unit.kernels or unit.op in accumulated_ops:
            continue
        maker = maker_of.get(unit.op)
        source = None
        if maker is not None:
            source = sources.get(maker.op) or sources.setdefault(maker.op, _Source(maker, part_of))
        if source is not None and source.part is not None:
            source.part.backward.append(unit)
            continue
        own = None if source is None else source.own(unit)
        if own is not None:
            makers[unit.op] = own
        owner = part_of.get(own.op) if own is not None else None
        unpaired.setdefault((unit.thread, NONE if owner is None else owner.units[0].op), []).append(unit)
    parts: list[Part] = []
    for thread in sorted(unpaired):
        for part in _Cutter(unpaired[thread], backward=True).cut():
            part.title += ", backward"
            part.makers = [makers[u.op] for u in sorted(part.units, key=lambda u: -u.time_us) if u.op in makers]
            parts.append(part)
    return parts


class _Source:
    """What made an autograd node, looked through once for all units of the node; a compiled graph is a whole model.

    part: the part that it is altogether; None where it is none, or one of several.
    """

    def __init__(self, maker: Maker, part_of: Mapping[int, Part]) -> None:
        self.maker = maker
        owners = [p for u in maker.units if (p := part_of.get(u.op)) is not None]
        is_one = bool(owners) and (len(maker.units) == 1 or _is_all_of(owners, maker))
        self.part = owners[0] if is_one else None

    def own(self, unit: Unit) -> Unit | None:
        """Of the units of a function with a backward of its own the one whose gradient a unit of that computes: its
        costliest; of a compiled graph what sizes and names tell."""
        return self._graph.own(unit) if in_compiled_graph(unit) else self._costliest

    @cached_property
    def _graph(self) -> GraphForward:
        return GraphForward(self.maker.units)

    @cached_property
    def _costliest(self) -> Unit:
        return max(self.maker.units, key=lambda u: u.time_us)


def _is_all_of(owners: Sequence[Part], maker: Maker) -> bool:
    """The function is one part, and nothing else is in that: kernels of its own, not the wire's."""
    if owners[0].kind == "communication":
        return False
    inside = {u.op for u in maker.units}
    return all(p is owners[0] for p in owners) and inside >= {u.op for u in owners[0].units}
