"""The real compile, on a host with the GPU: torch.compile runs the region, and what Inductor wrote is read as for a
prediction.

Needs the GPU for itself: call it in a process of its own, under the lock that measurements take.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch._inductor.config as inductor_config
import triton

from profiler.oracle.inductor.answer import read
from profiler.oracle.inductor.pipeline import InductorOutput, collect_output
from profiler.oracle.model import COMPILED, Prediction
from profiler.region.language.program import program, shape_of
from profiler.region.language.vocabulary import DTYPES
from profiler.region.model import Input, Region


def compile_and_run(region: Region, binding: Mapping[str, int] | None = None, mode: str = "default") -> Prediction:
    """Compile and run the region once on this host's GPU, backward as well where an input requires gradients.

    Raises what torch.compile raises. mode: "default", or "max-autotune" (without CUDA graphs).
    """
    started = time.monotonic()
    sizes = dict(region.bindings[0] if binding is None else binding)
    built = program(region, binding, "cuda")
    inputs = [_input(i, sizes) for i in region.inputs]
    output = InductorOutput()
    torch._dynamo.reset()
    options: Any = {} if mode == "default" else {"mode": "max-autotune-no-cudagraphs"}
    with inductor_config.patch(force_disable_caches=True), collect_output(output, build=True):
        outputs = torch.compile(built.module, **options)(*inputs)
        if region.requires_grad:
            reached = [o for o in outputs if o.requires_grad]
            torch.autograd.backward(reached, [torch.randn_like(o) for o in reached])
        torch.cuda.synchronize()
    empty = Prediction(
        torch.cuda.get_device_name(), mode, sizes, region.requires_grad, how=COMPILED,
        torch=torch.__version__, triton=triton.__version__,
    )  # fmt: skip
    return replace(read(output, empty), took_s=round(time.monotonic() - started, 4))


def _input(item: Input, sizes: Mapping[str, int]) -> torch.Tensor:
    """A valid random input on the GPU: indices in range, offsets sorted, masks of ones and zeros."""
    shape, dtype = shape_of(item, sizes), DTYPES[item.dtype]
    if item.offsets is not None:
        inner = torch.randint(0, item.offsets + 1, (max(0, shape[0] - 2),)).sort().values
        ends = torch.tensor([0]), inner, torch.tensor([item.offsets])
        return torch.cat(ends).to(dtype).cuda()
    if item.ones is not None:
        return (torch.rand(shape, device="cuda") < item.ones).to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape, device="cuda") < 0.5
    if not dtype.is_floating_point:
        high = item.below or min(torch.iinfo(dtype).max, 127)
        values = torch.randint(0, high, shape, device="cuda", dtype=torch.int64).to(dtype)
    else:
        values = torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)
    return _laid_out(values, item)


def _laid_out(tensor: torch.Tensor, item: Input) -> torch.Tensor:
    if item.strides is not None:
        placed = torch.empty_strided(tensor.shape, item.strides, dtype=tensor.dtype, device=tensor.device)
        tensor = placed.copy_(tensor)
    elif item.channels_last:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    return tensor.requires_grad_(item.requires_grad)
