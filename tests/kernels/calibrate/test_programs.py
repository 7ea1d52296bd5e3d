"""Calibration programs: drawn the same everywhere, and programs of the language."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from kernels.calibrate import trained_programs
from kernels.calibrate.kernel_bench import whole_kernels
from kernels.calibrate.programs import ALL, EAGER, FUSED, GROUPS, KINDS, OWN_SHARES, count, draw, kind_of
from profiler.region import op_kinds
from profiler.region.graph.lowering import lower, without_grad
from profiler.region.language.text import parse
from profiler.region.model import ITEMSIZE
from tests.conftest import ROOT

NUMBERS = range(100_000, 100_008)
"""Beyond those that were measured."""

IDLE = (op_kinds.VIEW, op_kinds.CONSTANT)


@pytest.mark.parametrize("family", sorted(ALL))
def test_a_family_draws_programs_that_lower(family: str) -> None:
    for number in NUMBERS:
        text = draw(family, number)
        region = parse(text)
        graph = lower(region)
        launched = [o for o in graph.operations if o.kind not in IDLE]
        assert launched or family == "copy", text
        largest = max(t.elements * ITEMSIZE[t.dtype] for _, t in graph.inputs)
        assert largest <= 2**30, "more than a calibration has room for"


@pytest.mark.parametrize("family", sorted(trained_programs.FAMILIES))
def test_a_trained_operation_is_one_and_its_backward(family: str) -> None:
    """Or the difference to the program without gradients is no operation's time."""
    for number in NUMBERS:
        region = parse(draw(family, number))
        assert region.requires_grad
        launched = [
            len([o for o in g.operations if o.kind not in IDLE]) for g in (lower(region), lower(without_grad(region)))
        ]
        assert launched in ([2, 1], [3, 1]), draw(family, number)


@pytest.mark.parametrize("family", ["model_operation", "model_program"])
def test_models_programs_are_texts_of_the_language_and_end(family: str) -> None:
    last = count(family)
    assert last is not None and last > 200
    for number in range(0, last, last // 20):
        launched = [o for o in lower(parse(draw(family, number))).operations if o.kind not in IDLE]
        assert len(launched) == 1 or family == "model_program"
    with pytest.raises(IndexError):
        draw(family, last)


@pytest.mark.parametrize("family", sorted(EAGER.keys() - trained_programs.FAMILIES.keys()))
def test_a_single_operation_is_one_so_that_a_time_is_its_own(family: str) -> None:
    """Most of the time: a loss or a clamp of several operations is left out where points are read."""
    counted = Counter(len([o for o in lower(parse(draw(family, n))).operations if o.kind not in IDLE]) for n in NUMBERS)
    assert counted[1] >= len(NUMBERS) * 0.6, counted


def test_programs_that_are_fused_have_gradients_among_them() -> None:
    texts = [draw(family, n) for family in FUSED for n in NUMBERS]
    assert 0.1 < sum(".requires_grad" in t for t in texts) / len(texts) < 0.6


@pytest.mark.parametrize("family", sorted(OWN_SHARES.keys() - {"own_model_program"}))
def test_programs_for_kernels_of_the_project_have_one_that_takes_them_whole(family: str) -> None:
    """Most of them: or minutes on a GPU are spent on looking."""
    graphs = [lower(parse(draw(family, n))) for n in NUMBERS]
    assert sum(bool(whole_kernels(g)) for g in graphs) >= len(NUMBERS) // 3


def test_a_family_run_in_another_way_has_the_other_familys_programs() -> None:
    assert draw("generated_chain", 7) == draw("autotuned_chain", 7) == draw("chain", 7)
    assert count("autotuned_model_program") == count("model_program")
    assert [kind_of(f) for f in ("chain", "generated_chain", "softmax")] == ["compile", "generated", "eager"]
    names = [family for shares in KINDS.values() for family in shares]
    assert len(names) == len(set(names)), "a family of two kinds"
    assert set(names) >= {family for group in GROUPS.values() for family in group}


def test_another_process_draws_the_same() -> None:
    code = "from kernels.calibrate.programs import draw; print(draw('chain', 7))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == draw("chain", 7).strip()


def test_an_unknown_family_is_an_error() -> None:
    with pytest.raises(KeyError):
        draw("none", 0)
