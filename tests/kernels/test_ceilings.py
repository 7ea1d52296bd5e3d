"""The ceilings' own kernel does the arithmetic that it is counted for; compiled for a GPU that is not here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels import ceilings
from profiler.oracle.compiler.machine_code import compile_for


def test_the_vector_test_is_four_fused_multiply_adds_a_step_and_no_more_memory_than_it_says() -> None:
    made = compile_for(ceilings._chain, {"x": "*fp32", "steps": "i32"}, {}, "sm_90", 8)
    matches = re.findall(r"^\s*(?:@\S+ )?fma\.rn\.f32", made.ptx, re.M)
    elements = 1024 // (8 * 32)  # of one thread
    assert len(matches) % (4 * elements) == 0  # unrolled or not, the loop has whole steps
    assert matches
    assert "mul.f32" in made.ptx  # the four chains begin differently, or one would do for all
    assert made.spill_bytes == 0


def test_rates_are_the_work_over_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, with a clock that says 1000 µs of everything: counted is what is really moved or multiplied."""
    calls: list[Callable[[], object]] = []

    def fixed(call: Callable[[], object]) -> float:
        calls.append(call)
        call()
        return 1000.0

    made: list[torch.Tensor] = []

    def buffer() -> torch.Tensor:
        made.append(torch.arange(4096, dtype=torch.float32))
        return made[-1]

    monkeypatch.setattr(ceilings, "cold_us", fixed)
    monkeypatch.setattr(ceilings, "_buffer", buffer)
    copied = ceilings._copy()
    assert copied.value == 2 * 4096 * 4 / 1e-3
    assert ceilings._read().value == 4096 * 4 / 1e-3

    kept: dict[str, Any] = {"randn": torch.randn}
    monkeypatch.setattr(ceilings, "SIDE", 32)
    monkeypatch.setattr(torch, "randn", lambda *shape, device, **more: kept["randn"](*shape, **more))
    product = ceilings._matmul()
    assert product.value == 2 * 32**3 / 1e-3
    assert product.unit == "FLOP/s"


def test_without_a_gpu_nothing_is_measured() -> None:
    if torch.cuda.is_available():
        pytest.skip("this host has a GPU")
    with pytest.raises(RuntimeError, match="no GPU"):
        ceilings.measure()
