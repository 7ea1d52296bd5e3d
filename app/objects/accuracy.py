"""How good the advice is: scores of the Archive's records, totals, claims, and the fit of the rates."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict


class TotalsFigures(TypedDict):
    """Regrets of some cases: times over the best measured. right: share of the cases. Null without a case."""

    cases: int
    regret_geomean: float | None
    regret_worst: float | None
    right: float | None


class AdviceTotals(TotalsFigures):
    """The same of advice, with its predicted speed-ups: how many, the share within 20 %, the error's geometric mean;
    *_all: of every candidate that was predicted, not of the advised alone."""

    within: float | None
    predictions: int
    error_geomean: float | None
    within_all: float | None
    predictions_all: int


class PolicyTotals(TypedDict):
    """What a policy comes to, of all regions and of each half. regrets: of each region, ascending."""

    all: TotalsFigures
    fit: TotalsFigures
    test: TotalsFigures
    regrets: list[float]


class ClaimFigure(TypedDict):
    """One measured value and where it was seen."""

    where: str
    value: float


class ClaimFigures(TypedDict):
    """A number that a source gives, next to what was measured here; app.accuracy.claims.Claim says what each key is."""

    name: str
    source: str
    claim: str
    low: float
    high: float
    unit: str
    figures: list[ClaimFigure]
    middle: float | None
    agrees: bool | None


class ScoreFigures(TypedDict):
    """One record, scored; app.accuracy.score.Score says what each key is."""

    record: str
    name: str
    program: str
    half: str
    labelled: bool
    device: str
    date: str
    by: str
    share_of_step: float | None
    tool: str
    mode: str
    advised: str
    column: str
    counted: str
    counted_tool: str
    best: str
    winner: str
    winner_tool: str
    regret: float
    right: bool
    outcome: str
    predicted: float | None
    measured: float | None
    calibration: list[tuple[str, float, float]]


class LeftOver(TypedDict):
    """What a fit leaves over of one family: measured over predicted, its 10th and 90th percentile."""

    samples: int
    within: float
    error_geomean: float
    low: float
    high: float


class SampleCounts(TypedDict):
    """Measurements that a fit is made of: times of candidates, calls of libraries."""

    times: int
    calls: int


class FitFigures(TypedDict):
    """What the rates were fitted on, and what they leave over by family."""

    schema: int
    version: str
    date: str
    devices: list[str]
    torch: list[str]
    sources: list[str]
    samples: SampleCounts
    left_over: dict[str, LeftOver]


class FittedRates(FitFigures):
    """rates.json. rates: as app.estimate.rates reads them."""

    rates: dict[str, object]


class AccuracyFigures(TypedDict):
    """The whole benchmark. advice: by group of regions; columns: by column of the score; policies: by name.

    alone: records of which fewer than two candidates could be timed. unscored: nothing that the advice names was
    measured. targets, met: by group and figure.
    """

    alone: NotRequired[list[str]]
    schema: int
    records: int
    programs: int
    devices: list[str]
    torch: list[str]
    unscored: list[str]
    advice: dict[str, AdviceTotals]
    advice_where_labelled: AdviceTotals
    columns: dict[str, AdviceTotals]
    policies: dict[str, PolicyTotals]
    targets: dict[str, dict[str, float]]
    met: dict[str, dict[str, bool | None]]
    claims: list[ClaimFigures]
    scores: list[ScoreFigures]
    memory_scores: list[ScoreFigures]
    fit: FitFigures


class TableCandidate(TypedDict, total=False):
    """One implementation in a row of the table of kernels."""

    median_us: float | None


class TableRow(TypedDict):
    """One operation at one size, ours and others. case: its dtype, then its sizes. region: that it is. run: its
    run's day and time."""

    operation: str
    case: str
    region: str
    bytes: int
    flops: int
    candidates: dict[str, TableCandidate]
    run: NotRequired[str]


class KernelTable(TypedDict):
    """tests/records/kernels-h200.json. runs: by day and time. former: rows that a later run measured again, as they
    were when the rates were fitted."""

    rows: list[TableRow]
    former: NotRequired[list[TableRow]]
    demonstrations_us: dict[str, float]
    runs: NotRequired[dict[str, object]]
