"""What a page shows of the kernels that torch.compile would make of a region, and which of them computes what.

Pure functions of the oracle's answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NotRequired, TypedDict

from app.analysis.reissue import kernel_keys
from app.objects.cost import CostOperation
from app.objects.oracle import OracleExtern, OracleKernel, OraclePrediction, Recompiles, Stage
from app.objects.region import RegionBody
from app.units import count
from app.web.charts.plotly import operation_rows as cost_operations
from app.web.long_lists import heaviest
from profiler.oracle.model import (
    FOREACH,
    MODES,
    PERSISTENT,
    POINTWISE,
    REDUCTION,
    SCAN,
    SDPA_REPLACED,
    TEMPLATE,
    alike,
    how_today,
)
from profiler.region import op_kinds

KIND_WORDS = {
    POINTWISE: "element by element",
    REDUCTION: "reduction, looping over each row",
    PERSISTENT: "reduction, whole rows at once",
    TEMPLATE: "Inductor's own matrix product",
    FOREACH: "many tensors in one launch",
    SCAN: "scan, split over blocks",
}

MODE_WORDS = {"default": "torch.compile(f)", "max-autotune": 'torch.compile(f, mode="max-autotune")'}

CALLED = frozenset(
    {op_kinds.GEMM, op_kinds.ATTENTION, op_kinds.CONVOLUTION, op_kinds.SORT, op_kinds.FFT, op_kinds.OTHER}
)
"""Kinds of operations that Inductor leaves to a library where it writes no kernel of them."""

TAKEN_ALONG = {"add": ("addmm", "baddbmm"), "mul": ("addmm", "baddbmm")}
"""Operations that Inductor lets a library's matrix product do on the way."""

MOST_KERNELS = 60
"""Kernels of one stage that a page lists, each with its source."""


class ListedKernel(OracleKernel):
    """A kernel of a mode. number: its place, from 1; listed: with its source; key: by which it is asked for.

    words: its kind; short: its operations; where: its lines of the text, in words.
    """

    number: int
    listed: bool
    key: str
    words: str
    short: list[str]
    where: str


class ListedExtern(OracleExtern):
    """A library call with the name that pages use."""

    short: str


class StageKernels(TypedDict):
    """The forward's or the backward's kernels. left: how many are not listed."""

    name: Stage
    kernels: list[ListedKernel]
    left: int
    externs: list[ListedExtern]


class ModePrediction(OraclePrediction):
    """One mode. code: how it is called; generated, library: launches; same: the same as the first mode."""

    code: str
    numbered: list[ListedKernel]
    generated: int
    library: int
    stages: list[StageKernels]
    same: bool


class OperationRow(TypedDict):
    """Who computes an operation. kernels: more than one where the compiler's record leaves it open; library: the call's
    name where no kernel does."""

    kernels: list[ListedKernel]
    library: str


class OracleSection(TypedDict):
    """Context of partials/kernels/oracle.html.

    reason: why there is no answer, or none of a mode; rows: by operation's name.
    """

    state: Literal["answered", "unavailable", "unasked"]
    reason: str
    modes: list[ModePrediction]
    rows: dict[str, OperationRow]
    how: NotRequired[str]
    torch: NotRequired[str]
    triton: NotRequired[str]
    device: NotRequired[str]
    sizes: NotRequired[str]
    symbolic: NotRequired[bool]
    training: NotRequired[bool]
    recompiles: NotRequired[str]


def oracle_section(region: RegionBody) -> OracleSection:
    """What torch.compile would make of the region, mode by mode."""
    predictions = region.get("oracle") or ()
    answered = [p for p in predictions if not p["unavailable"]]
    if not answered:
        reason = next((p["unavailable"] for p in predictions), "")
        return {"state": "unavailable" if predictions else "unasked", "reason": reason, "modes": [], "rows": {}}
    modes = [_list_mode(p) for p in sorted(answered, key=lambda p: MODES.index(p["mode"]) if p["mode"] in MODES else 9)]
    for later in modes[1:]:
        later["same"] = _is_same(modes[0], later)
    first, cost = answered[0], region.get("cost")
    return {
        "state": "answered",
        "reason": next((f"{p['mode']}: {p['unavailable']}" for p in predictions if p["unavailable"]), ""),
        "how": how_today(first["how"]),
        "torch": first["torch"],
        "triton": first["triton"],
        "device": first["device"],
        "sizes": ", ".join(f"{name} = {size}" for name, size in (first["binding"] or {}).items()),
        "symbolic": first["symbolic"],
        "training": first["training"],
        "modes": modes,
        "rows": operation_rows(cost_operations(cost).shown if cost else (), modes[0]),
        "recompiles": describe_recompiles(region.get("recompiles")),
    }


def describe_recompiles(recompiles: Recompiles | None) -> str:
    """How torch.compile meets the sizes that vary, in a sentence; "" where there is one size."""
    if not recompiles:
        return ""
    graphs, sizes = recompiles["graphs"], len({tuple(sorted(b.items())) for b in recompiles["bindings"]})
    text = f"Over its {sizes} sizes torch.compile makes {count(graphs, 'graph')}"
    if recompiles["gives_up"]:
        return f"{text}, more than the {recompiles['limit']} after which it gives up and runs eagerly."
    if recompiles["because"]:
        return f"{text}; none for all sizes at once: {recompiles['because']}."
    symbolic = recompiles["symbolic"]
    served = (
        f", the last one for any size, with {count(symbolic['launches'], 'launch', 'launches')}" if symbolic else ""
    )
    return f"{text}{served}."


