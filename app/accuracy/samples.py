"""Samples: everything measured that the rates are fitted on. Times of regions, and what single calls reached.

From the Archive's cases and from the table of kernels. A row of the table at a measured region's own sizes belongs to
that region's program: it is left out with it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from app.accuracy.case import Case
from app.accuracy.question import Question
from app.accuracy.split import program
from app.accuracy.tables import MODES, PEERS, Row, rows
from app.archive.program_fingerprint import fingerprint
from app.estimate import predict as estimate
from app.estimate.call_time import (
    HEAD,
    SHORT_HEADS,
    SPLIT,
    STRIDED,
    heads,
    idle_us,
    joins,
    least_bytes,
    narrow_product,
    widest,
)
from app.estimate.facts import RegionFacts
from app.estimate.predict import Prediction
from app.estimate.rates import BACKWARD, SIXTEEN_BIT, Rates
from app.estimate.widened import NONE, widening
from app.objects.accuracy import KernelTable
from profiler.hardware import Device
from profiler.region.model import Binding

Predict = Callable[[Rates], float]

REGIONS = Path(__file__).resolve().parents[2] / "tests" / "regions"
BOUND = "host below"
"""A family of samples: the host took at most the wall time, and how much less nobody knows."""
PACED = 2.0
"""Wall time above this many times the device time is the host's; nearer to it the GPU's own time is part of it."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One measured time and how rates predict it. program: of the region, "" for a row of a table that is none.

    family: the candidate, or the host's part of it.
    """

    program: str
    name: str
    family: str
    measured_us: float
    predict: Predict


@dataclass(frozen=True, slots=True)
class Call:
    """What one call was measured at. call: as `rates.rows` names it. row_bytes: 0 where it goes by no rows.

    moved, flops: fewest bytes, floating-point operations; idle_us: that its matrix units wait for arithmetic; before:
    bytes of a forward pass that the time holds too, whose call is the name without BACKWARD. table: a row of the table
    of kernels.
    """

    program: str
    call: str
    row_bytes: float
    moved: float
    flops: float
    measured_us: float
    launches: int = 1
    before: float = 0.0
    table: bool = False
    idle_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Samples:
    """What a fit looks at."""

    device: Device
    timed: tuple[Timed, ...]
    calls: tuple[Call, ...]

    def without(self, left_out: Callable[[str], bool]) -> Samples:
        """Without the programs that `left_out` names; rows of tables that are no region's stay."""
        return Samples(
            self.device,
            tuple(t for t in self.timed if not (t.program and left_out(t.program))),
            tuple(c for c in self.calls if not (c.program and left_out(c.program))),
        )


KEPT_ANSWERS = 3
"""Of a prediction: with the rates as they are and with a number lower and higher."""


def samples(questions: Sequence[Question], table: KernelTable | None, device: Device) -> Samples:
    """Of these questions' cases, and of the table of kernels. Lowers the table's texts: a second or two."""
    timed, calls = [], []
    for asked in questions:
        timed += list(_kernel_times(asked))
        calls += list(_library_calls(asked))
    measured = {fingerprint(q.case.validation.region, "same"): q.case.program for q in questions}
    for row in rows(table, fitted=True) if table else ():
        owner = program_of(row.region) or repeated_program(row, measured)
        timed += list(_row_times(row, owner, device))
        calls += list(_row_calls(row, owner, device))
    return Samples(device, tuple(timed), tuple(calls))


def program_of(region: str) -> str:
    """The program of a region that a row of the table repeats; "" where it repeats none."""
    path = REGIONS / f"{region}.txt"
    return program(path.read_text(encoding="utf-8")) if region and path.is_file() else ""


def repeated_program(row: Row, measured: Mapping[str, str]) -> str:
    """The program of a record that a row repeats at its sizes, in this type of 16 bits or the other; "" for none.

    measured: fingerprint of a record's text, sizes and types with it -> its program.
    """
    types = SIXTEEN_BIT if row.dtype in SIXTEEN_BIT else (row.dtype,)
    texts = (replace(row, dtype=dtype).text for dtype in types)
    programs = (measured.get(fingerprint(text, "same")) for text in texts if text is not None)
    return next((program for program in programs if program), "")


