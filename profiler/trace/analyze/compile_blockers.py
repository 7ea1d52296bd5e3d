"""What would stop torch.compile in the user's model, or hold it up, named from the trace. Torch-free.

Only what the trace shows: operations in the model's forward (profiler.trace.analyze.forward_calls), copies between
host and GPU under them, sizes where they were recorded, and, in a trace recorded under torch.compile, graph breaks and
recompilations that already happened. What each kind does and what helps is in
profiler.trace.analyze.compile_blocker_kinds.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
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
from profiler.trace.analyze.forward_calls import (
    ANNOTATION,
    COMPILED_CODE,
    MODULE,
    ORDER,
    SCRIPT,
    Call,
    Windows,
    annotated_windows,
    calls,
    custom_namespace,
    heavy,
)
from profiler.trace.analyze.host_syncs import Gap, between_calls
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

MIN_SIZES = 3
"""Distinct sizes from which a tensor counts as changing: one other size may be the last, smaller batch."""

_LOOKUP = "TorchDynamo Cache Lookup"
_REGION = re.compile(r"^Torch-Compiled Region: (\d+)/(\d+)")
"""Frame and variant, as torch._dynamo counts them: 1/0 is the second frame's first compilation."""


@dataclass(frozen=True, slots=True)
class Sign:
    """What several calls together show. op: what was called, how often; text: what it shows; sizes: as text."""

    kind: str
    op: str
    calls: int
    text: str
    sizes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileBlocker:
    """What in the model's forward torch.compile breaks at, does not fuse across, compiles again for or waits at.

    kind, effect: see compile_blocker_kinds. op: as the trace names it. calls_per_step: in the steps looked at. modules:
    paths where recorded, most calls first. sources: "file.py:12 forward", the function that made the call and its first
    line, where stacks were recorded. operands: what it was called on, where shapes were recorded. within: how it is
    known to be the model's: "module", "annotation", "order", or "" where it is no single call. at: thread (index into
    Trace.threads) and start in microseconds of each call. inside: between the operations of the region that it was
    matched with, see `compile_blockers_of_region`.
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
        """torch.compile cannot fuse what is before it with what is after it."""
        return self.effect in (BREAK, OPAQUE)

    @property
    def does(self) -> str:
        """The effect in words: "breaks the graph"."""
        return EFFECTS[self.effect]


def find_compile_blockers(trace: Trace, steps: Sequence[Step]) -> tuple[CompileBlocker, ...]:
    """Everything in the forward of these steps that hinders torch.compile, what breaks the graph first.

    Sizes that change are looked for in all steps of the trace. Without a forward that the trace shows, nothing.
    """
    calls_by_step = calls(trace, steps)
    groups: dict[tuple[str, str], list[Call]] = {}
    for step_calls in calls_by_step:
        for call, kind in _calls_in_the_way(trace, step_calls):
            groups.setdefault((kind, _NUMBERED.sub("", call.name)), []).append(call)
    gaps = between_calls(trace, steps, calls_by_step)
    all_steps = calls_by_step if len(steps) == len(trace.steps) else calls(trace, trace.steps[:MAX_STEPS])
    blockers = [_of_calls(trace, kind, op, group, len(steps)) for (kind, op), group in groups.items()]
    blockers += [_of_gaps(kind, op, group, len(steps)) for (kind, op), group in gaps.items()]
    blockers += [_of_sign(sign, len(all_steps)) for sign in _changing_sizes(trace, all_steps)]
    blockers += [_of_sign(sign, len(steps)) for sign in _growing_tensors(trace, calls_by_step)]
    blockers += [_of_sign(sign, len(steps)) for sign in _compiled_parts(trace, steps)]
    order = list(EFFECTS)
    return tuple(sorted(blockers, key=lambda o: (order.index(o.effect), -o.calls_per_step, o.op)))


def _calls_in_the_way(trace: Trace, step_calls: Sequence[Call]) -> list[tuple[Call, str]]:
    """The calls of one step that are blockers, with their kind.

    By order alone the model's first layer seems to begin at its first heavy operation. What lies before it and is done
    again, on the same sizes, further inside, is the model's too (a graph layer that drops self-loops).
    """
    in_the_way = [
        (call, kind)
        for i, call in enumerate(step_calls)
        if call.within and (kind := _kind(trace, call, _after(step_calls, i)))
    ]
    repeated = {(call.name, _sizes(trace, call.op)) for call, _ in in_the_way if call.within == ORDER}
    first = next((call.start_us for call in step_calls if call.within == ORDER), 0.0)
    for i, call in enumerate(step_calls):
        signature = call.name, _sizes(trace, call.op)
        if not call.within and call.start_us < first and signature in repeated and signature[1]:
            call.within = ORDER
            in_the_way.append((call, _kind(trace, call, _after(step_calls, i))))
    return [(call, kind) for call, kind in in_the_way if kind]


def _after(step_calls: Sequence[Call], index: int) -> str:
    """The name of the next call on the same thread."""
    following = index + 1 < len(step_calls) and step_calls[index + 1].thread == step_calls[index].thread
    return step_calls[index + 1].name if following else ""


def _sizes(trace: Trace, op: int) -> tuple[tuple[object, ...], ...]:
    """Sizes of the tensors that an operation was called on; () where they were not recorded."""
    detail = _detail(trace, op)
    return tuple(d for d in detail.dims if d) if detail is not None else ()


def compile_blockers_of_region(
    blockers: Iterable[CompileBlocker], spans: Sequence[tuple[int, float, float]], module: str
) -> tuple[CompileBlocker, ...]:  # fmt: skip
    """Those that concern one region: `inside` where a call lies between the region's operations, else in its module.

    spans: thread, start and end in microseconds of each call of the region. calls_per_step counts the calls inside
    where there are any. A region without a module has only what lies inside it; what is no single call has no place.
    """
    by_thread: dict[int, list[tuple[float, float]]] = {}
    for thread, start, end in spans:
        by_thread.setdefault(thread, []).append((start, end))
    windows = {thread: Windows(thread_spans) for thread, thread_spans in by_thread.items()}
    chosen = []
    for blocker in blockers:
        within = tuple(at for at in blocker.at if at[1] in windows.get(at[0], ()))
        if within:
            share = len(within) / len(blocker.at)
            chosen.append(replace(blocker, at=within, calls_per_step=blocker.calls_per_step * share, inside=True))
        elif module and module in blocker.modules:
            chosen.append(blocker)
    return tuple(chosen)


def _kind(trace: Trace, call: Call, after: str) -> str:
    """The kind of blocker that a call of the model is, "" for none. after: the name of the next call."""
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
    """What DistributedDataParallel does around the model (it broadcasts buffers) is not compiled with it."""
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


def _of_calls(trace: Trace, kind: str, op: str, group: Sequence[Call], steps: int) -> CompileBlocker:
    paths = Counter(trace.modules[m] for c in group if (m := int(trace.ops.module[c.op])) != NONE)
    operands = Counter(text for c in group if (text := _operands(_detail(trace, c.op))))
    within = next((w for w in (MODULE, ANNOTATION, ORDER) if any(c.within == w for c in group)), ORDER)
    blocker = _describe(kind, op, within, paths, tuple((c.thread, c.start_us) for c in group), steps)
    remedy = (REMEDIES.get(op, blocker.remedy) if kind == SIZED else blocker.remedy).replace("{op}", op)
    return replace(blocker, remedy=remedy, operands=tuple(text for text, _ in operands.most_common(MAX_OPERANDS)))


def _of_gaps(kind: str, op: str, gaps: Sequence[Gap], steps: int) -> CompileBlocker:
    paths = Counter(g.module for g in gaps if g.module)
    return _describe(kind, op, gaps[0].within, paths, tuple((g.thread, g.at_us) for g in gaps), steps)


def _describe(
    kind: str, op: str, within: str, paths: Counter[str], at: tuple[tuple[int, float], ...], steps: int
) -> CompileBlocker:
    """A blocker in the words of its kind. paths: modules with how often; at: thread and time of each call."""
    row, how_known = KINDS[kind], _WITHIN.get(within, "")
    return CompileBlocker(
        kind=kind,
        effect=row.effect,
        title=row.title,
        op=op,
        calls_per_step=len(at) / max(1, steps),
        because=f"{row.because}; {how_known}" if how_known else row.because,
        remedy=row.remedy,
        within=within,
        modules=tuple(path for path, _ in paths.most_common()),
        at=at,
    )


def _of_sign(sign: Sign, steps: int) -> CompileBlocker:
    row = KINDS[sign.kind]
    return CompileBlocker(
        sign.kind, row.effect, row.title, sign.op, sign.calls / max(1, steps), f"{sign.text}; {row.because}",
        row.remedy, "", operands=sign.sizes,
    )  # fmt: skip


def _operands(detail: Detail | None) -> str:
    """`bool[4000000]`, the tensors that it was called on; "" where nothing was recorded."""
    if detail is None:
        return ""
    pairs = zip(detail.types, detail.dims, strict=False)
    texts = [
        f"{DTYPES.get(kind, kind)}[{', '.join(map(str, dims))}]"
        for kind, dims in pairs
        if dims and all(isinstance(n, int) for n in dims)
    ]
    return ", ".join(texts[:3])


# -- sizes that change: what torch.compile would compile again for


def _changing_sizes(trace: Trace, calls_by_step: Sequence[Sequence[Call]]) -> list[Sign]:
    """Steps whose first heavy operation of the forward has other sizes from step to step."""
    if not trace.has_shapes or trace.step_source == "window":
        return []
    sizes_of: defaultdict[str, list[tuple[tuple[object, ...], ...]]] = defaultdict(list)
    for step_calls in calls_by_step:
        first = next((c for c in step_calls if c.within and heavy(c)), None)
        if first is not None and (sizes := _sizes(trace, first.op)):
            sizes_of[first.name].append(sizes)
    for name, sizes_by_step in sizes_of.items():
        distinct = list(dict.fromkeys(sizes_by_step))
        if len(distinct) >= MIN_SIZES:
            text = f"{len(distinct)} different sizes in {len(sizes_by_step)} steps"
            return [Sign("many-shapes", name, len(sizes_by_step), text, tuple(_text(s) for s in _varying(distinct)))]
    return []


def _growing_tensors(trace: Trace, calls_by_step: Sequence[Sequence[Call]]) -> list[Sign]:
    """A concatenation that adds to the same tensor call by call, as a cache of keys and values does."""
    series: dict[tuple[object, ...], list[tuple[int, Call]]] = defaultdict(list)
    for call in (call for step_calls in calls_by_step for call in step_calls):
        if call.name == "aten::cat" and call.within and (appended := _appended_row(trace, call)) is not None:
            others, length = appended
            series[others].append((length, call))
    best: list[tuple[int, Call]] = []
    for rows in series.values():
        lengths = sorted({length for length, _ in rows})
        steady = len(lengths) >= MIN_SIZES and lengths[-1] - lengths[0] == len(lengths) - 1
        if steady and len(rows) > len(best):
            best = rows
    if not best:
        return []
    lengths = sorted({length for length, _ in best})
    text = f"it grows from {lengths[0]} to {lengths[-1]}, one at a time"
    ends = min(best, key=lambda r: r[0])[1], max(best, key=lambda r: r[0])[1]
    sizes = tuple(_text(s[0][:1]) for c in ends if (s := _sizes(trace, c.op)) and isinstance(s[0], tuple))
    return [Sign("growing-shapes", "aten::cat", len(best), text, sizes)]


def _varying(distinct: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Only the tensors whose sizes differ: not the weight."""
    if len({len(sizes) for sizes in distinct}) > 1:
        return list(distinct)
    varying = [i for i in range(len(distinct[0])) if len({sizes[i] for sizes in distinct}) > 1]
    return [tuple(sizes[i] for i in varying) for sizes in distinct]


