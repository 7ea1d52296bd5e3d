"""torch.compile for the whole model, and CUDA graphs of the step."""

from __future__ import annotations

from collections.abc import Sequence

from app.trace_report.actions.model import Option, advised_left, alternative_left, launches_left
from app.trace_report.step_model import AnyRegion, Change, Left, Step, busy_us

COMPILE, GRAPHS = "compile-model", "cuda-graphs"
PACED_BY_LAUNCHES = 0.05
"""Share of the step in which the GPU waits for launches, or would once kernels are faster, from which graphs are worth
trying: below it they save less than the step varies from run to run."""
UNCAPTURED = frozenset({"optimizer"})
"""Kinds of regions that torch.compile(model) does not see, nor its graphs: they run behind the backward."""
TUNED = "max-autotune"


def covered(step: Step) -> dict[int, Left]:
    """Regions that torch.compile(model) takes in, by their place, and what it is predicted to leave of each.

    Where a region's own advice is torch.compile its prediction, or measurement, counts.
    """
    made = {}
    for place, region in enumerate(step.regions):
        if region["kind"] in UNCAPTURED:
            continue
        left = advised_left(region) if _advises_compile(region) else alternative_left(region, "compile")
        if left is not None:
            made[place] = left
    return made


def whole_model(step: Step, blockers: int) -> list[Option]:
    """torch.compile(model), with and without CUDA graphs; the second stands beside the first where launches pace it."""
    time = covered(step)
    names = [i for i in time if step.regions[i].get("advice")]
    if not names:
        return []
    launches = {i: launches_left(step.regions[i], "compile") for i in time}
    mode = TUNED if _mostly_tuned(step, time) else "default"
    argument = f', mode="{mode}"' if mode != "default" else ""
    because = f"fuses what {_count(len(time), 'region')} of the step do{'es' if len(time) == 1 else ''}"
    because += f"; {_count(blockers, 'place')} in the model break or slow it: see below" if blockers else ""
    compiled = Option(
        COMPILE, "compile", mode, "Compile the whole model", f"model = torch.compile(model{argument})", because,
        {"kind": "predicted", "text": "the sum over its regions; fusion across their borders is not counted"},
        Change(time=time, launches=launches), tuple(time),
    )  # fmt: skip
    return [compiled, *_graphs(step, time)]


def _graphs(step: Step, time: dict[int, Left]) -> list[Option]:
    parts = step.parts
    if parts["idle_launch_us"] < PACED_BY_LAUNCHES * parts["wall_us"]:
        return []
    inside = frozenset(i for i, r in enumerate(step.regions) if r["kind"] not in UNCAPTURED)
    surely = frozenset(i for i in inside if i in time or _asks_for_graphs(step.regions[i])) or inside
    share = parts["idle_launch_us"] / parts["wall_us"]
    paced = 1 - step.pace["gpu_us"] / parts["wall_us"]
    because = (
        f"the GPU waits for launches in {share:.0%} of the step, and the host sets the pace of {paced:.0%} of it; "
    )
    because += "a graph replays all launches with one"
    return [
        Option(
            GRAPHS, "compile", "reduce-overhead", "Compile the whole model and replay it as CUDA graphs",
            'model = torch.compile(model, mode="reduce-overhead")', because,
            {"kind": "predicted", "text": "from the recorded waiting and launches; that sizes and addresses stay the"
             " same from step to step the trace does not tell"},
            Change(time=time, captured=surely, at_best=inside), tuple(sorted(inside)),
        )
    ]  # fmt: skip


def graphs_alone(step: Step) -> list[Option]:
    """CUDA graphs where no region has a predicted time with torch.compile: launches go, kernels stay as they are."""
    return _graphs(step, {})


def _advises_compile(region: AnyRegion) -> bool:
    advice = region.get("advice")
    return advice is not None and advice["tool"] == "compile"


def _asks_for_graphs(region: AnyRegion) -> bool:
    return _mode(region) == "reduce-overhead"


def _mostly_tuned(step: Step, time: dict[int, Left]) -> bool:
    """Most of what is saved is saved by regions that are advised max-autotune."""
    saved = {i: busy_us(step.regions[i]) * (1 - left.mid) for i, left in time.items() if left.mid < 1.0}
    tuned = [i for i in saved if _advises_compile(step.regions[i]) and _mode(step.regions[i]) == TUNED]
    return sum(saved[i] for i in tuned) > sum(saved.values()) / 2


def _mode(region: AnyRegion) -> str:
    advice = region.get("advice")
    return advice["mode"] if advice else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def places(options: Sequence[Option]) -> frozenset[int]:
    """Regions that any of the options takes in."""
    return frozenset(i for o in options for i in o.regions)
