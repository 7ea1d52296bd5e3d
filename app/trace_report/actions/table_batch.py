"""The embedding bags of a recommender in one kernel: FBGEMM's table batch, never advised where it is missing."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib.util import find_spec

from app.objects.common import Note
from app.trace_report.actions.fp8 import WORTH_INSTALLING
from app.trace_report.actions.model import Option, alternative_left
from app.trace_report.step_model import AnyRegion, Change, Left, Step, busy_us, launches_of, step_us
from app.units import count, share
from profiler.region.language import trees

TABLE_BATCH = "table-batch"
CANDIDATE = "library:fbgemm_gpu.tbe"
WORTH = 0.01
"""Share of the step from which the middle of what it saves is worth a line."""
LAUNCHES = 4.0
"""Of all tables together: the forward, and a backward that sorts the indices and writes the rows that they name."""
INSTALL = "pip install fbgemm-gpu"
IMPORTS = (
    "from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode; "
    "from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, "
    "SplitTableBatchedEmbeddingBagsCodegen"
)
CALL = (
    "bags{of} = SplitTableBatchedEmbeddingBagsCodegen([(rows, width, EmbeddingLocation.DEVICE, ComputeDevice.CUDA) "
    "for rows, width in tables{of}], pooling_mode=PoolingMode.{mode}); y{of} = bags{of}(indices{of}, offsets{of})"
)
"""Of one module, which pools in one way. of: what tells it from another."""
MODE_PLACE = 6  # of F.embedding_bag's arguments
USUAL_MODE = "mean"  # torch's, where a text says none
MODES = frozenset({"sum", "mean"})  # of FBGEMM


def is_installed() -> bool:
    """Whether FBGEMM's GPU operators are there."""
    return find_spec("fbgemm_gpu") is not None


def table_batch(step: Step) -> list[Option]:
    """All bags of the step that pool in one way in one module; [] where each of them is one table alone, or there is
    nothing to win. It is followed with nothing else: it takes the place of modules, and of their part of the
    optimizer."""
    time = {
        i: left
        for i, r in enumerate(step.regions)
        if (left := alternative_left(r, CANDIDATE)) is not None and left.mid < 1.0
    }
    bags = _several({i: _tables(step.regions[i]) for i in time})
    time = {i: left for i, left in time.items() if i in bags}
    tables = sum(sum(of_modes.values()) for of_modes in bags.values())
    modes = sorted({mode for of_modes in bags.values() for mode in of_modes})
    launches = sum(launches_of(step.regions[i]) for i in time)
    if not modes or not launches:
        return []
    kept = min(1.0, LAUNCHES * len(modes) / launches)
    change = Change(time=time, launches=dict.fromkeys(time, Left(1.0, kept, kept)))
    if step.parts["wall_us"] - step_us(step, [change])[1] < WORTH * step.parts["wall_us"]:
        return []
    busy = sum(busy_us(step.regions[i]) for i in time)
    calls = [CALL.format(of=f"_{mode}" if len(modes) > 1 else "", mode=mode.upper()) for mode in modes]
    kernel = "one kernel" if len(modes) == 1 else f"one kernel for each way of pooling ({' and '.join(modes)})"
    because = (
        f"{count(tables, 'embedding bag')} of a step run one after another, in "
        f"{count(launches, 'launch', 'launches')} and {share(busy / step.parts['wall_us'])} of it; {kernel} takes "
        "all tables, and its backward writes the rows that were read instead of a gradient as large as the table"
    )
    return [
        Option(
            TABLE_BATCH, "library", CANDIDATE.removeprefix("library:"),
            "Put the embedding bags into FBGEMM's table batch", "; ".join([IMPORTS, *calls]), because,
            {"kind": "predicted", "text": "from the bytes that it moves, each table by itself; not measured"},
            change, tuple(time), counted=False,
            numerics="the optimizer of the tables is the module's own: give it theirs (optimizer=OptimType.EXACT_SGD)",
        )
    ]  # fmt: skip


def _tables(region: AnyRegion) -> dict[str, float]:
    """Way of pooling -> embedding bags of a region in a step."""
    tables: dict[str, float] = {}
    calls = float(region.get("calls_per_step") or 0.0)
    for node in ast.walk(trees.module(region.get("text") or "")):
        if isinstance(node, ast.Call) and trees.dotted_name(node.func).endswith("embedding_bag"):
            given = next((k.value for k in node.keywords if k.arg == "mode"), None)
            given = given or (node.args[MODE_PLACE] if len(node.args) > MODE_PLACE else None)
            mode = str(given.value) if isinstance(given, ast.Constant) else USUAL_MODE
            tables[mode] = tables.get(mode, 0.0) + calls
    return tables


def _several(bags: Mapping[int, Mapping[str, float]]) -> Mapping[int, Mapping[str, float]]:
    """The regions all of whose ways of pooling FBGEMM has, with several tables each: a module of one saves nothing."""
    while True:
        left = {
            i: own
            for i, own in bags.items()
            if own and all(mode in MODES and sum(b.get(mode, 0.0) for b in bags.values()) > 1.0 for mode in own)
        }
        if len(left) == len(bags):
            return left
        bags = left


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
