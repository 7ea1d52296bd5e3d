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
from app.analysis.advice_inputs import AdviceInputs
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
from app.objects.advice import Advice, DeviceAdvice
from app.objects.region import RegionBody
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


def advise_region(
    text: str, *, name: str = "", oracle: Oracle | None = None, oracle_timeout_s: float | None = None, **workload: Any
) -> RegionBody:
    """The API's region object, with advice, for a region text.

    workload: as `prepare_region` takes it. oracle: asked what torch.compile would make of it, None for not at all.
    Raises RegionError, DeviceUnknownError.
    """
    prepared = prepare_region(text, **workload)
    prediction = predict_compile(oracle, prepared, oracle_timeout_s) if oracle else NO_COMPILE_PREDICTION
    return decide_region(prepared, prediction, name=name)


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

    region, bindings = bind(parse(text, "region"), shapes, calls_per_step)
    workload = Workload(
        bindings=bindings,
        step_time_us=step_time_us,
        share_of_step=share_of_step,
        target_step_time_us=target_step_time_us,
    )
    return _prepare(region, AdviceInputs(device, workload, objective=objective), thresholds)


def prepare_from_inputs(text: str, inputs: AdviceInputs, thresholds: Thresholds = DEFAULTS) -> AnalyzedRegion:
    """A region analyzed with what its advice was issued on: by its trace, or by `inputs_of` when it was stored.

    Raises RegionError, DeviceUnknownError.
    """
    from profiler.region.language.text import parse

    region = parse(text, inputs.observed.title or "region")
    if not inputs.workload.bindings:
        inputs = replace(inputs, workload=replace(inputs.workload, bindings=bind(region, None, 1.0)[1]))
    return _prepare(region, inputs, thresholds)


def _prepare(region: Region, inputs: AdviceInputs, thresholds: Thresholds) -> AnalyzedRegion:
    """The region on its device, and where its advice is for another one, moved there."""
    from app.analysis.other_devices import move_to_device

    device, note = choose_device(inputs.device, None)
    notes = (*inputs.notes, note) if note else inputs.notes
    context = AdviceContext(objective=inputs.objective, notes=notes, facts=inputs.observed, thresholds=thresholds)
    prepared = prepare(region, inputs.workload, device, context)
    return prepared if inputs.target is None else move_to_device(prepared, choose_device(inputs.target, None)[0])


def inputs_of(prepared: AnalyzedRegion) -> AdviceInputs:
    """What the advice on an analyzed region is issued on, to be kept with it."""
    context = prepared.context
    return AdviceInputs(
        prepared.device.name, prepared.workload, context.facts, objective=context.objective, notes=context.notes
    )


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


def predict_compile(oracle: Oracle, prepared: AnalyzedRegion, timeout_s: float | None = None) -> CompilePrediction:
    """What torch.compile makes of a prepared region, as `ask_oracle` asks it."""
    return ask_oracle(oracle, outline(prepared), timeout_s)


def ask_oracle(oracle: Oracle, outline: Outline, timeout_s: float | None = None) -> CompilePrediction:
    """What torch.compile makes of an outlined region.

    Blocks until the oracle's process has answered, or timeout_s is over: never call it on an event loop.
    """
    deadline = time.monotonic() + (timeout_s or oracle.timeout_s)
    device = find_device(outline.device)
    assert device is not None  # it comes from the table

    def left() -> float:
        return max(0.001, deadline - time.monotonic())

    predictions = tuple(
        oracle.predict(outline.text, device, mode, outline.sizes or None, left()) for mode in outline.modes
    )
    recompiles = None
    if len(outline.bindings) > 1:
        with suppress(UnansweredError):  # then nothing is said of recompiling
            recompiles = oracle.recompiles(outline.text, device, outline.bindings, left())
    return CompilePrediction(predictions, recompiles)


def recall_oracle(oracle: Oracle, outline: Outline) -> CompilePrediction:
    """The same from what was answered before, asking nobody; nothing unless it is all that was asked."""
    device = find_device(outline.device)
    assert device is not None  # it comes from the table
    known = [oracle.cached(outline.text, device, mode, outline.sizes or None) for mode in outline.modes]
    predictions = tuple(p for p in known if p is not None)
    if len(predictions) < len(known):
        return NO_COMPILE_PREDICTION
    if len(outline.bindings) < 2:
        return CompilePrediction(predictions)
    recompiles = oracle.cached_recompiles(outline.text, device, outline.bindings)
    return CompilePrediction(predictions, recompiles) if recompiles else NO_COMPILE_PREDICTION


def decide_region(
    prepared: AnalyzedRegion, prediction: CompilePrediction = NO_COMPILE_PREDICTION, *, name: str = ""
) -> RegionBody:
    """The second half of `advise_region`: the rule, with what the oracle said."""
    return region_json(decide(prepared, prediction), prepared.workload, name=name)


def on_devices(prepared: AnalyzedRegion, advice: Advice | None = None) -> list[DeviceAdvice]:
    """The region's advice on every device of the table, one row each; see `other_devices`."""
    from app.analysis.other_devices import side_by_side

    return side_by_side(prepared, advice)


def on_device(prepared: AnalyzedRegion, name: str, *, title: str = "") -> RegionBody:
    """The API's region as it would be on that device, its own among them. Raises DeviceUnknownError."""
    from app.analysis.other_devices import move_to_device, on_named

    device = choose_device(name, None)[0]
    there = on_named(prepared) if device is prepared.device else move_to_device(prepared, device)
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


def advise_widget(thresholds: Thresholds = DEFAULTS, **answers: Any) -> Advice:
    """The API's advice for the widget's answers: share_of_step, uniqueness, irregularity, bound?, kind?."""
    widget = WidgetAnswers(**answers)
    advice = widget_advice(widget, thresholds)
    shown: Advice = to_json(replace(advice, would_change=changes(widget, advice, thresholds)))
    return shown


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
