"""One row's recording, in a process of its own."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

from tools.corpus.recording.made import Place
from tools.corpus.recording.makers import MAKERS
from tools.corpus.recording.rows import Row
from tools.corpus.recording.steps import step_of

SEED = 20261124
MODULE_PREFIX = "nn.Module: "


def name_modules() -> None:
    """Every module's forward is an annotation, which `with_modules` turns into the frames that a recording with stacks
    has: for a few microseconds a module instead of some for every line of Python."""

    names: dict[int, str] = {}
    counts: dict[str, int] = {}
    opened: list[Any] = []

    def enter(module: Any, _: Any) -> None:
        if id(module) not in names:
            kind = type(module).__name__
            names[id(module)] = f"{MODULE_PREFIX}{kind}_{counts.get(kind, 0)}"
            counts[kind] = counts.get(kind, 0) + 1
        opened.append(torch.profiler.record_function(names[id(module)]))
        opened[-1].__enter__()

    def leave(*_: Any) -> None:
        if opened:
            opened.pop().__exit__(None, None, None)

    modules.register_module_forward_pre_hook(enter)
    modules.register_module_forward_hook(leave, always_call=True)


def with_modules(body: dict[str, Any]) -> dict[str, Any]:
    """Annotations of modules become frames on the host and go from the GPU's side."""
    kept = []
    for event in body["traceEvents"]:
        if str(event.get("name", "")).startswith(MODULE_PREFIX):
            if event.get("cat") == "gpu_user_annotation":
                continue
            event = event | {"cat": "python_function"}
        kept.append(event)
    return body | {"traceEvents": kept}


def record(row: Row, place: Place, folder: Path, tell: Callable[[str], None]) -> None:
    """Writes folder/NAME.json.gz and .et.json.gz. tell(state) returns when the next state may begin."""

    on_gpu = place.device != "cpu"
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]

    def wait() -> None:
        if on_gpu:
            torch.cuda.synchronize()

    torch.manual_seed(SEED)
    build = MAKERS[row.maker](row, place)
    if on_gpu:  # the context, the profiler's library and cuBLAS take a second or two: not while another records
        with profile(activities=kinds):
            one = torch.ones(64, 64, device=place.device)
            one.mm(one)
        wait()
    tell("ready")
    made = build()
    step = step_of(row, made, place.device)
    name_modules()
    execution, trace = folder / f"{row.name}.et.json", folder / f"{row.name}.json"
    observer = ExecutionTraceObserver().register_callback(str(execution))
    plan = schedule(wait=0, warmup=1, active=1, repeat=1)
    session = profile(activities=kinds, record_shapes=True, schedule=plan, execution_trace_observer=observer)
    session.start()
    step()
    wait()
    tell("built")
    session.step()
    step()
    wait()
    session.stop()
    observer.unregister_callback()  # writes the end of its file
    tell("recorded")
    session.export_chrome_trace(str(trace))
    body = with_modules(json.loads(trace.read_bytes()))
    about = {"name": row.name, "maker": row.maker, "mode": row.mode, "dtype": row.dtype, "batch": row.batch}
    about |= {"size": row.size, "attention": row.attention, "model": row.spec.get("model") or row.spec.get("layer", "")}
    body["corpus"] = about
    with gzip.open(folder / f"{row.name}.json.gz", "wt", compresslevel=6) as out:
        json.dump(body, out, separators=(",", ":"))
    with gzip.open(folder / f"{row.name}.et.json.gz", "wb", compresslevel=6) as packed:
        packed.write(execution.read_bytes())
    trace.unlink()
    execution.unlink()


def child(row: Row, place: Place, folder: Path, pipe: Any) -> None:
    """States go through the pipe; after "ready" and "built" it waits for leave to go on."""
    os.setpgid(0, 0)
    warnings.simplefilter("ignore")
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    state = "starting"

    def tell(reached: str) -> None:
        nonlocal state
        state = reached
        pipe.send((reached, ""))
        if reached in ("ready", "built"):
            pipe.recv()

    try:
        torch.set_num_threads(1 if place.device != "cpu" else 2)
        record(row, place, folder, tell)
        pipe.send(("done", ""))
    except BaseException as fault:  # whatever a row does, the others go on
        where = traceback.extract_tb(fault.__traceback__)[-1]
        error = f"{type(fault).__name__}: {str(fault)[:500]} ({Path(where.filename).name}:{where.lineno})"
        with contextlib.suppress(OSError):
            pipe.send(("failed", f"after {state}: {error}"))
    os._exit(0)
