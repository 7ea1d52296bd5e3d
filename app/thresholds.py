"""The rule's thresholds as an operator sets them: by `TRITONWORTHY_THRESHOLDS`, in words or in a file."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from app.advice.thresholds import DEFAULTS, Thresholds

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
