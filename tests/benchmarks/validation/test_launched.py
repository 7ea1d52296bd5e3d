"""The regions of `launched.py` have the candidates that they are there for, and its parts do what they say."""

from __future__ import annotations

import json

import pytest

from benchmarks.validation import launched, soft_capped_block, validate_worker
from benchmarks.validation.launched_regions import LARGE_COLUMNS, REGIONS, large
from kernels.candidates import candidates
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from tests.kernels.libraries.hosts import H200

OWN = {
    "attention": "library:torch.nn.attention.flex_attention",
    "loss": "triton:cross_entropy",
    "rms": "triton:rms_norm",
    "layer": "triton:layer_norm",
}


@pytest.mark.parametrize("name", REGIONS)
def test_each_region_has_the_candidate_that_it_is_measured_for(name):
    offered = {c.name for c in candidates(lower(parse(REGIONS[name].text), {}), H200) if c.available}
    assert OWN[name.partition("-")[0]] in offered
    if REGIONS[name].part == "loss":
        assert {"library:liger_kernel.cross_entropy", "library:quack.cross_entropy"} <= offered


def test_the_large_region_takes_its_share_of_the_card():
    for card in (85_000_000_000, 151_000_000_000):
        (x, _) = parse(large(card).text).inputs
        touched = 2 * 2 * x.shape[0] * LARGE_COLUMNS
        assert touched == pytest.approx(30e9 * min(1.0, card / 141e9), rel=0.01)
        assert "triton:rms_norm" in {c.name for c in candidates(lower(parse(large(card).text), {}), H200)}


def test_the_names_that_are_left_out_are_and_no_others():
    text = REGIONS["rms-norm-training"].text
    every = validate_worker.kept(text, ["nothing"])
    less = validate_worker.kept(text, ["compile-max-autotune"])
    assert [name for name in every if name not in less] == ["compile-max-autotune"]
    assert validate_worker.kept(text, []) is None


def test_what_was_measured_before_is_kept(tmp_path):
    first = launched.Results(tmp_path)
    first.add("loss-nll", REGIONS["loss-nll"], {"failed": "no time left"})
    second = launched.Results(tmp_path)
    second.add("loss-by-hand", REGIONS["loss-by-hand"], {"failed": "no time left"})
    assert set(json.loads((tmp_path / "validations.json").read_text())["regions"]) == {"loss-nll", "loss-by-hand"}


def test_the_block_computes_capped_attention_in_its_window():
    import torch

    torch.manual_seed(0)
    block = soft_capped_block.Block(heads=4, groups=2, width=8, rows=12, window=3).double()
    x = torch.randn(1, 12, 32, dtype=torch.float64)
    y = block.attend(x)
    changed = x.clone()
    changed[:, 4] += 1.0
    moved = (block.attend(changed) - y).abs().amax(dim=(0, 2))
    assert moved[:4].max() == moved[7:].max() == 0
    assert (moved[4:7] > 1e-3).all()
