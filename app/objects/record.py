"""Validations, and the records of the Archive that they become."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.objects.advice import Advice
from app.objects.common import Error, Interval, Progress, State, Versions
from app.objects.evidence import Archived, CandidateTool, Figures, Outcome, Status


class ValidationBody(Figures):
    """What a validation measured, with the advice before and after."""

    advice_before: Advice | None
    advice_after: Advice | None


class NamedValidation(ValidationBody):
    """A validation as the command line prints it: with the name of its region."""

    name: str


class RecordBody(ValidationBody):
    """A record of the Archive as its file holds it."""

    schema: int
    name: str


class ArchiveRecord(ValidationBody):
    """A record of the Archive, or a validation of this server in its form, which has no `schema`."""

    id: str
    state: Literal["done"]
    name: str
    archived: Archived
    schema: NotRequired[int]
    created_at: NotRequired[str]


class Elsewhere(TypedDict):
    """How near a record is to what was asked. distance: 0 for the same sizes and device. bytes_ratio: the record's
    bytes over the region's. others: versions of torch of the records that are as near."""

    distance: float
    bytes_ratio: float
    device: str
    same_device: bool | None
    torch: str | None
    others: list[str]
    because: str


class NearestRecord(ArchiveRecord):
    """The record that is evidence for a region."""

    elsewhere: Elsewhere


class Validation(ValidationBody):
    """The measured candidates and the outcome, null until it is done. ahead: see Job; null in lists.

    Also a record of the archive, which has `schema` and `archived`. archive: where nothing could be measured, the
    nearest record.
    """

    id: str
    name: str
    state: State
    region_id: str | None
    error: Error | None
    created_at: NotRequired[str]
    progress: NotRequired[Progress | None]
    ahead: NotRequired[int | None]
    schema: NotRequired[int]
    archived: NotRequired[Archived]
    archive: NotRequired[NearestRecord | None]


class ValidationList(TypedDict):
    """One page of validations, newest first."""

    items: list[Validation]
    next: str | None


class MeasuredCandidate(TypedDict):
    """One candidate of a measurement on one device, as Candidate has it."""

    name: str
    tool: CandidateTool
    status: Status
    time_us: Interval | None
    wall_us: float | None
    ratio_to_eager: Interval | None
    ratio_to_best_other: Interval | None
    share_of_limit: float | None


class MeasuredDevice(TypedDict):
    """The newest measurement of a region on one device. here: by this server. tool: advised after measuring.

    decided_by: "device time" or "wall time", whose ratios the candidates have.
    """

    id: str
    device: str
    here: bool
    date: str
    software: Versions
    outcome: Outcome | None
    best: str | None
    tool: str | None
    decided_by: str
    candidates: list[MeasuredCandidate]


class MeasuredDevices(TypedDict):
    """A region's measurements, the fastest device first. said: whether the advice differs between them, in words."""

    items: list[MeasuredDevice]
    said: str


class ArchiveRow(TypedDict):
    """One record in a list of the Archive."""

    id: str
    name: str
    dtypes: list[str]
    shapes: str
    device: str | None
    torch: str | None
    triton: str | None
    date: str
    outcome: Outcome | None
    advice: str | None
    fastest: str | None
    ratio_to_eager: float | None


class RecordVersion(TypedDict):
    """A record of the same subject that is there already."""

    id: str
    torch: str | None
    date: str


class ArchiveStep(TypedDict):
    """What becomes of a record that is put into a folder. lacking: what it does not tell of what it should."""

    action: Literal["added", "identical", "beside", "replaced"]
    source: str
    id: str
    name: str
    torch: str | None
    others: list[RecordVersion]
    lacking: list[str]


class RegressionSide(TypedDict):
    """Today's rule with one of both measurements. best: the fastest candidate, with its time."""

    tool: str
    mode: str
    headline: str
    best: str | None
    time_us: Interval | None


class Regression(TypedDict):
    """A validation held to the measurement before it. outcome: null where there is none, which `because` tells.

    before, after: today's rule with either measurement. changed: what was upgraded between them. record: the id of the
    measurement before.
    """

    name: str
    record: str | None
    device: str | None
    action: Literal["validate", "unchanged", "no-record"]
    because: str
    changed: list[str]
    was: dict[str, str]
    now: dict[str, str]
    outcome: Literal["flipped", "kept", "unmeasured"] | None
    before: RegressionSide | None
    after: RegressionSide | None
