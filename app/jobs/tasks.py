"""What the child of a job does: `python -m app.jobs.tasks read|validate|landscape|check|... FD [spare]`.

See app.jobs.local_runner for the protocol. spare: there is no request yet, so that is done which any request needs.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from app.objects.check import Report
from app.objects.common import Error, Note
from app.objects.device import MeasuredCeilings
from app.objects.kernel import Machine, Machines
from app.objects.landscape import LandscapeBody
from app.objects.record import ValidationBody
from app.objects.task import AnyTask, CheckTask, LandscapeTask, MachinesTask, ReadTask, ValidateTask
from app.objects.trace import TraceBody
from profiler.child.limits import is_of_memory

if TYPE_CHECKING:
    from kernels.measure.processes.processes import ForkServer

Say = Callable[[Mapping[str, object]], None]
"""Answers with one line of JSON."""

stop = threading.Event()
"""Set by SIGTERM: end soon, and tidily."""

told_to_stop = threading.Event()
"""Set once a task has asked whether it is to stop, and was told so: its value is no full answer."""

warm: dict[str, ForkServer] = {}
"""What a spare made before it had a request."""


def main(argv: list[str]) -> int:
    """Read the request from stdin, do the task, answer on the descriptor. The exit status is 0 where it answered."""
    task, fd, *spare = argv
    # What this process starts must not hold the answer open, nor answer in its place.
    os.set_inheritable(int(fd), False)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if spare:
        SPARES[task]()
    line = sys.stdin.readline()
    if not line:  # the server needs no more of us
        return 0
    request = json.loads(line)
    _die_with_the_server()
    with os.fdopen(int(fd), "w", encoding="utf-8") as answer:
        lock = threading.Lock()

        def say(message: Mapping[str, object]) -> None:
            with lock:
                answer.write(json.dumps(message) + "\n")
                answer.flush()

        try:
            _take_context(request)
            value = TASKS[task](request, say)
        except Exception as error:
            told = _out_of_memory(error) or _disk_full(error) or _tell(error)
            if told is None:
                # Unforeseen: the traceback goes to the log, the exit status tells the runner.
                raise
            say({"type": "error", **told})
        else:
            say({"type": "result", "value": value, "stopped": told_to_stop.is_set()})
    return 0


def stopped() -> bool:
    """Whether to end soon; what tasks ask."""
    if stop.is_set():
        told_to_stop.set()
    return stop.is_set()


def read(request: ReadTask, say: Say) -> TraceBody:
    """A trace file as the API's trace, with its regions and their advice.

    With `advice_inputs`, what the advice on each region is issued on: the store keeps them and the API does not show
    them.
    """
    say({"type": "progress", "phase": "reading", "fraction": 0.0})
    from app.analysis.advice_inputs import to_stored
    from app.thresholds import Thresholds
    from app.trace_report import report
    from app.trace_report.companions import Companion
    from profiler.child.limits import Limits
    from profiler.trace.errors import TraceError

    limit, companions = request.get("max_uncompressed_bytes"), request.get("companions") or {}
    companion, execution = (
        Companion(**companions[field]) if field in companions else None for field in ("beside", "execution_trace")
    )
    thresholds = Thresholds.from_mapping(request.get("thresholds") or {})
    unknown = request.get("beside_unknown")
    added = [_unknown_companion(unknown)] if unknown else []
    limits = Limits(**request["region_limits"]) if request.get("region_limits") else report.REGION_LIMITS

    def tell(stage: str, fraction: float) -> None:
        say({"type": "progress", "phase": stage, "fraction": fraction})

    trace: TraceBody | None = None
    try:
        for stage in report.stages(
            request["path"], request["name"], limit, companion=companion, execution=execution, strict=False,
            thresholds=thresholds, limits=limits, tell=tell,
        ):  # fmt: skip
            if isinstance(stage, report.Advised):
                say({"type": "part", "position": stage.position, "region": stage.region})
                continue
            trace = {
                **stage.trace,
                "notes": [*stage.trace["notes"], *added],
                "group": request.get("group"),
                "companions": {field: file["name"] for field, file in companions.items()},
                "advice_inputs": [to_stored(inputs) for inputs in stage.inputs],
            }
            if isinstance(stage, report.Parts):
                say({"type": "part", "trace": trace})
    except TraceError as error:
        if error.code == "trace-too-large":
            os.unlink(request["path"])  # nobody can read it again here, and it may be a bomb
        raise
    assert trace is not None  # the last stage is the whole
    return trace


def _unknown_companion(wanted: str) -> Note:
    return {
        "code": "beside-unknown",
        "level": "error",
        "message": f"There is no trace {wanted!r} to read with this one: it was read without.",
        "remedy": "Read this trace again, with the file itself or with the id of a trace that is here.",
    }


def validate(request: ValidateTask, say: Say) -> ValidationBody:
    """A region's candidates, measured: the API's validation."""
    from app.analysis.validate import validate_region

    def on_progress(progress: Mapping[str, object]) -> None:
        say({"type": "progress", **progress})

    return validate_region(request, on_progress=on_progress, cancelled=stopped, fork_server=warm.get("fork_server"))


def landscape(request: LandscapeTask, say: Say) -> LandscapeBody:
    """The points of one candidate's kernel, measured: the API's landscape."""
    from app.analysis.landscape import survey

    def on_progress(progress: Mapping[str, object]) -> None:
        say({"type": "progress", **progress})

    return survey(request, on_progress=on_progress, cancelled=stopped)


def check(request: CheckTask, say: Say) -> Report:
    """Assertions on traces and regions: the report."""
    from app.check.run import check as run

    def on_progress(progress: Mapping[str, object]) -> None:
        say({"type": "progress", **progress})

    return run(request, on_progress=on_progress, cancelled=stopped)


class KernelRefusedError(Exception):
    """A kernel that Triton's compiler does not take, or that a candidate does not launch."""

    code = "kernel-refused"


