"""A page stays small however long its region: the heaviest rows are drawn, and the others are told of."""

from __future__ import annotations

import random
from typing import Any

from app.web.charts import plotly
from app.web.long_lists import MOST_ROWS, MOST_SAVINGS, fold_smallest, heaviest
from app.web.templating import environment
from app.web.views.region import predicted_kernels
from app.web.views.region import region_page as views
from profiler.oracle import model
from profiler.oracle.model import OracleKernel, Prediction
from profiler.oracle.serialization import to_dict
from tests.app.samples import region

SMALL_PAGE = 400_000
"""Bytes. 3,000 operations make 161,876; a text of 2,882 had 3,985,648 when all of them were drawn."""


def test_the_heaviest_stay_in_their_order_and_the_others_are_counted() -> None:
    rng = random.Random(5)
    rows = [rng.randrange(50) for _ in range(400)]
    kept = heaviest(rows, float, 30)
    assert sorted(kept.shown) == sorted(rows)[-30:] and kept.left == 370
    places = iter(rows)
    assert all(row in places for row in kept.shown)  # a subsequence
    assert heaviest(rows, float, 400).shown == rows


def test_a_folded_bar_is_as_long_as_before() -> None:
    rng = random.Random(6)
    parts = [(f"p{i}", rng.randrange(1, 1000)) for i in range(300)]
    short = fold_smallest(parts)
    assert len(short) == 40 and short[-1][0] == "261 smaller ones"
    assert sum(size for _, size in short) == sum(size for _, size in parts)
    assert fold_smallest(parts[:40]) == parts[:40]


def long_region(count: int, *oracle: dict[str, Any]) -> dict[str, Any]:
    """A region of so many operations, kernels and savings."""
    answer = region("r")
    cost = answer["cost"]
    operation, kernel = cost["operations"][0], cost["kernels"][0]
    saving = {"name": "tail-fused", "title": "the tail", "bytes_before": 10, "bytes_after": 5, "launches_before": 2,
              "launches_after": 1, "counting": "counted"}  # fmt: skip
    return {**answer, "oracle": list(oracle), "cost": {
        **cost,
        "operations": [
            {**operation, "name": f"add_{i}", "kind": "pointwise", "line": i, "bytes_read": i + 1}
            for i in range(count)
        ],
        "kernels": [{**kernel, "label": f"k{i}", "bytes_read": i + 1} for i in range(count)],
        "savings": [saving] * count,
    }}  # fmt: skip


def page(found: dict[str, Any]) -> str:
    context = views.analysis(found) | {"oracle_on": True, "machine_id": None, "current": "/"}
    return environment().get_template("partials/region/analysis.html").render(context, host=None, form={})


def test_a_region_of_three_thousand_operations_has_a_small_page() -> None:
    short, long = page(long_region(10)), page(long_region(3000))
    assert len(long.encode()) < SMALL_PAGE
    more = "more: the API"
    assert long.count(f"and {3000 - MOST_ROWS} {more}") == 2 and f"and {3000 - MOST_SAVINGS} {more}" in long
    assert more not in short
    assert "k2999" in long and "k2700<" not in long


def test_kernels_that_are_not_listed_are_named_and_not_linked() -> None:
    kernels = tuple(
        OracleKernel(f"triton_{i}", model.POINTWISE, 1, 1000 + i, ("aten.add",), "x = 1\n" * 50, lines=(i,))
        for i in range(1, 201)
    )
    answer = to_dict(Prediction("NVIDIA H200", "default", {}, False, kernels, how="asked", torch="2.13.0"))
    reply = long_region(200, answer)
    mode = predicted_kernels.oracle_section(reply)["modes"][0]
    assert mode["generated"] == 200 and len(mode["stages"][0]["kernels"]) == predicted_kernels.MOST_KERNELS
    html = page(reply)
    assert html.count("Triton source of") == predicted_kernels.MOST_KERNELS and "and 140 kernels of fewer bytes" in html
    linked = {line.split('"')[0] for line in html.split('href="#k-default-')[1:]}
    assert linked and all(f'id="k-default-{number}"' in html for number in linked)


def test_no_more_parts_than_the_eye_tells_apart_are_drawn() -> None:
    rows = plotly.bytes_rows(long_region(3000)["cost"])
    assert max(len(row["parts"]) for row in rows) == 40
