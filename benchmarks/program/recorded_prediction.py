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

PROGRAMS = Path(__file__).with_name("recorded_models.py")


def predict(model: Model, folder: Path, device_name: str) -> int:
    """Predict one here: its trace in the folder."""
    device, _ = choose_device(device_name, None)
    try:
        write_predicted(request_of(model), device, folder / f"{model.name}.{PREDICTED}.json.gz")
    except ProgramError as error:
        print(f"{error.message}\n{error.remedy}", file=sys.stderr)
        return 1
    return 0


def request_of(model: Model) -> Request:
    """The model as the command line takes it."""
    return Request(f"{PROGRAMS}:{model.name}", training=model.training)
