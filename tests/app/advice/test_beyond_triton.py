"""What gives more than Triton is named where it compiles for the device and answers the need, and nowhere else."""

from __future__ import annotations

import pytest

from app.advice.beyond_triton import GRID, LAST, NVLINK, WAYS, named, ways_for


@pytest.mark.parametrize(
    ("arch", "needs", "names"),
    [("sm_90", [LAST], ["Gluon", "CuTe DSL", "TileLang"]),  # no cuTile on Hopper
     ("sm_100", [LAST], ["Gluon", "CuTe DSL", "cuTile", "TileLang"]),
     ("sm_120", [LAST], ["CuTe DSL", "cuTile", "TileLang"]),
     ("gfx942", [LAST], ["Gluon", "TileLang"]), ("sm_100", [GRID], ["CuTe DSL"]), ("sm_90", [NVLINK], []),
     ("sm_75", [LAST], []), ("sm_100", [], [])],
)  # fmt: skip
def test_ways_by_architecture_and_need(arch: str, needs: list[str], names: list[str]) -> None:
    assert [w.name for w in ways_for(arch, needs)] == names
    sentence = named(arch, needs)
    assert all(name in sentence for name in names) and bool(sentence) is bool(names)


def test_each_says_what_it_buys_and_where_that_is_from() -> None:
    assert len(WAYS) == 4
    for way in WAYS:
        assert way.buys and way.needs and way.source and all(len(text) > 40 for text in way.buys.values())


@pytest.mark.parametrize(
    ("arch", "said", "unsaid"),
    [("gfx942", ["MFMA"], ["wgmma", "tcgen05", "TMA", "sm_"]), ("sm_90", ["wgmma"], ["tcgen05", "MFMA", "gfx"]),
     ("sm_100", ["tcgen05"], ["wgmma", "MFMA"]), ("sm_80", ["mma"], ["wgmma", "tcgen05", "clusters", "f4"])],
)  # fmt: skip
def test_no_unit_of_another_architecture_is_named(arch: str, said: list[str], unsaid: list[str]) -> None:
    sentence = named(arch, [LAST])
    assert all(word in sentence for word in said)
    assert not [word for word in unsaid if word in sentence]
