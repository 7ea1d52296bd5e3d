"""What would stop torch.compile in the user's model, or hold it up, named from the trace. Torch-free.

Only what the trace shows: operations in the model's forward (profiler.trace.analyze.forward_calls), copies between
host and GPU under them, sizes where they were recorded. What each kind does and what helps is in
profiler.trace.analyze.compile_blocker_kinds.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from profiler.trace.analyze.compile_blocker_kinds import (
    BRANCHES,
    BREAK,
    COLLECTIVES,
    COMPARISONS,
    EFFECTS,
    KINDS,
    MASK_WRITES,
    NOT_SPARSE,
    OPAQUE,
    READS,
    RECURRENT,
    REMEDIES,
    SIZES,
    SIZES_IF_READ,
    SPARSE,
)
from profiler.trace.analyze.compiled_parts import compiled_already
from profiler.trace.analyze.forward_calls import ANNOTATION, MODULE, ORDER, SCRIPT, Call, calls, custom_namespace
from profiler.trace.analyze.host_syncs import Gap, between_calls
from profiler.trace.analyze.shape_changes import changing, growing
from profiler.trace.analyze.time_windows import Windows
from profiler.trace.model import NONE, Detail, Step, Trace

_WITHIN = {
    ORDER: "no stacks were recorded: by the order of operations it lies in the model's forward",
    ANNOTATION: "it lies in an annotation of the model's forward",
}
DTYPES = {
    "double": "f64", "float": "f32", "c10::BFloat16": "bf16", "c10::Half": "f16", "long int": "i64", "long": "i64",
    "int": "i32", "short int": "i16", "signed char": "i8", "unsigned char": "u8", "bool": "bool",
}  # fmt: skip
"""The trace's spelling of a dtype -> the region language's; others stay as they are."""

SIZED = "data-dependent-size"
MAX_OPERANDS = 3
MAX_STEPS = 64
"""Steps in which sizes that change are looked for."""

_NUMBERED = re.compile(r"_\d+$")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What in the model's forward torch.compile breaks at, does not fuse across, compiles again for or waits at.

    kind, effect: see obstacle_kinds. op: as the trace names it. calls_per_step: over the steps looked at. modules:
    paths where recorded, most calls first. sources: "file.py:12 forward", the function that made the call and its first
    line, where stacks were recorded. operands: what it was called on, where shapes were recorded. within: how it is
    known to be the model's: "module", "annotation", "order", or "" where it is no single call. at: thread (index into
    Trace.threads) and start in microseconds of each call. inside: between the operations of the region that it was
    matched with, see `beside`.
    """

    kind: str
    effect: str
    title: str
    op: str
    calls_per_step: float
    because: str
    remedy: str
    within: str
    modules: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    at: tuple[tuple[int, float], ...] = ()
    inside: bool = False

    @property
    def stops(self) -> bool:
        """torch.compile cannot fuse what stands on its two sides."""
        return self.effect in (BREAK, OPAQUE)

    @property
    def does(self) -> str:
        """The effect in words: "breaks the graph"."""
        return EFFECTS[self.effect]


def find_obstacles(trace: Trace, steps: Sequence[Step]) -> tuple[Obstacle, ...]:
    """Everything in the forward of these steps that stands in torch.compile's way, what breaks the graph first.

    Sizes that change are looked for in all steps of the trace. Without a forward that the trace shows, nothing.
    """
    every = calls(trace, steps)
    groups: dict[tuple[str, str], list[Call]] = {}
    for made in every:
        for call, kind in _in_the_way(trace, made):
            groups.setdefault((kind, _NUMBERED.sub("", call.name)), []).append(call)
    found = [_obstacle(trace, kind, op, group, len(steps)) for (kind, op), group in groups.items()]
    found += [_gap(kind, op, gaps, len(steps)) for (kind, op), gaps in between_calls(trace, steps, every).items()]
    all_steps = every if len(steps) == len(trace.steps) else calls(trace, trace.steps[:MAX_STEPS])
    found += [
        Obstacle(
            kind, KINDS[kind].effect, KINDS[kind].title, op, count / max(1, over),
            f"{seen}; {KINDS[kind].because}", KINDS[kind].remedy, "", operands=operands,
        )
        for rows, over in (
            (changing(trace, all_steps), len(all_steps)),
            (growing(trace, every), len(steps)),
            (compiled_already(trace, steps), len(steps)),
        )
        for kind, op, count, seen, operands in rows
    ]  # fmt: skip
    order = list(EFFECTS)
    return tuple(sorted(found, key=lambda o: (order.index(o.effect), -o.calls_per_step, o.op)))


