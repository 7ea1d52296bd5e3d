"""A worker without torch: its candidate's name says how long a call takes and what goes wrong, and when.

`library:200.abort-at-round` takes 200 µs a call and aborts at its first round.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time


def case(error=1e-3, misfits=0, distribution="normal"):
    output = {"kind": "float", "dtype": "bf16", "elements": 1000, "error": error, "outlier": 10 * error,
              "misfits": misfits, "statistics": []}  # fmt: skip
    return {"distribution": distribution, "precision": "float64", "against": "", "outputs": [output]}


class Worker:
    def __init__(self, channel):
        self.channel = channel
        self.rounds = 0

    def setup(self, message):
        self.name = message["candidate"]
        self.tasks = len(message["tasks"])
        self.time_us = float(self.name.partition(":")[2].partition(".")[0] or 1000)
        self.what, _, self.when = self.name.partition(".")[2].partition("-at-")
        self.random = random.Random(self.name)

    def misbehave(self, command, message):
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
            self.channel.send({"id": message["id"] + 5, "result": {}})
        if self.what == "empty-answer":
            return {}
        if self.what == "huge":
            return {"times_us": [1e9], "wall_us": float("nan")}
        if self.what == "holder":
            # a process that keeps the channel open after this one died
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"],
                             pass_fds=[self.channel.fileno()])  # fmt: skip
            os._exit(5)
        return None

    def answer(self, message):
        command = message["command"]
        if command == "prepare":
            self.setup(message)
        wrong = self.misbehave(command, message)
        if wrong is not None:
            return wrong
        if command == "prepare":
            cases = [case(0.5 if self.what == "wrong" and self.when == "prepare" else 1e-3)]
            return {"tasks": [{"compile_s": 0.5, "cases": cases, "mutated": [], "peak_bytes": 10}] * self.tasks}
        if command == "warm":
            return {"estimates": [{"device_us": self.time_us, "host_us": 5, "cold_us": self.time_us}] * self.tasks}
        if command == "round":
            self.rounds += 1
            times = [self.time_us * self.random.gauss(1, 0.01) for _ in range(message["calls"])]
            return {"times_us": times, "wall_us": self.time_us + 2}
        wrong_now = self.what == "wrong" and self.when == "finish"
        kernels = ["aten_mul"] if self.what == "pretends" else ["triton_mine"]
        if self.what == "unchecked" and self.when == "finish":
            return {"cases": [[]] * self.tasks, "kernels": [], "triton_kernels": []}
        return {
            "cases": [[case(0.5 if wrong_now else 1e-3, distribution="after timing")]] * self.tasks,
            "kernels": kernels,
            "triton_kernels": ["triton_mine"] if self.name.startswith("triton") else [],
        }


def main(channel):
    worker = Worker(channel)
    while (message := channel.receive()) is not None:
        channel.send({"id": message["id"], "result": worker.answer(message)})
