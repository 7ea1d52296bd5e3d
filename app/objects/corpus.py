"""How good the advice is on a third of the corpus: figures by device, family and mode; looks at the blind third."""

from __future__ import annotations

from typing_extensions import TypedDict

from app.objects.accuracy import AccuracyFigures, ScoreFigures, TotalsFigures


class TimeFigures(TypedDict):
    """Predicted device times of one candidate against measured ones. within: share within 20 %; inside: share of the
    measured times in the 80 % interval; error_geomean: the larger over the smaller. Null without a prediction."""

    predictions: int
    within: float | None
    inside: float | None
    error_geomean: float | None


class GroupFigures(TotalsFigures):
    """Advice on some programs. speedups: how many speed-ups over eager were predicted; within: their share within 20 %.

    eager, compiled: device times of eager and of torch.compile in its default mode.
    """

    speedups: int
    within: float | None
    eager: TimeFigures
    compiled: TimeFigures


class LeftOut(TypedDict):
    """Programs that one of the figures does not count, and why. figure: advice, speed-up, eager or torch.compile."""

    figure: str
    reason: str
    programs: int


class DeviceFigures(TypedDict):
    """All figures of one device. atlas: whose it was predicted by, null for none; own: it is this device's.

    measured: programs with a validation on it. by_wall_time: of those that count, how many are decided by wall time.
    next_runnable: of those that count, where the advised candidate was not measured and the next one counts.
    unanswered: the oracle was asked and had no answer, so that rules took its place.
    """

    device: str
    torch: list[str]
    dates: list[str]
    atlas: str | None
    own: bool
    measured: int
    by_wall_time: int
    next_runnable: int
    unanswered: int
    all: GroupFigures
    families: dict[str, GroupFigures]
    modes: dict[str, GroupFigures]
    policies: dict[str, TotalsFigures]
    left_out: list[LeftOut]


class CorpusFigures(TypedDict):
    """One way of predicting, held against what was measured of one third. programs: that the third has."""

    third: str
    prediction: str
    programs: int
    devices: list[DeviceFigures]


class ThirdFigures(TypedDict):
    """A third predicted in one or more ways by one state of the code. changed: its files differ from the commit's."""

    date: str
    commit: str
    changed: bool
    figures: list[CorpusFigures]


class Look(ThirdFigures):
    """One look at the blind third. previous: digest of the look before it, empty for the first."""

    previous: str


class PredictedTime(TypedDict):
    """A device time in µs with its 80 % interval, and what was measured."""

    low: float
    mid: float
    high: float
    measured: float


class ProgramFigures(TypedDict):
    """One program on one device. left_out: why it does not count, by figure."""

    program: str
    device: str
    family: str
    mode: str
    score: ScoreFigures | None
    eager: PredictedTime | None
    compiled: PredictedTime | None
    left_out: dict[str, str]


class CorpusRun(CorpusFigures):
    """The same with its programs one by one: of a third that may be looked at."""

    outcomes: list[ProgramFigures]


class AccuracyAnswer(AccuracyFigures):
    """What /accuracy.json answers: looks at the blind third, newest first; the development third, null where
    nobody wrote its figures; the Archive."""

    blind: list[Look]
    development: ThirdFigures | None