def _appended_row(trace: Trace, call: Call) -> tuple[tuple[object, ...], int] | None:
    """(the other sizes and the dimension, the length so far) of a concatenation of one more row; None otherwise."""
    detail = _detail(trace, call.op)
    dims = detail.dims if detail is not None else ()
    if not dims or len(dims[0]) != 2:
        return None
    old, new = dims[0]
    if not isinstance(old, tuple) or not isinstance(new, tuple) or len(old) != len(new):
        return None
    differing = [d for d, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    if len(differing) != 1 or new[differing[0]] != 1:
        return None
    where = differing[0]
    return (where, *(n for d, n in enumerate(old) if d != where)), int(old[where])


def _text(sizes: Sequence[object]) -> str:
    return " ".join(str(list(s)) for s in sizes if isinstance(s, tuple))


# -- graph breaks and recompilations that already happened, in a trace recorded under torch.compile


def _compiled_parts(trace: Trace, steps: Sequence[Step]) -> list[Sign]:
    """Compiled frames inside other frames (a graph break lies between them); frames with several variants."""
    regions = {i: (m.group(1), m.group(2)) for i, n in enumerate(trace.names) if (m := _REGION.match(n))}
    if not regions:
        return []
    names = trace.ops.name.tolist()
    rows = [i for i, name in enumerate(names) if name in regions]
    return _nested_frames(trace, steps, regions, rows) + _recompiled_frames(regions, rows, names)


def _nested_frames(
    trace: Trace, steps: Sequence[Step], regions: dict[int, tuple[str, str]], rows: Sequence[int]
) -> list[Sign]:  # fmt: skip
    """A frame that goes on inside another one, by the operation that ran between them."""
    ops = trace.ops
    compiled = annotated_windows(trace, lambda name: name.startswith(COMPILED_CODE))
    pairs: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for row in rows:
        if not any(s.start_us <= float(ops.start_us[row]) < s.end_us for s in steps):
            continue
        above = int(ops.parent[row])
        while above != NONE and int(ops.name[above]) not in regions:
            above = int(ops.parent[above])
        if above == NONE or regions[int(ops.name[above])][0] == regions[int(ops.name[row])][0]:
            continue
        frames = regions[int(ops.name[above])][0], regions[int(ops.name[row])][0]
        pairs[_breaking_op(trace, above, row, compiled)][frames] += 1
    signs = []
    for op, counts in pairs.items():
        frames_in_order = sorted(counts, key=lambda pair: (int(pair[0]), int(pair[1])))
        text = ", ".join(f"frame {b} inside frame {a}" for a, b in frames_in_order[:4])
        signs.append(Sign("compiled-in-parts", op, counts.total(), text))
    return signs


def _breaking_op(trace: Trace, above: int, row: int, compiled: Windows) -> str:
    """The operation that ran last in the outer frame before the inner one, and was not compiled: what broke the graph.

    The region's own name where nothing ran between them (a print, a function that torch.compile skips).
    """
    ops = trace.ops
    for op in range(row - 1, above, -1):
        name = trace.names[int(ops.name[op])]
        if int(ops.parent[op]) == above and not name.startswith(_LOOKUP):
            is_eager_op = "::" in name and float(ops.start_us[op]) not in compiled
            return name if is_eager_op else trace.names[int(ops.name[above])].split(":")[0]
    return trace.names[int(ops.name[above])].split(":")[0]


def _recompiled_frames(
    regions: dict[int, tuple[str, str]], rows: Sequence[int], names: Sequence[int]
) -> list[Sign]:  # fmt: skip
    """Frames that ran in several compiled variants."""
    variants: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        frame, variant = regions[names[row]]
        variants[frame][variant] = None
    several = {frame: len(ran) for frame, ran in variants.items() if len(ran) > 1}
    if not several:
        return []
    text = ", ".join(f"frame {frame} in {count} variants" for frame, count in sorted(several.items())[:4])
    call_count = sum(regions[names[row]][0] in several for row in rows)
    return [Sign("recompiled", "Torch-Compiled Region", call_count, text)]
