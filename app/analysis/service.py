"""What every way of asking shares: region text or widget answers in, the API's JSON objects out.

Used by the web, the command line and the children that answer. Imports torch only when a region is lowered, and never
starts CUDA in the calling process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from app.advice.widget import WidgetAnswers
from app.advice.widget import advise_widget as widget_advice
from app.advice.widget_table import changes
from app.analysis.analyze import (
    NO_COMPILE_PREDICTION,
    AdviceContext,
    AnalyzedRegion,
    CompilePrediction,
    decide,
    prepare,
)
from app.analysis.device_choice import choose_device
from app.analysis.region_json import region_json
from app.thresholds import DEFAULTS, Thresholds
from kernels.measure.model import to_json
from kernels.starter_kit.model import Kit
from profiler.hardware import find_device
from profiler.oracle.model import MODES
from profiler.oracle.process import Oracle, UnansweredError
from profiler.region import op_kinds
from profiler.region.model import Binding, Region, RegionError, Workload

if TYPE_CHECKING:
    from kernels.kernel_listing_model import Own

Json = dict[str, Any]


def advise_region(
    text: str, *, name: str = "", oracle: Oracle | None = None, oracle_timeout_s: float | None = None, **workload: Any
) -> Json:
    """The API's region object, with advice, for a region text.

    workload: as `prepare_region` takes it. oracle: asked what torch.compile would make of it, None for not at all.
    Raises RegionError, DeviceUnknownError.
    """
    prepared = prepare_region(text, **workload)
    foreseen = foresee(oracle, prepared, oracle_timeout_s) if oracle else NO_COMPILE_PREDICTION
    return decide_region(prepared, foreseen, name=name)


def prepare_region(
    text: str,
    *,
    share_of_step: float | None = None,
    step_time_us: float | None = None,
    target_step_time_us: float | None = None,
    calls_per_step: float = 1.0,
    shapes: Sequence[Mapping[str, Any]] | None = None,
    device: str | None = None,
    objective: str = "time",
    thresholds: Thresholds = DEFAULTS,
) -> AnalyzedRegion:
    """The first half of `advise_region`: everything that needs torch.

    shapes: [{"N": 128, "calls": 3}, ...] replaces the sizes of the text's symbols. Raises RegionError,
    DeviceUnknownError.
    """
    from profiler.region.language.text import parse

    region = parse(text, "region")
    region, bindings = bind(region, shapes, calls_per_step)
    workload = Workload(
        bindings=bindings,
        step_time_us=step_time_us,
        share_of_step=share_of_step,
        target_step_time_us=target_step_time_us,
    )
    chosen, note = choose_device(device, None)
    notes = (note,) if note else ()
    return prepare(region, workload, chosen, AdviceContext(notes=notes, objective=objective, thresholds=thresholds))


@dataclass(frozen=True, slots=True)
class Outline:
    """What the oracle is asked of a prepared region: plain data, so that it can be asked from another process.

    device: by name; sizes: the binding that moves most bytes; modes: those that make a difference to the region.
    """

    text: str
    device: str
    sizes: dict[str, int]
    modes: tuple[str, ...]
    bindings: tuple[dict[str, int], ...]


def outline(prepared: AnalyzedRegion) -> Outline:
    """The outline of a prepared region: max-autotune is asked as well where there is a product to tune."""
    return Outline(
        prepared.text,
        prepared.device.name,
        dict(prepared.sizes),
        tuple(MODES if op_kinds.GEMM in prepared.facts.kinds else MODES[:1]),
        tuple(dict(b.sizes) for b in prepared.workload.bindings if b.sizes),
    )


def foresee(oracle: Oracle, prepared: AnalyzedRegion, timeout_s: float | None = None) -> CompilePrediction:
    """What torch.compile makes of a prepared region, as `ask_oracle` asks it."""
    return ask_oracle(oracle, outline(prepared), timeout_s)


def ask_oracle(oracle: Oracle, asked: Outline, timeout_s: float | None = None) -> CompilePrediction:
    """What torch.compile makes of an outlined region.

    Blocks until the oracle's process has answered, or timeout_s is over: never call it on an event loop.
    """
    deadline = time.monotonic() + (timeout_s or oracle.timeout_s)
    device = find_device(asked.device)
    assert device is not None  # it comes from the table

    def left() -> float:
        return max(0.001, deadline - time.monotonic())

    predictions = tuple(oracle.predict(asked.text, device, mode, asked.sizes or None, left()) for mode in asked.modes)
    recompiles = None
    if len(asked.bindings) > 1:
        with suppress(UnansweredError):  # then nothing is said of recompiling
            recompiles = oracle.recompiles(asked.text, device, asked.bindings, left())
    return CompilePrediction(predictions, recompiles)


def recall_oracle(oracle: Oracle, asked: Outline) -> CompilePrediction:
    """The same from what was answered before, asking nobody; nothing unless it is all that was asked."""
    device = find_device(asked.device)
    assert device is not None  # it comes from the table
    known = [oracle.cached(asked.text, device, mode, asked.sizes or None) for mode in asked.modes]
    predictions = tuple(p for p in known if p is not None)
    if len(predictions) < len(known):
        return NO_COMPILE_PREDICTION
    if len(asked.bindings) < 2:
        return CompilePrediction(predictions)
    recompiles = oracle.cached_recompiles(asked.text, device, asked.bindings)
    return CompilePrediction(predictions, recompiles) if recompiles else NO_COMPILE_PREDICTION


def decide_region(
    prepared: AnalyzedRegion, foreseen: CompilePrediction = NO_COMPILE_PREDICTION, *, name: str = ""
) -> Json:
    """The second half of `advise_region`: the rule, with what the oracle said."""
    return region_json(decide(prepared, foreseen), prepared.workload, name=name)


def on_devices(prepared: AnalyzedRegion, advice: Json | None = None) -> list[Json]:
    """The region's advice on every device of the table, one row each; see `other_devices`."""
    from app.analysis.other_devices import side_by_side

    return side_by_side(prepared, advice)


