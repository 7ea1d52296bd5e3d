"""A registry for tests: real candidates of any region, right ones and ones that go wrong in a known way.

Loaded in the children in the place of kernels.candidates; they run, are checked and fail for real.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass

import torch

from profiler.region.language.program import program


@dataclass(frozen=True)
class Candidate:
    name: str
    tool: str
    call: str = ""
    note: str = ""
    available: bool = True
    reason: str = ""
    source: str = ""
    on_request: bool = False
    untried: bool = False


class ForgetsWhatComesIn(torch.autograd.Function):
    """The mean of squares, with the gradient that it has where the one that comes in is 1."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().mean()

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        return 2 * x / x.numel()


def forgets_what_comes_in(module):
    return lambda x: (ForgetsWhatComesIn.apply(x),)


class Lazy(torch.Tensor):
    pass


def off_by_a_little(module):
    return lambda *x: tuple(o + 0.05 * o.abs().mean() if o.dtype.is_floating_point else o for o in module(*x))


def one_element_wrong(module):
    def run(*x):
        outputs = tuple(o.clone() for o in module(*x))
        outputs[0].view(-1)[-1] += 3
        return outputs

    return run


def tail_not_written(module):
    def run(*x):
        outputs = []
        for o in module(*x):
            made = torch.empty_like(o)
            made[:-1].copy_(o[:-1])
            made[-1:].fill_(float("nan"))
            outputs.append(made)
        return tuple(outputs)

    return run


def always_the_first(module):
    kept = []

    def run(*x):
        if not kept:
            kept.append(module(*x))
        return kept[0]

    return run


def changes_its_input(module):
    def run(*x):
        outputs = tuple(o.clone() for o in module(*x))
        x[0].zero_()
        return outputs

    return run


def ignores_the_last_input(module):
    kept = []

    def run(*x):
        if not kept:
            kept.append(x[-1].clone())
        return module(*x[:-1], kept[0])

    return run


def subclass(module):
    return lambda *x: tuple(o.as_subclass(Lazy) for o in module(*x))


def wrong_dtype(module):
    return lambda *x: tuple(o.double() for o in module(*x))


def aborts(module):
    return lambda *x: os.abort()


def hangs(module):
    return lambda *x: time.sleep(600)


def raises(module):
    def run(*x):
        raise ValueError("no such tile")

    return run


def unsupported(module):
    raise NotImplementedError("rows longer than 64 are not supported")


def runs_out_of_memory(module):
    return lambda *x: torch.empty(2**50)


def out_of_memory_at_first(module):
    """As next to others that hold the card: the first process finds no memory, the one after it does."""
    card = os.environ["TRITONWORTHY_TEST_CARD"]
    first = not os.path.exists(card)
    if first:
        with open(card, "w"):
            pass

    def run(*x):
        if first:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return module(*x)

    return run


def hangs_when_told(module):
    """Right; in a process that begins when the test has written a number, hangs once it was called that often."""
    told = os.environ.get("TRITONWORTHY_TEST_CARD", "")
    most = None
    if os.path.exists(told):
        with open(told) as file:
            most = int(file.read())
    calls = []

    def run(*x):
        calls.append(1)
        if most is not None and len(calls) > most:
            time.sleep(600)
        return module(*x)

    return run


def prints_a_lot(module):
    def run(*x):
        os.write(1, b'{"id": 1, "result": {"tasks": []}}\n' * 100)
        print("garbage " * 1000, flush=True)
        return module(*x)

    return run


def leaves_processes(module):
    """Starts one process in its group and one that leaves it; their ids go to the file that the test names."""

    def run(*x):
        command = [sys.executable, "-c", "import time; time.sleep(300)"]
        inside = subprocess.Popen(command)
        outside = subprocess.Popen(command, start_new_session=True)
        with open(os.environ["TRITONWORTHY_TEST_PIDS"], "a") as file:
            file.write(f"{os.getpid()}\n{inside.pid}\n{outside.pid}\n")
        return module(*x)

    return run


def right(module):
    return lambda *x: tuple(o.clone() for o in module(*x))


class _Skewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1.01


def wrong_gradient(module):
    return lambda *x: module(*x[:-1], _Skewed.apply(x[-1]))


def keeps_everything(module):
    return lambda x: (torch.nn.functional.gelu(x),)


def other_rate(module):
    return lambda x: (torch.nn.functional.dropout(torch.nn.functional.gelu(x), 0.35),)


def last_of_ties(module):
    """Right, but of equal values it takes the last one."""
    return lambda x: (x.shape[-1] - 1 - torch.topk(x.flip(-1), 4, dim=-1).indices,)


def one_index_repeated(module):
    def run(x):
        (index,) = module(x)
        index[:, 1] = index[:, 0]
        return (index,)

    return run


def shifted_indices(module):
    return lambda x: ((module(x)[0] + 1) % x.shape[-1],)


def works_on_a_copy(module):
    return lambda *x: tuple(module(*(v.clone() for v in x)))


def wrong_after_twenty_calls(module):
    calls = []

    def run(*x):
        calls.append(1)
        return tuple(o * (1.5 if len(calls) > 20 else 1.0) for o in module(*x))

    return run


WRONG = (off_by_a_little, one_element_wrong, tail_not_written, always_the_first, changes_its_input,
         ignores_the_last_input, subclass, wrong_dtype, aborts, hangs, raises, unsupported, runs_out_of_memory,
         out_of_memory_at_first, hangs_when_told, prints_a_lot, leaves_processes, right, wrong_gradient,
         keeps_everything, other_rate, last_of_ties, one_index_repeated, shifted_indices, works_on_a_copy,
         wrong_after_twenty_calls, forgets_what_comes_in)  # fmt: skip
BY_NAME = {f"library:test.{f.__name__}": f for f in WRONG}


def candidates(graph, host):
    return (
        Candidate("eager", "eager"),
        Candidate("compile", "compile", "torch.compile(f)"),
        Candidate("library:absent.call", "library", available=False, reason="absent is not installed"),
        *(Candidate(name, "library") for name in BY_NAME),
    )


def build(name, region, binding, device):
    module = program(region, binding, device).module
    return module if name == "eager" else BY_NAME[name](module)
