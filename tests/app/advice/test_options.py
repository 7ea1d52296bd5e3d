"""What is offered: nothing that cannot be had, and torch.compile's own rewriting in its prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.advice.evidence import advice_from_json
from app.advice.rule import advise
from app.analysis.analyze import AdviceContext, Evaluated, decide, prepare
from app.estimate import predict
from app.estimate.rates import FITTED
from app.estimate.region_features import rewritten_to_sdpa, shape_facts
from kernels.measure.model import to_json
from profiler.hardware import find_device
from profiler.region.graph.cost import cost
from profiler.region.graph.fusion import groups
from profiler.region.graph.lowering import lower
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse
from profiler.region.model import Binding, Workload
from tests.app.advice.cases import H200, broken_chain, chain, cover, region
from tests.kernels.libraries.hosts import B200

HALF = Workload(share_of_step=0.5)
ONE = Workload((Binding(),), share_of_step=0.5)
SLOW: dict[str, Any] = {
    name: replace(getattr(FITTED, name), pointwise=0.25) for name in ("default", "autotuned", "generated")
}
"""Rates by which what torch.compile and the generator write is slow."""


def evaluated(text: str) -> Evaluated:
    return decide(prepare(parse(text), ONE, H200, AdviceContext()))


def triton(found: Evaluated) -> dict[str, str]:
    return {a.candidate: a.note for a in found.advice.alternatives if a.tool == "triton"}


REFUSED = {
    "rows cut off": "x: bf16[8192, 4096]\nreturn F.pad(gelu(x) * 2 + 1, (-1, 0)) * 2\n",
    "rest of a division": "x: f32[8192, 4096]\nreturn ((x * 2).abs() % 3).sum(-1) + 1\n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_the_generator_refuses_is_a_kernel_to_write(text: str) -> None:
    from kernels.codegen.generated import attempt

    why = attempt(lower(parse(text))).refused
    assert why
    found = triton(evaluated(text))
    assert list(found) == ["triton:custom"]
    assert why.rstrip(".") in found["triton:custom"]
    assert "to be written" in found["triton:custom"]


@pytest.mark.parametrize(
    "text",
    [
        "x: bf16[8192, 4096]\nreturn gelu(x) * 2 + 1\n",
        "x: bf16[8192, 4096]\nreturn F.dropout(gelu(x) * 2 + 1, 0.1)\n",
        "x: f32[8192, 4096]\nreturn (x * 2).abs().sum()\n",
        "x: f32[4096, 4096]\nreturn (x * 2).cumsum(-1) + 1\n",
        "x: bf16[8192, 4096]\nreturn (gelu(x) * 2 + 1).flip(-1) * 2\n",
        "x: f32[8192, 4096]\nreturn (x * 2).abs().prod(-1), x.argmax(-1)\n",
        "x: f32[16384, 128]\nv, i = torch.topk(x, 8, -1)\nreturn v, i\n",
        "x: bf16[8, 1024, 1024]\nw: bf16[1024, 1, 4]\nreturn F.conv1d(x, w, groups=1024)\n",
    ],
)
def test_what_the_generator_takes_is_offered_generated(text: str) -> None:
    assert "triton:generated" in triton(evaluated(text))


PLAIN = "".join(f"{n}: bf16[4, 16, 1024, 64]\n" for n in "qkv")
PERMUTED = "".join(f"{n}: bf16[4, 1024, 16, 64]\n" for n in "qkv")
TURNED = "qh = q.transpose(1, 2)\nkh = k.transpose(1, 2)\nvh = v.transpose(1, 2)\n"
SDPA = {
    # text -> whether Inductor's CUDA code (torch 2.13) has the rewriting
    PLAIN + "return softmax(q @ k.transpose(-2, -1) / 8.0, -1) @ v\n": True,
    PLAIN + "return softmax(q @ k.transpose(-2, -1) * 0.125, -1) @ v\n": True,
    PLAIN + "return softmax((q @ k.transpose(-2, -1) / 8.0).float(), -1).to(bf16) @ v\n": True,
    PERMUTED + TURNED + "return softmax(qh @ kh.transpose(-2, -1) / 8.0, -1) @ vh\n": True,
    PLAIN + "return softmax(q @ k.transpose(-2, -1), -1) @ v\n": False,
    PLAIN + "return softmax((q * 0.125) @ k.transpose(-2, -1), -1) @ v\n": False,
    PLAIN + "return softmax((q @ k.transpose(-2, -1)).float() * 0.125, -1).to(bf16) @ v\n": False,
    PLAIN + "return F.dropout(softmax(q @ k.transpose(-2, -1) / 8.0, -1), 0.1) @ v\n": False,
    PLAIN.replace("bf16", "f32") + "return softmax(q @ k.transpose(-2, -1) / 8.0, -1) @ v\n": False,
    PLAIN.replace("4, 16, ", "64, ") + "return softmax(q @ k.transpose(-2, -1) / 8.0, -1) @ v\n": False,
}


@pytest.mark.parametrize("text", SDPA)
def test_attention_that_inductor_rewrites(text: str) -> None:
    graph = lower(parse(text))
    found = rewritten_to_sdpa(graph, match(graph))
    assert bool(found) is SDPA[text]
    shape = shape_facts(graph, cost(graph), groups(graph))
    by_hand = predict.compiled_us(shape, H200)
    predicted = predict.compiled_us(shape, H200, sdpa=found)
    call = predict.library_us(shape, H200, predict.SDPA)
    if SDPA[text]:
        assert predicted == pytest.approx(call, rel=0.15)
        assert predicted < 0.5 * by_hand
    else:
        assert predicted == by_hand


def test_compile_on_plain_attention_is_no_slower_than_the_call_by_a_lot() -> None:
    found = evaluated(PLAIN + "return softmax(q @ k.transpose(-2, -1) / 8.0, -1) @ v\n")
    times = {a.candidate: a.time_us.mid for a in found.advice.alternatives if a.time_us}
    assert times["compile"] == pytest.approx(times[f"library:{predict.SDPA}"], rel=0.15)
    assert found.advice.tool == "library"


def test_a_package_that_cannot_be_run_here_needs_thirty_per_cent_over_an_installed_call() -> None:
    softmax = chain(operations=3, kind="softmax")
    here, away = cover("torch.nn.functional.rms_norm"), cover("liger_kernel.rms_norm", installed=False)
    advice = advise(region(softmax, kind="rms_norm", covers=(here, away)), HALF, H200)
    times = {a.candidate: a for a in advice.alternatives}
    ratio = (
        times["library:liger_kernel.rms_norm"].time_us.mid / times["library:torch.nn.functional.rms_norm"].time_us.mid
    )
    assert 0.7 < ratio < 0.9  # enough for the margin of a costly option, not for this one
    assert not times["library:liger_kernel.rms_norm"].admitted
    assert "torch.nn.functional.rms_norm is at hand" in times["library:liger_kernel.rms_norm"].note
    assert advice.call != away.call
    with_rewrite = cover("liger_kernel.rms_norm", installed=False, adapter="rms_norm")
    again = advise(region(softmax, kind="rms_norm", covers=(here, with_rewrite)), HALF, H200)
    assert {a.candidate: a for a in again.alternatives}["library:liger_kernel.rms_norm"].admitted


def test_without_an_installed_call_the_package_still_competes() -> None:
    softmax = chain(operations=3, kind="softmax")
    alone = advise(region(softmax, covers=(cover("liger_kernel.rms_norm", installed=False),)), HALF, H200)
    assert {a.candidate: a for a in alone.alternatives}["library:liger_kernel.rms_norm"].admitted
    slow = cover("torch.nn.functional.cross_entropy")
    clear = advise(region(softmax, covers=(slow, cover("liger_kernel.rms_norm", installed=False))), HALF, H200)
    assert {a.candidate: a for a in clear.alternatives}["library:liger_kernel.rms_norm"].admitted


def on(device: str, text: str) -> Evaluated:
    gpu = find_device(device)
    assert gpu is not None
    return decide(prepare(parse(text), ONE, gpu, AdviceContext()))


@pytest.mark.parametrize(
    "text", ["x: bf16[8192, 4096]\nreturn gelu(x) * 2 + 1\n", "x: f32[64]\nreturn gelu(x) * 2 + 1\n"]
)
def test_what_triton_does_not_compile_for_is_not_advised(text: str) -> None:
    advice = on("V100", text).advice
    ruled_out = [a for a in advice.alternatives if a.tool in ("triton", "compile")]
    assert ruled_out and not any(a.admitted for a in ruled_out)
    assert all("sm_70" in a.note for a in ruled_out)
    assert advice.tool == "skip"
    fuses = next(c for c in advice.criteria if c.name == "compile-fuses")
    assert fuses.holds is False and "sm_70" in fuses.because


def test_amd_keeps_triton() -> None:
    assert on("MI300X", "x: bf16[8192, 4096]\nreturn gelu(x) * 2 + 1\n").advice.tool in ("compile", "triton")


@pytest.mark.parametrize("body", ["gelu(x)", "softmax(x.float(), -1).sum()"])
def test_empty_tensors_are_left_alone(body: str) -> None:
    advice = evaluated(f"x: bf16[0, 4096]\nreturn {body}\n").advice
    assert advice.tool == "skip" and "empty" in advice.action
    assert [a.tool for a in advice.alternatives if a.admitted] == ["skip"]


def test_a_missing_package_is_worth_installing_and_never_advised() -> None:
    """The same region, once where no host is asked about and once where it is known what is installed."""
    softmax = chain(400)
    slow = cover("torch.nn.functional.cross_entropy", covers=False)
    away = cover("elsewhere.call", installed=False, install="pip install elsewhere")
    rates = replace(FITTED, calls={**FITTED.calls, "elsewhere": 0.95}, **SLOW)
    elsewhere = advise(region(softmax, covers=(slow, away)), HALF, H200, rates=rates)
    assert (elsewhere.tool, elsewhere.mode) == ("library", "elsewhere.call")
    assert elsewhere.worth_installing == ()
    here = advise(region(softmax, covers=(slow, away), packages_known=True), HALF, H200, rates=rates)
    assert here.mode != "elsewhere.call"
    (worth,) = here.worth_installing
    assert (worth.candidate, worth.install) == ("library:elsewhere.call", "pip install elsewhere")
    times = {(a.tool, a.mode): a.time_us for a in here.alternatives}
    advised, missing = times[here.tool, here.mode], times["library", "elsewhere.call"]
    assert advised is not None and missing is not None and worth.speedup is not None
    assert worth.speedup.mid == pytest.approx(advised.mid / missing.mid)
    assert worth.speedup.mid > 1.1
    (refused,) = [a for a in here.alternatives if a.candidate == away.candidate]
    assert not refused.admitted
    assert refused.note.endswith("worth installing to try")
    installed = replace(away, installed=True, install="")
    assert advise(region(softmax, covers=(slow, installed), packages_known=True), HALF, H200, rates=rates).mode == (
        "elsewhere.call"
    )


def test_what_would_not_win_is_not_worth_installing() -> None:
    away = cover("liger_kernel.rms_norm", installed=False, install="pip install liger-kernel")
    softmax = chain(operations=3, kind="softmax")
    facts = region(softmax, covers=(cover("torch.nn.functional.rms_norm"), away), packages_known=True)
    assert advise(facts, HALF, H200).worth_installing == ()


def test_an_advice_with_something_to_install_comes_back_from_json() -> None:
    softmax = chain(400)
    away = cover("elsewhere.call", installed=False, install="pip install elsewhere")
    rates = replace(FITTED, calls={**FITTED.calls, "elsewhere": 0.95}, **SLOW)
    issued = advise(region(softmax, covers=(away,), packages_known=True), HALF, H200, rates=rates)
    assert issued.worth_installing
    assert advice_from_json(to_json(issued)) == issued


def test_no_kernel_is_to_be_written_where_a_package_that_can_be_installed_does_it() -> None:
    """Without the package the kernel to write would be next: it is more effort than an installation."""
    away = cover("elsewhere.call", installed=False, install="pip install elsewhere")
    rates = replace(FITTED, calls={**FITTED.calls, "elsewhere": 0.95}, **SLOW)
    facts = region(
        broken_chain(400), kind="sort", title="router", externs=("topk",), not_generated="topk", packages_known=True
    )
    assert advise(facts, HALF, H200, rates=rates).mode == "custom"
    with_package = advise(replace(facts, covers=(away,)), HALF, H200, rates=rates)
    assert [w.candidate for w in with_package.worth_installing] == ["library:elsewhere.call"]
    assert with_package.mode != "custom"
    (refused,) = [a for a in with_package.alternatives if a.mode == "custom"]
    assert refused.note.endswith("try that before a kernel is written")


def test_a_call_that_the_generator_fuses_with_the_rest_leaves_no_other_kernel_to_write() -> None:
    convolution = "x: bf16[8, 1024, 1024]\nw: bf16[1024, 1, 4]\nb: bf16[1024]\n"
    found = triton(
        evaluated(f"{convolution}y = F.conv1d(x, w, b, padding=3, groups=1024)[..., :1024]\nreturn F.silu(y)\n")
    )
    assert list(found) == ["triton:generated"]


def test_a_call_that_the_generator_takes_is_priced_as_what_it_moves() -> None:
    text = "x: f32[16384, 128]\nv, i = torch.topk(x, 8, -1)\nreturn torch.softmax(v, -1), i\n"
    times = {a.candidate: a.time_us.mid for a in evaluated(text).advice.alternatives if a.time_us is not None}
    assert times["triton:generated"] < 0.5 * times["compile"]


def test_a_call_that_loses_digits_is_known_and_never_advised() -> None:
    """SageAttention's scores of 8-bit integers, on a host that has it: listed among what covers, and no option."""
    text = "".join(f"{n}: f16[4, 32, 4096, 128]\n" for n in "qkv") + "return scaled_dot_product_attention(q, k, v)\n"
    with_sage = replace(B200, packages=B200.packages | {"sageattention"})
    found = decide(prepare(parse(text), ONE, H200, AdviceContext(host=with_sage)))
    sage = next(c for c in found.facts.covers if c.candidate == "library:sageattention.sageattn")
    assert sage.covers and sage.installed and sage.loses_digits
    assert "sageattn" not in str(to_json(found.advice))


def test_sage_attention_is_not_for_values_of_another_width() -> None:
    text = (
        "q: f16[4, 32, 4096, 128]\nk: f16[4, 32, 4096, 128]\nv: f16[4, 32, 4096, 64]\n"
        "return scaled_dot_product_attention(q, k, v)\n"
    )
    covers = prepare(parse(text), ONE, H200, AdviceContext(host=B200)).facts.covers
    assert not next(c for c in covers if c.candidate == "library:sageattention.sageattn").covers
