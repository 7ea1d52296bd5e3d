"""What a replay script has in addition to the region: it runs it eagerly and compiled, and prints what happened."""

from __future__ import annotations

import argparse
import platform
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels.starter_kit.runtime import Input


@dataclass(frozen=True)
class Case:
    """The region at one set of sizes. small: for a host without a GPU."""

    label: str
    inputs: tuple[Input, ...]
    region: Callable[..., Any]
    small: bool = False


def replay(cases: Sequence[Case]) -> int:
    """Run every case, print versions, results and tracebacks. 0 where nothing raised."""
    parser = argparse.ArgumentParser(description="Replays one region eagerly and under torch.compile.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    print(f"python {platform.python_version()}, {platform.platform()}")
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, ROCm {torch.version.hip}")
    try:
        import triton

        print(f"Triton {triton.__version__}")
    except ImportError:
        print("no Triton")
    print(f"device {torch.cuda.get_device_name(device) if device.startswith('cuda') else device}")
    chosen = [c for c in cases if c.small == (device == "cpu")] or list(cases)
    return 1 if sum(_case(c, device) for c in chosen) else 0


def _case(case: Case, device: str) -> int:
    print(f"\n== {case.label}")
    for item in case.inputs:
        print(f"   {item}")
    torch._dynamo.reset()
    eager, faults = _outcome("eager", case.region, case, device)
    compiled, more = _outcome("torch.compile", torch.compile(case.region, dynamic=False, fullgraph=True), case, device)
    for i, (a, b) in enumerate(zip(eager, compiled, strict=False)):
        if a.dtype != b.dtype or a.shape != b.shape:
            print(f"   DIFFERENT: result {i} is {a.dtype}{[*a.shape]} eagerly, {b.dtype}{[*b.shape]} compiled")
        elif a.numel():
            off = (a.double() - b.double()).abs()
            print(f"   result {i}: eager and compiled differ by {float(off.nan_to_num().max()):.3g} at most")
    return faults + more


def _outcome(name: str, function: Callable[..., Any], case: Case, device: str) -> tuple[list[torch.Tensor], int]:
    """Outputs, then the gradients of inputs that require one; and 1 where it raised."""
    generator = torch.Generator(device).manual_seed(0)
    inputs = [i.make(device, generator, "normal").requires_grad_(i.requires_grad) for i in case.inputs]
    try:
        result = function(*inputs)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        wanted = [x for x in inputs if x.requires_grad]
        if wanted:
            ends = [o for o in outputs if o.requires_grad]
            upstream = [torch.ones_like(o) for o in ends]
            given = torch.autograd.grad(ends, wanted, upstream, allow_unused=True)
            outputs += [torch.zeros_like(w) if g is None else g for w, g in zip(wanted, given, strict=True)]
        if device.startswith("cuda"):
            torch.cuda.synchronize()
    except Exception:  # whatever it is, it is what the report is about
        print(f"   {name} RAISED")
        traceback.print_exc()
        return [], 1
    for i, x in enumerate(outputs):
        value = x.detach().double()
        odd = int((~torch.isfinite(value)).sum())
        print(f"   {name}: result {i} {x.dtype}{[*x.shape]}, sum {float(value.nansum()):.6g}, {odd} not finite")
    return [o.detach() for o in outputs], 0
