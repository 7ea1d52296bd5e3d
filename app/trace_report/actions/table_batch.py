"""The embedding bags of a recommender in one kernel: FBGEMM's table batch, never advised where it is missing."""

from __future__ import annotations

from importlib.util import find_spec

from app.objects.common import Note
from app.trace_report.actions.fp8 import WORTH_INSTALLING
from app.trace_report.actions.model import Option, alternative_left
from app.trace_report.step_model import Change, Left, Step, busy_us, launches_of, step_us
from app.units import count, share

TABLE_BATCH = "table-batch"
CANDIDATE = "library:fbgemm_gpu.tbe"
WORTH = 0.01
"""Share of the step from which the middle of what it saves is worth a line."""
LAUNCHES = 4.0
"""Of all tables together: the forward, and a backward that sorts the indices and writes the rows that they name."""
INSTALL = "pip install fbgemm-gpu"
CALL = (
    "from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode; "
    "from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, "
    "SplitTableBatchedEmbeddingBagsCodegen; "
    "bags = SplitTableBatchedEmbeddingBagsCodegen([(rows, width, EmbeddingLocation.DEVICE, ComputeDevice.CUDA) "
    "for rows, width in tables], pooling_mode=PoolingMode.{mode}); y = bags(indices, offsets)"
)


def is_installed() -> bool:
    """Whether FBGEMM's GPU operators are there."""
    return find_spec("fbgemm_gpu") is not None


def table_batch(step: Step) -> list[Option]:
    """All bags of the step in one module; [] where there is one table alone, or nothing to win. It is followed with
    nothing else: it takes the place of modules, and of their part of the optimizer."""
    time = {
        i: left
        for i, r in enumerate(step.regions)
        if (left := alternative_left(r, CANDIDATE)) is not None and left.mid < 1.0
    }
    tables = sum(float(step.regions[i].get("calls_per_step") or 0.0) for i in time)
    launches = sum(launches_of(step.regions[i]) for i in time)
    if tables <= 1.0 or not launches:
        return []
    kept = min(1.0, LAUNCHES / launches)
    change = Change(time=time, launches=dict.fromkeys(time, Left(1.0, kept, kept)))
    if step.parts["wall_us"] - step_us(step, [change])[1] < WORTH * step.parts["wall_us"]:
        return []
    busy = sum(busy_us(step.regions[i]) for i in time)
    mode = "MEAN" if all("'mean'" in (step.regions[i].get("text") or "") for i in time) else "SUM"
    because = (
        f"{count(tables, 'embedding bag')} of a step run one after another, in "
        f"{count(launches, 'launch', 'launches')} and {share(busy / step.parts['wall_us'])} of it; one kernel takes "
        "all tables, and its backward writes the rows that were read instead of a gradient as large as the table"
    )
    return [
        Option(
            TABLE_BATCH, "library", CANDIDATE.removeprefix("library:"),
            "Put the embedding bags into FBGEMM's table batch", CALL.format(mode=mode), because,
            {"kind": "predicted", "text": "from the bytes that it moves, each table by itself; not measured"},
            change, tuple(time), counted=False,
            numerics="the optimizer of the tables is the module's own: give it theirs (optimizer=OptimType.EXACT_SGD)",
        )
    ]  # fmt: skip


def worth_installing(step: Step) -> list[Note]:
    """The same as a remark where FBGEMM is missing: what is not installed is never advised."""
    if is_installed():
        return []
    return [
        {
            "code": WORTH_INSTALLING, "level": "info",
            "message": "Worth installing to try: FBGEMM, for the embedding bags of all tables in one kernel. By itself "
            f"it is predicted to save {(step.parts['wall_us'] - step_us(step, [option.change])[1]) / 1e3:.2f} ms of a "
            f"step: {option.because}.",
            "remedy": f"{INSTALL}\n{option.call}",
        }
        for option in table_batch(step)
        if option.change
    ]  # fmt: skip
