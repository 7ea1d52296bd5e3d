"""What the server's template imports, and what its forks do (profiler.child.template)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence


def prepare() -> None:
    """Import all that a job or an answer needs, and lower one region. No CUDA: a fork could not use it any more.

    Under TRITON_INTERPRET what candidates need as well: such forks check validations on hosts without a GPU.
    """
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if os.environ.get("TRITON_INTERPRET"):
        from kernels.measure.processes.fork_server import warm

        warm()  # what candidates need; no answers are made of this template
    import app.analysis.answering
    import app.analysis.validate
    import app.check.run
    import app.jobs.tasks
    import app.trace_report.report
    import profiler.region.mining.mine  # noqa: F401
    from kernels import host

    host.assume(host.Host())  # nobody looks for a GPU here; forks are told of the host
    app.analysis.answering.warm_up()
    host.assume(None)
    if seen is None:
        del os.environ["CUDA_VISIBLE_DEVICES"]
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = seen


def run(arguments: Sequence[str]) -> int:
    """A fork's whole life; the arguments are a row of WORK and what it takes."""
    import numpy
    import torch

    numpy.random.seed()  # or all forks would draw the same numbers
    torch.seed()
    return WORK[arguments[0]](list(arguments[1:]))


def _task(arguments: list[str]) -> int:
    from app.jobs.tasks import main

    return main(arguments)


def _validate(arguments: list[str]) -> int:
    """A validation without a GPU: the process that candidates are forked from is a fork as well, and at once there."""
    from app.jobs import tasks
    from kernels.measure.processes.processes import ForkServer
    from profiler.child.limits import GIB, Limits, host_memory_bytes, impose

    # Of this process and of each candidate: sizes are reduced for checks, what a region makes of them is not.
    impose(os.getpid(), Limits(0.0, 0.0, max(GIB, host_memory_bytes() // 8)))
    tasks.warm["fork_server"] = ForkServer(interpret=True, forked=True)  # before there is any other thread
    return tasks.main(["validate", *arguments])


def _answers(arguments: list[str]) -> int:
    from app.analysis.answering import serve

    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with os.fdopen(int(arguments[0]), "w", encoding="utf-8") as answers:
        return serve(sys.stdin, answers)


def _oracle(arguments: list[str]) -> int:
    from profiler.oracle.server import main

    return main(arguments)


WORK: dict[str, Callable[[list[str]], int]] = {
    "task": _task,
    "answers": _answers,
    "validate": _validate,
    "oracle": _oracle,
}
