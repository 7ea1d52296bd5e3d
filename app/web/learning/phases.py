"""torch.compile's three phases on a live region: what is captured, what is lowered, what is written."""

from __future__ import annotations

from typing import TypedDict

from app.objects.region import RegionBody
from app.web.views.region.predicted_kernels import ModePrediction, oracle_section
from profiler.trace.analyze.compile_blocker_kinds import BREAK, KINDS

TEXT = """\
x: bf16[8192, 4096]
w: bf16[4096, 4096]
b: bf16[4096]
h = x @ w + b
h = layer_norm(h, (4096,))
return relu(h)
"""
"""The sources' example: four launches become two."""


class GraphBreak(TypedDict):
    """What breaks a graph: why, and what helps."""

    name: str
    title: str
    because: str
    remedy: str


class Phases(TypedDict):
    """A region in torch.compile's three phases. written: what Inductor makes of it, None where it was not asked.

    before, after: launches; by_rules: kernels by the fusion rules, where Inductor was not asked.
    """

    phase_region: RegionBody
    statements: list[str]
    aten: list[str]
    written: ModePrediction | None
    by_rules: list[str]
    before: int
    after: int
    breaks: list[GraphBreak]


def describe_phases(region: RegionBody) -> Phases:
    """The phases of a region with its cost and what the oracle said of it. ValueError for one without a cost."""
    cost = region["cost"]
    if cost is None:
        raise ValueError("the region has no cost")
    section = oracle_section(region)
    first = section["modes"][0] if section["modes"] else None
    statements = [line for line in (region["text"] or "").splitlines() if line.strip() and not _is_input(line)]
    return {
        "phase_region": region,
        "statements": statements,
        "aten": [o["label"] for o in cost["operations"] if o.get("launches") or o["bytes_read"] or o["bytes_written"]],
        "written": first,
        "by_rules": [k["label"] for k in cost["kernels"]] if first is None else [],
        "before": cost["unfused"]["launches"],
        "after": first["launches"] if first else cost["fused"]["launches"],
        "breaks": list_breaks(),
    }


def _is_input(line: str) -> bool:
    name, colon, _ = line.partition(":")
    return bool(colon) and name.strip().isidentifier() and "=" not in name


def list_breaks() -> list[GraphBreak]:
    """What breaks a graph, as this app names it in traces."""
    return [{"name": kind, "title": k.title, "because": k.because, "remedy": k.remedy}
            for kind, k in KINDS.items() if k.effect == BREAK]  # fmt: skip
