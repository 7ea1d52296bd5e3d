"""The traffic picture: what it draws is what the cost counts, on one scale."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from app.web.charts import traffic
from app.web.charts.traffic import Arrow, make_panels
from app.web.templating import environment
from tests.app import samples


def thickness(arrow: Arrow) -> float:
    """Height of the bar between the heads, read off the polygon."""
    ys = [float(point.split(",")[1]) for point in arrow.path.split()]
    return ys[-1] - ys[0] if arrow.way == "read" else max(ys[0], ys[-3]) - min(ys[0], ys[-3])


def rendered(cost: dict[str, Any]) -> str:
    panels = make_panels(cost)
    template = environment().get_template("partials/region/traffic.html")
    return template.render(traffic=panels, traffic_words=traffic.summarize(panels))


def test_every_launch_is_drawn_and_the_bytes_add_up_to_the_cost() -> None:
    cost = samples.cost()
    unfused, fused = make_panels(cost)
    assert [b.launch.label for b in unfused.boxes] == ["@", "+", "gelu", "*"]
    for panel, count in ((unfused, cost["unfused"]), (fused, cost["fused"])):
        assert sum(b.launch.read or 0 for b in panel.boxes) == count["bytes_read"]
        assert sum(b.launch.written or 0 for b in panel.boxes) == count["bytes_written"]
        assert panel.launches == count["launches"]


def test_twice_the_bytes_are_twice_as_thick_in_both_panels() -> None:
    unfused, fused = make_panels(samples.cost())
    mul, tail = unfused.boxes[3], fused.boxes[1]
    assert thickness(mul.arrows[0]) == pytest.approx(2 * thickness(unfused.boxes[1].arrows[0]), rel=0.02)
    assert thickness(mul.arrows[0]) == pytest.approx(thickness(tail.arrows[0]), rel=0.01)


def test_a_kernel_of_inductors_whose_reads_are_not_known_has_one_arrow_both_ways() -> None:
    cost = samples.cost()
    cost["kernels"][1] |= {"bytes_read": None, "bytes_written": None, "bytes_moved": 3 * samples.Z}
    fused = make_panels(cost)[1]
    assert [a.way for a in fused.boxes[1].arrows] == ["both"]
    assert "read + write" in rendered(cost)


def test_many_launches_are_folded_without_losing_a_byte() -> None:
    cost = samples.cost()
    many = [samples.operation(f"op{i}", "pointwise", 100 + i, 50, 1) for i in range(40)]
    cost["operations"] = many
    unfused = make_panels(cost)[0]
    assert len(unfused.boxes) == traffic.MOST
    assert sum(b.launch.moved for b in unfused.boxes) == sum(o["bytes_moved"] for o in many)
    assert sum(b.launch.count for b in unfused.boxes) == 40
    assert unfused.boxes[-1].launch.label == "27 smaller ones"


def test_boxes_neither_touch_nor_leave_the_drawing() -> None:
    for panel in make_panels(samples.cost()):
        ends = [(b.y, b.y + b.height) for b in panel.boxes]
        assert all(after[0] > before[1] for before, after in pairwise(ends))
        assert ends[-1][1] < panel.height
        for box in panel.boxes:
            ys = [float(p.split(",")[1]) for a in box.arrows for p in a.path.split()]
            assert min(ys) >= box.y - 1
            assert max(ys) <= box.y + box.height + 3


def test_a_label_is_text_whatever_it_holds() -> None:
    cost = samples.cost()
    cost["operations"][0]["label"] = '<script>alert(1)</script> "x" ' + "y" * 90
    page = rendered(cost)
    assert "<script>" not in page
    assert all(len(line) < 60 for line in re.findall(r'class="label"[^>]*>([^<]*)<', page))


def test_nothing_is_drawn_where_nothing_moves() -> None:
    assert make_panels(None) == []
    empty = {"operations": [], "kernels": [], **{k: samples.count(0, 0, 0, 0) for k in ("unfused", "fused", "ideal")}}
    assert make_panels(empty) == []
