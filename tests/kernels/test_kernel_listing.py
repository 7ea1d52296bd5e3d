"""Our own Triton of a region: which kernel is shown, its text, and that what is compiled is what would be launched."""

from __future__ import annotations

import pytest

from app.web.views.region import compiled_kernels
from kernels.kernel_listing import MOST_KERNELS, machines, own
from tests.conftest import ROOT

NORM = (ROOT / "app" / "examples" / "rms_norm_by_hand.txt").read_text()
CHAIN = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"


def validation(**times: float) -> dict[str, object]:
    names = {"rms_norm": "triton:rms_norm", "generated": "triton:generated"}
    return {"candidates": [{"name": names[k], "status": "ok", "time_us": {"median": t}} for k, t in times.items()]}


def test_the_fastest_that_was_measured_stands_first() -> None:
    assert own(NORM, {}, None, validation(rms_norm=9.0, generated=5.0)).candidate == "triton:generated"
    assert own(NORM, {}, None, validation(rms_norm=4.0, generated=5.0)).candidate == "triton:rms_norm"


def test_what_was_wrong_is_not_shown() -> None:
    wrong = {"candidates": [{"name": "triton:rms_norm", "status": "mismatch", "time_us": None}]}
    found = own(NORM, {}, None, wrong)
    assert found.candidate == "triton:generated"
    assert "triton:rms_norm" not in found.others


def test_the_text_holds_the_jit_function_that_is_compiled() -> None:
    for candidate in ("triton:rms_norm", "triton:generated"):
        found = own(NORM, {}, candidate)
        (machine,) = machines(NORM, {}, candidate, "sm_90")
        assert f"def {machine['kernel']}(" in found.source
        assert f".entry {machine['kernel']}" in machine["texts"]["ptx"]
        assert "EXIT" in machine["texts"]["sass"]
        assert machine["findings"]


def test_a_training_region_compiles_its_backward_too() -> None:
    text = "x: f32[64, 128].requires_grad\ny = silu(x) * 2\nreturn y\n"
    kernels = [m["kernel"] for m in machines(text, {}, "triton:generated", "sm_90")]
    assert len(kernels) == 2


def test_another_vendors_gpu_has_its_own_listing() -> None:
    (machine,) = machines(CHAIN, {}, "triton:generated", "gfx942")
    assert "amdgcn" in machine["texts"]
    assert "ptx" not in machine["texts"]


def test_a_candidate_that_does_not_fit_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        own(CHAIN, {}, "triton:flash_attention")


def test_the_page_knows_from_how_many_kernels_on_there_may_be_more() -> None:
    assert compiled_kernels.MOST_KERNELS == MOST_KERNELS
