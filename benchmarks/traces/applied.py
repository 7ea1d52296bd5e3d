"""The advice on whole steps, followed: models traced, advised, changed as advised, and timed again.

python benchmarks/traces/applied.py [MODEL ...] [--seconds 450] [--out FOLDER]

Without names: the models of which tests/records/applied-predicted-h200.json has predictions from before their run,
then those by which predictions were mended before them (RUN). A child times a model's eager step, records it with the
profiler in three ways (so that what the profiler costs the host is known) and keeps the one with shapes; that trace
is advised on as an uploaded one; what is followed together of the options for the whole step is then applied in a
child of its own, timed without a profiler, and recorded once more. Models compile beside one another, on the GPUs
that are visible; while one is timed or recorded, the others are stopped. The folder has applied.json and traces.zip,
both written anew after each model.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, Queue
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 (run as a file)
from torch import nn  # noqa: E402
from torch.profiler import ProfilerActivity, profile, schedule  # noqa: E402

from benchmarks.traces.applied_later import LATER  # noqa: E402
from benchmarks.traces.applied_latest import LATEST  # noqa: E402
from benchmarks.traces.applied_models import ALL as KNOWN  # noqa: E402
from benchmarks.traces.applied_models import MODELS, OPTIMIZERS, OTHERS, Made  # noqa: E402
from benchmarks.traces.applied_newest import NEWEST  # noqa: E402
from benchmarks.traces.quiet import alone, enter, host_state, leave  # noqa: E402
from benchmarks.traces.recording import with_kernels  # noqa: E402

Json = dict[str, Any]
ALL = {**KNOWN, **LATER, **LATEST, **NEWEST}
RUN = (*NEWEST, "vit inference", "convnext training", "graph network training")
OPTIONS = ("compile-model", "cuda-graphs", "tf32", "bf16", "fp8", "channels-last", "fused-optimizer")
"""Ids of actions that this program can follow; an optimizer's has the region's name, and is followed by its flag."""
COMPILING = 3
"""Models that are under way on one GPU at once: compiling one takes a minute of a few processors, and no GPU."""
ADVISING = threading.Lock()
OPTIMIZERS_CALL = re.compile(r"optim\..*fused=True")
STEPS = 20
FP8_LEAST, FP8_DIVIDES = 1024, 16
"""Rows and columns of a linear layer from which it is run in fp8, and what divides both, as the advice says."""
WAYS: dict[str, Json] = {"plain": {}, "shapes": {"record_shapes": True},
                         "stacks": {"record_shapes": True, "with_stack": True}}  # fmt: skip
"""How a step is recorded; the trace is the second's."""


def changed(made: Made, ids: Sequence[str], device: str) -> Callable[[], Any]:
    """The step with these options applied."""
    model, step = made
    if "tf32" in ids:
        torch.set_float32_matmul_precision("high")
    if "channels-last" in ids:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if "fp8" in ids:
        model = in_fp8(model)
    if "fused-optimizer" in ids:
        for group in OPTIMIZERS[0].param_groups:
            group["fused"], group["foreach"] = True, False
    called: Any = model
    if "cuda-graphs" in ids:
        called = torch.compile(model, mode="reduce-overhead")
    elif "compile-model" in ids:
        called = torch.compile(model)
    if "bf16" not in ids:
        return lambda: step(called)

    def in_bf16() -> Any:
        with torch.autocast(device, torch.bfloat16):
            return step(called)

    return in_bf16


def in_fp8(model: nn.Module) -> nn.Module:
    """Its large linear layers by torchao, as the advice says: scales of each row; trained, or not."""

    def large(layer: nn.Module, _name: str = "") -> bool:
        if not isinstance(layer, nn.Linear):
            return False
        sizes = (layer.in_features, layer.out_features)
        return min(sizes) >= FP8_LEAST and not any(size % FP8_DIVIDES for size in sizes)

    if OPTIMIZERS:
        from torchao.float8 import (  # where it is installed
            Float8LinearConfig,
            convert_to_float8_training,
        )

        config = Float8LinearConfig.from_recipe_name("rowwise")
        made: nn.Module = convert_to_float8_training(model, config=config, module_filter_fn=large)
        return made
    from torchao.quantization import (
        Float8DynamicActivationFloat8WeightConfig,
        PerRow,
        quantize_,
    )

    quantize_(model, Float8DynamicActivationFloat8WeightConfig(granularity=PerRow()), filter_fn=large)
    return model