def _in_the_way(trace: Trace, made: Sequence[Call]) -> list[tuple[Call, str]]:
    """The calls of one step that are obstacles, with their kind.

    By order alone the model's first layer seems to begin at its first heavy operation. What lies before it and is done
    again, on the same sizes, further inside, is the model's too (a graph layer that drops self-loops).
    """
    found = [(c, kind) for i, c in enumerate(made) if c.within and (kind := _kind(trace, c, _after(made, i)))]
    again = {(c.name, _sizes(trace, c.op)) for c, _ in found if c.within == ORDER}
    first = next((c.start_us for c in made if c.within == ORDER), 0.0)
    for i, call in enumerate(made):
        signature = call.name, _sizes(trace, call.op)
        if not call.within and call.start_us < first and signature in again and signature[1]:
            call.within = ORDER
            found.append((call, _kind(trace, call, _after(made, i))))
    return [(c, kind) for c, kind in found if kind]


def _after(made: Sequence[Call], index: int) -> str:
    """The name of the next call on the same thread."""
    following = index + 1 < len(made) and made[index + 1].thread == made[index].thread
    return made[index + 1].name if following else ""


def _sizes(trace: Trace, op: int) -> tuple[object, ...]:
    detail = _detail(trace, op)
    return tuple(d for d in detail.dims if d) if detail is not None else ()


def beside(
    obstacles: Iterable[Obstacle], spans: Sequence[tuple[int, float, float]], module: str
) -> tuple[Obstacle, ...]:  # fmt: skip
    """Those that concern one region: `inside` where a call lies between the region's operations, else in its module.

    spans: thread, start and end in microseconds of each call of the region. calls_per_step counts the calls inside
    where there are any. A region without a module has only what lies inside it; what is no single call has no place.
    """
    by_thread: dict[int, list[tuple[float, float]]] = {}
    for thread, start, end in spans:
        by_thread.setdefault(thread, []).append((start, end))
    windows = {thread: Windows(own) for thread, own in by_thread.items()}
    found = []
    for obstacle in obstacles:
        within = tuple(at for at in obstacle.at if at[1] in windows.get(at[0], ()))
        if within:
            share = len(within) / len(obstacle.at)
            found.append(replace(obstacle, at=within, calls_per_step=obstacle.calls_per_step * share, inside=True))
        elif module and module in obstacle.modules:
            found.append(obstacle)
    return tuple(found)


def _kind(trace: Trace, call: Call, after: str) -> str:
    """The kind of obstacle that a call of the model is, "" for none. after: the name of the next call."""
    name = call.name
    beneath = {trace.names[int(trace.ops.name[op])] for op in call.beneath}
    if custom_namespace(name):
        return "custom-op" if call.on_gpu else ""
    if name.startswith("quantized::"):
        return "quantised-packed"
    if name.startswith(COLLECTIVES):
        return "" if _of_the_wrapper(trace, call) else "communication"
    if name == SCRIPT:
        return "torchscript"
    if name in BRANCHES:
        return "tensor-branch"
    if name in COMPARISONS:
        return "value-comparison"
    if name in READS:
        # Without a stack, one on a number that is on the host already is as likely the data loader's.
        return "scalar-read" if call.any_copy or call.within not in (ORDER, ANNOTATION) else ""
    if name in MASK_WRITES:
        return ""
    if (name in SIZES and call.on_gpu) or ("aten::nonzero" in beneath and call.on_gpu):
        return SIZED
    if name in SIZES_IF_READ and call.to_host:
        return SIZED
    return _kind_of_rest(trace, call, after)


