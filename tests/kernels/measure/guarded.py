"""Run in a child, since it changes Inductor and Triton for good: which benchmark functions take their turn."""

from __future__ import annotations

import msgspec
import triton.testing
from torch._inductor.runtime import benchmarking
from triton.runtime.autotuner import Autotuner

from kernels import tuning
from kernels.measure.messages import Answer, Question, Request
from kernels.measure.turn import Turn, exclusive_autotuning


class Look(Request, frozen=True, tag="look"):
    path: str


def functions():
    return (
        benchmarking.InductorBenchmarker.benchmark_gpu,
        Autotuner._bench,
        triton.testing.do_bench,
        tuning.cold_us,
    )


def within(function):
    """What it was wrapped around, layer by layer."""
    while function := getattr(function, "__wrapped__", None):
        yield function


def main(channel):
    question = msgspec.convert(channel.receive(), Question)
    look = msgspec.convert(question.request, Look)
    before = functions()
    exclusive_autotuning(Turn(look.path, channel))
    guarded = [b in list(within(a)) for a, b in zip(functions(), before, strict=True)]
    channel.send(Answer(question.id, guarded))
