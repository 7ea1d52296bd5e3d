"""The bound on errors: what practitioners write is accepted, faults that kernels have had are refused."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.validation import bounds, bounds_chains  # noqa: E402 (torch is wanted, not required)
from benchmarks.validation.bounds_regions import REGIONS  # noqa: E402
from benchmarks.validation.bounds_right import COMPILED, RIGHT  # noqa: E402
from benchmarks.validation.bounds_wrong import WRONG  # noqa: E402
from tests.conftest import ROOT  # noqa: E402

RECORD = ROOT / "tests" / "records" / "bounds-cpu.json"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("region", [r for r in REGIONS if r in RIGHT or r in WRONG])
def test_right_ones_are_accepted_and_wrong_ones_refused(region: str) -> None:
    rows = list(bounds.table("cpu", with_compile=False, only=region, alone=True))
    assert {r.region for r in rows} == {region}
    assert [(r.implementation, r.verdict, r.message) for r in rows if r.judged_wrongly] == []


def test_the_record_has_forty_of_each_and_none_is_judged_wrongly() -> None:
    rows = [bounds.Row(**r) for r in json.loads(RECORD.read_text(encoding="utf-8"))["rows"]]
    assert [r for r in rows if r.judged_wrongly] == []
    ran = [r for r in rows if r.verdict != "not here"]
    assert sum(r.right for r in ran) >= 40
    assert sum(not r.right for r in ran) >= 40
    named = {(region, name) for builds in (RIGHT, WRONG) for region, own in builds.items() for name in own}
    named |= {(region, "torch.compile") for region in COMPILED}
    assert {(r.region, r.implementation) for r in rows} == named


@pytest.mark.parametrize("number", range(24))
def test_no_chain_that_is_computed_in_another_right_order_is_refused(number: int) -> None:
    assert set(bounds_chains.refusals(number, "cpu", thorough=number % 4 == 0).values()) == {""}


def test_chains_are_of_every_family_and_some_have_gradients() -> None:
    texts = [bounds_chains.text_of_seed(n) for n in range(30)]
    assert len(set(texts)) == 30
    assert 5 <= sum("requires_grad" in t for t in texts) <= 15
    assert sum(" @ " in t for t in texts) == 10
