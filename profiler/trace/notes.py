"""What a trace lacks, what that costs the reader, and how to record it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from profiler.trace.analyze.gpu_graphs import PAST_IT
from profiler.trace.analyze.gpu_utilization import union_us
from profiler.trace.analyze.kernel_kinds import communication_kernels
from profiler.trace.analyze.kernel_provenance import compiled_kernels, hand_written_triton, library_times
from profiler.trace.analyze.serving_phases import DECODE, MIXED, PREFILL, kind_of_step, of_one_kind, phases
from profiler.trace.analyze.steps import two_unlike
from profiler.trace.errors import Damage
from profiler.trace.model import NONE, Note, Trace

RECIPE = """\
from torch.profiler import ProfilerActivity, profile, schedule

with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=1, warmup=2, active=3),
    record_shapes=True,
    with_stack=True,
    on_trace_ready=lambda p: p.export_chrome_trace("trace.json.gz"),
) as prof:
    for _ in range(6):
        train_step()  # your step
        torch.cuda.synchronize()
        prof.step()
"""
"""A recording that has everything that is read here."""

_GZIP_DAMAGE = (
    (
        Damage.CHECKSUM,
        "bad-checksum",
        "The file's checksum does not match what was unpacked from it: it may be damaged, and figures may be wrong. "
        "Everything that could be unpacked was read.",
    ),
    (
        Damage.NO_CHECKSUM,
        "no-checksum",
        "The file is cut off inside its checksum: everything before it could be unpacked and was read, but nothing "
        "tells whether it is right.",
    ),
    (
        Damage.TRAILING_BYTES,
        "trailing-bytes",
        "Bytes that are not gzip follow the compressed trace in the file; they were left out.",
    ),
)
_COPY_AGAIN = "Copy the file again after the profiler has stopped; `gzip -t FILE` tells whether a copy is whole."

DISAGREEMENT_SHARE = 0.01
"""Below this share of kernels a differing "External id" is not worth a note."""


def trace_notes(trace: Trace, external_disagreement: tuple[int, int] = (0, 0), calls: int = 0) -> tuple[Note, ...]:
    """Notes on a trace, the ones that matter most first.

    external_disagreement: linked kernels whose "External id" names another op than the link, and those of which it
    names any. calls: to the GPU's runtime that were recorded.
    """
    notes = [
        *_damage(trace),
        *_sampled(trace),
        *_kernels(trace, calls),
        *_links(trace),
        *_shapes(trace),
        *_steps(trace),
        *_stacks(trace),
        *_device(trace),
        *_predicted(trace),
        *_external(*external_disagreement),
        *_communication(trace),
        *_origins(trace),
        *_serving(trace),
    ]
    return by_weight(notes)


def by_weight(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Errors first, then warnings; those of one level as they stand."""
    rank = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(notes, key=lambda note: rank[note.level]))


def damage_notes(damage: Damage, name: str = "") -> Iterator[Note]:
    """What is wrong with a gzip file that was read to its end. name: the file's, where it is not the trace itself."""
    for kind, code, message in _GZIP_DAMAGE:
        if kind in damage:
            yield Note(code, "warning", f"{name}: {message}" if name else message, _COPY_AGAIN)


def _damage(trace: Trace) -> Iterator[Note]:
    if trace.truncated:
        yield Note(
            "truncated",
            "warning",
            f"The file ends before its list of events does: {_count(trace.events, 'event')} could be read, later ones "
            "are lost. GPU events often stand last.",
            "Copy the file again after the profiler has stopped.",
        )
    yield from damage_notes(trace.damage)
    if trace.dropped:
        yield Note(
            "dropped-events",
            "warning",
            f"{_count(trace.dropped, 'event')} of {trace.events} left out: unreadable, or with a time that cannot be.",
            "Record again with a current PyTorch, or say which writer made this file.",
        )


