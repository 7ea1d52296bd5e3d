"""Where the recording itself is the first thing to mend: it shows no steady step, or too little to say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.objects.common import Note
from app.objects.trace import HostKind, HostTime, KernelRow
from app.trace_report.actions.model import Option
from app.trace_report.step_model import Step
from app.units import count, share

RECORD = "record-again"
STARTING: frozenset[HostKind] = frozenset({"start_up", "compiling", "capturing", "ending"})
"""What a process does once, or what is no part of a step."""
MOSTLY = 0.2
"""Of the step, from which what is not steady decides what the figures say."""
LAUNCHES = 8
"""Of kernels and copies, below which a recording is no step of a model."""
STEADY = "schedule=torch.profiler.schedule(wait=2, warmup=3, active=3)"

WORDS: dict[HostKind, str] = {
    "start_up": "spent in what begins once, most of it in {name}: CUDA, a library or a module is loaded",
    "compiling": "spent before compiled code that runs for the first time",
    "capturing": "spent recording a graph ({name}), in which nothing runs: a step that replays it is what counts",
    "ending": "after the last operation of the recording",
}
WITHOUT_GRAPH = (
    'Run what was captured, not its replay: torch.compile without mode="reduce-overhead", vLLM with '
    'compilation_config={"cudagraph_mode": "NONE"}, which keeps what torch.compile made.'
)
LACKS = {
    "graph-launches": ("Record the step without its CUDA graph too", "record_shapes=True"),
    "no-ops": ("Record again with what the CPU does", "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"),
    "launched-before-window": ("Record again, with the launches", STEADY),
    "no-shapes": ("Record again with shapes", "record_shapes=True"),
}
"""Code of a note -> what to do about the recording, and the argument of torch.profiler.profile. By what is lost."""


def record_again(
    step: Step, times: Sequence[HostTime], notes: Sequence[Note], others: Sequence[Option],
    kernels: Sequence[KernelRow] = (),
) -> list[Option]:  # fmt: skip
    """To record again, first of all, where the step is not steady, or nothing else that can be done has a time."""
    starting = [one for one in times if one["kind"] in STARTING]
    unsteady = _unsteady_share(step.parts["wall_us"], times)
    if step.pace["launches"] < LAUNCHES:
        return [
            _option("Record a whole step", STEADY, f"the step has {count(step.pace['launches'], 'launch', 'launches')}")
        ]
    if unsteady >= MOSTLY:
        longest = max(starting, key=lambda one: one["time_us"])
        title = "Record a step that replays the graph" if longest["kind"] == "capturing" else "Record a steady step"
        because = f"{share(unsteady)} of the step is " + WORDS[longest["kind"]].format(name=f"`{longest['name']}`")
        return [_option(title, STEADY, because)]
    by_code = {note["code"]: note["message"] for note in notes}
    if SAMPLED in by_code:
        return [replace(_option("Take the whole trace", STEADY, by_code[SAMPLED]), first=False)]
    if any(o.change is not None for o in others):
        return []
    lacking = next((code for code in LACKS if code in by_code), None)
    if lacking is None:
        return []
    how = f" {WITHOUT_GRAPH}{_by_names(kernels)}" if lacking == "graph-launches" else ""
    return [_option(*LACKS[lacking], by_code[lacking] + how)]


def _by_names(kernels: Sequence[KernelRow]) -> str:
    """Where the time is as far as kernels' names tell it; "" where no kernel has much of it."""
    total = sum(k["time_us"] for k in kernels)
    longest = max((k for k in kernels if k["name"]), key=lambda k: k["time_us"], default=None)
    if longest is None or longest["time_us"] < MUCH * total:
        return ""
    return (
        f" Meanwhile by name: {longest['label']} takes {longest['time_us'] / 1e3:.1f} of {total / 1e3:.1f} ms of "
        "kernels; where its framework has another backend for it, try that."
    )


MUCH = 0.3
"""Of all kernels' time, from which one name is told."""
SAMPLED = "sampled"


def is_sampled(notes: Sequence[Note]) -> bool:
    """Whether events were taken out of the trace."""
    return any(note["code"] == SAMPLED for note in notes)


def tells_nothing(wall_us: float, launches: float, times: Sequence[HostTime]) -> bool:
    """Whether what the recording says of its step says nothing of any other: how idle the GPU is above all."""
    return launches < LAUNCHES or is_start(wall_us, times)


def is_start(wall_us: float, times: Sequence[HostTime]) -> bool:
    """Whether most of the step is what a process does once."""
    return _unsteady_share(wall_us, times) >= 0.5


def _unsteady_share(wall_us: float, times: Sequence[HostTime]) -> float:
    """Share of the step that is spent in what a process does once."""
    return sum(one["time_us"] for one in times if one["kind"] in STARTING) / wall_us if wall_us else 0.0


def _option(title: str, argument: str, because: str) -> Option:
    return Option(
        RECORD, "record", "", title, f"with torch.profiler.profile({argument}) as profiler: ...", because,
        {"kind": "observed", "text": "what the recording shows, and what it lacks"},
        None, (), counted=False, first=True,
    )  # fmt: skip
