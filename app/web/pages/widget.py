"""The widget's part of the start page: its answer, its picture, and the table by which a slider answers at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from typing import TypedDict

from fastapi import Request
from fastapi.responses import Response
from markupsafe import Markup, escape

from app.advice.criteria import CRITERIA
from app.advice.effort_curve import Measured, Rung, gradient
from app.advice.widget import BOUNDS, KINDS
from app.advice.widget_table import STEPS, table
from app.analysis import service
from app.archive import record_store
from app.objects.advice import Advice, Criterion
from app.requests.state import state_of
from app.thresholds import Thresholds
from app.web.server.json_response import JSONAnswer
from app.web.templating import environment, ticks

KIND_WORDS = (
    # a word in a recorded region's name: the widget's kind; the first that fits
    ("attention", "attention"), ("gemms", "custom"), ("gemm after", "quantised_gemm"), ("gemm with", "elementwise"),
    ("gemm", "gemm"), ("norm", "normalisation"), ("cumulative", "custom"), ("top-k", "custom"), ("scatter", "custom"),
    ("rope", "custom"), ("chain", "elementwise"), ("residual", "elementwise"), ("swiglu", "elementwise"),
    ("copy", "elementwise"), ("reduction", "reduction"), ("softmax", "reduction"),
)  # fmt: skip
"""Names are those that mining and patterns give; a product after something is one with weights to unpack."""

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 360, 190, 34, 158, 12
ASIDE = {"library": -8.0, "compile": 8.0}
"""Both are one line: they stand side by side."""
LEAST, MOST = 0.7, 16.0
"""Speed-ups at the ends of the picture's axis."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One tool in the picture: where its range lies, in the picture's own units."""

    rung: Rung
    left: float
    width: float
    high: float
    height: float
    middle: float
    at: float


class Picture(TypedDict):
    """Context of partials/home/effort_curve.html: what `draw_picture` draws, in the picture's own units.

    up: (speed-up, place) of each line; across: (lines, place).
    """

    rungs: Sequence[Rung]
    marks: list[Mark]
    up: list[tuple[int, float]]
    across: list[tuple[str, float]]
    curve: str
    width: int
    height: int
    left: int
    bottom: int


class AnswerContext(TypedDict):
    """What the answer's template needs as well as the advice. decisive: a criterion's name; holes: `mark_reasons`."""

    picture: Picture
    decisive: str
    holes: Callable[[str, Sequence[Criterion]], Markup]


class TableRow(TypedDict):
    """A criterion along a slider. states: whether it holds, from step to step; because: its reason in each."""

    name: str
    slider: str
    states: str
    because: list[str]


class AnswerTable(TypedDict):
    """What static/app.js looks up. answers: HTML by the criteria's states."""

    steps: dict[str, float]
    rows: list[TableRow]
    answers: dict[str, str]


@cache
def archive_measurements() -> tuple[Measured, ...]:
    """The best candidate of each tool on each region of the shipped Archive."""
    return tuple(_read_archive())


def _read_archive() -> Iterator[Measured]:
    for record in record_store.records(record_store.FOLDER):
        name = str(record.get("name", "")).lower()
        kind = next((k for word, k in KIND_WORDS if word in name), "")
        best: dict[str, float] = {}
        for candidate in record["candidates"]:
            ratio = candidate.get("ratio_to_eager")
            if candidate["status"] == "ok" and ratio and ratio["median"]:
                best[candidate["tool"]] = max(best.get(candidate["tool"], 0.0), 1 / ratio["median"])
        yield from (Measured(kind, tool, speedup) for tool, speedup in best.items() if tool != "eager")


