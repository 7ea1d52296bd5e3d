"""torch.profiler's events of a run on the meta device -> calls, each with what made it and what it reached.

The file is read in pieces, and equal arguments are kept once: a loop over tokens makes a million events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import intern

import msgspec

from profiler.program.model import NO_PARENT, Call, Signature
from profiler.program.recorder import MARK, Reached

MODE = "PythonDispatchMode"
"""The event that torch writes around the recorder."""
OPERATIONS = ("cpu_op", "user_annotation")
ENGINE = "autograd::engine::evaluate_function"
PIECE_BYTES = 4 * 1024 * 1024
BOUNDARY = b"\n  },\n  {"
"""Between two events, as torch writes them: no string has a line's end in it."""
LIST = b'"traceEvents": ['
END = b"]"
"""Of the list: behind it is the file's own name alone."""
NAME = re.compile(rb'("name": ")([^\n]*)("\s*,\s*"pid": )')
NOTHING = msgspec.Raw(b"[]")


class _Arguments(msgspec.Struct, gc=False):
    order: int = msgspec.field(default=0, name="Ev Idx")
    sequence: int = msgspec.field(default=-1, name="Sequence number")
    dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=NOTHING, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Strides")
    concrete: msgspec.Raw = msgspec.field(default=NOTHING, name="Concrete Inputs")


class _Event(msgspec.Struct, gc=False):
    ph: str
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: _Arguments = msgspec.field(default_factory=_Arguments)


class _File(msgspec.Struct, gc=False):
    traceEvents: list[_Event]  # noqa: N815 (torch's name)


EVENTS = msgspec.json.Decoder(list[_Event])


@dataclass(frozen=True, slots=True)
class Span:
    """One operation of the profiler's. order: among those that begin and end at one time, as they began."""

    name: str
    start_us: float
    duration_us: float
    order: int
    sequence: int
    signature: Signature


def read_spans(path: Path) -> list[Span]:
    """The operations of a trace that torch.profiler has just written, in order, each before those that it makes."""
    signatures: dict[tuple[bytes, ...], Signature] = {}
    spans = [
        Span(intern(e.name), e.ts, e.dur, e.args.order, e.args.sequence, _signature(e.args, signatures))
        for events in _pieces(path)
        for e in events
        if e.ph == "X" and e.cat in OPERATIONS and e.name != MODE
    ]
    spans.sort(key=lambda span: (span.start_us, -span.duration_us, span.order))
    return spans


def _pieces(path: Path) -> Iterator[list[_Event]]:
    """Some events after the other; all at once where they are not written as torch writes them today."""
    with path.open("rb") as file:
        rest = file.read(PIECE_BYTES).partition(LIST)[2]
        if not rest:
            yield msgspec.json.decode(path.read_bytes(), type=_File).traceEvents
            return
        while more := file.read(PIECE_BYTES):
            rest += more
            del more
            whole, boundary, left = rest.rpartition(BOUNDARY)
            if boundary:
                yield _decoded(b"[" + whole + b"}]")
                rest = b"{" + left
        yield _decoded(b"[" + rest.rpartition(END)[0] + b"]")


def _decoded(piece: bytes) -> list[_Event]:
    """torch escapes no quote in the name that a program gives a span of its own: such a name is mended."""
    try:
        return EVENTS.decode(piece)
    except msgspec.DecodeError:
        return EVENTS.decode(NAME.sub(lambda m: m[1] + m[2].replace(b"\\", b"/").replace(b'"', b"'") + m[3], piece))


def _signature(args: _Arguments, known: dict[tuple[bytes, ...], Signature]) -> Signature:
    raw = tuple(bytes(value) for value in (args.dims, args.types, args.strides, args.concrete))
    signature = known.get(raw)
    if signature is None:
        dims, types, strides, concrete = (tuple(json.loads(value)) for value in raw)
        signature = known[raw] = Signature(dims, types, strides, concrete)
    return signature


def calls_of(spans: Sequence[Span], reached: Sequence[Reached | None]) -> tuple[Call, ...]:
    """The calls in order, each before those that it makes. Those that reach nothing are left out."""
    parents = _parents(spans)
    made: dict[int, Reached] = {}  # span -> what it reached itself
    alive: set[int] = set()
    for place, span in enumerate(spans):
        if not span.name.startswith(MARK):
            continue
        this, outer = reached[int(span.name.removeprefix(MARK))], parents[place]
        if this is None or outer == NO_PARENT:
            continue
        made.setdefault(outer, this)
        while outer != NO_PARENT and outer not in alive:
            alive.add(outer)
            outer = parents[outer]
    return _listed(spans, parents, made, alive)


def _parents(spans: Sequence[Span]) -> list[int]:
    """The innermost span that encloses each."""
    parents: list[int] = []
    nested: list[tuple[float, int]] = []
    for place, span in enumerate(spans):
        while nested and nested[-1][0] <= span.start_us:
            nested.pop()
        parents.append(nested[-1][1] if nested else NO_PARENT)
        nested.append((span.start_us + span.duration_us, place))
    return parents


def _listed(
    spans: Sequence[Span], parents: Sequence[int], made: Mapping[int, Reached], alive: set[int]
) -> tuple[Call, ...]:
    """What is alive. A stack that no call of a branch has is that of the call before."""
    calls: list[Call] = []
    index: dict[int, int] = {}
    stacks = _stacks(spans, parents, made)
    backward: set[int] = set()
    for place, span in enumerate(spans):
        outer = parents[place]
        if span.name.startswith(ENGINE) or outer in backward:
            backward.add(place)
        if place not in alive:
            continue
        this = made.get(place)
        index[place] = len(calls)
        calls.append(
            Call(
                name=span.name,
                parent=index.get(outer, NO_PARENT),
                signature=span.signature,
                operation=this.operation if this is not None else None,
                stack=0 if place in backward else stacks.get(place, 0),
                sequence=span.sequence,
                backward=place in backward,
                waits=this is not None and this.waits,
            )
        )
    return tuple(calls)


def _stacks(spans: Sequence[Span], parents: Sequence[int], made: Mapping[int, Reached]) -> dict[int, int]:
    """Span -> the stack of the first call behind it: one made the other, in the same Python function."""
    stacks: dict[int, int] = {}
    for place in sorted(made):
        outer = place
        while outer != NO_PARENT and outer not in stacks:
            stacks[outer] = made[place].stack
            outer = parents[outer]
    return stacks