def _measurements(case: Case) -> Iterator[tuple[str, float, float | None]]:
    for candidate in case.validation.candidates:
        if candidate.status == "ok" and candidate.time_us is not None:
            yield candidate.name, candidate.time_us.median, candidate.wall_us


def _kernel_times(asked: Question) -> Iterator[Timed]:
    case, facts, device = asked.case, asked.prepared.facts, asked.prepared.device
    for name, device_us, wall_us in _measurements(case):
        predictor = _predictor(facts, device, name)
        if predictor is None:
            continue
        predictor = _remember(predictor)
        if name in ("eager", "triton:generated") or name.startswith("compile"):
            yield Timed(case.program, case.name, name, device_us, _time(predictor))
        if wall_us is not None and wall_us > PACED * device_us:
            yield Timed(case.program, case.name, f"host {name}", wall_us, _host(predictor))
        elif wall_us is not None:
            yield Timed(case.program, case.name, f"{BOUND} {name}", wall_us, at_least(wall_us, _host(predictor)))


def _remember(predicted: Callable[[Rates], Prediction | None]) -> Callable[[Rates], Prediction | None]:
    """With its last answers: a fit asks for a candidate's time and for its host's part with the same rates in turn."""
    last: deque[tuple[Rates, Prediction | None]] = deque(maxlen=KEPT_ANSWERS)

    def predict(rates: Rates) -> Prediction | None:
        for asked, answer in last:
            if asked is rates:
                return answer
        answer = predicted(rates)
        last.append((rates, answer))
        return answer

    return predict


def _time(predicted: Callable[[Rates], Prediction | None]) -> Predict:
    """µs on the device."""

    def time_us(rates: Rates) -> float:
        prediction = predicted(rates)
        assert prediction is not None
        return prediction.time_us.mid

    return time_us


def _host(predicted: Callable[[Rates], Prediction | None]) -> Predict:
    """µs of the host's part of a call."""

    def host_us(rates: Rates) -> float:
        prediction = predicted(rates)
        assert prediction is not None
        return prediction.host_us

    return host_us


def at_least(least_us: float, predict: Predict) -> Predict:
    """A prediction that is wrong only where it is above: for what is known by a bound."""
    return lambda rates: max(least_us, predict(rates))


def _predictor(facts: RegionFacts, device: Device, name: str) -> Callable[[Rates], Prediction | None] | None:
    """The estimate of a candidate that is for all of the region."""
    if name == "eager":
        return lambda r: estimate.eager(facts, device, r)
    if name.startswith("compile"):
        mode = name.removeprefix("compile").removeprefix("-") or "default"
        return lambda r: estimate.torch_compile(facts, device, mode, r)
    if name == "triton:generated":
        return lambda r: estimate.triton(facts, device, False, r)
    kernel = next((k for k in facts.kernels if k.candidate == name and k.part is None), None)
    if kernel is not None:
        return partial(estimate.own, facts, device, kernel)
    cover = next((c for c in facts.covers if c.candidate == name and c.covers and c.whole), None)
    if cover is not None:
        return lambda r: estimate.library(facts, device, name.removeprefix("library:"), None, r)
    return None