@lru_cache(maxsize=64)
def draw_picture(kind: str | None, bound: str | None) -> Picture:
    """Lines to write across, speed-up over eager up, both by factors; a bar for the range of each tool."""
    rungs = gradient(archive_measurements(), kind, bound)
    ticks_up = [(factor, _up(factor)) for factor in (1, 2, 4, 8, 16)]
    across = [(text, _across(lines)) for text, lines in (("0", 0), ("1", 1), ("10", 10), ("100", 100), ("1,000", 1000))]
    marks = [_mark(r) for r in rungs if r.speedup is not None]
    curve = " ".join(f"{m.at:.1f},{m.middle:.1f}" for m in marks)
    return {
        "rungs": rungs, "marks": marks, "up": ticks_up, "across": across, "curve": curve, "width": WIDTH,
        "height": HEIGHT, "left": LEFT, "bottom": BOTTOM,
    }  # fmt: skip


def _mark(rung: Rung) -> Mark:
    assert rung.speedup is not None
    first, last = (_across(lines) + ASIDE.get(rung.tool, 0.0) for lines in rung.lines)
    left, width = min(first, (first + last) / 2 - 5), max(10.0, last - first)
    high, low = _up(rung.speedup.high), _up(rung.speedup.low)
    return Mark(rung, left, width, high, max(3.0, low - high), _up(rung.speedup.mid), (first + last) / 2)


def _up(factor: float) -> float:
    within = min(MOST, max(LEAST, factor))
    return BOTTOM - (BOTTOM - TOP) * math.log(within / LEAST) / math.log(MOST / LEAST)


def _across(lines: float) -> float:
    """0 and 1 stand apart, then factors of ten."""
    place = 0.0 if lines == 0 else 0.8 + math.log10(lines)
    return LEFT + 24 + (WIDTH - LEFT - 36) * place / (0.8 + math.log10(5000))


def mark_reasons(text: str, criteria: Sequence[Criterion]) -> Markup:
    """Advice's words as HTML; a criterion's reason inside them is marked with its name, to follow the slider."""
    marked = ticks(text)
    for criterion in criteria:
        reason = ticks(criterion["because"])
        if len(criterion["because"]) > 8 and reason in marked:
            name = escape(criterion["name"])
            marked = Markup(str(marked).replace(str(reason), f'<span data-because="{name}">{reason}</span>'))
    return marked


def find_decisive(advice: Advice) -> str:
    """The criterion that the answer rests on: the one that ended the question, else the last that admitted the tool."""
    holds = {c["name"]: c["holds"] for c in advice["criteria"]}
    questions = [(criterion.name, criterion.question) for criterion in CRITERIA if criterion.question is not None]
    for name, question in questions:
        if question.ends and holds[name] is question.on:
            return name
    tool = "library" if advice["tool"] == "skip" else advice["tool"]  # nothing to write: a library has it
    return next(name for name, question in questions if not question.ends and question.tool == tool)


def _render_answer(advice: Advice, kind: str | None, bound: str | None) -> str:
    """The widget's answer as HTML; the page completes its link."""
    template = environment().get_template("partials/home/widget.html")
    return template.render(widget=advice, widget_query="", **answer_context(advice, kind, bound))


def answer_context(advice: Advice, kind: str | None, bound: str | None) -> AnswerContext:
    """What the answer's template needs in addition to the advice."""
    return {"picture": draw_picture(kind, bound), "decisive": find_decisive(advice), "holes": mark_reasons}


def answer_table(request: Request, bound: str = "", kind: str = "") -> Response:
    """Every answer for one bound and kind: states and reasons along each slider, and the answer for each set of states.

    Made by the rule on this server; the page looks up in it. Unknown words count as not known.
    """
    settings = state_of(request).service.thresholds
    return JSONAnswer(_make_table(bound if bound in BOUNDS else None, kind if kind in KINDS else None, settings))


@lru_cache(maxsize=64)
def _make_table(bound: str | None, kind: str | None, settings: Thresholds) -> AnswerTable:
    answers = table(bound, kind, settings)
    return {
        "steps": dict(STEPS),
        "rows": [
            {"name": r.name, "slider": r.slider, "states": r.states, "because": [str(ticks(b)) for b in r.because]}
            for r in answers.rows
        ],
        "answers": {
            key: _render_answer(service.advise_widget(settings, **asdict(at)), kind, bound)
            for key, (at, _) in answers.verdicts.items()
        },
    }
