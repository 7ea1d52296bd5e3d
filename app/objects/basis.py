"""What predictions rest on: the measurements of which device, whose kernels, and why each part takes its time."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

PredictionSource = Literal["oracle", "rules"]
"""Whose kernels torch.compile's predicted time is of: Inductor's own list, or what our fusion rules say."""


class MeasuredAtlas(TypedDict):
    """The atlas that times are read off. own: measured on such a device as the advice is for; else scaled to it.

    date: of the measurement. torch, triton: versions that it was measured with.
    """

    device: str
    own: bool
    date: str
    torch: str
    triton: str


class FittedOn(TypedDict):
    """On which devices the rates were fitted. range_factor: as that of the atlas, of ranges by these rates."""

    devices: list[str]
    range_factor: float


class NearestMeasured(TypedDict):
    """The measured program that is most like a part, and its time with inputs that are not in L2.

    correlation: of the logarithms of both times over their floors as the atlas expects it, 0 to 1; near: from 0.8 on.
    """

    description: str
    time_us: float
    correlation: float
    near: bool


class PredictedPart(TypedDict):
    """One operation as eager runs it, or one kernel or library call of Inductor's, with its predicted time.

    name: as in `cost.operations` or `oracle`. bytes_moved, flops, time_us: of all `launches`; null where nobody can
    tell. bytes_per_s, flops_per_s: what that comes to. because: both in words, and what sets the pace. measured:
    measured points gave the time; else rates or a guess. nearest: null without measured points.
    """

    way: Literal["eager", "compile"]
    name: str
    launches: int
    time_us: float
    bytes_moved: float | None
    flops: float | None
    bytes_per_s: float | None
    flops_per_s: float | None
    because: str
    measured: bool
    nearest: NearestMeasured | None


class RestsOn(TypedDict):
    """What the predicted times of a region rest on, at the binding that moves most bytes.

    device: they are for. atlas: null where none could be read: then fitted rates predict all. scaled_by: the ceilings
    by which another device's atlas is scaled, null for its own. range_factor: the ends of ranges are as many times as
    far away, in logarithms, as on the atlas's own device. eager_known: share of eager's predicted time that measured
    points gave; rates gave the rest. rates: by which all is predicted that the atlas has not, library calls and
    hand-written kernels among it. observed: the time now goes by a trace's, with which other ways are scaled.
    prediction_because: why torch.compile's time is by our rules, "" where it is by Inductor's kernels. sentence: all
    of this in words. parts: the longest 20 of eager's, and of torch.compile's where Inductor told its kernels.
    """

    device: str
    atlas: MeasuredAtlas | None
    scaled_by: Literal["measured ceilings", "datasheet"] | None
    range_factor: float
    eager_known: float
    rates: FittedOn
    observed: bool
    prediction: PredictionSource
    prediction_because: str
    sentence: str
    parts: list[PredictedPart]
