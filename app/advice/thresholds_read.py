"""Which thresholds a verdict reads: one that is not read can be any number, and the verdict stays as it is."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from app.advice.criteria import CRITERIA
from app.advice.rule import DecisionInputs, case_of, verdict
from app.thresholds import Thresholds

NAMES = frozenset(f.name for f in fields(Thresholds))


class _Recording(Thresholds):
    """The same thresholds, with the names of those that were read."""

    __slots__ = ("read",)
    read: set[str]

    def __init__(self, recorded: Thresholds) -> None:
        object.__setattr__(self, "read", set())
        super().__init__(**{name: getattr(recorded, name) for name in NAMES})

    def __getattribute__(self, name: str) -> object:
        if name in NAMES:
            object.__getattribute__(self, "read").add(name)
        return object.__getattribute__(self, name)

    def taken(self) -> frozenset[str]:
        """What was read since the last time that this was asked."""
        read = frozenset(self.read)
        self.read.clear()
        return read


@dataclass(frozen=True, slots=True)
class ThresholdsRead:
    """Of one verdict. criteria: what each criterion reads, by its name; beyond: what all else reads."""

    criteria: dict[str, frozenset[str]]
    beyond: frozenset[str]

    def by_criteria(self, threshold: str) -> frozenset[str]:
        """The criteria that read it."""
        return frozenset(name for name, read in self.criteria.items() if threshold in read)


def thresholds_read(on: DecisionInputs, objective: str) -> ThresholdsRead:
    """Each criterion judged, and the verdict given, with what they read on record. on: with all criteria standing.

    A verdict is a pure function: with another number in a threshold that it did not read it goes the same way.
    """
    settings = _Recording(on.settings)
    watched = replace(on, settings=settings)
    case = case_of(watched)
    beyond = settings.taken()
    by_name = {}
    for criterion in CRITERIA:
        criterion(case)
        by_name[criterion.name] = settings.taken()
    verdict(watched, objective)
    return ThresholdsRead(by_name, beyond | settings.taken())
