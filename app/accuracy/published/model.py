"""Published measurements and what is predicted of them, as data."""

from __future__ import annotations

from pathlib import Path

import msgspec

HERE = Path(__file__).parent
TABLES = {"Liger-Kernel": HERE / "liger.json", "TraceLens": HERE / "tracelens.json"}
COMPARED = {"Liger-Kernel": HERE / "compared.json", "TraceLens": HERE / "tracelens_compared.json"}
"""Source -> its rows, and what was predicted of them."""


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One published time. kernel, provider, mode, size: as the source says them; mode is forward or full (with the
    backward). device: the driver's name. time_us: the median."""

    kernel: str
    provider: str
    mode: str
    size: int
    config: dict[str, int | float | str]
    device: str
    time_us: float
    version: str


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source's rows. commit: of the repository that they are from; file: in it."""

    source: str
    commit: str
    file: str
    licence: str
    rows: tuple[Row, ...]


class Compared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row against the product's own prediction for that device; both in µs. candidate: whose."""

    kernel: str
    provider: str
    mode: str
    size: int
    device: str
    candidate: str
    measured_us: float
    predicted_us: float

    @property
    def ratio(self) -> float:
        """The larger over the smaller: at least 1."""
        return max(self.measured_us, self.predicted_us) / min(self.measured_us, self.predicted_us)

    def within(self, share: float) -> bool:
        """The prediction is off by at most this share of the measured time."""
        return abs(self.predicted_us - self.measured_us) <= share * self.measured_us


class Comparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rows that a region of this project's language says. left_out: why others were not compared -> how many."""

    source: str
    commit: str
    file: str
    licence: str
    rows: tuple[Compared, ...]
    left_out: dict[str, int]


def table(source: str) -> Table:
    """The published rows of a source that are shipped."""
    return msgspec.json.decode(TABLES[source].read_bytes(), type=Table)


def comparison(source: str) -> Comparison:
    """A source's shipped comparison."""
    return msgspec.json.decode(COMPARED[source].read_bytes(), type=Comparison)


def comparisons() -> tuple[Comparison, ...]:
    """Every source's, in the order of the table of sources."""
    return tuple(comparison(source) for source in TABLES)
