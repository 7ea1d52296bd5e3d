"""What following the advice will give, of models that nobody has measured: written before they are.

    python -m benchmarks.traces.predicted [MODEL ...] [--device H200] [--out tests/records/applied-predicted-h200.json]

Each model's step is predicted from its program (`applied_programs`), without a GPU, and advised on; what
`benchmarks/traces/applied.py` would follow of it is priced. There the step is recorded, and advised on again.
Predictions of other models stay in the record, each with its day.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import torch

from app.analysis.device_choice import choose_device
from app.program.service import write_predicted
from app.trace_report.report import report
from benchmarks.traces.applied import Json, followed_of
from benchmarks.traces.applied_later import LATER
from benchmarks.traces.applied_latest import LATEST
from benchmarks.traces.applied_newest import NEWEST
from kernels import host
from profiler.program.request import Request

KNOWN = {**LATER, **LATEST, **NEWEST}
PROGRAMS = Path(__file__).with_name("applied_programs.py")
RECORD = Path(__file__).resolve().parent.parent.parent / "tests" / "records" / "applied-predicted-h200.json"


def predicted(model: str, device_name: str, folder: Path) -> Json:
    """The step as it is predicted to be, and after what is advised for the whole of it. Times in µs."""
    device, _ = choose_device(device_name, None)
    path = folder / "step.json.gz"
    write_predicted(Request(f"{PROGRAMS}:{model.replace(' ', '_')}"), device, path)
    told = followed_of(report(path, model))
    return {
        "model": model,
        "date": datetime.now(UTC).date().isoformat(),
        "eager_us": told["profiled_us"],
        "launches": told["pace"]["launches"],
        "followed": told["followed"],
        "advised": [a["title"] for a in told["actions"]],
        "predicted_us": told["predicted_us"],
    }


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(KNOWN)}; those of the next run")
    parser.add_argument("--device", default="H200")
    parser.add_argument("--out", type=Path, default=RECORD)
    arguments = parser.parse_args()
    if unknown := [m for m in arguments.models if m not in KNOWN]:
        parser.error(f"no model is called {unknown[0]!r}; there are {', '.join(KNOWN)}")
    device, _ = choose_device(arguments.device, None)
    features = host.probe_host().features
    host.assume(host.Host(device.name, (9, 0), {}, frozenset({"torch", "triton"}), features))
    models = arguments.models or list(NEWEST)
    kept = json.loads(arguments.out.read_text("utf-8"))["models"] if arguments.out.exists() else []
    made: list[Json] = [m for m in kept if m["model"] not in models]
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            made.append(predicted(model, arguments.device, Path(folder)))
        step = made[-1]["predicted_us"] or {"mid": made[-1]["eager_us"]}
        print(f"{model:28} eager {made[-1]['eager_us'] / 1e3:8.2f} ms, after {', '.join(made[-1]['followed'])}: "
              f"{step['mid'] / 1e3:.2f}", flush=True)  # fmt: skip
        body = {"device": device.name, "torch": torch.__version__, "measured": False, "models": made}
        arguments.out.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
