"""torch.profiler's events of a run on the meta device -> calls, each with what made it and what it reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profiler.program.model import NO_PARENT, Call, Signature
from profiler.program.recorder import MARK, Reached

MODE = "PythonDispatchMode"
"""The event that torch writes around the recorder."""
OPERATIONS = ("cpu_op", "user_annotation")
ENGINE = "autograd::engine::evaluate_function"

Event = Mapping[str, Any]


def calls_of(events: Sequence[Event], reached: Sequence[Reached | None]) -> tuple[Call, ...]:
    """The calls in order, each before those that it makes. Those that reach nothing are left out."""
    spans = sorted(
        (e for e in events if e.get("ph") == "X" and e.get("cat") in OPERATIONS and e["name"] != MODE),
        key=lambda e: (e["ts"], -e["dur"], e["args"].get("Ev Idx", 0)),
    )
    parents = _parents(spans)
    made: dict[int, Reached] = {}  # event -> what it reached itself
    alive: set[int] = set()
    for place, event in enumerate(spans):
        if not event["name"].startswith(MARK):
            continue
        this, outer = reached[int(event["name"].removeprefix(MARK))], parents[place]
        if this is None or outer == NO_PARENT:
            continue
        made.setdefault(outer, this)
        while outer != NO_PARENT and outer not in alive:
            alive.add(outer)
            outer = parents[outer]
    return _listed(spans, parents, made, alive)


def _parents(spans: Sequence[Event]) -> list[int]:
    """The innermost event that encloses each."""
    parents: list[int] = []
    nested: list[tuple[float, int]] = []
    for place, event in enumerate(spans):
        while nested and nested[-1][0] <= event["ts"]:
            nested.pop()
        parents.append(nested[-1][1] if nested else NO_PARENT)
        nested.append((event["ts"] + event["dur"], place))
    return parents


def _listed(
    spans: Sequence[Event], parents: Sequence[int], made: Mapping[int, Reached], alive: set[int]
) -> tuple[Call, ...]:
    """What is alive. A stack that no call of a branch has is that of the call before."""
    calls: list[Call] = []
    index: dict[int, int] = {}
    stacks = _stacks(spans, parents, made)
    backward: set[int] = set()
    for place, event in enumerate(spans):
        outer = parents[place]
        if event["name"].startswith(ENGINE) or outer in backward:
            backward.add(place)
        if place not in alive:
            continue
        args = event["args"]
        this = made.get(place)
        index[place] = len(calls)
        calls.append(
            Call(
                name=event["name"],
                parent=index.get(outer, NO_PARENT),
                signature=Signature(
                    tuple(args.get("Input Dims", ())), tuple(args.get("Input type", ())),
                    tuple(args.get("Input Strides", ())), tuple(args.get("Concrete Inputs", ())),
                ),
                operation=this.operation if this is not None else None,
                stack=0 if place in backward else stacks.get(place, 0),
                sequence=args.get("Sequence number", -1),
                backward=place in backward,
                waits=this is not None and this.waits,
            )
        )  # fmt: skip
    return tuple(calls)


def _stacks(spans: Sequence[Event], parents: Sequence[int], made: Mapping[int, Reached]) -> dict[int, int]:
    """Event -> the stack of the first call behind it: one made the other, in the same Python function."""
    stacks: dict[int, int] = {}
    for place in sorted(made):
        outer = place
        while outer != NO_PARENT and outer not in stacks:
            stacks[outer] = made[place].stack
            outer = parents[outer]
    return stacks