def _of_the_wrapper(trace: Trace, call: Call) -> bool:
    """What DistributedDataParallel does round the model (it broadcasts buffers) is not compiled with it."""
    module = int(trace.ops.module[call.op])
    last = trace.modules[module].rsplit("/", 1)[-1] if module != NONE else ""
    return last.startswith("DistributedDataParallel") or (not last and "broadcast" in call.name)


def _kind_of_rest(trace: Trace, call: Call, after: str) -> str:
    name = call.name
    if name in RECURRENT:
        return "recurrent"
    if name.startswith(SPARSE) and not any(part in name for part in NOT_SPARSE):
        return "sparse"
    if name == "aten::resize_":
        return "resize"
    if call.to_host:
        return "copy-to-host"
    if call.to_gpu:
        # torch.tensor(2.0, device="cuda"): compiled, the number is a constant of the graph.
        return "" if after == "aten::lift_fresh" else "copy-from-host"
    detail = _detail(trace, call.op)
    if detail is None:
        return ""
    if call.kernels and any("complex<" in kind for kind in detail.types):
        return "complex"
    if call.kernels and name.endswith("_") and not name.endswith("__") and _part_of_more(detail):
        return "view-written"
    return ""


def _detail(trace: Trace, op: int) -> Detail | None:
    number = int(trace.ops.detail[op])
    return None if number == NONE else trace.details[number]


def _part_of_more(detail: Detail) -> bool:
    """The first argument has gaps between its elements: it is a view of a larger tensor."""
    if not detail.dims or not detail.strides or not detail.strides[0]:
        return False
    sizes = [n for n in detail.dims[0] if isinstance(n, int)]
    strides = [n for n in detail.strides[0] if isinstance(n, int)]
    if not len(sizes) == len(strides) == len(detail.dims[0]):
        return False
    reach = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return reach > math.prod(sizes) > 0


def _obstacle(trace: Trace, kind: str, op: str, group: Sequence[Call], steps: int) -> Obstacle:
    what = KINDS[kind]
    paths = Counter(trace.modules[m] for c in group if (m := int(trace.ops.module[c.op])) != NONE)
    operands = Counter(text for c in group if (text := _operands(_detail(trace, c.op))))
    within = next((w for w in (MODULE, ANNOTATION, ORDER) if any(c.within == w for c in group)), ORDER)
    found = _describe(kind, op, within, paths, tuple((c.thread, c.start_us) for c in group), steps)
    remedy = (REMEDIES.get(op, what.remedy) if kind == SIZED else what.remedy).replace("{op}", op)
    return replace(found, remedy=remedy, operands=tuple(text for text, _ in operands.most_common(MAX_OPERANDS)))


def _gap(kind: str, op: str, gaps: Sequence[Gap], steps: int) -> Obstacle:
    paths = Counter(g.module for g in gaps if g.module)
    return _describe(kind, op, gaps[0].within, paths, tuple((g.thread, g.at_us) for g in gaps), steps)


def _describe(
    kind: str, op: str, within: str, paths: Counter[str], at: tuple[tuple[int, float], ...], steps: int
) -> Obstacle:
    """An obstacle in the words of its kind. paths: modules with how often; at: thread and time of each call."""
    what, known = KINDS[kind], _WITHIN.get(within, "")
    return Obstacle(
        kind=kind,
        effect=what.effect,
        title=what.title,
        op=op,
        calls_per_step=len(at) / max(1, steps),
        because=f"{what.because}; {known}" if known else what.because,
        remedy=what.remedy,
        within=within,
        modules=tuple(path for path, _ in paths.most_common()),
        at=at,
    )


def _operands(detail: Detail | None) -> str:
    """`bool[4000000]`, the tensors that it was called on; "" where nothing was recorded."""
    if detail is None:
        return ""
    pairs = zip(detail.types, detail.dims, strict=False)
    shown = [
        f"{DTYPES.get(kind, kind)}[{', '.join(map(str, dims))}]"
        for kind, dims in pairs
        if dims and all(isinstance(n, int) for n in dims)
    ]
    return ", ".join(shown[:3])
