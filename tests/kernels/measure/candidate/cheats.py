"""Candidates that cheat, each for real. Most are honest as long as every output is surely looked at."""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
import time

import torch
import triton
import triton.language as tl

from kernels.measure.candidate import checker, integrity, samples, timing, worker
from kernels.measure.messages import Answer, RoundTimes
from kernels.measure.processes.channel import encode
from profiler.region.language.program import program
from tests.kernels.measure.candidate.candidates import Candidate, Lazy

HONEST_CALLS = 16  # more than the checks before timing make


class Late:
    """Honest for some calls, then whatever `later` does."""

    def __init__(self, module, later):
        self.module, self.later, self.calls = module, later, 0

    def __call__(self, *x):
        self.calls += 1
        return self.module(*x) if self.calls <= HONEST_CALLS else self.later(*x)


def late(cheat):
    return lambda module: Late(module, cheat(module))


def kept_by(key, work_s=0.0):
    def cheat(module):
        results = {}

        def run(*x):
            found = key(*x)
            if found not in results:
                time.sleep(work_s)
                results[found] = module(*x)
            return results[found]

        return run

    return late(cheat)


keeps_by_address = kept_by(lambda *x: tuple(v.data_ptr() for v in x))
keeps_by_identity = kept_by(lambda *x: tuple(map(id, x)))
keeps_by_version = kept_by(lambda *x: tuple((v.data_ptr(), v._version) for v in x))
keeps_by_shape = kept_by(lambda *x: tuple(v.shape for v in x))
keeps_by_contents = kept_by(lambda *x: tuple(v.numpy().tobytes() for v in x), 0.004)


@late
def returns_freed_memory(module):
    return lambda *x: (torch.empty(x[0].shape[0], x[1].shape[1]),)


def zeroes_its_inputs(module):
    def run(*x):
        for v in x:
            v.zero_()
        return (torch.zeros(x[0].shape[0], x[1].shape[1]),)

    return run


@late
def returns_a_subclass(module):
    return lambda *x: tuple(o.as_subclass(Lazy) for o in module(*x))


@late
def finishes_in_a_thread(module):
    def run(*x):
        out = torch.empty(x[0].shape[0], x[1].shape[1])

        def work():
            time.sleep(0.005)
            out.copy_(module(*x)[0])

        threading.Thread(target=work).start()
        return (out,)

    return run


def keeps_a_thread(module):
    """One thread for ever, started while the checks look; the work is done in time."""

    def run(*x):
        threading.Thread(target=time.sleep, args=(600,), daemon=True, name="helper").start()
        return module(*x)

    return run


def stops_the_clock(module):
    time.perf_counter = lambda: 0.0
    return module


@late
def fakes_the_events(module):
    def run(*x):
        torch.cuda.Event = lambda **_: None
        torch.cuda.synchronize = lambda *_: None
        return module(*x)

    return run


def agrees_with_everything(module):
    torch.allclose = torch.equal = lambda *_, **__: True
    checker.compare = lambda *_: []
    return lambda *x: tuple(0 * o for o in module(*x))


def writes_its_own_times(module):
    """Puts a tenth of what was measured into its answers."""
    worker.RoundTimes = lambda times_us, *rest: RoundTimes([t / 10 for t in times_us], *rest)
    return module


def slows_its_clock(module):
    """Rewrites the harness itself, its watchman included: only another process's clock is out of reach."""
    integrity.check = lambda before: None
    timing._now = lambda real=timing._now: real() / 1000

    def run(*x):
        time.sleep(0.01)
        return module(*x)

    return run


def rotation_on_the_stack():
    frame = sys._getframe(1)
    while frame is not None:
        for value in frame.f_locals.values():
            if isinstance(value, samples.Sampling):
                return value
        frame = frame.f_back
    return next((o for o in gc.get_objects() if isinstance(o, samples.Sampling)), None)


@late
def reads_inputs_while_warming(module):
    """All input sets found on the stack, their results made once, before the timed calls."""
    results = {}

    def run(*x):
        if not results:
            rotation = rotation_on_the_stack()
            results.update({id(s[0]): module(*s) for s in (rotation.sets if rotation else [x])})
        return results.get(id(x[0])) or module(*x)

    return run


@late
def works_ahead(module):
    """In the first call on new inputs it computes for all sets that it finds."""
    results = {}

    def state(values):
        return (id(values[0]), float(values[0].view(-1)[0]))

    def run(*x):
        if state(x) not in results:
            for values in rotation_on_the_stack().sets:
                time.sleep(0.004)
                results[state(values)] = module(*values)
        return results[state(x)]

    return run


FORGED = encode(Answer(3, RoundTimes([0.001], 0.001, 0.0, [])))


@late
def forges_an_answer(module):
    def run(*x):
        for name in os.listdir("/proc/self/fd"):
            try:
                end = socket.socket(fileno=os.dup(int(name)))
                end.send(FORGED)
            except OSError:
                continue
        return module(*x)

    return run


@late
def honest_every_eighth_call(module):
    count = [0]

    def run(*x):
        count[0] += 1
        return module(*x) if count[0] % 8 == 0 else (torch.zeros(x[0].shape[0], x[1].shape[1]),)

    return run


