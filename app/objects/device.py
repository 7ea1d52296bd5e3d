"""What a server can measure on, and what it says of itself."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.objects.common import Versions
from app.objects.evidence import Reading


class DeviceRow(TypedDict):
    """One row of the device table. Rates are bytes/s and FLOP/s; measured ones are null where nobody measured.

    copy_rate: what estimates use. ceilings_measured: whether they use measured rates.
    """

    name: str
    arch: str
    memory_bytes: float
    memory_rate: float
    l2_bytes: float
    processors: int
    f32_rate: float
    tf32_rate: float
    f16_rate: float
    bf16_rate: float
    f8_rate: float
    source: str
    measured_copy_rate: float | None
    measured_matmul_rate: float | None
    measured_source: str
    copy_rate: float
    ceilings_measured: bool


class Ceiling(TypedDict):
    """One measured rate of a GPU. how: it was measured."""

    name: str
    value: float
    unit: str
    how: NotRequired[str]


class CeilingConditions(TypedDict):
    """The GPU before and after."""

    before: Reading
    after: Reading


class MeasuredCeilings(TypedDict):
    """The rates of a GPU, as measured on request."""

    ceilings: list[Ceiling]
    device: NotRequired[str]
    date: NotRequired[str]
    software: NotRequired[Versions]
    conditions: NotRequired[CeilingConditions]


class CeilingsStatus(TypedDict):
    """What was measured last, whether it is being measured again, and why that failed ("" where it did not)."""

    running: bool
    error: str
    measured: MeasuredCeilings | None


class FleetCeilings(TypedDict):
    """A kind's rates as estimates use them, in bytes/s and FLOP/s."""

    copy_rate: float
    matmul_rate: float
    measured: bool


class FleetGpu(TypedDict):
    """A kind of GPU of the fleet. versions: those of its hosts, by name. sick: hosts that take no work, and why."""

    device: str
    hosts: int
    gpus: int
    slots: int
    busy: int
    free: int
    sick: list[str]
    versions: dict[str, list[str]]
    ceilings: FleetCeilings | None
    ceilings_here: NotRequired[CeilingsStatus]


class HostDevice(TypedDict):
    """What this host can measure on: its GPU, that one's row of the device table, and all of the table."""

    gpu: str | None
    capability: str | None
    versions: Versions
    packages: list[str]
    note: str
    known: DeviceRow | None
    devices: list[DeviceRow]


class Device(HostDevice):
    """What this host can measure on. fleet: the kinds that jobs may run on instead; null without a fleet."""

    fleet: list[FleetGpu] | None


class Health(TypedDict):
    """The process answers."""

    status: Literal["ok"]


class Ready(TypedDict):
    """What the server can do. warnings: what waits although it is ready, in words."""

    status: Literal["ok", "degraded"]
    warnings: list[str]
    advice_warm: bool
