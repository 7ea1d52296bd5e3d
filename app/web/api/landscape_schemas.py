"""What the API takes and answers of an autotune landscape."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from app.web.api.request_schemas import Name, Number, Request
from app.web.api.schemas import Answer, Error


class LandscapeRequest(Request):
    """A Triton candidate of a validation. shape: which of its bindings, from 0; budget_s: for the points."""

    candidate: Name
    shape: Annotated[int, Field(ge=0), Number] = 0
    budget_s: Annotated[float, Field(ge=5.0, le=600.0), Number] | None = None


class Landscape(Answer):
    """The time of one kernel over its tiles, warps and stages; outcome is null until it is done."""

    id: str
    validation_id: str
    candidate: str
    binding: dict[str, int]
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    outcome: Literal["measured", "compiled", "unmeasured"] | None
    reason: str
    kernel: str
    points: list[dict[str, Any]]
    axes: dict[str, list[Any]]
    chosen: str | None
    best: str | None
    worst_to_best: float | None
    chosen_to_best: dict[str, float] | None
    order: dict[str, Any] | None
    device: str | None
    error: Error | None