def bf16_inside(module):
    return lambda *x: tuple(o.float() for o in module(*(v.bfloat16() for v in x)))


def f16_accumulates(module):
    def run(x, w):
        total = torch.zeros(x.shape[0], w.shape[1], dtype=torch.float16)
        for k in range(x.shape[1]):
            total += (x[:, k : k + 1] * w[k : k + 1]).half()
        return (torch.nn.functional.gelu(total.float()),)

    return run


def tf32_inside(module):
    def cut(v):
        return (v.view(torch.int32) & ~0x1FFF).view(torch.float32)  # 10 bits of mantissa stay

    return lambda *x: module(*map(cut, x))


def zeros(module):
    return lambda *x: tuple(torch.zeros_like(o) for o in module(*x))


def constant(module):
    return lambda *x: tuple(o.mean().expand_as(o).clone() for o in module(*x))


def ignores(position):
    def cheat(module):
        kept = []

        def run(*x):
            kept.append(x[position].clone())
            return module(*(kept[0] if n == position else v for n, v in enumerate(x)))

        return run

    return cheat


def only_64_rows(module):
    return lambda *x: tuple(torch.cat([o[:64], torch.zeros_like(o[64:])]) for o in module(*x))


def only_f32(module):
    return lambda *x: tuple(o.float() for o in module(*x))


@late
def corrupts_later(module):
    return lambda *x: tuple(o.index_fill(0, torch.tensor([0]), 3.0) for o in module(*x))


def differs_each_time(module):
    dice = torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "little"))  # not torch's own, which is seeded
    return lambda *x: tuple(o * (1 + 3e-7 * torch.rand(o.shape, generator=dice)) for o in module(*x))


@late
def launches_nothing(module):
    """As after a launch that asked for too much shared memory: nobody wrote the outputs."""
    return lambda *x: tuple(torch.empty_like(o) for o in module(*x))


def accumulates_while_tuning(module):
    """The first call tries three configurations on one output that none of them resets."""
    tuned = []

    def run(*x):
        outputs = module(*x)
        if not tuned:
            tuned.append(True)
            return tuple(3 * o for o in outputs)
        return outputs

    return run


def compiles_while_timed(module):
    calls = []
    compiled = torch.compile(lambda x, k: x + 0 * k, backend="eager", dynamic=False)
    torch._dynamo.config.recompile_limit = 1000  # every 20 calls, however many the clock asks for

    def run(*x):
        calls.append(1)
        return tuple(compiled(o, 2 + len(calls) // 20) for o in module(*x))

    return run


def prints_200_megabytes(module):
    def run(*x):
        for _ in range(200 if not run.done else 0):
            os.write(1, b"x" * 1_000_000)
        run.done = True
        return module(*x)

    run.done = False
    return run


@triton.jit
def double_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < count), mask=at < count)


@triton.jit
def square_kernel(x_ptr, y_ptr, SIDE: tl.constexpr):  # noqa: N803
    """One tile of SIDE x SIDE: at 512 in f32 its operands need more shared memory than any GPU has."""
    at = tl.arange(0, SIDE)[:, None] * SIDE + tl.arange(0, SIDE)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.dot(x, x))


def launched(x):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y


def launches_its_kernel(module):
    return lambda x: (launched(x),)


def falls_back(module):
    def run(x):
        try:
            raise RuntimeError("no such configuration")
        except RuntimeError:
            return module(x)

    return run


def launches_for_show(module):
    def run(x):
        launched(x[:1])
        return module(x)

    return run


LIBRARY = (
    keeps_by_address, keeps_by_identity, keeps_by_version, keeps_by_shape, keeps_by_contents, returns_freed_memory,
    zeroes_its_inputs, returns_a_subclass, finishes_in_a_thread, keeps_a_thread, stops_the_clock, fakes_the_events,
    agrees_with_everything, writes_its_own_times, slows_its_clock, reads_inputs_while_warming, works_ahead,
    forges_an_answer, honest_every_eighth_call, bf16_inside, f16_accumulates, tf32_inside, zeros, constant,
    only_64_rows, only_f32, corrupts_later, differs_each_time, launches_nothing, accumulates_while_tuning,
    compiles_while_timed, prints_200_megabytes,
)  # fmt: skip
NAMED = {name: f for name, f in globals().items() if any(f is one for one in LIBRARY)}
BY_NAME = {f"library:cheat.{name}": f for name, f in NAMED.items()}
BY_NAME |= {"library:cheat.ignores_x": ignores(0), "library:cheat.ignores_w": ignores(1)}
TRITON = (launches_its_kernel, falls_back, launches_for_show)
BY_NAME |= {f"triton:cheat.{f.__name__}": f for f in TRITON}


def candidates(graph, host):
    return (Candidate("eager", "eager"), *(Candidate(name, name.partition(":")[0]) for name in BY_NAME))


def build(name, region, binding, device):
    module = program(region, binding, device).module
    return module if name == "eager" else BY_NAME[name](module)
