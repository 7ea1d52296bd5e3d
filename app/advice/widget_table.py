"""Every answer of the widget as one table: the rule run at each step of each slider, so that a page only looks up.

A criterion turns on one slider at most, and the verdict on which criteria hold. So a table has a row for each
criterion with its state and reason at every step, and a verdict for every set of states that the sliders can reach.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from app.advice.criteria import library_covers, several_shapes, worth_it
from app.advice.model import Advice, Change, Criterion
from app.advice.rule import decision_inputs, verdict
from app.advice.sensitivity import TOOL_WORDS
from app.advice.widget import WidgetAnswers, advise_widget, facts_of
from app.thresholds import DEFAULTS, Thresholds
from profiler.hardware import DEFAULT_DEVICE, find_device
from profiler.region.model import Workload

STEPS: Mapping[str, float] = {"share_of_step": 0.005, "uniqueness": 0.01, "irregularity": 0.01}
"""The sliders, each with the distance between two of its positions from 0 to 1."""

WORDS = {
    # slider: (criterion that it decides, how it is said)
    "share_of_step": (worth_it.name, "with a share of the step"),
    "uniqueness": (library_covers.name, "with uniqueness"),
    "irregularity": (several_shapes.name, "with irregularity"),
}

STATES = {True: "1", False: "0", None: "?"}


@dataclass(frozen=True, slots=True)
class Row:
    """One criterion at every position of the slider that it turns on; at the only one where slider is ""."""

    name: str
    slider: str
    states: str  # a character of STATES each
    because: tuple[str, ...]

    def at(self, positions: Mapping[str, int]) -> int:
        """Where this row stands."""
        return positions[self.slider] if self.slider else 0


@dataclass(frozen=True, slots=True)
class Table:
    """verdicts: by the states of all rows in order; each with the answers that it was given for.

    bands: of each slider the first position of each run in which no criterion changes its state.
    """

    rows: tuple[Row, ...]
    verdicts: Mapping[str, tuple[WidgetAnswers, Advice]]
    bands: Mapping[str, list[int]]

    def key(self, positions: Mapping[str, int]) -> str:
        """The states of all criteria at these positions of the sliders."""
        return "".join(row.states[row.at(positions)] for row in self.rows)


def positions_of(slider: str) -> int:
    """How many positions a slider has."""
    return round(1 / STEPS[slider]) + 1


@lru_cache(maxsize=64)
def table(bound: str | None = None, kind: str | None = None, settings: Thresholds = DEFAULTS) -> Table:
    """The table for one bound and one kind of operation."""
    middle = WidgetAnswers(0.5, 0.5, 0.5, bound, kind)
    judged = {
        slider: [_criteria(_move(middle, {slider: i}), settings) for i in range(positions_of(slider))]
        for slider in STEPS
    }
    rows = tuple(_row(place, judged) for place in range(len(judged["uniqueness"][0])))
    bands = {slider: _bands(slider, rows) for slider in STEPS}
    verdicts: dict[str, tuple[WidgetAnswers, Advice]] = {}
    made = Table(rows, verdicts, bands)
    for corner in itertools.product(*bands.values()):
        positions = dict(zip(STEPS, corner, strict=True))
        answers = _move(middle, positions)
        verdicts.setdefault(made.key(positions), (answers, advise_widget(answers, settings)))
    return made


def _move(answers: WidgetAnswers, positions: Mapping[str, int]) -> WidgetAnswers:
    moved: dict[str, Any] = {slider: value(slider, place) for slider, place in positions.items()}
    return replace(answers, **moved)


def value(slider: str, position: int) -> float:
    """What a position stands for, 0 to 1."""
    return round(position * STEPS[slider], 6)


def _criteria(answers: WidgetAnswers, settings: Thresholds) -> tuple[Criterion, ...]:
    device = find_device(DEFAULT_DEVICE)
    assert device is not None
    use = Workload(share_of_step=answers.share_of_step)
    return verdict(decision_inputs(facts_of(answers, settings), use, device, settings)).criteria


def _row(place: int, judged: Mapping[str, list[tuple[Criterion, ...]]]) -> Row:
    """The criterion at that place, along the slider that moves it."""
    along = {s: [(STATES[c[place].holds], c[place].because) for c in steps] for s, steps in judged.items()}
    moving = [s for s, seen in along.items() if len(set(seen)) > 1]
    assert len(moving) < 2, f"{judged['uniqueness'][0][place].name} turns on {' and '.join(moving)}"
    slider = moving[0] if moving else ""
    seen = along[slider] if slider else along["uniqueness"][:1]
    name = judged["uniqueness"][0][place].name
    return Row(name, slider, "".join(s for s, _ in seen), tuple(b for _, b in seen))


def _bands(slider: str, rows: tuple[Row, ...]) -> list[int]:
    """The first position of each run in which no criterion changes its state."""
    seen = [tuple(r.states[i] for r in rows if r.slider == slider) for i in range(positions_of(slider))]
    return [i for i, states in enumerate(seen) if i == 0 or states != seen[i - 1]]


def changes(answers: WidgetAnswers, advice: Advice, settings: Thresholds = DEFAULTS) -> tuple[Change, ...]:
    """What would change the widget's advice: of each slider, down and up, the first position with another tool.

    A share of the step that is not known counts as worth it, as all of the step is; nothing is said of moving it.
    """
    answers_table = table(answers.bound, answers.kind, settings)
    at = {s: getattr(answers, s) for s in STEPS}
    at = {s: 1.0 if value is None else float(value) for s, value in at.items()}
    here = {s: min(positions_of(s) - 1, max(0, round(at[s] / step))) for s, step in STEPS.items()}
    changed = []
    for slider, step in STEPS.items():
        now = at[slider]
        if getattr(answers, slider) is None:
            continue
        below, above = math.ceil(now / step - 1e-9) - 1, math.floor(now / step + 1e-9) + 1
        # Within a band the verdict is one: only the ends that face us can be the first with another tool.
        down = [below, *(b - 1 for b in reversed(answers_table.bands[slider]) if 0 < b <= below)] if below >= 0 else []
        up = [above, *(b for b in answers_table.bands[slider] if b > above)] if above < positions_of(slider) else []
        for way, word in ((down, "at most"), (up, "at least")):
            for i in way:
                tool = answers_table.verdicts[answers_table.key({**here, slider: i})][1].tool
                if tool != advice.tool:
                    criterion, words = WORDS[slider]
                    because = f"{words} of {word} {100 * value(slider, i):.3g} %: {TOOL_WORDS[tool]}"
                    changed.append(Change(criterion, slider, now, value(slider, i), tool, because))
                    break
    return tuple(changed)
