"""Case: one record of the Archive as a question with a known answer. Pure data; no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NotRequired, TypedDict

from app.accuracy.labels import Label, label_of
from app.accuracy.split import half, program
from app.advice.evidence import decision_thresholds
from app.objects.record import ArchiveRecord
from app.thresholds import DEFAULTS
from kernels.measure import outcome as measured
from kernels.measure.model import CandidateResult, Interval, Validation, is_users_kernel, validation_from_json

KNOWN = frozenset(f.name for f in fields(Validation))


class Taken(TypedDict):
    """What an advice takes. mode: where it is told."""

    tool: str
    mode: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Case:
    """A record with what was measured.

    program, half: see `split`. contenders: the correct, timed candidates with the figure that decides: µs of device
    time, µs of wall time where the region is launch-bound, or bytes where the objective is memory. asked: the
    objective, None for the published one.
    """

    record: str
    name: str
    text: str
    program: str
    half: str
    label: Label | None
    validation: Validation
    contenders: tuple[measured.Contender, ...]
    by: str
    asked: str | None = None

    @property
    def objective(self) -> str:
        """What is asked for: time or memory; as it was published with the region where nobody says."""
        return self.asked or (self.label.objective if self.label else "time")

    @property
    def share_of_step(self) -> float | None:
        return self.label.share_of_step if self.label else None

    @property
    def least(self) -> float:
        """The best figure that was measured."""
        return min(c.time_us for c in self.contenders)

    def contender(self, name: str) -> measured.Contender | None:
        return next((c for c in self.contenders if c.name == name), None)

    def candidate(self, name: str) -> CandidateResult | None:
        return next((c for c in self.validation.candidates if c.name == name), None)

    def of_tool(self, tool: str) -> tuple[str, ...]:
        """The tool's measured candidates, in the record's order."""
        return tuple(c.name for c in self.contenders if c.tool == tool)

    def decided(self, advice: Taken) -> measured.Outcome:
        """What DESIGN's rule makes of the measured figures, and how that stands to this advice (tool and mode)."""
        share = self.share_of_step if self.objective == "time" else None  # bytes are no share of a step's time
        thresholds = decision_thresholds(DEFAULTS)
        return measured.decide(self.validation.candidates, self.contenders, advice, share, self.by, thresholds)


def case_of(record: ArchiveRecord, asked: str | None = None) -> Case | None:
    """The case of an Archive's record; None where fewer than two candidates were timed: nothing was chosen between.

    asked: an objective in place of the published one.
    """
    validation = validation_from_json({k: v for k, v in record.items() if k in KNOWN})
    label = label_of(validation.region)
    objective = asked or (label.objective if label else "time")
    by = "peak bytes" if objective == "memory" else str(validation.conditions.get("decided_by", "device time"))
    contenders = _by_bytes(validation) if objective == "memory" else _by_time(validation, by)
    if len(contenders) < 2:
        return None
    of_program = program(validation.region)
    name = label.name if label else str(record.get("name") or "region")
    return Case(
        record=str(record["id"]),
        name=name,
        text=validation.region,
        program=of_program,
        half=half(of_program),
        label=label,
        validation=validation,
        contenders=contenders,
        by=by,
        asked=asked,
    )


def cases(records: Sequence[ArchiveRecord], asked: str | None = None) -> tuple[Case, ...]:
    """The cases of many records, by name and then by record."""
    made = [case for record in records if (case := case_of(record, asked)) is not None]
    return tuple(sorted(made, key=lambda c: (c.name, c.record)))


def _timed(validation: Validation) -> list[CandidateResult]:
    timed = [c for c in validation.candidates if c.status == "ok" and c.time_us and c.tool in measured.EFFORT]
    return [c for c in timed if not is_users_kernel(c.name)]


def _by_time(validation: Validation, by: str) -> tuple[measured.Contender, ...]:
    return tuple(
        measured.Contender(c.name, c.tool, measured.deciding_us(c, by), c.ratio_to_best_other)
        for c in _timed(validation)
    )


def _by_bytes(validation: Validation) -> tuple[measured.Contender, ...]:
    """Peaks do not vary between rounds: the interval of a ratio is one number."""
    timed = [c for c in _timed(validation) if c.peak_bytes]
    peaks = {c.name: float(c.peak_bytes or 0) for c in timed}
    contenders = []
    for c in timed:
        others = [peaks[o.name] for o in timed if o is not c and not (o.tool == c.tool == "triton")]
        ratio = peaks[c.name] / min(others) if others else None
        span = Interval(ratio, ratio, ratio) if ratio else None
        contenders.append(measured.Contender(c.name, c.tool, peaks[c.name], span))
    return tuple(contenders)