class CeilingsError(Exception):
    """The GPU could not be measured."""

    code = "ceilings-failed"


def machines(request: MachinesTask, say: Say) -> Machines:
    """What Triton's compiler makes of a candidate's kernels for a GPU that need not be here: see kernel_listing."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # nothing here may touch a GPU that somebody measures on
    from kernels.codegen.index import Unsupported
    from kernels.kernel_listing import machines as compile_all
    from profiler.oracle.compiler.machine_code import CompileError

    try:
        kernels = compile_all(request["text"], request["sizes"], request["candidate"], request["arch"])
    except CompileError as fault:
        raise KernelRefusedError(f"Triton's compiler refuses it: {fault}") from fault
    except Unsupported as fault:
        raise KernelRefusedError(str(fault)) from fault
    return {"kernels": cast("list[Machine]", kernels)}


def ceilings(request: Mapping[str, object], say: Say) -> MeasuredCeilings:
    """How fast this host's GPU copies, multiplies and adds."""
    from kernels.ceilings import measure

    try:
        return cast("MeasuredCeilings", measure())
    except (RuntimeError, OSError) as fault:
        raise CeilingsError(str(fault).splitlines()[0]) from fault


class SickError(Exception):
    """The GPU does not compute."""

    code = "gpu-suspect"


class HealthRequest(TypedDict):
    """expected: the GPU's name as it was at the start."""

    expected: str | None


def health(request: HealthRequest, say: Say) -> dict[str, object]:
    """Whether the GPU that was here still computes; see app.jobs.gpu_health."""
    from kernels.health import ask

    try:
        wrong = ask(request["expected"])
    except (RuntimeError, OSError) as fault:
        wrong = str(fault).splitlines()[0][:300] if str(fault) else type(fault).__name__
    if wrong:
        raise SickError(wrong)
    return {}


def warm_up() -> None:
    """The process that candidates are forked from, its imports under way: 9 s of a verdict on an H200's host."""
    import app.analysis.validate  # noqa: F401
    from kernels.measure.session import get_ready, open_fork_server

    warm["fork_server"] = open_fork_server()
    threading.Thread(target=get_ready, args=(warm["fork_server"],), daemon=True).start()  # behind its imports


SPARES: dict[str, Callable[[], None]] = {"validate": warm_up}
TASKS: dict[str, Callable[[Any, Say], object]] = {
    "read": read,
    "validate": validate,
    "landscape": landscape,
    "check": check,
    "machines": machines,
    "ceilings": ceilings,
    "health": health,
}


def _take_context(request: AnyTask) -> None:
    """What the server found out of the host need not be looked for again, and could not be under our memory limit."""
    if folder := request.get("atlas_dir"):
        from app.atlas import user_atlas

        user_atlas.use_folder(Path(folder))
    probed = request.get("host")
    if probed:
        from kernels import host

        host.assume(host.from_json(probed))


def _out_of_memory(error: Exception) -> Error | None:
    if not is_of_memory(error):
        return None
    return {"code": "out-of-memory", "message": "out of memory", "remedy": ""}


def _disk_full(error: Exception) -> Error | None:
    """A disk without room is nobody's crash."""
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return {"code": "disk-full", "message": "The server's disk is full.", "remedy": "Make room, then start it again."}


def _tell(error: Exception) -> Error | None:
    """An error that is the user's to know, by its `code`; None for a fault of ours."""
    code = getattr(error, "code", None)
    if not isinstance(code, str):
        return None
    message = getattr(error, "message", None) or str(error)
    told = {
        "code": code,
        "message": message,
        "remedy": getattr(error, "remedy", "") or getattr(error, "hint", ""),
        **{k: getattr(error, k) for k in ("line", "column", "end_column") if hasattr(error, k)},
    }
    return cast("Error", told)


def _die_with_the_server() -> None:
    """The server keeps our stdin open as long as it lives. Its death must leave nothing of us on the GPU."""
    with suppress(OSError, AttributeError):
        # Linux itself kills our group when the other end closes: a thread may wait for the interpreter's lock for long.
        fcntl.fcntl(0, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(0, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    # It may have closed before that; and not every system has it.
    threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _wait_for_the_end() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
