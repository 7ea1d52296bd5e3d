"""What the API takes. Fields that do not exist are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator


def _is_number(value: object) -> object:
    """A number as JSON has it: pydantic takes true for 1 and "2" for 2 as well."""
    if isinstance(value, bool | str):
        raise ValueError("Input should be a number")
    return value


MAX_SIZE = 2**40
Number = BeforeValidator(_is_number)
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), Number]
Time = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False), Number]
Count = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False), Number]
Shape = dict[
    Annotated[str, Field(min_length=1, max_length=64)],
    Annotated[int, Field(gt=0, le=MAX_SIZE), Number] | Count,
]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(min_length=1)]


class Request(BaseModel):
    """A body that the API takes."""

    model_config = ConfigDict(extra="forbid")


class RenameRequest(Request):
    """Another name for a trace or a region. Spaces around it are dropped; what is left may not be empty."""

    model_config = ConfigDict(
        extra="forbid", str_strip_whitespace=True, json_schema_extra={"example": {"name": "after"}}
    )

    name: Name


class WidgetAnswers(Request):
    """The three questions, each answered from 0 to 1, and what else is known.

    A share of the step that is not known counts as worth it, and the advice says so.
    """

    share_of_step: Share | None = None
    uniqueness: Share
    irregularity: Share
    bound: Literal["memory", "compute"] | None = None
    kind: (
        Literal["gemm", "attention", "elementwise", "quantised_gemm", "normalisation", "reduction", "custom"] | None
    ) = None


class AdviceRequest(Request):
    """A region as text, with what is known of its use; or the widget's answers."""

    region: Annotated[str, Field(min_length=1)] | None = None
    widget: WidgetAnswers | None = None
    share_of_step: Share | None = None
    step_time_us: Time | None = None
    target_step_time_us: Time | None = None
    calls_per_step: Count = 1.0
    shapes: list[Shape] | None = None
    device: Name | None = None
    objective: Literal["time", "memory"] = "time"
    oracle: Literal["auto", "off"] = "auto"

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.region is None) == (self.widget is None):
            raise ValueError("give either `region` or `widget`")
        return self


class LinkRequest(Request):
    """A region's text, and how it is used, to have a short address."""

    region: Text
    share_of_step: Share | None = None
    calls_per_step: Count = 1.0
    device: Name | None = None


class ValidationRequest(Request):
    """A region to measure, by text or id. shapes: sizes by symbol, and `calls` per step.

    reuse: where the same was asked of the same device under the same versions, answer that instead of measuring again.
    """

    region: Annotated[str, Field(min_length=1)] | None = None
    region_id: Name | None = None
    shapes: list[Shape] | None = None
    candidates: list[Name] | None = None
    device: list[Name] | None = None
    reuse: bool = False


class LandscapeRequest(Request):
    """A Triton candidate of a validation. shape: which of its bindings, from 0; budget_s: for the points."""

    candidate: Name
    shape: Annotated[int, Field(ge=0), Number] = 0
    budget_s: Annotated[float, Field(ge=5.0, le=600.0), Number] | None = None


class CheckRequest(Request):
    """Traces and regions that are here, regions by text, and what is asserted of them, as in tritonworthy.toml."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "regions": ["x: bf16[8192, 4096]\ny = gelu(x) * 2\nreturn y\n"],
                "assertions": {"compile": {"level": "warn", "min_share": 0.05}, "triton": "error"},
            }
        }
    )

    traces: Annotated[list[Name], Field(default_factory=list, max_length=16)]
    region_ids: Annotated[list[Name], Field(default_factory=list, max_length=64)]
    regions: Annotated[list[Text], Field(default_factory=list, max_length=64)]
    baseline: Annotated[Name | None, Field(description="Id of a trace of the same step before the change.")] = None
    check: Annotated[dict[str, Any] | None, Field(description="name, validate, device, share_of_step, ...")] = None
    assertions: Annotated[
        dict[str, Any] | None,
        Field(description='Level by assertion: off, warn or error; or {"level": "error", "min_share": 0.05, ...}.'),
    ] = None
    history: Annotated[
        bool, Field(strict=True, description="Keep what is measured in the history; needs `commit`.")
    ] = False
    commit: Annotated[Name | None, Field(description="The commit that was measured.")] = None
    branch: Annotated[Name | None, Field(description="Its branch; `main` without.")] = None
    software: Annotated[
        dict[Name, Name], Field(default_factory=dict, max_length=32, description="Versions that it was recorded with.")
    ]
    method: Annotated[Name | None, Field(description="How it was recorded: what changes times apart from code.")] = None