FOLLOW_ONE_ANOTHER = 0.75
"""Of the operations' numbers, which the profiler counts up by one, what follows the one before: 0.94 and more in 36
recorded traces, 0.37 in one of which events were sampled."""
ENOUGH_NUMBERS = 200


def _sampled(trace: Trace) -> Iterator[Note]:
    """Whether most operations were taken out of the file after it was recorded."""
    numbers = np.unique(trace.ops.external_id[trace.ops.external_id != NONE])
    if len(numbers) < ENOUGH_NUMBERS or float((np.diff(numbers) == 1).mean()) >= FOLLOW_ONE_ANOTHER:
        return
    missing = 1 - len(numbers) / float(numbers[-1] - numbers[0] + 1)
    yield Note(
        "sampled",
        "warning",
        f"The trace is a sample: of the operations that the profiler numbered, {_percent(missing)} are missing. Where "
        "the GPU or the host does nothing, what was done may be missing.",
        "Take the trace as the profiler wrote it.",
    )


LONGEST = 3
"""Kinds of operations on the CPU that are named where there is no kernel."""


def _kernels(trace: Trace, calls: int) -> Iterator[Note]:
    if len(trace.kernels.start_us):
        return
    if calls >= MANY_CALLS:
        yield Note(
            "no-kernels",
            "error",
            f"The trace has no GPU kernels, though {_count(calls, 'call')} to the GPU's runtime were recorded: "
            "their times are missing where CUPTI counts instead (profiler_metrics), or another profiler holds it.",
            f"Leave out experimental_config=_ExperimentalConfig(profiler_metrics=...), end other profilers.\n{RECIPE}",
        )
        return
    yield Note("no-kernels", "error", f"The trace has no GPU kernels. {_on_cpu(trace)}", RECIPE)


MANY_CALLS = 10


def _on_cpu(trace: Trace) -> str:
    """What the CPU's work took, the longest outermost operations and annotations by name."""
    ops, told = trace.ops, trace.annotations
    if not len(ops.name):
        return "It has neither kernels nor operators."
    outermost = ops.parent == NONE
    spent: dict[str, list[float]] = {}
    names = (*ops.name[outermost].tolist(), *told.name.tolist())
    durations = (*(ops.end_us - ops.start_us)[outermost].tolist(), *(told.end_us - told.start_us).tolist())
    for number, duration in zip(names, durations, strict=True):
        if not trace.names[number].startswith("ProfilerStep#"):
            spent.setdefault(trace.names[number], []).append(duration)
    longest = sorted(spent.items(), key=lambda item: -sum(item[1]))[:LONGEST]
    parts = [f"{name} {len(times)} times, {sum(times) / 1e3:,.1f} ms in all" for name, times in longest]
    where = "" if trace.device else " no GPU is named in it, so that its work may be the CPU's alone;"
    return f"It has CPU operators only;{where} the longest: {'; '.join(parts)}."


def _links(trace: Trace) -> Iterator[Note]:
    kernels = trace.kernels
    total = trace.kernel_time_us
    if total <= 0.0:
        return

    def share(mask: npt.NDArray[np.bool_]) -> float:
        return float(kernels.duration_us[mask].sum()) / total

    if not len(trace.ops.name):
        yield Note(
            "no-ops",
            "warning",
            "The trace has GPU events only: no kernel can be named by the operator that launched it.",
            RECIPE,
        )
    graph = kernels.graph
    if graph.any():
        yield Note(
            "graph-launches",
            "warning",
            f"{_percent(share(graph))} of kernel time ({_count(int(graph.sum()), 'kernel')}) was replayed from CUDA "
            "graphs, which hide operators and shapes.",
            f"{PAST_IT}\n{RECIPE}",
        )
    early = ~kernels.launched
    if early.any():
        yield Note(
            "launched-before-window",
            "warning" if share(early) >= 0.01 else "info",
            f"{_percent(share(early))} of kernel time ({_count(int(early.sum()), 'kernel')}) has no launch in the "
            "trace: it was launched before recording began, or its launch was not recorded.",
            "Call torch.cuda.synchronize() before the recorded steps and give the schedule a warmup:\n" + RECIPE,
        )
    bare = kernels.launched & ~graph & (kernels.op == NONE)
    if bare.any() and len(trace.ops.name):
        yield Note(
            "launched-outside-ops",
            "warning" if share(bare) >= 0.01 else "info",
            f"{_percent(share(bare))} of kernel time ({_count(int(bare.sum()), 'kernel')}) was launched outside every "
            "operator (a hand-written kernel, or a library called directly).",
            "Wrap the call in torch.library.custom_op, so that the profiler records its name and shapes.",
        )


