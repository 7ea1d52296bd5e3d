"""Real profiler traces of a function on this CPU, with a kernel put behind every operation that computes.

The operations, their order, arguments and nesting are torch's own; only the GPU's answer is made up, one launch and one
kernel of 10 µs per outermost operation that is no view.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

VIEWS = frozenset(
    "view t transpose permute expand unsqueeze squeeze slice select split chunk unbind detach expand_as view_as "
    "unsafe_split alias _unsafe_view lift_fresh resolve_conj resolve_neg result_type empty empty_like "
    "view_as_complex view_as_real _conj".split()
)
MAYBE = frozenset({"to", "type_as", "contiguous", "reshape", "flatten", "dropout"})
"""Kernels only where they did something: then they have operations inside."""


def record(
    path: Path, function: Callable[..., Any], *args: torch.Tensor, shapes: bool = True, execution: Path | None = None
) -> Path:
    """Calls function(*args) twice under the profiler, one step each, and writes a trace with kernels to path.

    execution: where to write the execution trace of the same run.
    """
    observer = None if execution is None else ExecutionTraceObserver().register_callback(str(execution))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=shapes, execution_trace_observer=observer) as prof:
        for step in range(2):
            with torch.profiler.record_function(f"ProfilerStep#{step}"):
                function(*args)
    plain = path.with_suffix(".plain.json")
    prof.export_chrome_trace(str(plain))
    document = json.loads(plain.read_text())
    document["traceEvents"] += _kernels(document["traceEvents"])
    path.write_text(json.dumps(document))
    return path


def _kernels(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ops = [e for e in events if e.get("cat") == "cpu_op" and e["name"].startswith("aten::")]
    ops.sort(key=lambda e: (e["tid"], e["ts"], -e["dur"]))
    made: list[dict[str, Any]] = []
    end: dict[Any, float] = {}
    inside: dict[int, int] = {}
    outer: dict[Any, int] = {}
    for i, op in enumerate(ops):
        if op["ts"] < end.get(op["tid"], -1.0):
            inside[outer[op["tid"]]] = inside.get(outer[op["tid"]], 0) + 1
            continue
        end[op["tid"]], outer[op["tid"]] = op["ts"] + op["dur"], i
        inside[i] = 0
    for number, (i, children) in enumerate(inside.items(), start=1):
        op = ops[i]
        name = op["name"].removeprefix("aten::")
        if name in VIEWS or (name in MAYBE and (not children or _only_views(ops, i))):
            continue
        at = op["ts"] + op["dur"] / 2
        args = {"correlation": number, "External id": op["args"].get("External id", 0)}
        made.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": op["pid"], "tid": op["tid"],
                     "ts": at, "dur": 0.001, "args": args})  # fmt: skip
        made.append({"ph": "X", "cat": "kernel", "name": f"kernel_{name}", "pid": 0, "tid": 7, "ts": at + 5.0,
                     "dur": 10.0, "args": {"device": 0, "stream": 7, **args}})  # fmt: skip
    return made


def _only_views(ops: list[dict[str, Any]], i: int) -> bool:
    stop = ops[i]["ts"] + ops[i]["dur"]
    names = []
    for op in ops[i + 1 :]:
        if op["tid"] != ops[i]["tid"] or op["ts"] >= stop:
            break
        names.append(op["name"].removeprefix("aten::"))
    return all(n in VIEWS | MAYBE for n in names)