def on_device(prepared: AnalyzedRegion, name: str, *, title: str = "") -> Json:
    """The API's region as it would be on another device. Raises DeviceUnknownError."""
    from app.analysis.other_devices import move_to_device

    there = move_to_device(prepared, choose_device(name, None)[0])
    return region_json(decide(there), there.workload, name=title)


def make_kit(
    text: str,
    *,
    shapes: Sequence[Mapping[str, Any]] | None = None,
    candidate: str | None = None,
    validation: Mapping[str, Any] | None = None,
) -> Kit:
    """The starter kit of a region; shapes as `prepare_region` takes them. Raises RegionError, KeyError for a candidate
    that is no Triton kernel."""
    from kernels.starter_kit import kit
    from profiler.region.language.text import parse

    bindings = [dict(b.sizes) for b in bind(parse(text), shapes, 1.0)[1]] if shapes else None
    return kit.make_kit(text, bindings, candidate, validation)


def own_code(
    text: str, sizes: Mapping[str, int], candidate: str | None = None, validation: Mapping[str, Any] | None = None
) -> Own:
    """The Triton kernels that this app has for a region. Raises RegionError, KeyError; see kernels.kernel_listing."""
    from kernels.kernel_listing import own

    return own(text, sizes, candidate, validation)


def replay_script(text: str, shapes: Sequence[Mapping[str, Any]] | None = None) -> str:
    """One file that runs a region eagerly and under torch.compile, for a bug report. Raises RegionError."""
    from kernels.starter_kit.entry import replay_file
    from kernels.starter_kit.kit import MOST_SIZES
    from profiler.region.language.text import parse

    region = bind(parse(text), shapes, 1.0)[0] if shapes else parse(text)
    return replay_file(region, [dict(b) for b in region.bindings[:MOST_SIZES]])


def advise_widget(thresholds: Thresholds = DEFAULTS, **answers: Any) -> Json:
    """The API's advice for the widget's answers: share_of_step, uniqueness, irregularity, bound?, kind?."""
    asked = WidgetAnswers(**answers)
    advice = widget_advice(asked, thresholds)
    result: Json = to_json(replace(advice, would_change=changes(asked, advice, thresholds)))
    return result


def bind(
    region: Region, shapes: Sequence[Mapping[str, Any]] | None, calls_per_step: float
) -> tuple[Region, tuple[Binding, ...]]:
    """The region with its symbols' sizes replaced by the shapes asked for, and the bindings with their calls.

    Raises RegionError where a shape does not give every symbol a whole number.
    """
    from profiler.region.model import Symbol

    names = [s.name for s in region.symbols]
    if shapes:
        if not names:
            raise RegionError(
                "shapes were given, and the region has no size that varies",
                code="region-sizes",
                hint="declare one: N: sizes[128, 512]",
                text=region.source,
            )
        for shape in shapes:
            given = {k: v for k, v in shape.items() if k != "calls"}
            sized = all(isinstance(v, int) and not isinstance(v, bool) and 0 < v <= 2**40 for v in given.values())
            if set(given) != set(names) or not sized:
                raise RegionError(
                    f"a shape gives every one of {', '.join(names)} a whole number; this one is {dict(shape)}"[:300],
                    code="region-sizes",
                    text=region.source,
                )
        symbols = tuple(Symbol(n, tuple(int(s[n]) for s in shapes)) for n in names)
        region = replace(region, symbols=symbols)
    calls = [float(s.get("calls", 1.0)) for s in shapes] if shapes else [calls_per_step] * len(region.bindings)
    bindings = tuple(Binding(tuple(sorted(b.items())), c) for b, c in zip(region.bindings, calls, strict=True))
    return region, bindings