def _shapes(trace: Trace) -> Iterator[Note]:
    if len(trace.ops.name) and not trace.has_shapes:
        yield Note(
            "no-shapes",
            "warning",
            "The trace has no shapes: parts of it can be named, but their cost cannot be worked out.",
            "Record with record_shapes=True:\n" + RECIPE,
        )


def _steps(trace: Trace) -> Iterator[Note]:
    if two_unlike(trace):
        yield Note(
            "steps-unlike",
            "warning",
            "The two steps do different work and take different times: the step's figures are the mean of both.",
            "Record each kind of step by itself: prefill in one trace, decode in another.",
        )
    if trace.profiler_steps:
        return
    used = {
        "annotation": "An annotation that repeats is taken for the step.",
        "repetition": "Its sequence of kernels repeats, and one repetition is taken for the step.",
        "window": "The whole recording is taken for one step.",
    }.get(trace.step_source, "")
    if trace.steps:
        yield Note(
            "no-profiler-steps",
            "info",
            f"The trace marks no steps. {used}",
            "Call prof.step() after each step:\n" + RECIPE,
        )


def _stacks(trace: Trace) -> Iterator[Note]:
    if len(trace.ops.name) and not trace.modules:
        why = "has Python stacks but no nn.Module" if trace.has_stacks else "has no Python stacks"
        yield Note(
            "no-modules",
            "info",
            f"The trace {why}: parts of it cannot be named by the module they stand in.",
            "Record one step with with_stack=True (it slows the host; use another trace for times).",
        )


def _device(trace: Trace) -> Iterator[Note]:
    if trace.device is None and (len(trace.kernels.start_us) or len(trace.memory.start_us)):
        yield Note(
            "no-device",
            "warning",
            "The trace does not name its GPU: say which one it was, or floors and predictions are for another.",
        )
    elif trace.device_told_by:
        yield Note(
            "device-by-properties",
            "info",
            f"The trace does not name its GPU in a way that says which it is. It is taken for an {trace.device}, "
            f"{trace.device_told_by}.",
        )


def _predicted(trace: Trace) -> Iterator[Note]:
    told = trace.predicted
    if told is None:
        return
    yield Note(
        "predicted",
        "info",
        f"From the module, predicted for {told.device}: nothing of it was measured. The device's atlas has points for "
        f"{told.known_share:.0%} of the kernels' time.",
        "Record a trace of the real run before a decision that costs days.",
    )
    for what, where, ends in told.gaps:
        place = f"{where}: " if where else ""
        last = " Nothing behind it was recorded." if ends else ""
        yield Note("not-recorded", "error" if ends else "warning", f"{place}{what}.{last}")


def _external(differ: int, compared: int) -> Iterator[Note]:
    if compared and differ / compared > DISAGREEMENT_SHARE:
        yield Note(
            "external-id-disagrees",
            "info",
            f'For {differ} of the {_count(compared, "linked kernel")} whose "External id" names an operator, it is '
            "another one than launched it. The launch is followed here; tools that use External id show wrong "
            "operators for this file.",
            "Newer PyTorch writes the right ids (kineto#843, #846).",
        )


