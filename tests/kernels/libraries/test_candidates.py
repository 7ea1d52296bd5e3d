"""Library calls as candidates of a region: which can be measured where, and the reason where they cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.candidates import build, candidates
from kernels.codegen.index import Unsupported
from kernels.host import Host
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from tests.kernels.libraries import texts
from tests.kernels.libraries.cases import CASES, FURTHER
from tests.kernels.libraries.hosts import B200, BARE_H200, CPU, H200

TRAINED = """x: f32[64, 128].requires_grad
w: f32[128].requires_grad
b: f32[128].requires_grad
m = x.mean(-1, keepdim=True)
v = ((x - m) ** 2).mean(-1, keepdim=True)
return (x - m) * torch.rsqrt(v + 1e-5) * w + b
"""
SDPA = "library:torch.nn.functional.scaled_dot_product_attention"


def reasons(text: str, host: Host) -> dict[str, str]:
    """Candidate -> why it is not available, "" where it is."""
    return {c.name: c.reason for c in candidates(lower(parse(text)), host) if c.tool == "library"}


def test_each_backend_of_attention_is_a_candidate_by_itself() -> None:
    found = reasons(texts.ATTENTION.format(d="bf16", h=64), H200)
    wanted = {SDPA, f"{SDPA}.flash", f"{SDPA}.cudnn", f"{SDPA}.efficient", "library:torch.nn.attention.flex_attention"}
    assert {n for n, reason in found.items() if not reason} >= wanted
    masked = reasons(texts.BIASED.format(g=""), H200)
    assert masked[f"{SDPA}.flash"] == "does not cover it: needs no arbitrary mask"
    assert not masked[f"{SDPA}.efficient"]


def test_what_is_absent_says_how_to_get_it_and_what_needs_a_gpu_says_so() -> None:
    text = texts.SOFTMAX.format(m=64, dim=1)
    assert reasons(text, H200)["library:liger_kernel.softmax"] == ""
    absent = "liger_kernel is not installed here: pip install liger-kernel"
    assert reasons(text, BARE_H200)["library:liger_kernel.softmax"] == absent
    assert reasons(text, CPU)["library:liger_kernel.softmax"] == "there is no GPU here"


def test_a_region_that_is_trained_has_the_candidates_of_what_was_written() -> None:
    """Autograd's backward stands between the operations of the joint graph, and would hide the pattern."""
    found = reasons(TRAINED, H200)
    assert found["library:torch.nn.functional.layer_norm"] == ""
    assert found["library:liger_kernel.layer_norm"] == ""
    assert found["library:flag_gems.layer_norm"] == "does not cover it: needs forward only"


def test_a_library_may_replace_what_is_torch_s_call_already() -> None:
    found = reasons("x: f32[64, 512]\nreturn torch.softmax(x, -1)\n", H200)
    assert "already" in found["library:torch.softmax"]
    assert found["library:quack.softmax"] == ""


WRITTEN = sorted({text for case in (*CASES, *FURTHER) for text in (case.covered, case.changed)})
RECORDED = sorted((Path(__file__).parents[2] / "regions").glob("*.txt"))


@pytest.mark.parametrize("host", [H200, B200], ids=["H200", "B200"])
def test_what_is_offered_can_be_built(host: Host) -> None:
    """Advice names what the conditions let through: a rewrite that refuses it is found out on the GPU, by its user."""
    refused = {}
    for text in (*WRITTEN, *(path.read_text() for path in RECORDED)):
        region = parse(text)
        sizes = region.bindings[0] if region.bindings else {}
        for name in (c.name for c in candidates(lower(region, sizes), host) if c.tool == "library" and c.available):
            try:
                build(name, region, sizes, "cpu")
            except Unsupported as why:
                refused[name, text] = str(why)
    assert not refused
