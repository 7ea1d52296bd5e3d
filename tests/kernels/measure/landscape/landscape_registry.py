"""Candidates with a tuned kernel of their own, for tests: real launches, some variants wrong, dead or hanging.

Loaded in the children in the place of kernels.candidates. The region is x * 2 + 1 of f32.
"""

from __future__ import annotations

import os
import time

import torch

from kernels.ops.vector_add import vector_add_kernel
from kernels.tuning import Tuner, Variant
from tests.kernels.measure.candidate.candidates import Candidate

SLEEP_S = {64: 0.004, 256: 0.001, 1024: 0.0, 4096: 0.002}
"""The lower bound of a call's time by BLOCK; what is right and fastest is 1024. 4096 gives a wrong result."""


def candidates(graph, host):
    return (
        Candidate("eager", "eager"),
        Candidate("triton:mixed", "triton"),
        Candidate("triton:untuned", "triton"),
        Candidate("triton:elsewhere", "triton", available=False, reason="takes no f32"),
        Candidate("library:some", "library"),
    )


def variants() -> list[Variant]:
    own = [Variant(vector_add_kernel, (("BLOCK", b),), 4) for b in (256, 64, 1024, 4096)]
    large = Variant(vector_add_kernel, (("BLOCK", 16384),), 4, shared_bytes=10**6)
    return [*own, large]


def build(name, region, sizes, device):
    tuners = {part: Tuner(part) for part in ("main", "small")}

    def launch(variant, x, y):
        time.sleep(SLEEP_S.get(variant["BLOCK"], 0.0005))
        if variant.warps == 8:
            os.abort()
        if variant.warps == 16:
            time.sleep(60)
        if variant.warps == 2:
            raise RuntimeError("no such instruction")
        torch.add(x * 2, 1.5 if variant["BLOCK"] == 4096 else 1, out=y)

    def tuned(tuner, x):
        y = torch.empty_like(x)
        launch(tuner.pick(tuple(x.shape), variants, launch, x, y), x, y)
        return y

    if name == "triton:mixed":
        return lambda x: (torch.cat((tuned(tuners["main"], x[1:]), tuned(tuners["small"], x[:1]))).roll(1, 0),)
    return lambda x: (x * 2 + 1,)
