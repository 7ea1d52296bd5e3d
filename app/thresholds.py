"""Thresholds: every number that the rule compares with, by name and with its source. Data, so that it can be set: an
operator does by `TRITONWORTHY_THRESHOLDS`, in words or in a file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any


def _threshold(default: float, unit: str, source: str, meaning: str) -> Any:
    return field(default=default, metadata={"unit": unit, "source": source, "meaning": meaning})


@dataclass(frozen=True, slots=True)
class Threshold:
    """One threshold as shown: name, value, unit, where it comes from, what it decides."""

    name: str
    value: float
    default: float
    unit: str
    source: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with. Shares are 0 to 1; times µs. docs/rule.md has every one of them."""

    worth_share: float = _threshold(
        0.01, "share of the step", "sources: under 1 % of the step, don't",
        "a region under it, or a gain under it, is left alone",
    )  # fmt: skip
    near_best: float = _threshold(
        0.10, "share of the time", "this project's rule",
        "a tool within it of the fastest counts as good enough, so the one with less effort is taken",
    )  # fmt: skip
    win_margin: float = _threshold(
        0.10, "share of the time", "this project's rule; sources: 5 to 15 % is what hand-tuning moves",
        "Triton and CUDA have to be predicted faster than everything else by at least this",
    )  # fmt: skip
    install_margin: float = _threshold(
        0.30, "share of the time", "this project's rule: what cannot be run at once has to be clearly faster",
        "a package that is not installed and that nothing here runs has to beat an installed call for the same by this",
    )  # fmt: skip
    win_step_share: float = _threshold(
        0.01, "share of the step", "sources: under 1 % of the step, don't",
        "and by at least this of the step",
    )  # fmt: skip
    tie_margin: float = _threshold(
        0.03, "share of the time", "this project's rule: below it two medians on one GPU change places between runs",
        "measured times this close are a tie",
    )  # fmt: skip
    idle_share: float = _threshold(
        0.50, "share of the window", "this project's rule: a GPU that waits more than it works is not short of speed",
        "a GPU idle for longer, between short kernels, is launch-bound",
    )  # fmt: skip
    short_kernel_us: float = _threshold(
        10.0, "µs", "a launch from PyTorch takes the host 5 to 10 µs (pytorch/helion#2749)",
        "kernels shorter than it on average cannot hide their own launches",
    )  # fmt: skip
    launch_share: float = _threshold(
        0.60, "share of eager's time", "this project's rule",
        "a region whose predicted time is launches for more than this is launch-bound by itself",
    )  # fmt: skip
    fused_near_ideal: float = _threshold(
        1.15, "x minimum traffic", "this project's rule",
        "fused kernels that move no more than this times the ideal bytes count as fused",
    )  # fmt: skip
    irregular: float = _threshold(
        0.34, "irregularity, 0 to 1", "sources: autotuning over several shapes is wanted",
        "a workload above it is worth tuning for several shapes",
    )  # fmt: skip
    textbook: float = _threshold(
        0.34, "uniqueness, 0 to 1", "sources: the widget's three answers, split in thirds",
        "an operation below it has a library call",
    )  # fmt: skip
    custom: float = _threshold(
        0.67, "uniqueness, 0 to 1", "sources: the widget's three answers, split in thirds",
        "an operation from here on is custom: nothing fused exists",
    )  # fmt: skip
    quantised_batch: float = _threshold(
        64, "rows", "vllm-project/vllm#2497: Marlin 3 x at 16 rows, 0.60 to 0.74 x of fp16 from 256 rows",
        "up to so many rows a weight-only quantised GEMM is bound by its weights",
    )  # fmt: skip
    recompiles: float = _threshold(
        8, "shapes", "torch._dynamo.config.recompile_limit",
        "with more distinct shapes torch.compile needs dynamic=True or falls back to eager",
    )  # fmt: skip

    @classmethod
    def from_mapping(cls, values: Mapping[str, float]) -> Thresholds:
        """Defaults, some replaced by name. ValueError for a name that is none, or a value that is no number >= 0."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"no such threshold: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a number of 0 or more, not {value!r}")
        return cls(**{k: float(v) for k, v in values.items()})

    @classmethod
    def parse(cls, text: str) -> Thresholds:
        """Defaults, some replaced as "name=value, name=value" says. ValueError as in `from_mapping`."""
        values: dict[str, float] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            name, equals, number = (word.strip() for word in part.partition("="))
            try:
                values[name] = float(number)
            except ValueError:
                missing = "" if equals else ", which has the form name=value"
                raise ValueError(f"no number in {part!r}{missing}") from None
        return cls.from_mapping(values)

    def described(self) -> tuple[Threshold, ...]:
        """Every threshold with its value, source and meaning, for pages and docs."""
        return tuple(
            Threshold(f.name, float(getattr(self, f.name)), float(f.default),  # type: ignore[arg-type]
                      f.metadata["unit"], f.metadata["source"], f.metadata["meaning"])
            for f in fields(self)
        )  # fmt: skip


DEFAULTS = Thresholds()


VARIABLE = "TRITONWORTHY_THRESHOLDS"


def read_thresholds(text: str) -> Thresholds:
    """From "name=value, name=value", or from the path of a TOML file of such lines; defaults where it is empty.

    ValueError for a name that is none, a value that is no number, and a file that cannot be read.
    """
    if not text.strip():
        return DEFAULTS
    if "=" in text:
        return Thresholds.parse(text)
    try:
        found = tomllib.loads(Path(text.strip()).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{text.strip()}: {error.strerror}; or write name=value, name=value") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{text.strip()} is not TOML: {error}") from None
    return Thresholds.from_mapping(found)


class ThresholdError(ValueError):
    """The variable does not say what it should."""


def thresholds_in_force() -> Thresholds:
    """Those of the environment, for commands that run without a server. Raises ThresholdError, with the variable."""
    try:
        return read_thresholds(os.environ.get(VARIABLE, ""))
    except ValueError as error:
        raise ThresholdError(f"{VARIABLE}: {error}") from None