def synchronise(device: str) -> None:
    """The GPU's work is done."""
    if device == "cuda":
        torch.cuda.synchronize()


def timed_us(run: Callable[[], Any], device: str, steps: int) -> Json:
    """The median of steps' wall time with the GPU's work done, all of them, in µs, and the share of it in which this
    process had a processor."""
    for _ in range(3):
        run()
    synchronise(device)
    times = []
    began, used = time.perf_counter(), time.thread_time()
    for _ in range(steps):
        start = time.perf_counter()
        run()
        synchronise(device)
        times.append(1e6 * (time.perf_counter() - start))
    ran = (time.thread_time() - used) / (time.perf_counter() - began)
    return {"wall_us": statistics.median(times), "times": times, "processor_share": round(ran, 3)}


def recorded_us(run: Callable[[], Any], device: str, target: Path | None, **how: Any) -> Json:
    """Wall time of steps under the profiler, and how many events it wrote of them. target: where the trace goes."""
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    times: list[float] = []
    with profile(activities=kinds, schedule=schedule(wait=1, warmup=2, active=2), acc_events=True, **how) as record:
        for _ in range(5):
            start = time.perf_counter()
            run()
            synchronise(device)
            times.append(1e6 * (time.perf_counter() - start))
            record.step()
    if target is not None:
        record.export_chrome_trace(str(target))
        if device != "cuda":
            target.write_text(json.dumps(with_kernels(json.loads(target.read_bytes()))), encoding="utf-8")
    results = record.profiler.kineto_results if record.profiler else None
    return {"wall_us": statistics.median(times[3:]), "events": len(results.events()) / 2 if results else None}


def child(model: str, what: str, out: Path, small: bool, device: str) -> None:
    """what: "record", or ids of options joined by "+". Writes what was timed to out, the trace beside it."""
    enter(out.parent)
    made = ALL[model](small, device)
    trace = out.with_suffix(".trace.json")
    run = changed(made, () if what == "record" else what.split("+"), device)
    made[1](made[0])  # what is made at the first call, such as a cache, is made in no graph
    for _ in range(4):  # compiles, and records graphs
        run()
    synchronise(device)
    with alone(out.parent):
        before = host_state()
        gpu = torch.cuda.get_device_name() if device == "cuda" else "cpu"
        told = timed_us(run, device, 3 if small else STEPS) | {"gpu": gpu, "host": before}
        out.write_text(json.dumps(told), encoding="utf-8")
        if what == "record":
            ways = {"shapes": recorded_us(run, device, trace, **WAYS["shapes"])}
            for way in ("plain", "stacks"):
                ways[way] = recorded_us(run, device, None, **WAYS[way])
                out.write_text(json.dumps(told | {"profiled": ways}), encoding="utf-8")
        else:
            recorded_us(run, device, trace)