def _library_calls(asked: Question) -> Iterator[Call]:
    """What library calls and this project's own kernels reached on all of a region."""
    case, facts, device = asked.case, asked.prepared.facts, asked.prepared.device
    if len(facts.shapes) != 1:
        return
    shape = facts.shapes[0]
    line = widest(shape.operations)
    whole = {c.candidate for c in facts.covers if c.covers and c.whole and not c.already}
    least = {c.candidate: c.density for c in facts.covers if c.density is not None}
    own: set[str] = {k.candidate for k in facts.kernels if not facts.requires_grad}
    for name, device_us, _ in _measurements(case):
        call = name.removeprefix("library:")
        if name not in whole | own or facts.sdpa:
            continue
        if " with a mask" not in call and any("attn_mask=" in c.call for c in facts.covers if c.candidate == name):
            continue  # its rate is another
        if any(estimate.as_called(c, call) != call for c in facts.covers if c.candidate == name):
            continue
        if widening(shape, device, call, Rates()) != NONE:
            continue  # it moves more than the region's fewest bytes
        strided = line is not None and line.strided
        if line is not None and _alone(call, line.rows, device) and not strided:
            continue
        rows = float(line.rows) if line is not None else math.inf
        flops = min(facts.attention_density, least.get(name, 1.0)) * shape.cost.gemm_flops
        if flops and (shape.cost.matmul_dtype not in SIXTEEN_BIT or narrow_product(call)):
            continue  # shares of the matmul rate are those of 16-bit products
        key = call + STRIDED if strided else call
        if shape.halves is None:
            ours = name in own
            moved = least_bytes(shape, device) if ours else shape.cost.ideal.bytes_moved
            idle = idle_us(shape.between, device, Rates()) if ours else 0.0
            key += heads(shape) if facts.kind == "attention" else ""
            launches = 1 + joins(call, line, device)
            yield Call(case.program, key, moved / rows, moved, flops, device_us, launches, idle_us=idle)
        elif not flops:
            forward, backward = shape.halves
            yield Call(case.program, call + BACKWARD, backward / rows, backward, 0.0, device_us, 2, forward)


def _row_times(row: Row, owner: str, device: Device) -> Iterator[Timed]:
    text = row.text
    if text is None:
        return
    facts = lower_text(text)
    for name, candidate in MODES.items():
        if name in row.times_us:
            predictor = _predictor(facts, device, candidate)
            assert predictor is not None
            yield Timed(owner, row.operation, candidate, row.times_us[name], _time(predictor))


def lower_text(text: str) -> RegionFacts:
    """The facts of a text that the fit asks the estimate about."""
    from app.analysis.analyze import shape_of
    from app.estimate.region_features import region_facts
    from profiler.region.graph.lowering import lower
    from profiler.region.language.text import parse

    graph = lower(parse(text, "row"))
    return region_facts(graph, [shape_of(graph, Binding())], "other", "row", False)


OTHER_WORK = frozenset({"longest", "last"})
"""Settings of rows that are other work: one segment that holds half of all, images with their channels last."""
PLAIN_ATTENTION = frozenset({"b", "kv", "s", "d", "causal"})


def _row_calls(row: Row, owner: str, device: Device) -> Iterator[Call]:
    if row.flops and row.dtype not in SIXTEEN_BIT:
        return
    if OTHER_WORK & set(row.sizes) or (row.operation == "flash_attention" and set(row.sizes) - PLAIN_ATTENTION):
        return
    named = [(row.own, "triton"), *((c, i) for (op, i), calls in PEERS.items() if op == row.operation for c in calls)]
    short = SHORT_HEADS if row.operation == "flash_attention" and row.sizes["d"] <= HEAD else ""
    for call, impl in named:
        if impl in row.times_us:
            few = "shape" not in row.sizes and 0 < row.rows < device.processors
            if few and _alone(call, row.rows, device):
                continue
            launches = 3 if few else 1
            row_bytes = row.bytes / row.rows if row.rows else 0.0
            idle = idle_us(row.between, device, Rates())
            time_us = row.times_us[impl]
            yield Call(
                owner, call + short, row_bytes, row.bytes, row.flops, time_us, launches, table=True, idle_us=idle
            )  # fmt: skip


def _alone(call: str, rows: int, device: Device) -> bool:
    """One processor a row, and fewer rows than processors: such a time says nothing of a share of the copy rate."""
    return rows < device.processors and not call.startswith(SPLIT)


def of_programs(names: Iterable[str]) -> Callable[[str], bool]:
    """For `Samples.without`: those programs."""
    held = frozenset(names)
    return lambda name: name in held
