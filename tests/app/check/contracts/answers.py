"""Contracts and answers with round figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.check.contracts.model import Answer, Contract

NORM = Contract("RMSNorm", region="norm.txt", max_kernels=1)
ONE = Answer(
    of="norm", text="x: f32[8]\ny = relu(x)\nreturn y\n", device="NVIDIA H200", mode="default", training=False,
    torch="2.13.0+cpu", triton="3.7.1", kernels=1, bytes_moved=1000, minimum_bytes=1000, code="one kernel\n",
    place="norm.txt:3", excess_place="norm.txt:4",
)  # fmt: skip


def answer(**changed: Any) -> Answer:
    """One kernel under torch 2.13.0, but for what is changed."""
    return replace(ONE, **changed)
