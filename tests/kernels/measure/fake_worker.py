"""A worker without torch: its candidate's name says how long a call takes and what goes wrong, and when.

`library:200.abort-at-round` takes 200 µs a call and aborts at its first round.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time

import msgspec

from kernels.measure.messages import (
    Answer,
    Case,
    Finished,
    OutputError,
    Prepare,
    Prepared,
    PreparedTask,
    Question,
    Round,
    RoundTimes,
    Warm,
    Warmed,
    candidate_request,
)


class Nothing(msgspec.Struct):
    """An answer of another form than any."""


def case(error=1e-3, misfits=0, distribution="normal"):
    return Case(distribution, "float64", [OutputError("float", "bf16", 1000, error, 10 * error, misfits)])


class Worker:
    def __init__(self, channel):
        self.channel = channel
        self.rounds = 0

    def setup(self, request):
        self.name = request.candidate
        self.tasks = len(request.tasks)
        self.time_us = float(self.name.partition(":")[2].partition(".")[0] or 1000)
        self.what, _, self.when = self.name.partition(".")[2].partition("-at-")
        self.random = random.Random(self.name)

    def misbehave(self, command, number):
        if self.when != command:
            return None
        if self.what == "abort":
            os.abort()
        if self.what == "exit":
            print("the allocator gave up", flush=True)
            os._exit(3)
        if self.what == "hang":
            time.sleep(600)
        if self.what == "garbage":
            self.channel.end.sendall(b"Segmentation fault (core dumped)\n")
        if self.what == "flood":
            for _ in range(3000):
                self.channel.end.sendall(b"x" * 10000)
        if self.what == "number":
            self.channel.end.sendall(b"42\n")
        if self.what == "other-answer":
            self.channel.send(Answer(number + 5, Nothing()))
        if self.what == "empty-answer":
            return Nothing()
        if self.what == "huge":
            return RoundTimes([1e9], float("nan"), 0.0, [])
        if self.what == "holder":
            # a process that keeps the channel open after this one died
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"],
                             pass_fds=[self.channel.fileno()])  # fmt: skip
            os._exit(5)
        return None

    def answer(self, request, number):
        if isinstance(request, Prepare):
            self.setup(request)
        wrong = self.misbehave(type(request).__name__.lower(), number)
        if wrong is not None:
            return wrong
        if isinstance(request, Prepare):
            cases = [case(0.5 if self.what == "wrong" and self.when == "prepare" else 1e-3)]
            return Prepared([PreparedTask(0.5, cases, [], 10)] * self.tasks, {})
        if isinstance(request, Warm):
            count = self.tasks + (self.what == "too-many" and self.when == "warm")
            return Warmed([self.time_us] * count, [1] * count)
        if isinstance(request, Round):
            self.rounds += 1
            times = [self.time_us * self.random.gauss(1, 0.01) for _ in range(request.calls)]
            return RoundTimes(times, self.time_us + 2, 0.0, [])
        wrong_now = self.what == "wrong" and self.when == "finish"
        kernels = ["aten_mul"] if self.what == "pretends" else ["triton_mine"]
        if self.what == "unchecked" and self.when == "finish":
            return Finished([[]] * self.tasks, [], [], "", 0)
        cases = [case(0.5 if wrong_now else 1e-3, distribution="after timing")]
        return Finished(
            [cases] * self.tasks, kernels, ["triton_mine"] if self.name.startswith("triton") else [], "", 0
        )  # fmt: skip


def main(channel):
    worker = Worker(channel)
    while (message := channel.receive()) is not None:
        question = msgspec.convert(message, Question)
        channel.send(Answer(question.id, worker.answer(candidate_request(question.request), question.id)))
