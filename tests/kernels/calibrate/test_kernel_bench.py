"""A calibration launches and compares the project's kernels in its turn, and compiles them without it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from triton.runtime.jit import JITFunction

from kernels import tuning
from kernels.calibrate import kernel_bench
from kernels.calibrate.kernel_bench import KernelBench, compile_before_timing
from kernels.measure.turn import Turn
from profiler.region.language.text import parse

SOFTMAX = parse("x: bf16[64, 512]\ny = F.softmax(x, -1)\nreturn y")


class _Silent:
    def send(self, message: object) -> None:
        """Nobody waits for it."""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "turn")


@pytest.fixture
def turn(path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turn]:
    """Of a process without a GPU: there is nothing to wait for."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda *_: 0)
    monkeypatch.setattr(tuning, "cold_us", tuning.cold_us)
    monkeypatch.setattr(JITFunction, "_do_compile", JITFunction._do_compile)
    made = Turn(path, _Silent())
    yield made
    made.close()


def is_free(path: str) -> bool:
    """Whether another process could measure now."""
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_every_call_of_an_own_kernel_is_made_in_turn(turn: Turn, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def build(name: str, *_: object) -> object:
        assert name == "triton:softmax"

        def run(x: torch.Tensor) -> torch.Tensor:
            seen.append(is_free(path))
            return x.softmax(-1)

        return run

    def prepared(self: KernelBench, built: object, runner: object) -> object:
        return runner, [torch.zeros(2, 2, dtype=torch.bfloat16)]

    def timed(self: KernelBench, call: object, values: list[torch.Tensor]) -> object:
        call(*values)  # type: ignore[operator]
        return {"cold_us": 1.0, "warm_us": 1.0, "host_us": 1.0}

    monkeypatch.setattr(kernel_bench, "build", build)
    monkeypatch.setattr(KernelBench, "prepared", prepared)
    monkeypatch.setattr(KernelBench, "timed", timed)
    monkeypatch.setattr(KernelBench, "eager", lambda self, region: {"cold_us": 1.0})
    bench = object.__new__(KernelBench)  # whose maker asks a GPU for its clock
    bench.turn = turn
    told = bench.own(SOFTMAX)
    assert list(told["candidates"]) == ["triton:softmax"]
    assert seen == [False, False], "a call was made while another process could have measured"
    assert is_free(path)


def test_the_turn_is_given_up_for_compiling_and_held_for_what_is_compared(
    turn: Turn, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling: list[bool] = []
    compared: list[bool] = []

    def do_compile(self: object, *_: object, **__: object) -> str:
        compiling.append(is_free(path))
        return "a kernel"

    def cold_us(call: object) -> float:
        compared.append(is_free(path))
        return 1.0

    monkeypatch.setattr(JITFunction, "_do_compile", do_compile)
    monkeypatch.setattr(tuning, "cold_us", cold_us)
    compile_before_timing(turn)

    def launch() -> None:
        compared.append(is_free(path))
        assert JITFunction._do_compile(object()) == "a kernel"
        assert turn.held

    assert tuning.cold_us(launch) == 1.0
    assert compared == [False, False], "what is compared, its first launch too, is run in turn"
    assert compiling == [True], "others may measure while a kernel is compiled"
    assert is_free(path)