def start(model: str, what: str, out: Path, arguments: argparse.Namespace, gpu: str) -> str:
    """Runs a child on a GPU; "" or why it gave nothing."""
    command = [sys.executable, __file__, model, "--child", what, "--out", str(out), "--device", arguments.device]
    command += ["--small"] * arguments.small
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "4", "CUDA_VISIBLE_DEVICES": gpu}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        _, said = process.communicate(timeout=max(1.0, arguments.until - time.time()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return "no time was left"
    finally:
        leave(out.parent, process.pid)
        if process.stderr is not None:
            process.stderr.close()
    return "" if process.returncode == 0 else (said.strip().splitlines() or ["it died"])[-1][:300]


def option_of(action: Any) -> str:
    """Of OPTIONS, what the action asks for; "" for what this program cannot follow."""
    if action["id"] == "fp8":
        return "fp8" if find_spec("torchao") else ""
    if action["id"] in OPTIONS:
        return str(action["id"])
    return "fused-optimizer" if OPTIMIZERS_CALL.search(action["call"] or "") else ""


def advised(path: Path, model: str, folder: Path) -> Json:
    """What the trace says to do, and what of it is followed."""
    from app.trace_report.report import report

    with ADVISING, alone(folder):  # it forks, and takes several processors for some seconds
        trace = report(path, model)
    return followed_of(trace)


def alternatives_of(planned: Any, actions: Sequence[Json]) -> list[Json]:
    """What is advised and not followed with the others, where this program can apply it: alone, then with what is
    followed, in the place of that which it stands in. Each with the step's time that is predicted of it, in µs."""
    from app.trace_report.actions.ranking import changes
    from app.trace_report.step_model import step_us

    step, priced = planned
    together = [a for a in actions if a["option"] and a["adds_us"] is not None]
    made: dict[str, Json] = {}
    others = [a for a in actions if a["option"] and a["adds_us"] is None and a["saves_us"] is not None]
    alone = [[a] for a in others]
    for chosen in [*alone, *([*(b for b in together if b["id"] != a["instead_of"]), a] for a in others)]:
        ids = {a["id"] for a in chosen}
        low, mid, high = step_us(step, changes([p for p in priced if p.option.id in ids]))
        what = "+".join(dict.fromkeys(a["option"] for a in chosen))
        told = {"what": what, "titles": [a["title"] for a in chosen],
                "predicted_us": {"low": low, "mid": mid, "high": high}}  # fmt: skip
        made.setdefault(what, told)
    return list(made.values())


def followed_of(trace: Any) -> Json:
    """Of the API's trace the options for the whole step that count together, priced together, without the advice on
    regions that nobody follows here."""
    from app.trace_report.actions.ranking import changes, plan
    from app.trace_report.step_model import step_us

    listed: list[Json] = [{**a} for a in trace["actions"]]
    kept = ("id", "scope", "tool", "title", "call", "saves_us", "step_time_us", "adds_us", "instead_of", "because")
    actions = [{k: a[k] for k in kept} | {"option": option_of(a)} for a in listed]
    together = [a for a in actions if a["option"] and a["adds_us"] is not None]
    ids = {a["id"] for a in together}
    planned = plan(trace)
    step = None
    if planned and together:
        low, mid, high = step_us(planned[0], changes([p for p in planned[1] if p.option.id in ids]))
        step = {"low": low, "mid": mid, "high": high}
    return {
        "alternatives": alternatives_of(planned, actions) if planned else [],
        "profiled_us": (trace.get("step_parts") or {"wall_us": 0.0})["wall_us"],
        "parts": trace.get("step_parts"),
        "pace": trace.get("pace"),
        "actions": actions,
        "gain": trace["gain"],
        "followed": list(dict.fromkeys(a["option"] for a in together)),
        "predicted_us": step,
    }


def of_model(model: str, folder: Path, arguments: argparse.Namespace, gpu: str, keep: Callable[[Json], None]) -> None:
    """Everything about one model; keep: called with what is known after each part of it."""
    stem = model.replace(" ", "-")
    out, trace = folder / f"{stem}.json", folder / f"{stem}.trace.json"
    answer: Json = {"model": model, "gpu": gpu, "found": {}}
    why = start(model, "record", out, arguments, gpu)
    if out.exists():
        answer["eager"] = json.loads(out.read_text("utf-8"))
    if why and not trace.exists():
        keep({**answer, "why": why})
        return
    keep_trace(arguments.out, trace)
    keep(answer)
    answer |= advised(trace, model, folder)
    keep(answer)
    together = "+".join(answer["followed"])
    others = [a["what"] for a in answer["alternatives"]] if arguments.alternatives else []
    for number, what in enumerate(dict.fromkeys([*others, *([together] * bool(together))])):  # none was timed before
        then = folder / f"{stem}-{number}.json"
        why = start(model, what, then, arguments, gpu)
        answer["found"][what] = json.loads(then.read_text("utf-8")) if then.exists() else {"why": why}
        keep_trace(arguments.out, then.with_suffix(".trace.json"))
        keep(answer)


KEEPING = threading.Lock()


def keep_trace(out: Path | None, trace: Path) -> None:
    """The trace, compressed, into the folder's one archive."""
    if out is None or not trace.exists():
        return
    body = gzip.compress(trace.read_bytes(), 6)
    with KEEPING, zipfile.ZipFile(out / "traces.zip", "a") as archive:
        archive.writestr(f"{trace.name}.gz", body)


def predicted_of(answer: Json, what: str) -> Json | None:
    """What the step was predicted to take with these options."""
    if what == "+".join(answer["followed"]):
        return answer["predicted_us"]  # type: ignore[no-any-return]
    return next((a["predicted_us"] for a in answer.get("alternatives", ()) if a["what"] == what), None)


def show(answer: Json) -> None:
    """A table of one model."""
    eager = answer.get("eager") or {}
    ways = ", ".join(f"{way} {told['wall_us']:.0f}" for way, told in (eager.get("profiled") or {}).items())
    print(f"{answer['model']}: eager {eager.get('wall_us') or 0:.0f} us, profiled {ways}, load "
          f"{(eager.get('host') or {}).get('load')} {answer.get('why', '')}", flush=True)  # fmt: skip
    for what, told in answer["found"].items():
        step = predicted_of(answer, what)
        said = f"predicted {step['mid']:.0f} us ({step['low']:.0f} to {step['high']:.0f}), " if step else ""
        off = f", off by {step['mid'] / told['wall_us'] - 1:+.0%}" if step and "wall_us" in told else ""
        timed = told.get("why") or f"found {told['wall_us']:.0f}"
        print(f"  {what:32} {said}{timed}{off}", flush=True)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(ALL)}")
    parser.add_argument("--seconds", type=float, default=450)
    parser.add_argument("--out", type=Path, help="a folder for applied.json and traces.zip; it is made")
    also = "what is advised and not followed with the others is applied first, alone and with what is followed"
    parser.add_argument("--alternatives", action="store_true", help=also)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    models = arguments.models or list(RUN)
    if unknown := [m for m in models if m not in ALL]:
        parser.error(f"no model is called {unknown[0]!r}; there are {', '.join(ALL)}")
    if arguments.child is not None:
        child(models[0], arguments.child, arguments.out, arguments.small, arguments.device)
        return 0
    arguments.until = time.time() + arguments.seconds
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "traces.zip").unlink(missing_ok=True)
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = [g for g in named.split(",") if g] if named else list(map(str, range(max(1, torch.cuda.device_count()))))
    record: Json = {
        "device": arguments.device,
        "date": datetime.now(UTC).date().isoformat(),
        "software": {"torch": torch.__version__},
        "models": [],
    }
    answers: dict[str, Json] = {}
    waiting: Queue[str] = Queue()
    for model in models:
        waiting.put(model)

    def keep(answer: Json) -> None:
        with KEEPING:
            answers[answer["model"]] = {**answer}
            if arguments.out:
                told = [answers[m] | {"group": _group(m)} for m in models if m in answers]
                record["device"] = next((m["eager"]["gpu"] for m in told if "eager" in m), arguments.device)
                body = json.dumps({**record, "models": told}, indent=1)
                (arguments.out / "applied.json").write_text(body + "\n", encoding="utf-8")

    def work(gpu: str, folder: Path) -> None:
        while time.time() < arguments.until:
            try:
                model = waiting.get_nowait()
            except Empty:
                return
            try:
                of_model(model, folder, arguments, gpu, keep)
            except Exception as fault:  # the next model is another's
                keep({"model": model, "found": {}, "why": f"{type(fault).__name__}: {fault}"[:300]})
            show(answers[model])

    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(COMPILING * len(gpus)) as pool:
        for number, gpu in enumerate(gpus * COMPILING):
            folder = Path(place) / gpu.replace("/", "-")
            folder.mkdir(exist_ok=True)
            pool.submit(work, gpu, folder).add_done_callback(_tell)
            time.sleep(0.1 * number)
    return 0


def _tell(done: Any) -> None:
    """What no model is to blame for is said."""
    if fault := done.exception():
        print(f"{type(fault).__name__}: {fault}", file=sys.stderr, flush=True)


def _group(model: str) -> str:
    """Whether predictions were mended by it."""
    if model in MODELS:
        return "in-sample"
    return "not looked at" if model in OTHERS else "new" if model in NEWEST else "new in a run before"


if __name__ == "__main__":
    sys.exit(main())
