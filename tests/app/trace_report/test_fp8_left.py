"""8-bit products: only where they can be had, only large ones, and never promised below what the casts cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from app.analysis.analyze import AdviceContext, prepare
from app.trace_report.actions.fp8 import INFERENCE, LARGE, NUMERICS, TRAINING, eight_bits
from app.trace_report.fp8_left import fp8_left, has_f8
from app.trace_report.speedup import with_actions
from app.trace_report.step_model import step_of
from kernels.host import Host
from profiler.hardware import DEVICES, Device, find_device
from profiler.region.language.text import parse
from profiler.region.model import Workload
from tests.app.trace_report.test_speedup import region, trace

Json = dict[str, Any]


def device(name: str) -> Device:
    found = find_device(name)
    assert found is not None
    return found


def left(text: str) -> Json | None:
    host = Host(gpu="NVIDIA H200", capability=(9, 0), versions={"torch": "2.11.0"}, packages=frozenset({"torch"}))
    on = device("NVIDIA H200")
    found = fp8_left(prepare(parse(text), Workload(), on, AdviceContext(host=host)).facts, on)
    return None if found is None else {**found}


def linear(m: int, n: int, k: int, dtype: str = "bf16", trained: str = "") -> str:
    return f"x: {dtype}[{m}, {k}]{trained}\nw: {dtype}[{n}, {k}]{trained}\nreturn linear(x, w)\n"


def test_a_large_product_gains_up_to_half_and_more_where_its_weight_is_cast_once() -> None:
    served, trained = left(linear(8192, 8192, 8192)), left(linear(8192, 8192, 8192, trained=".requires_grad"))
    assert served is not None and trained is not None
    assert 0.45 < served["low"] <= served["mid"] <= served["high"] < 1.0
    assert served["mid"] < trained["mid"] < 1.0


@pytest.mark.parametrize(
    "text",
    [linear(8192, 8192, 512), linear(16, 8192, 8192), linear(8192, 50257, 1024), linear(8192, 8192, 8192, "f32")],
    ids=["a short inner size", "few rows", "a size that 16 does not divide", "f32"],
)
def test_nothing_is_said_of_a_product_that_is_not_run_in_8_bits(text: str) -> None:
    assert left(text) is None


def test_only_hopper_and_later_have_it() -> None:
    have = {d.name for d in DEVICES if has_f8(d)}
    assert {"NVIDIA H100", "NVIDIA H200", "NVIDIA B200"} <= have
    assert not have & {"NVIDIA A100", "NVIDIA L40S", "NVIDIA L4"}
    assert not any(d.is_amd for d in DEVICES if has_f8(d))


def large(**more: Any) -> Json:
    return region("a", 1000.0, "skip", None, fp8_left={"low": 0.6, "mid": 0.7, "high": 0.9}, **more)


def test_without_torchao_it_is_a_remark_and_no_action(monkeypatch: pytest.MonkeyPatch) -> None:
    told = trace([large()], lead=200.0) | {"estimates_for": "NVIDIA H200", "notes": []}
    # An action there is: else nothing is to be done about the step, and nothing to install for it.
    told["regions"][0]["advice"] = region("b", 1.0, "library")["advice"]
    monkeypatch.setattr("app.trace_report.actions.fp8.find_spec", lambda name: None)
    without = with_actions(told)  # type: ignore[arg-type]
    (note,) = [n for n in without["notes"] if n["code"] == "worth-installing"]
    assert "torchao" in note["message"] and "pip install torchao" in note["remedy"]
    assert not any(a["id"] == "fp8" for a in without["actions"])
    monkeypatch.setattr("app.trace_report.actions.fp8.find_spec", lambda name: object())
    there = with_actions(without)
    assert not any(n["code"] == "worth-installing" for n in there["notes"])
    (action,) = [a for a in there["actions"] if a["id"] == "fp8"]
    assert action["adds_us"] is None and action["saves_us"]["mid"] > 0


@pytest.mark.parametrize(("trained", "call"), [(True, "convert_to_float8_training"), (False, "quantize_")])
def test_training_and_inference_have_their_own_calls(trained: bool, call: str) -> None:
    step = step_of(trace([large()], lead=200.0))  # type: ignore[arg-type]
    assert step is not None
    (option,) = eight_bits(step, device("NVIDIA H200"), trained)
    assert call in option.call and "torch.compile" in option.call
    compile(option.call, "advice", "exec")  # it can be typed


def test_a_trifle_of_the_step_is_not_told() -> None:
    step = step_of(trace([large()], lead=200.0))  # type: ignore[arg-type]
    assert step is not None
    small = replace(step, parts={**step.parts, "wall_us": 1e6})
    assert eight_bits(small, device("NVIDIA H200"), True) == []


def test_what_is_said_of_numerics_is_what_a_product_in_8_bits_is_off() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(512, 512), torch.randn(512, 512)

    def cast(t: torch.Tensor) -> torch.Tensor:
        scale = t.abs().amax(1, keepdim=True) / 448
        return (t / scale).to(torch.float8_e4m3fn).float() * scale

    exact = x @ w.T
    off = ((cast(x) @ cast(w).T - exact).norm() / exact.norm()).item()
    assert f"about {off:.0e} off".replace("e-0", "e-") in NUMERICS


def test_both_calls_take_the_layers_that_were_priced() -> None:
    names: Json = {"torch": torch}
    exec(LARGE, names)  # noqa: S102 as whoever follows the advice runs it
    sizes = {(1024, 4096): True, (1024, 1000): False, (512, 4096): False, (4096, 50257): False}
    for (rows, columns), taken in sizes.items():
        assert names["large"](torch.nn.Linear(rows, columns, device="meta"), "") is taken
    assert not names["large"](torch.nn.LayerNorm(4096, device="meta"), "")
    assert "module_filter_fn=large" in TRAINING and "filter_fn=large" in INFERENCE
    assert TRAINING.startswith(LARGE) and INFERENCE.startswith(LARGE)
