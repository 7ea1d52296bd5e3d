"""Answers: a trace, a region, a validation. Each has the API's object as `body`, prints as the command line does and
shows itself in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from app.objects.advice import Advice, Tool
from app.objects.common import Range
from app.objects.evidence import Outcome
from app.objects.kernel_verdict import KernelVerdict, ValidationWithKernel
from app.objects.record import NamedValidation
from app.objects.region import AdviceAnswer, RegionBody
from app.objects.trace import Action, TraceBody
from tritonworthy import notebook
from tritonworthy.region import Region


@dataclass(frozen=True, slots=True, repr=False)
class RegionReport:
    """A region with its advice. body: the API's region; link: its page on a server, "" without one."""

    body: RegionBody
    link: str = ""

    @property
    def name(self) -> str:
        return self.body["name"]

    @property
    def region(self) -> Region:
        """The region as it can be asked about or validated once more. Raises ValueError where it has no text."""
        if self.body["text"] is None:
            raise ValueError(f"{self.name} has no text: {self.body.get('missing') or 'the trace does not tell enough'}")
        shapes = tuple({**s["binding"], "calls": s["calls"]} for s in self.body["shapes"] if s["binding"])
        return Region(self.body["text"], self.name, shapes, self.body["calls_per_step"], self.body["share_of_step"])

    @property
    def advice(self) -> Advice | None:
        """None where advising failed, or the region has no advice."""
        return self.body["advice"]

    @property
    def tool(self) -> Tool | None:
        """skip, library, compile, triton or cuda."""
        return self.advice["tool"] if self.advice else None

    @property
    def headline(self) -> str:
        return self.advice["headline"] if self.advice else ""

    @property
    def call(self) -> str:
        """What to write instead; "" for nothing."""
        return self.advice["call"] if self.advice else ""

    @property
    def speedup(self) -> Range | None:
        """Of the region, predicted; None where no time is."""
        return self.advice["region_speedup"] if self.advice else None

    def __str__(self) -> str:
        from app.cli.text import region_text

        if self.advice is None:
            return f"{self.name}: no advice"
        rest = {key: value for key, value in self.body.items() if key != "advice"}
        return region_text(cast("AdviceAnswer", {**rest, **self.advice}))

    def __repr__(self) -> str:
        return f"<RegionReport {self.name!r}: {self.tool or 'no advice'}>"

    def _repr_html_(self) -> str:
        return notebook.region_html(self.body, self.link)


@dataclass(frozen=True, slots=True, repr=False)
class TraceReport:
    """A trace with its step, its regions and what to do about them. body: the API's trace; link: as above."""

    body: TraceBody
    link: str = ""

    @property
    def name(self) -> str:
        return self.body["name"]

    @property
    def step_time_us(self) -> float | None:
        return self.body["step_time_us"]

    @property
    def bottleneck(self) -> str:
        """What most of the step waits for, in a sentence; "" where the trace does not tell."""
        critical = self.body.get("critical")
        return critical["because"] if critical else ""

    @property
    def actions(self) -> list[Action]:
        """What to do, what saves most first. One with `instead_of` stands in the place of another."""
        return self.body.get("actions") or []

    @property
    def regions(self) -> tuple[RegionReport, ...]:
        return tuple(RegionReport(region) for region in self.body["regions"])

    def __str__(self) -> str:
        from app.cli.text import trace_text

        return trace_text(self.body)

    def __repr__(self) -> str:
        return f"<TraceReport {self.name!r}: {len(self.body['regions'])} regions, {len(self.actions)} actions>"

    def _repr_html_(self) -> str:
        return notebook.trace_html(self.body, self.link)


@dataclass(frozen=True, slots=True, repr=False)
class ValidationReport:
    """What was measured of a region. body: the API's validation."""

    body: NamedValidation | ValidationWithKernel

    @property
    def outcome(self) -> Outcome | None:
        return self.body["outcome"]

    @property
    def reason(self) -> str:
        return self.body["reason"] or ""

    @property
    def kernel_verdict(self) -> KernelVerdict | None:
        """On the kernel that was given; None without one."""
        return cast("ValidationWithKernel", self.body)["kernel_verdict"] if "kernel_verdict" in self.body else None

    def __str__(self) -> str:
        from app.cli.text import kernel_verdict_text, validation_text

        if "kernel_verdict" in self.body:
            return kernel_verdict_text(cast("ValidationWithKernel", self.body))
        return validation_text(self.body)

    def __repr__(self) -> str:
        return f"<ValidationReport {self.body['name']!r}: {self.outcome}>"

    def _repr_html_(self) -> str:
        return notebook.text_html(str(self))
