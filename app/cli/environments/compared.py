"""tritonworthy oracle REGION --against ENV: what another environment's torch makes of the region, beside this one's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypedDict

from app.analysis import service
from app.analysis.generated_code import code_of, diff_of
from app.analysis.own_oracle import start_oracle
from app.units import count
from profiler.oracle.environment import Environment
from profiler.oracle.model import MODES, Prediction
from profiler.oracle.process import Oracle

Outcome = Literal["differs", "same", "unavailable"]
DIFFERS: Outcome = "differs"
SAME: Outcome = "same"
UNAVAILABLE: Outcome = "unavailable"


class Side(TypedDict):
    """What one environment's torch makes of the region. kernels: names; launches: those of libraries included."""

    torch: str
    triton: str
    launches: int
    bytes_moved: int | None
    kernels: list[str]
    externs: list[str]
    unavailable: str


class ComparedMode(TypedDict):
    """One mode under both. only_here, only_there: kernels and library calls that the other does not have, by kind and
    operations; diff: of the generated kernels, from here to there, unified; "" where they are the same."""

    mode: str
    outcome: Outcome
    here: Side
    there: Side
    only_here: list[str]
    only_there: list[str]
    diff: str


class ComparedOracles(TypedDict):
    """A region under two environments."""

    name: str
    text: str
    device: str
    environment: str
    modes: list[ComparedMode]


def compare(
    text: str, environment: Environment, *, device: str | None, mode: str | None,
    shapes: Sequence[Mapping[str, float]] | None,
) -> ComparedOracles:  # fmt: skip
    """Both are asked the same. mode: None for all that make a difference to the region. Raises RegionError."""
    prepared = service.prepare_region(text, device=device, shapes=shapes)
    asked = service.outline(prepared)
    modes = asked.modes if mode is None else (mode,)
    with start_oracle() as here, start_oracle(environment) as there:
        compared = [
            compare_predictions(
                *(_predict(oracle, prepared.text, prepared.device.name, m, asked.sizes) for oracle in (here, there))
            )
            for m in MODES
            if m in modes
        ]
    return {
        "name": prepared.facts.title,
        "text": prepared.text,
        "device": prepared.device.name,
        "environment": str(environment.interpreter),
        "modes": compared,
    }


def _predict(oracle: Oracle, text: str, device: str, mode: str, sizes: Mapping[str, int]) -> Prediction:
    from profiler.hardware import find_device

    known = find_device(device)
    assert known is not None  # it comes from the table
    return oracle.predict(text, known, mode, sizes or None)


def compare_predictions(here: Prediction, there: Prediction) -> ComparedMode:
    """One mode: what either makes of it, and what only one does."""
    diff = diff_of(code_of(here), code_of(there), f"torch {here.torch}", f"torch {there.torch}")
    ours, theirs = (Counter(_launches(p)) for p in (here, there))
    unavailable = bool(here.unavailable or there.unavailable)
    return {
        "mode": here.mode,
        "outcome": UNAVAILABLE if unavailable else DIFFERS if diff else SAME,
        "here": _side(here),
        "there": _side(there),
        "only_here": [] if unavailable else list((ours - theirs).elements()),
        "only_there": [] if unavailable else list((theirs - ours).elements()),
        "diff": "" if unavailable else diff,
    }


def _launches(prediction: Prediction) -> Iterator[str]:
    for kernel in prediction.kernels:
        yield from [f"{kernel.kind} of {', '.join(kernel.operations)}"] * kernel.calls
    for extern in prediction.externs:
        yield from [f"library call {extern.name}"] * extern.calls


def _side(prediction: Prediction) -> Side:
    return {
        "torch": prediction.torch,
        "triton": prediction.triton,
        "launches": prediction.launches,
        "bytes_moved": prediction.bytes_moved,
        "kernels": [kernel.name for kernel in prediction.kernels],
        "externs": [extern.name for extern in prediction.externs],
        "unavailable": prediction.unavailable,
    }


def compared_text(compared: ComparedOracles) -> str:
    """For people: which kernels differ, then the sources."""
    return "\n".join([f"{compared['name']}, on {compared['device']}", *_lines(compared)])


def _lines(compared: ComparedOracles) -> Iterator[str]:
    for mode in compared["modes"]:
        yield ""
        here, there = mode["here"], mode["there"]
        if mode["outcome"] == UNAVAILABLE:
            for where, side in (("here", here), (compared["environment"], there)):
                if side["unavailable"]:
                    yield f"{mode['mode']}: the prediction is unavailable, {where}: {side['unavailable']}"
            continue
        said = "the same" if mode["outcome"] == SAME else "they differ"
        yield f"{mode['mode']}: {_side_words(here)}; {_side_words(there)}: {said}"
        yield from (f"  only torch {here['torch']}: {launch}" for launch in mode["only_here"])
        yield from (f"  only torch {there['torch']}: {launch}" for launch in mode["only_there"])
        if mode["outcome"] == DIFFERS and not mode["only_here"] and not mode["only_there"]:
            yield "  the same kinds of kernels of the same operations, written otherwise"
        yield from mode["diff"].splitlines()


def _side_words(side: Side) -> str:
    moved = "" if side["bytes_moved"] is None else f", {side['bytes_moved']:,} bytes"
    return f"torch {side['torch']}, Triton {side['triton']}: {count(side['launches'], 'launch', 'launches')}{moved}"
