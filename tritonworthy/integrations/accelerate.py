"""What Hugging Face's accelerate is to record: its ProfileKwargs, as the reader wants a trace."""

from __future__ import annotations

import os
from pathlib import Path

from accelerate.utils import ProfileKwargs
from torch.profiler import profile

from tritonworthy.profiling import has_gpu, rank_here
from tritonworthy.recorder import RECORDED, SKIP
from tritonworthy.recording import files_of


def profile_kwargs(path: str | os.PathLike[str], *, skip: int = SKIP, stacks: bool = True) -> ProfileKwargs:
    """For `with accelerator.profile(profile_kwargs("step.json.gz")) as profiler:`, with `profiler.step()` after every
    step: `skip` steps pass, one warms the profiler up, two are recorded.

    stacks: with the lines of your code and modules, which slow a step whose pace the host sets. Several ranks write a
    file each. Raises ValueError.
    """
    files_of(Path(path))

    def write(profiler: profile) -> None:
        place = files_of(Path(path), rank_here()).path
        place.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(place))

    return ProfileKwargs(
        activities=["cpu", "cuda"] if has_gpu() else ["cpu"],
        schedule_option={"skip_first": skip, "wait": 0, "warmup": 1, "active": RECORDED, "repeat": 1},
        on_trace_ready=write,
        record_shapes=True,
        with_stack=stacks,
        with_modules=stacks,
    )
