"""The oracle's process: one question a line on standard input, one answer a line on a descriptor, both JSON.

    python -m profiler.oracle.server FD [--gpu]

Without --gpu it sees no GPU and patches torch while it answers, which is why it is a process of its own. With it,
regions are compiled for real on this host's GPU. `process.Oracle` starts it, or forks it, and limits it.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TextIO

import msgspec

from profiler.child.limits import is_of_memory
from profiler.oracle.serialization import (
    Json,
    MachineQuestion,
    PredictQuestion,
    Question,
    RecompilesQuestion,
    recompiles_to_dict,
    to_message,
)

IDLE_S = 0.1
"""Without a question for so long, garbage is collected: that takes longer than an answer."""
COLLECT_AFTER = 50
"""Answers after which it is collected all the same."""

WARM_UP = (
    "x: bf16[256, 256]\nw: bf16[256, 256]\nh = gelu(x @ w)\nh = silu(h - h.mean(-1, keepdim=True)) * x\n"
    "return softmax(h, -1), h.sum(0), x.T.contiguous()\n"
)
"""Touches what most regions touch: a product, pointwise operations, reductions over rows and columns, a copy."""


def answer(question: Question, gpu: bool = False) -> Json:
    """The answer to one question; {"error": …} where that cannot be answered. gpu: regions are compiled for real."""
    try:
        match question:
            case PredictQuestion():
                return _compile(question) if gpu else _predict(question)
            case RecompilesQuestion():
                return _recompiles(question)
            case MachineQuestion():
                return _machine(question)
    except Exception as fault:
        if not is_of_memory(fault):
            raise
        return {"error": "this takes more memory than the oracle may use", "code": "oracle-memory"}


def _predict(question: PredictQuestion) -> Json:
    """What torch.compile makes of a region."""
    from profiler.oracle.inductor.answer import predict
    from profiler.region.language.text import parse
    from profiler.region.model import RegionError

    try:
        return to_message(predict(parse(question.text), question.binding, question.device, question.mode))
    except RegionError as fault:
        return {"error": str(fault.message), "code": fault.code, "line": fault.line, "column": fault.column}


def _compile(question: PredictQuestion) -> Json:
    """What torch.compile makes of a region on this host's GPU: it is compiled and run once."""
    from profiler.oracle.inductor.answer import first_line
    from profiler.oracle.inductor.real_compile import compile_and_run
    from profiler.region.language.text import parse
    from profiler.region.model import RegionError

    try:
        return to_message(compile_and_run(parse(question.text), question.binding, question.mode))
    except RegionError as fault:
        return {"error": str(fault.message), "code": fault.code, "line": fault.line, "column": fault.column}
    except Exception as fault:  # torch.compile raises every kind; the caller hears why
        return {"error": f"{type(fault).__name__}: {first_line(fault)}", "code": "oracle-compile"}


def _recompiles(question: RecompilesQuestion) -> Json:
    """How torch.compile meets a region's varying sizes."""
    from profiler.oracle.inductor.fake_gpu import NotAskableError
    from profiler.oracle.inductor.symbolic import recompiles
    from profiler.region.language.text import parse
    from profiler.region.model import RegionError

    try:
        return recompiles_to_dict(recompiles(parse(question.text), question.device, question.bindings))
    except (RegionError, NotAskableError) as fault:
        return {"error": str(fault).splitlines()[0], "code": "oracle-recompiles"}


def _machine(question: MachineQuestion) -> Json:
    """What Triton's compiler makes of a kernel that Inductor wrote: its first configuration, for the architecture."""
    from profiler.oracle.compiler.findings import findings
    from profiler.oracle.compiler.generated_kernel import KernelTextError, compile_inductor_kernel
    from profiler.oracle.compiler.machine_code import CompileError

    try:
        machine = compile_inductor_kernel(question.source, question.name, question.arch)
    except (KernelTextError, CompileError) as fault:
        return {"error": str(fault)[:300], "code": "oracle-compile"}
    return machine.to_dict() | {"findings": [asdict(f) for f in findings(machine)]}


def serve(questions: TextIO, answers: TextIO, ask: Callable[[Question], Json] = answer) -> None:
    """Answer until the questions end. What libraries print goes to standard error, never among the answers."""
    gc.freeze()
    gc.disable()  # a full collection among torch's objects takes longer than an answer
    answers_since_collection = 0
    for line in questions:
        answers.write(json.dumps(ask(msgspec.convert(json.loads(line), Question))) + "\n")
        answers.flush()
        answers_since_collection += 1
        # One question is under way at a time: when none has come by now, nobody waits for the collection.
        if answers_since_collection >= COLLECT_AFTER or not select.select([questions], [], [], IDLE_S)[0]:
            gc.collect()
            answers_since_collection = 0


def _end_with_parent() -> None:
    """However the parent ends, and whatever is being asked at the time: no process is left behind.

    Not by PR_SET_PDEATHSIG, which counts the end of the thread that started the process as the parent's.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def main(argv: Sequence[str]) -> int:
    """torch first, then a question of its own so that the caller's is warm."""
    gpu = "--gpu" in argv[1:]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _end_with_parent()
    os.set_inheritable(int(argv[0]), False)  # what Inductor starts must not hold the answers open
    answers = os.fdopen(int(argv[0]), "w")
    import torch

    from profiler.hardware import DEFAULT_DEVICE, find_device
    from profiler.oracle.inductor.answer import predict
    from profiler.region.language.text import parse

    torch.set_num_threads(1)
    config = sys.modules.get("torch._inductor.config")
    if config is not None:  # of a template, which had no such environment when it was imported
        config.compile_threads = 1  # type: ignore[attr-defined]
    device = find_device(DEFAULT_DEVICE)
    assert device is not None
    if not gpu:
        predict(parse(WARM_UP), None, device)
    answers.write(json.dumps({"ready": torch.__version__}) + "\n")
    answers.flush()
    serve(sys.stdin, answers, partial(answer, gpu=gpu))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
