"""Which program is to be recorded, and how. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TYPES = ("bf16", "f16", "f32")


@dataclass(frozen=True, slots=True)
class Request:
    """source: `model.py:make_model`, `hf:CONFIG.json` or `def:DEFINITION.json`. sizes: of a definition's axes.

    dtype: one of TYPES, None as the program has it. capability: as `record` takes it. counted: torch counts the
    FLOPs of the same step for itself.
    """

    source: str
    training: bool = False
    dtype: str | None = None
    batch: int = 1
    sequence: int = 1024
    sizes: Mapping[str, int] | None = None
    capability: int = 9
    counted: bool = False
