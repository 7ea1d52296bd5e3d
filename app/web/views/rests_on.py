"""What a page shows of why each part of a prediction takes its time. Pure functions of the API's object."""

from __future__ import annotations

from typing import TypedDict

from app.estimate.basis import ALIKE
from app.objects.basis import PredictedPart
from app.objects.region import RegionBody

TITLES = (
    ("eager", "Operation by operation, as eager PyTorch runs it", "Operation"),
    ("compile", "Kernel by kernel, as Inductor makes them for torch.compile", "Kernel"),
)
"""Way, caption of its table, heading of its first column."""


class ExplainedRow(PredictedPart):
    """A row of the table. label: the name that the other tables have for it."""

    label: str


class ExplainedWay(TypedDict):
    """One table. cut: only the longest are in it."""

    title: str
    what: str
    rows: list[ExplainedRow]
    cut: bool


class RestsOnSection(TypedDict):
    """Context of partials/region/rests_on.html. near: correlation from which on a measured program is near."""

    ways: list[ExplainedWay]
    near: float


def rests_on_section(region: RegionBody) -> RestsOnSection | None:
    """The tables of eager's operations and, where Inductor told them, of its kernels; None where there are none."""
    rests, cost = region.get("rests_on"), region.get("cost")
    if not rests or not rests["parts"]:
        return None
    labels = {("eager", o["name"]): o["label"] for o in cost["operations"]} if cost else {}
    launched = {"eager": sum(o["launches"] > 0 for o in cost["operations"]) if cost else 0, "compile": _kernels(region)}
    ways: list[ExplainedWay] = []
    for way, title, what in TITLES:
        rows: list[ExplainedRow] = [
            {**part, "label": labels.get((way, part["name"]), part["name"])}
            for part in rests["parts"]
            if part["way"] == way
        ]
        if rows:
            ways.append({"title": title, "what": what, "rows": rows, "cut": len(rows) < launched[way]})
    return {"ways": ways, "near": ALIKE}


def _kernels(region: RegionBody) -> int:
    """Kernels and library calls of Inductor's answer by which torch.compile's time is predicted."""
    default = next((p for p in region.get("oracle") or () if p["mode"] == "default"), None)
    return 0 if default is None else len(default["kernels"]) + sum(e["calls"] for e in default["externs"])
