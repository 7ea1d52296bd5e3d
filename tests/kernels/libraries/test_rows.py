"""Each of the catalogue's operations: a region that is covered, one that just is not, and what is between them."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from kernels.host import Host
from kernels.libraries.catalogue import COMPILED, ENTRIES, OPERATIONS
from kernels.libraries.covers import coverage
from kernels.libraries.model import VERDICTS, Cover, least_version
from profiler.region.graph.lowering import Graph, lower
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse
from profiler.region.model import RegionError
from tests.kernels.libraries import texts
from tests.kernels.libraries.cases import CASES, FURTHER, INEXPRESSIBLE, Case
from tests.kernels.libraries.hosts import A100, B200, BARE_H200, H200
from tests.kernels.libraries.rows import Row, rows_of

ALL = [*CASES, *FURTHER]


@functools.cache
def lowered(text: str) -> Graph:
    """What was written, with its direction, and without the backward that autograd adds."""
    region = parse(text)
    forward = replace(region, inputs=tuple(replace(i, requires_grad=False) for i in region.inputs))
    return replace(lower(forward, region.bindings[0]), region=region)


def rows(text: str, row: int, host: Host) -> list[Row]:
    return [f for f in rows_of(lowered(text), host) if f.operation.row == row]


def verdicts(text: str, case: Case, host: Host) -> list[Cover]:
    return [c for f in rows(text, case.row, host) for c in f.covers if c.candidate == case.candidate]


def test_the_catalogue_has_75_operations_each_with_a_case() -> None:
    assert [o.row for o in OPERATIONS] == list(range(1, 76))
    assert {c.row for c in CASES} | {row for row, _, _ in INEXPRESSIBLE} == set(range(1, 76))
    assert {o.row for o in OPERATIONS if o.inexpressible} == {row for row, _, _ in INEXPRESSIBLE}
    assert all(o.verdict in VERDICTS for o in OPERATIONS)


@pytest.mark.parametrize("case", ALL, ids=lambda c: f"{c.row}-{c.candidate.split(':')[-1] or 'nothing'}-{c.flips}")
def test_one_region_is_covered_and_one_just_is_not(case: Case) -> None:
    if not case.candidate:
        found = rows(case.covered, case.row, case.host)
        assert found
        assert not any(f.covered for f in found)
        assert any(f.covered for f in rows_of(lowered(case.changed), case.other_host))
        return
    assert any(c.covers for c in verdicts(case.covered, case, case.host))
    changed = verdicts(case.changed, case, case.other_host)
    assert not any(c.covers for c in changed)
    failing = [[text for text, holds in c.conditions if holds is False] for c in changed]
    assert bool(changed) == bool(case.needs)
    assert all(any(case.needs in text for text in texts) for texts in failing)


@pytest.mark.parametrize(("row", "text", "word"), INEXPRESSIBLE, ids=lambda v: str(v)[:12])
def test_what_no_region_can_say_is_refused_with_its_name(row: int, text: str, word: str) -> None:
    with pytest.raises(RegionError) as refused:
        lower(parse(text))
    assert word in str(refused.value)
    assert next(o for o in OPERATIONS if o.row == row).inexpressible


def test_every_entry_covers_a_region_of_some_case() -> None:
    texts = dict.fromkeys(t for c in ALL for t in (c.covered, c.changed))
    covered = {c.candidate for t in texts for h in (H200, B200) for c in _covers(t, h) if c.covers}
    assert {e.candidate for e in ENTRIES} - covered == set()
    answered = {row for e in (*ENTRIES, *COMPILED) for row in e.rows}
    assert answered <= {o.row for o in OPERATIONS}


def _covers(text: str, host: Host) -> tuple[Cover, ...]:
    graph = lowered(text)
    return coverage(graph, match(graph), host)


def test_what_is_not_installed_says_how_to_get_it() -> None:
    case = next(c for c in CASES if c.candidate == "library:quack.softmax")
    (here,) = verdicts(case.covered, case, H200)
    (bare,) = verdicts(case.covered, case, BARE_H200)
    assert here.installed
    assert here.said == "covered by quack.softmax"
    assert not bare.installed
    assert bare.said == "covered by quack.softmax, not installed here: pip install quack-kernels"
    (old,) = verdicts(case.covered, case, A100)
    assert old.said == "not covered by quack.softmax: needs NVIDIA GPU of compute capability 9.0 or newer"


def test_a_torch_without_the_call_does_not_have_it_installed() -> None:
    case = next(c for c in CASES if c.row == 35)
    old = Host(H200.gpu, H200.capability, {"torch": "2.11.0+cu130"}, H200.packages, frozenset())
    (cover,) = verdicts(case.covered, case, old)
    assert cover.covers
    assert not cover.installed
    assert cover.install == 'pip install -U "torch>=2.13"'
    assert cover.missing == "needs torch 2.13 or newer, and this host has 2.11.0+cu130"
    assert cover.said == f"covered by torch.nn.functional.linear_cross_entropy, {cover.missing}: {cover.install}"
    newer = Host(H200.gpu, H200.capability, {"torch": "2.14.1"}, H200.packages, frozenset())
    (built,) = verdicts(case.covered, case, newer)
    assert built.missing == "torch 2.14.1 of this host does not have it"
    (here,) = verdicts(case.covered, case, H200)
    assert (here.missing, here.install) == ("", "")


def test_a_feature_of_torch_names_the_version_that_has_it() -> None:
    """Where a host lacks it, the user is told which to get."""
    assert [e.candidate for e in ENTRIES if e.feature and not least_version(e.since)] == []
    assert [least_version(s) for s in ("2.4, one kernel since 2.9", "2.13", "always", "")] == ["2.4", "2.13", "", ""]


def test_a_cover_carries_the_verdict_of_its_row() -> None:
    found = {c.candidate: c.verdict for c in _covers(next(c for c in CASES if c.row == 40).covered, H200)}
    assert found["library:flag_gems.silu_and_mul"] == "C"
    softmax = [c.verdict for dim in (0, 1) for c in _covers(texts.SOFTMAX.format(m=64, dim=dim), H200)
               if c.candidate == "library:flag_gems.softmax"]  # fmt: skip
    assert softmax == ["N*", "C"]
    shown = {c.verdict for case in ALL for c in _covers(case.covered, H200)}
    assert shown <= {*VERDICTS, ""}
