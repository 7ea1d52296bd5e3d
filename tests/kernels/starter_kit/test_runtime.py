"""The harness of a kit: what its test lets through, and what its benchmark prints."""

from __future__ import annotations

import re
import time

import pytest
import torch

from kernels.starter_kit import runtime
from kernels.starter_kit.runtime import Input, Shape, bench, disagreements, interval


class CpuClock:
    """Marks by the host's clock."""

    def mark(self) -> float:
        return time.perf_counter()

    def elapsed_us(self, first: float, second: float) -> float:
        return (second - first) * 1e6

    def synchronize(self) -> None:
        return

    def sleep_us(self, duration_us: float) -> None:
        return


class NoFlush:
    def __init__(self, l2_bytes: float, device: str) -> None:
        return

    def __call__(self) -> None:
        return


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def slow(x: torch.Tensor) -> tuple[torch.Tensor]:
    time.sleep(2e-3)
    return (x * 2,)


def uncompilable(x: torch.Tensor) -> torch.Tensor:
    time.sleep(1e-3)
    torch._dynamo.graph_break()
    return x * 2


def shape(region: object = twice, kernel: object = twice) -> Shape:
    inputs = (Input("x", torch.float32, (64, 33)),)
    return Shape("64 rows", inputs, region, twice, kernel)  # type: ignore[arg-type]


def test_bench_times_them_wrongly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(runtime, "DeviceClock", CpuClock)
    monkeypatch.setattr(runtime, "Flush", NoFlush)
    monkeypatch.setattr(runtime, "ROUNDS", 3)
    monkeypatch.setattr(runtime, "ROUND_MS", 2.0)
    monkeypatch.setattr(Shape, "make", lambda *_: [torch.ones(64, 33)])
    bench([shape(uncompilable, slow)])
    said = capsys.readouterr().out
    assert "torch.compile cannot" in said
    row = re.search(r"this kernel +([\d.]+) +[\d.]+ to [\d.]+ +([\d.]+)", said)
    assert row is not None, said
    assert float(row[1]) >= 2000
    assert 1.2 < float(row[2]) < 4


def test_interval_leaves_out_the_median() -> None:
    middle, low, high = interval([2.0, 2.1, 1.9, 2.0, 8.0], [1.0, 1.0, 1.0, 1.0, 4.0])
    assert middle == 2.0
    assert 1.9 <= low <= middle <= high <= 2.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_rounding_is_called_wrong_or_errors_right(dtype: torch.dtype) -> None:
    exact = torch.randn(100, 100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plain = exact.to(dtype)
    assert disagreements(plain, plain, exact) == ""
    assert "output 0" in disagreements((exact * 1.3).to(dtype), plain, exact)
    spot = exact.clone()
    spot[3, 4] += 30
    assert "output 0" in disagreements(spot.to(dtype), plain, exact)
    assert "not" in disagreements(plain[:50], plain, exact)
    assert "outputs" in disagreements((plain, plain), plain, exact)


def test_inputs_are_not_as_declared() -> None:
    generator = torch.Generator().manual_seed(0)

    def made(*more: object, **rest: object) -> torch.Tensor:
        return Input("x", *more, **rest).make("cpu", generator, "normal")  # type: ignore[arg-type]

    offsets = made(torch.int64, (9,), offsets=100)
    assert (int(offsets[0]), int(offsets[-1])) == (0, 100)
    assert bool((offsets.diff() >= 0).all())
    index = made(torch.int32, (1000,), below=7)
    assert (int(index.min()), int(index.max()), index.dtype) == (0, 6, torch.int32)
    assert 0.8 < float(made(torch.bfloat16, (1000,), ones=0.9).float().mean()) < 0.97
    assert made(torch.float32, (4, 8), strides=(1, 4)).stride() == (1, 4)
    assert made(torch.float32, (4, 8), strides=(0, 1)).std(0).abs().max() == 0
    assert made(torch.float32, (2, 3, 4, 5), channels_last=True).is_contiguous(memory_format=torch.channels_last)


def test_a_kernel_that_writes_into_its_input_passes(capsys: pytest.CaptureFixture[str]) -> None:
    def into(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        x.zero_()
        return y

    small = {
        "label": "s",
        "inputs": (Input("x", torch.float32, (8, 9)),),
        "region": twice,
        "exact": twice,
        "small": True,
    }
    assert runtime.test([Shape(**small, kernel=twice)], [], "cpu")
    assert not runtime.test([Shape(**small, kernel=into)], [], "cpu")
    assert "changed its inputs" in capsys.readouterr().out
    assert not runtime.test([], [], "cpu"), "nothing was compared"


def advanced(x: torch.Tensor) -> torch.Tensor:
    """Twice x, which is one more afterwards."""
    y = x * 2
    x.add_(1)
    return y


ADVANCED = {"label": "s", "inputs": (Input("x", torch.float32, (8, 9)),), "region": advanced, "exact": advanced,
            "small": True}  # fmt: skip


def test_a_kernel_that_does_not_write_where_its_region_does_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert runtime.test([Shape(**ADVANCED, kernel=advanced)], [], "cpu")
    assert not runtime.test([Shape(**ADVANCED, kernel=twice)], [], "cpu")
    assert "left its inputs unchanged" in capsys.readouterr().out


def test_a_kernel_that_writes_other_numbers_into_its_input_passes(capsys: pytest.CaptureFixture[str]) -> None:
    def overwritten(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        x.fill_(1234)
        return y

    assert not runtime.test([Shape(**ADVANCED, kernel=overwritten)], [], "cpu")
    assert "what it wrote into its inputs" in capsys.readouterr().out