def _communication(trace: Trace) -> Iterator[Note]:
    """How much of the communication is hidden behind other kernels."""
    kernels = trace.kernels
    is_communication = communication_kernels(trace.names, kernels.name)
    if not is_communication.any():
        return
    start, end = kernels.start_us, kernels.start_us + kernels.duration_us
    both = union_us(start, end)
    communication = union_us(start[is_communication], end[is_communication])
    if communication <= 0.0 or both <= 0.0:
        return
    exposed = both - union_us(start[~is_communication], end[~is_communication])
    yield Note(
        "communication",
        "info",
        f"Communication kernels run for {communication / both:.0%} of the GPU's busy time; "
        f"{1 - exposed / communication:.0%} of that is hidden behind other kernels.",
    )


def _origins(trace: Trace) -> Iterator[Note]:
    """Kernels that torch.compile wrote, and those that a person wrote in Triton."""
    total = trace.kernel_time_us
    if total <= 0.0:
        return
    duration = trace.kernels.duration_us
    inductor, inside = compiled_kernels(trace)
    if inside.any():
        extern = inside & ~inductor
        rest = f"; another {_percent(float(duration[extern].sum()) / total)} is launched by compiled code"
        yield Note(
            "compiled",
            "info",
            f"{_percent(float(duration[inductor].sum()) / total)} of kernel time "
            f"({_count(int(inductor.sum()), 'kernel')}) is in "
            f"kernels that torch.compile wrote, fused already and named as such{rest if extern.any() else ''}.",
        )
    libraries = library_times(trace)
    if libraries:
        listed = ", ".join(f"{library} {_percent(time / total)}" for library, time in list(libraries.items())[:5])
        yield Note(
            "library-kernels",
            "info",
            f"{_percent(sum(libraries.values()) / total)} of kernel time is in kernels of libraries that are known by "
            f"their names: {listed}.",
        )
    hand_written = hand_written_triton(trace)
    if hand_written.any():
        names = dict.fromkeys(trace.names[i] for i in trace.kernels.name[hand_written].tolist())
        share = float(duration[hand_written].sum()) / total
        names_text = ", ".join(name[:60] for name in list(names)[:4])
        yield Note(
            "hand-written-triton",
            "info",
            f"{_percent(share)} of kernel time ({_count(int(hand_written.sum()), 'kernel')}) is in kernels that look "
            f"written in Triton by hand: {names_text}{', …' if len(names) > 4 else ''}. They record no shapes.",
            "Register them with torch.library.triton_op, so that the profiler records their operands and torch.compile "
            "sees through them.",
        )


_OF_PHASE = {
    PREFILL: "Prefill multiplies many rows: FLOPs set its pace, so fp8 products and attention that is told its mask "
    "help; CUDA graphs save launches that kernels of this length hide.",
    DECODE: "Decode multiplies few rows: reading the weights and the cache sets its pace, so weights and cache of "
    "fewer bits, larger batches and CUDA graphs help; faster arithmetic does not.",
    MIXED: "A mixed step has both: prefill's rows set its products' pace, decode's cache its attention's.",
}


def _serving(trace: Trace) -> Iterator[Note]:
    """Prefill and decode apart, where annotations of vLLM or SGLang tell them."""
    told = phases(trace)
    total = trace.kernel_time_us
    if not told or total <= 0.0:
        return
    parts = [
        f"{p.phase} in {_count(p.steps, 'step')}, {_percent(min(1.0, p.kernel_us / total))} of kernel time"
        for p in told
    ]
    more = " Record each kind by itself: what helps one does not help the other." if len(told) > 1 else ""
    kind, _ = of_one_kind(trace, trace.steps)
    several = len({kind_of_step(trace, step) for step in trace.steps} - {""}) > 1
    only = f" All figures are of {kind} steps alone." if several else ""
    said = f"{'; '.join(parts)}.{only}"
    yield Note("serving-phases", "info", said[:1].upper() + said[1:],
               " ".join(_OF_PHASE[p.phase.kind] for p in told) + more)  # fmt: skip


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 or not share else "under 1%"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
