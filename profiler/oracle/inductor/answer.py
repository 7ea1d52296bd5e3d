"""One question, one answer: region, binding, device, mode -> Prediction. Never raises for what Inductor cannot do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import torch
import triton

from profiler.hardware import Device
from profiler.oracle.inductor.fake_gpu import NotAskableError
from profiler.oracle.inductor.pipeline import InductorOutput, ask
from profiler.oracle.inductor.schemas import parameters_of
from profiler.oracle.inductor.wrapper import join, read_wrapper, with_lines
from profiler.oracle.model import SDPA_REPLACED, WITHOUT_GPU, Prediction, Replaced
from profiler.region.model import Region, RegionError

REPLACEMENTS: Mapping[str, tuple[str, str]] = {
    "fuse_attention": (
        SDPA_REPLACED, "attention written by hand matches one of Inductor's attention patterns"),
    "decompose_mm": ("a fused kernel for mm", "the product is bound by memory: Inductor computes it pointwise"),
    "decompose_bmm": ("a fused kernel for bmm", "the product is bound by memory: Inductor computes it pointwise"),
    "decompose_addmm": ("a fused kernel for addmm", "the product is bound by memory: Inductor computes it pointwise"),
    "b2b_gemm": ("one kernel for two products", "a product of a product, with a narrow one between"),
    "binary_folding": ("folded weights", "a scale or shift folded into a convolution or product"),
    "apply_gumbel_max_trick": ("the Gumbel-max trick", "sampling from a softmax without the softmax"),
}  # fmt: skip
"""Inductor's counters -> what replaced what was written, and why."""


def predict(region: Region, binding: Mapping[str, int] | None, device: Device, mode: str = "default") -> Prediction:
    """What torch.compile would make of the region. `unavailable` says why where there is no prediction.

    Raises RegionError where the region itself does not fit together. Patches torch while it runs: not thread-safe.
    """
    started = time.monotonic()
    sizes = dict(region.bindings[0] if binding is None else binding)
    empty = Prediction(
        device.name, mode, sizes, region.requires_grad, how=WITHOUT_GPU, torch=torch.__version__,
        triton=triton.__version__,
    )  # fmt: skip
    try:
        output = ask(region, binding, device, mode)
        prediction = read(output, empty)
    except (RegionError, MemoryError):
        raise
    except NotAskableError as fault:
        prediction = replace(empty, unavailable=str(fault))
    except Exception as fault:  # private API of another version, or an operation that Inductor refuses
        prediction = replace(empty, unavailable=f"{type(fault).__name__}: {first_line(fault)}")
    return replace(prediction, took_s=round(time.monotonic() - started, 4))


def first_line(fault: BaseException) -> str:
    """The first line of a message that says something, at most 300 characters."""
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return lines[0][:300] if lines else ""


def read(output: InductorOutput, empty: Prediction) -> Prediction:
    """The prediction out of what Inductor wrote."""
    calls = join(
        tuple(read_wrapper(w.text, w.stage, output.bytes_moved, w.tensors, parameters_of) for w in output.texts)
    )
    replaced = tuple(
        Replaced(*REPLACEMENTS[name]) for name, count in output.counts.items() if name in REPLACEMENTS and count > 0
    )
    return replace(
        empty,
        kernels=with_lines(calls.kernels, calls.nodes, output.lines),
        externs=calls.externs,
        replaced=replaced,
        assumed=tuple(output.assumed),
    )
