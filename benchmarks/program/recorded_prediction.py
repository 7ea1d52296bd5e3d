"""The trace that is predicted of one model, as `tritonworthy advise FILE:FUNCTION --save` writes it."""

from __future__ import annotations

import sys
from pathlib import Path

from app.analysis.device_choice import choose_device
from app.program.service import write_predicted
from benchmarks.program.recorded_models import Model
from benchmarks.program.recorded_results import PREDICTED
from profiler.program.model import ProgramError
from profiler.program.request import Request
from profiler.trace import read_trace

PROGRAMS = Path(__file__).with_name("recorded_models.py")


def predict(model: Model, folder: Path, device_name: str) -> int:
    """Predict one here: its trace in the folder."""
    device, _ = choose_device(device_name, None)
    path = folder / f"{model.name}.{PREDICTED}.json.gz"
    try:
        write_predicted(request_of(model), device, path)
    except ProgramError as error:
        print(f"{error.message}\n{error.remedy}", file=sys.stderr)
        return 1
    told = read_trace(path).predicted
    ended = (
        [f"{where}: {what}" for what, where, ends in told.gaps if ends] if told is not None else ["not a prediction"]
    )
    print("\n".join(ended), file=sys.stderr)
    return 3 if ended else 0


def request_of(model: Model) -> Request:
    """The model as the command line takes it."""
    return Request(f"{PROGRAMS}:{model.name}", training=model.training)
