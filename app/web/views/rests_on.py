"""What a page shows of why each part of a prediction takes its time. Pure functions of the API's object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from app.atlas.describe import CHOSEN_BY_CHANCE
from app.estimate.basis import ALIKE, MOST_PARTS
from app.objects.basis import PredictedPart
from app.objects.region import RegionBody

TITLES = (
    ("eager", "Operation by operation, as eager PyTorch runs it", "Operation"),
    ("compile", "Kernel by kernel, as Inductor makes them for torch.compile", "Kernel"),
    ("triton", "Kernel by kernel, as they are generated in Triton", "Kernel"),
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
    """Context of partials/region/rests_on.html. near: correlation from which on a measured program is near. chance: a
    kernel of Inductor's may come out slower than it need be, and what ends that."""

    ways: list[ExplainedWay]
    near: float
    chance: str | None


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
            ways.append({"title": title, "what": what, "rows": rows, "cut": _is_cut(way, len(rows), launched)})
    by_chance = any(CHOSEN_BY_CHANCE in part["because"] for part in rests["parts"] if part["way"] == "compile")
    return {"ways": ways, "near": ALIKE, "chance": COMPARED_FAIRLY if by_chance else None}


COMPARED_FAIRLY = 'torch.compile(region, options={"inplace_buffers": False})'
"""The call under which no kernel writes over its input: configurations are compared by their own times."""


def _is_cut(way: str, shown: int, launched: Mapping[str, int]) -> bool:
    """Whether there may be more than these. Of generated kernels nobody tells how many there are."""
    return shown < launched[way] if way in launched else shown == MOST_PARTS


def _kernels(region: RegionBody) -> int:
    """Kernels and library calls of Inductor's answer by which torch.compile's time is predicted."""
    default = next((p for p in region.get("oracle") or () if p["mode"] == "default"), None)
    return 0 if default is None else len(default["kernels"]) + sum(e["calls"] for e in default["externs"])
