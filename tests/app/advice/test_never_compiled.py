"""What torch.compile cannot enter, or gains nothing on, is never handed to it, be the step busy or idle."""

from __future__ import annotations

from typing import Any

import pytest

from app.advice.model import Advice
from app.advice.rule import advise
from app.analysis.advice_inputs import TraceFacts
from app.analysis.analyze import AdviceContext, decide, prepare
from app.estimate.facts import RegionFacts
from profiler.hardware import find_device
from profiler.region.language.text import parse
from profiler.region.model import Binding, Workload
from tests.app.advice.cases import H200
from tests.kernels.libraries.hosts import BARE_H200

STEPS: dict[str, dict[str, Any]] = {
    "a busy step": {},
    "a step idle for launches": {"gpu_idle_share": 0.9, "mean_kernel_us": 3.0},
}
OPAQUE: dict[str, dict[str, Any]] = {
    "a custom operation": {"title": "custom operation mylib::norm", "kind": "other", "already_tuned": True},
    "FBGEMM's table batch": {
        "title": "custom operation fbgemm::split_embedding_codegen_lookup", "kind": "other", "already_tuned": True,
    },
    "vLLM's experts": {"title": "custom operation vllm::moe_forward", "kind": "other", "already_tuned": True},
    "a region that is compiled": {"title": "Triton kernel", "kind": "compiled", "compiled": True},
    "gradients that are added up": {"title": "gradient accumulation", "kind": "accumulation"},
    "gradients that are scaled": {"title": "gradient scaling", "kind": "accumulation"},
    "random numbers alone": {"title": "randn", "kind": "other", "random": True},
    "a fused optimizer's step": {
        "title": "optimizer step (fused)", "kind": "optimizer", "optimizer": True, "optimizer_class": "SGD",
    },
}  # fmt: skip


def compiles(advice: Advice) -> bool:
    return advice.tool == "compile" or "torch.compile" in f"{advice.headline} {advice.action} {advice.call}".replace(
        "Keep it as torch.compile made it", ""
    ).replace("torch.compile has fused it", "")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", OPAQUE)
def test_what_torch_compile_cannot_enter_is_not_handed_to_it(name: str, step: str) -> None:
    facts = RegionFacts(name="region", **OPAQUE[name], **STEPS[step])
    workload = Workload((Binding((), 4.0, 2000.0),), 10_000.0, 0.2, launches_per_step=400.0, observed=True)
    assert H200 is not None
    advice = advise(facts, workload, H200)
    assert not compiles(advice), f"{advice.tool}: {advice.headline}; {advice.action} {advice.call}"


@pytest.mark.parametrize("step", STEPS)
def test_random_numbers_of_known_sizes_are_not_handed_to_it_either(step: str) -> None:
    device = find_device("H200")
    assert device is not None
    workload = Workload((Binding((), 4.0, 2000.0),), 10_000.0, 0.2, launches_per_step=4.0, observed=True)
    context = AdviceContext(facts=TraceFacts(title="randn", **STEPS[step]), host=BARE_H200)
    advice = decide(
        prepare(parse("x: f32[4096, 4096]\nreturn torch.randn_like(x)\n"), workload, device, context)
    ).advice
    assert not compiles(advice), f"{advice.tool}: {advice.headline}; {advice.action} {advice.call}"


@pytest.mark.parametrize("own", ["SGD", "Adagrad", "Adam", "AdamW"])
def test_an_optimizer_keeps_its_class_in_every_word_of_the_advice(own: str) -> None:
    facts = RegionFacts(title="optimizer step (foreach)", kind="optimizer", optimizer=True, optimizer_class=own)
    assert H200 is not None
    advice = advise(facts, Workload((Binding((), 1.0, 2000.0),), 10_000.0, 0.2, observed=True), H200)
    assert advice.mode == f"torch.optim.{own}"
    others = {"SGD", "Adagrad", "AdamW", "RMSprop"} - {own}
    said = f"{advice.headline} {advice.action} {advice.call}"
    assert own in said and not any(other in said for other in others)


def test_nothing_predicted_is_not_said_as_nothing_faster() -> None:
    workload = Workload((Binding((), 1.0, 2000.0),), 10_000.0, 0.2, observed=True)
    assert H200 is not None
    opaque = advise(RegionFacts(title="custom operation mylib::norm", kind="other", already_tuned=True), workload, H200)
    assert opaque.tool == "skip" and "nothing could be predicted" in opaque.headline
    assert opaque.region_speedup is None, "that it stays as fast was not predicted either"
    named = RegionFacts(
        title="custom operation vllm::moe_forward", kind="other", already_tuned=True,
        library_call="vLLM's mixture of experts",
    )  # fmt: skip
    assert advise(named, workload, H200).headline == "Already vLLM's mixture of experts"


def test_what_the_device_rules_out_was_predicted_all_the_same() -> None:
    device = find_device("V100")
    assert device is not None
    text = "x: f16[4096, 4096]\nreturn (x * 2 + 1).relu() * x\n"
    workload = Workload((Binding((), 1.0, 2000.0),), 10_000.0, 0.2, observed=True)
    advice = decide(prepare(parse(text), workload, device, AdviceContext(host=BARE_H200))).advice
    assert advice.tool == "skip" and "could be predicted" not in advice.headline
    assert advice.region_speedup is not None
