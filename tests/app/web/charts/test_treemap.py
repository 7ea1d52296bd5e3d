"""The treemap: boxes as large as what they stand for, side by side, inside; also of what nobody would draw."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.web.charts.treemap import HEIGHT, WIDTH, Node, Tile, lay_out

values = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=40)


@given(values)
def test_areas_are_shares_and_boxes_lie_inside_without_overlap(sizes: list[float]) -> None:
    tiles = lay_out([Node(str(i), v) for i, v in enumerate(sizes)])
    assert len(tiles) == len(sizes)
    for tile in tiles:
        share = tile.node.value / sum(sizes)
        assert tile.width * tile.height / 1e4 == pytest.approx(share, rel=1e-6, abs=1e-9)
        assert tile.left >= -1e-6
        assert tile.top >= -1e-6
        assert tile.left + tile.width <= 100 + 1e-4, "by more than the rounding of one part in 1e9"
        assert tile.top + tile.height <= 100 + 1e-4
    for i, one in enumerate(tiles):
        for other in tiles[i + 1 :]:
            assert overlap(one, other) <= 1e-3


def overlap(one: Tile, other: Tile) -> float:
    wide = min(one.left + one.width, other.left + other.width) - max(one.left, other.left)
    high = min(one.top + one.height, other.top + other.height) - max(one.top, other.top)
    return max(0.0, wide) * max(0.0, high)


def test_equal_parts_are_no_slivers() -> None:
    for tile in lay_out([Node(str(i), 1.0) for i in range(12)]):
        wide, high = tile.width * WIDTH, tile.height * HEIGHT
        assert 1 / 3 < wide / high < 3


def test_what_has_no_value_has_no_box_and_nothing_gives_nothing() -> None:
    assert lay_out([]) == ()
    assert lay_out([Node("a", 0.0), Node("b", -1.0)]) == ()
    assert [t.node.label for t in lay_out([Node("a", 0.0), Node("b", 2.0)])] == ["b"]


def test_a_group_that_is_too_small_is_one_box() -> None:
    parts = (Node("x", 1.0), Node("y", 1.0))
    large, small = lay_out([Node("large", 999.0, nodes=parts), Node("small", 1.0, nodes=parts)])
    assert [t.node.label for t in large.tiles] == ["x", "y"]
    assert small.tiles == ()
