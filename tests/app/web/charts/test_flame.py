"""The flame graph: places add up, colours are the regions' advice, and what cannot be drawn is said."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest

from app.web.charts.flame import LEAST_SHARE, flame_section, short_name
from tests.app.trace_report.reports import reported

TRACE = "llama_prefill_bf16_eager_stack.json.gz"


def sections(name: str = TRACE):  # type: ignore[no-untyped-def]
    trace = reported(name)
    names = [f"{place} {r['name']}" for place, r in enumerate(trace["regions"])]
    return trace, flame_section(trace, names, [f"/regions/{n}" for n in range(len(names))])  # type: ignore[arg-type]


@pytest.mark.parametrize("place", [0, 1])
def test_frames_of_one_row_do_not_overlap_and_lie_within_the_one_above(place: int) -> None:
    _, section = sections()
    frames = section["flames"][place]["frames"]
    rows = defaultdict(list)
    for frame in frames:
        rows[frame["depth"]].append((frame["left"], frame["left"] + frame["width"]))
    assert rows[0][0][0] == 0.0 and rows[0][-1][1] == pytest.approx(100, abs=0.2)
    for depth, spans in rows.items():
        spans.sort()
        assert all(a[1] <= b[0] + 0.01 for a, b in pairwise(spans))
        if depth:
            assert all(any(o[0] <= s[0] + 0.01 and s[1] <= o[1] + 0.01 for o in rows[depth - 1]) for s in spans)
    assert min(f["width"] for f in frames) >= 100 * LEAST_SHARE


def test_a_region_has_its_advices_colour_and_leads_to_it() -> None:
    trace, section = sections()
    leaves = [f for f in section["flames"][0]["frames"] if f["leaf"]]
    assert len(leaves) >= 8
    for leaf in leaves:
        region = int(leaf["href"].removeprefix("/regions/"))
        assert leaf["look"] == trace["regions"][region]["advice"]["tool"]
        assert leaf["label"].startswith(f"{region} ")


def test_the_table_has_the_trees_times() -> None:
    _, section = sections()
    for flame in section["flames"]:
        assert flame["rows"][0]["share"] == pytest.approx(1.0, abs=1e-3)
        assert flame["rows"][0]["time_us"] == pytest.approx(flame["total_us"], rel=1e-3)


def test_without_stacks_the_picture_says_what_to_record() -> None:
    _, section = sections("handrolled_blocks_bf16_eager.json.gz")
    assert [f["frames"] for f in section["flames"]] == [[], []]
    assert all("with_stack=True" in f["missing"] for f in section["flames"])
    assert flame_section({"regions": []}, [], []) == {}  # type: ignore[typeddict-item]


def test_the_functions_name_comes_first() -> None:
    assert short_name("models/bert.py:429 mask") == "mask bert.py:429"
    assert short_name("Linear") == "Linear"
