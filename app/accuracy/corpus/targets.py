"""What the blind third's figures have to reach on each device, and whether they do. Pure functions of figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.accuracy.table import NONE, Row, number, percent
from app.objects.corpus import DeviceFigures

MAX_AUTOTUNE = "always max-autotune"


@dataclass(frozen=True, slots=True)
class Target:
    """A figure from low to high, either end open where it is None. shown: how its number is written."""

    name: str
    value: Callable[[DeviceFigures], float | None]
    low: float | None = None
    high: float | None = None
    shown: Callable[[float | None], str] = percent

    @property
    def bounds(self) -> str:
        if self.low is None or self.high is None:
            return f"at least {self.shown(self.low)}" if self.high is None else f"at most {self.shown(self.high)}"
        return f"{self.shown(self.low)} to {self.shown(self.high)}"

    def met(self, value: float | None) -> bool | None:
        """None where there is no such figure."""
        if value is None:
            return None
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


def _over_max_autotune(device: DeviceFigures) -> float | None:
    ours, theirs = device["all"]["regret_geomean"], device["policies"][MAX_AUTOTUNE]["regret_geomean"]
    return None if ours is None or theirs is None else ours / theirs


def _least_right(device: DeviceFigures) -> float | None:
    shares = [g["right"] for g in (*device["families"].values(), *device["modes"].values()) if g["right"] is not None]
    return min(shares, default=None)


TARGETS: Sequence[Target] = (
    Target("regret, geometric mean", lambda d: d["all"]["regret_geomean"], high=1.04, shown=number),
    Target("regret over that of always max-autotune", _over_max_autotune, high=1.0, shown=number),
    Target("regret, worst", lambda d: d["all"]["regret_worst"], high=1.6, shown=number),
    Target("right", lambda d: d["all"]["right"], low=0.90),
    Target("speed-up within 20 %", lambda d: d["all"]["within"], low=0.75),
    Target("eager's time within 20 %", lambda d: d["all"]["eager"]["within"], low=0.80),
    Target("eager's time inside its 80 % interval", lambda d: d["all"]["eager"]["inside"], 0.75, 0.85),
    Target("torch.compile's time inside its 80 % interval", lambda d: d["all"]["compiled"]["inside"], 0.75, 0.85),
    Target("right, of the family or mode with the least", _least_right, low=0.80),
)


def rows(devices: Sequence[DeviceFigures]) -> list[Row]:
    """Each target with every device's figure, and whether that meets it."""
    head = ["", "target"]
    for device in devices:
        head += [device["device"], "met"]
    lines: list[Row] = [head]
    for target in TARGETS:
        line = [target.name, target.bounds]
        for device in devices:
            value = target.value(device)
            line += [target.shown(value) if value is not None else NONE]
            line += [{True: "yes", False: "no", None: "no figure"}[target.met(value)]]
        lines.append(line)
    return lines
