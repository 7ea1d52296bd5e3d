"""A region: a small program of a step, or a text that somebody wrote down, with its cost and advice."""

from __future__ import annotations

from typing import Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from app.objects.advice import Advice
from app.objects.basis import RestsOn
from app.objects.common import Binding, Note, Range
from app.objects.cost import Cost
from app.objects.obstacle import Obstacle
from app.objects.oracle import OraclePrediction, Recompiles
from app.objects.record import NearestRecord

StoredInputs: TypeAlias = dict[str, object]
"""What an advice was issued on, as app.analysis.advice_inputs writes and reads it; kept with the region, not shown."""


PredictedBy: TypeAlias = Literal["oracle", "rules"]
"""Whose kernels the advice goes by: those that Inductor wrote, or those that our fusion rules expect of it."""


class RegionSource(TypedDict):
    """Where a trace's region is from: the trace's id, the module, the line as its stacks tell it, its operations."""

    trace: str
    module: str
    line: str
    ops: list[str]


class RegionShape(TypedDict):
    """One binding, its calls in a step and their time. operands: of one call, as the trace recorded them."""

    binding: Binding
    operands: NotRequired[list[str]]
    calls: float
    time_us_per_step: float | None


class IrregularityPart(TypedDict):
    """One reason for irregular sizes, 0 to 1, with its weight in the score."""

    name: str
    title: str
    score: float
    weight: float
    because: str


class Irregularity(TypedDict):
    """How irregular a region's sizes are, 0 to 1."""

    score: float
    parts: list[IrregularityPart]


class RegionBody(TypedDict):
    """A region as it is built. cost, advice: null until they are there, or where advising on it failed. rests_on: what
    the advice's predicted times rest on; it lacks until they are there, and without a text.

    prediction: whose kernels of torch.compile the advice goes by. Where Inductor was asked and could not answer,
    `oracle[0].unavailable` says why.

    The keys that may lack are a trace's: key: its name within the trace. missing: why there is no text. forward_of: the
    key of the region whose gradient it computes. streams: that its kernels run on. launches_left: share of its launches
    that is left with each tool. fp8_left: share of its time that is left with its large products in 8 bits, null
    where it has none. busy_us_per_step: of its time, its part where kernels of several streams overlap.
    gpu_paced_us_per_step: while the GPU sets the step's pace. copies_per_step, copies_us_per_step: copies and sets of
    memory that its operations make; lacking where they make none. notes: why there is no advice.
    """

    name: str
    kind: str
    by_hand: bool
    text: str | None
    source: RegionSource | None
    calls_per_step: float
    time_us_per_step: float | None
    share_of_step: float | None
    shapes: list[RegionShape]
    irregularity: Irregularity | None
    cost: Cost | None
    oracle: list[OraclePrediction]
    recompiles: Recompiles | None
    prediction: PredictedBy
    advice: Advice | None
    rests_on: NotRequired[RestsOn]
    key: NotRequired[str]
    title: NotRequired[str]
    missing: NotRequired[str]
    assumed: NotRequired[list[str]]
    backward: NotRequired[bool]
    forward_of: NotRequired[str | None]
    compile_obstacles: NotRequired[list[Obstacle]]
    forward_time_us_per_step: NotRequired[float]
    backward_time_us_per_step: NotRequired[float]
    kernels_per_call: NotRequired[float]
    kernel_names: NotRequired[list[str]]
    launches_left: NotRequired[dict[str, float]]
    fp8_left: NotRequired[Range | None]
    busy_us_per_step: NotRequired[float]
    gpu_paced_us_per_step: NotRequired[float]
    copies_per_step: NotRequired[float]
    copies_us_per_step: NotRequired[float]
    streams: NotRequired[list[int]]
    notes: NotRequired[list[Note]]


class RegionAdvised(TypedDict, total=False):
    """What advising adds to what a trace says of its region, or says better."""

    kind: str
    by_hand: bool
    text: str | None
    irregularity: Irregularity | None
    cost: Cost | None
    oracle: list[OraclePrediction]
    recompiles: Recompiles | None
    prediction: PredictedBy
    advice: Advice | None
    rests_on: RestsOn
    launches_left: dict[str, float]
    fp8_left: Range | None
    missing: str
    notes: list[Note]


class Region(RegionBody):
    """A part of a step, or a text that somebody wrote down, with its cost and advice: null until they are there, or
    where advising on it failed, which `notes` tells.

    rests_on: what the predicted times rest on. validations: ids, the newest first. archive: the record nearest to it
    where this host has measured nothing. Of a trace's region only: key: its name within the trace. missing: why there
    is no text. forward_of: the key of the region whose gradient it computes. streams: that its kernels run on.
    launches_left: share of its launches that is left with each tool. fp8_left: share of its time that is left with its
    large products in 8 bits.
    """

    id: str
    created_at: str
    validations: list[str]
    archive: NotRequired[NearestRecord | None]


class SlimRegion(TypedDict, total=False):
    """Of a region what assertions look at."""

    id: str
    name: str
    key: str
    text: str | None
    source: RegionSource | None
    shapes: list[RegionShape]
    share_of_step: float | None
    time_us_per_step: float | None
    calls_per_step: float
    compile_obstacles: list[Obstacle]
    advice: Advice | None


AnyRegion: TypeAlias = Region | RegionBody | SlimRegion


class RegionList(TypedDict):
    """One page of written regions, newest first."""

    items: list[Region]
    next: str | None


class AdviceAnswer(Advice):
    """Advice, and for a region's text what the region object has as well. archive: the nearest record."""

    name: NotRequired[str]
    kind: NotRequired[str]
    by_hand: NotRequired[bool]
    text: NotRequired[str | None]
    source: NotRequired[RegionSource | None]
    calls_per_step: NotRequired[float]
    time_us_per_step: NotRequired[float | None]
    share_of_step: NotRequired[float | None]
    shapes: NotRequired[list[RegionShape]]
    irregularity: NotRequired[Irregularity | None]
    cost: NotRequired[Cost | None]
    oracle: NotRequired[list[OraclePrediction]]
    recompiles: NotRequired[Recompiles | None]
    rests_on: NotRequired[RestsOn]
    archive: NotRequired[NearestRecord | None]