def library_name(name: str) -> str:
    """A library call's name as the pages say it: attention without the backend that is the device's choice."""
    return {"sdpa": "SDPA", "sdpa_backward": "SDPA's backward"}.get(alike(name), name.removeprefix("aten."))


def _list_mode(prediction: OraclePrediction) -> ModePrediction:
    kernels: list[ListedKernel] = [
        {
            **kernel,
            "number": number,
            "listed": False,
            "key": key,
            "words": KIND_WORDS.get(kernel["kind"], kernel["kind"]),
            "short": [o.removeprefix("aten.") for o in kernel["operations"]],
            "where": describe_lines(kernel["lines"]),
        }
        for number, (key, kernel) in enumerate(
            zip(kernel_keys(prediction["kernels"]), prediction["kernels"], strict=True), 1
        )
    ]
    externs: list[ListedExtern] = [{**e, "short": library_name(e["name"])} for e in prediction["externs"]]
    stages = list(dict.fromkeys([k["stage"] for k in kernels] + [e["stage"] for e in prediction["externs"]]))
    listed = {
        stage: heaviest([k for k in kernels if k["stage"] == stage], lambda k: k["bytes_moved"] or 0, MOST_KERNELS)
        for stage in stages
    }
    for kernel in (k for rows in listed.values() for k in rows.shown):
        kernel["listed"] = True
    return {
        **prediction,
        "code": MODE_WORDS.get(prediction["mode"], prediction["mode"]),
        "numbered": kernels,
        "generated": sum(k["calls"] for k in kernels),
        "library": sum(e["calls"] for e in prediction["externs"]),
        "stages": [
            {
                "name": stage,
                "kernels": listed[stage].shown,
                "left": listed[stage].left,
                "externs": [e for e in externs if e["stage"] == stage],
            }
            for stage in sorted(stages, key=("forward", "backward").index)
        ],
        "same": False,
    }


def _is_same(one: ModePrediction, other: ModePrediction) -> bool:
    """Whether two modes are the same kernels, source and all, and the same calls."""

    def kernels_of(mode: ModePrediction) -> tuple[list[tuple[str, str | None, int]], list[OracleExtern]]:
        return [(k["name"], k.get("source"), k["calls"]) for k in mode["kernels"]], list(mode["externs"])

    return kernels_of(one) == kernels_of(other)


def describe_lines(lines: Iterable[int]) -> str:
    """Line numbers in words: "line 5", "lines 5 to 8 and 11"; "" for none."""
    runs: list[list[int]] = []
    for line in sorted(set(lines)):
        if runs and line == runs[-1][1] + 1:
            runs[-1][1] = line
        else:
            runs.append([line, line])
    if not runs:
        return ""
    words = [str(a) if a == b else f"{a} to {b}" if b > a + 1 else f"{a}, {b}" for a, b in runs]
    joined = ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]
    return f"{'line' if joined.isdigit() else 'lines'} {joined}"


def operation_rows(operations: Iterable[CostOperation], mode: ModePrediction) -> dict[str, OperationRow]:
    """Which of a mode's kernels computes an operation of the cost, by the operation's name.

    By the kernel's lines against the operation's, then by its aten operations; an operation that autograd
    adds has no line, and is looked for in the backward's kernels.
    """
    return {o["name"]: _find_kernels(o, mode) for o in operations}


def _find_kernels(operation: CostOperation, mode: ModePrediction) -> OperationRow:
    base = re.sub(r"_\d+$", "", operation["name"])
    line = operation["line"]
    stage = "forward" if line else "backward"  # the backward may compute what is written again: not shown
    near = [k for k in mode["numbered"] if k["stage"] == stage and (line in k["lines"] or not line)]
    exact = [k for k in near if f"aten.{base}" in k["operations"]]
    called = operation["kind"] in CALLED
    library = "" if exact else _find_library_call(operation, base, mode, unclaimed=called or not near)
    kernels = exact or ([] if called or library or not line else near)
    return {"kernels": kernels, "library": library}


def _find_library_call(operation: CostOperation, base: str, mode: ModePrediction, *, unclaimed: bool) -> str:
    """The library call that an operation became; "" for none. unclaimed: no kernel has its line."""
    externs = [library_name(str(e["name"])) for e in mode["externs"]]
    if base in externs:
        return base
    if not unclaimed:
        return ""
    replaced = [r["name"] for r in mode["replaced"]]
    attention = [e for e in externs if e.startswith("SDPA")]
    if SDPA_REPLACED in replaced and attention and operation["line"]:
        return attention[0]
    if operation["kind"] == op_kinds.GEMM:
        return next((e for e in externs if e.endswith("mm")), "")
    if operation["kind"] in CALLED and len(set(externs)) == 1:
        return externs[0]
    return next((e for e in externs if e in TAKEN_ALONG.get(base, ())), "")
