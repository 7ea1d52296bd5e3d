"""Weights of 8 and 4 bits that are unpacked by hand find the packages that multiply them as they are stored."""

from __future__ import annotations

import pytest

from kernels.libraries.covers import coverage
from kernels.libraries.model import Cover
from profiler.region.graph.lowering import lower
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse
from tests.kernels.libraries.hosts import BARE_H200, H200
from tests.kernels.libraries.quantised_spellings import INT4, INT8_WEIGHT, LOOK_ALIKE

KINDS = ("int8_weight_gemm", "int4_gemm")


def found(text: str, bare: bool = False) -> dict[str, Cover]:
    region = parse(text)
    graph = lower(region, region.bindings[0])
    covers = coverage(graph, match(graph), BARE_H200 if bare else H200)
    return {c.candidate.removeprefix("library:"): c for c in covers if c.kind in KINDS}


@pytest.mark.parametrize("text", INT8_WEIGHT.values(), ids=INT8_WEIGHT)
def test_int8_weights_in_any_spelling_find_torchao_gemlite_and_marlin(text: str) -> None:
    covers = found(text)
    for name in ("torchao.int8_weight_only", "gemlite.A16W8", "vllm.marlin_gemm"):
        assert covers[name].covers and covers[name].whole, name


@pytest.mark.parametrize("text", INT4.values(), ids=INT4)
def test_int4_weights_in_any_spelling_find_torchao_gemlite_and_marlin(text: str) -> None:
    covers = found(text)
    for name in ("torchao.int4_weight_only", "gemlite.A16W4", "vllm.marlin_gemm"):
        assert covers[name].covers and covers[name].whole, name
        assert not covers[name].already


@pytest.mark.parametrize("text", LOOK_ALIKE.values(), ids=LOOK_ALIKE)
def test_what_only_looks_like_packed_weights_finds_nothing(text: str) -> None:
    assert not found(text)


def test_a_group_is_read_from_views_and_from_repeated_scales() -> None:
    for spelling in ("halves side by side", "scales repeated over their group"):
        narrow = (
            INT4[spelling]
            .replace("128", "16")
            .replace("[256, 8]", "[256, 64]")
            .replace("(256, 8, 16)", "(256, 64, 16)")
        )
        assert not found(narrow)["vllm.marlin_gemm"].covers, f"{spelling}: groups of 16 are not Marlin's"


def test_packages_that_are_missing_are_told_with_how_to_get_them() -> None:
    for cover in found(INT4["halves side by side"], bare=True).values():
        assert cover.package == "torch" or (not cover.installed and cover.install)
