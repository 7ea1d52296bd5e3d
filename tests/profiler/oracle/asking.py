"""Regions and devices that the oracle's tests ask about."""

from __future__ import annotations

from pathlib import Path

from profiler.hardware import Device, find_device

REGIONS = Path(__file__).resolve().parents[2] / "regions"


def device(name: str = "NVIDIA H200") -> Device:
    """A device of the table."""
    gpu = find_device(name)
    assert gpu is not None
    return gpu


def text(name: str) -> str:
    """A region of tests/regions, by "folder/name"."""
    return (REGIONS / f"{name}.txt").read_text()


EXAMPLE = text("samples/example")
UNEVEN = "x: bf16[4095, 1023]\nw: bf16[1023, 2047]\nreturn gelu(x @ w)\n"
EVEN = UNEVEN.replace("4095", "4096").replace("1023", "1024").replace("2047", "2048")
TRAINED = "x: bf16[4096, 4096].requires_grad\nreturn softmax(x.float(), -1).to(bf16)\n"
