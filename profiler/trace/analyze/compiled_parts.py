"""What a trace recorded under torch.compile says of graph breaks and recompilations that already happened."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from profiler.trace.analyze.forward_calls import COMPILED_CODE, annotated_windows
from profiler.trace.analyze.shape_changes import Found
from profiler.trace.analyze.time_windows import Windows
from profiler.trace.model import NONE, Step, Trace

_LOOKUP = "TorchDynamo Cache Lookup"
_REGION = re.compile(r"^Torch-Compiled Region: (\d+)/(\d+)")
"""Frame and variant, as torch._dynamo counts them: 1/0 is the second frame's first compilation."""


def compiled_already(trace: Trace, steps: Sequence[Step]) -> list[Found]:
    """Compiled frames inside other frames (a graph break lies between them); frames with several variants."""
    regions = {i: (m.group(1), m.group(2)) for i, n in enumerate(trace.names) if (m := _REGION.match(n))}
    if not regions:
        return []
    names = trace.ops.name.tolist()
    rows = [i for i, name in enumerate(names) if name in regions]
    return _find_nested(trace, steps, regions, rows) + _again(regions, rows, names)


def _find_nested(
    trace: Trace, steps: Sequence[Step], regions: dict[int, tuple[str, str]], rows: Sequence[int]
) -> list[Found]:  # fmt: skip
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
        pairs[_before(trace, above, row, compiled)][frames] += 1
    found: list[Found] = []
    for op, counted in pairs.items():
        frames_in_order = sorted(counted, key=lambda pair: (int(pair[0]), int(pair[1])))
        shown = ", ".join(f"frame {b} inside frame {a}" for a, b in frames_in_order[:4])
        found.append(("compiled-in-parts", op, counted.total(), shown, ()))
    return found


def _before(trace: Trace, above: int, row: int, compiled: Windows) -> str:
    """The operation that ran last in the outer frame before the inner one, and was not compiled: what broke the graph.

    The region's own name where nothing ran between them (a print, a function that torch.compile skips).
    """
    ops = trace.ops
    for op in range(row - 1, above, -1):
        name = trace.names[int(ops.name[op])]
        if int(ops.parent[op]) == above and not name.startswith(_LOOKUP):
            own = "::" in name and float(ops.start_us[op]) not in compiled
            return name if own else trace.names[int(ops.name[above])].split(":")[0]
    return trace.names[int(ops.name[above])].split(":")[0]


def _again(regions: dict[int, tuple[str, str]], rows: Sequence[int], names: Sequence[int]) -> list[Found]:
    variants: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        frame, variant = regions[names[row]]
        variants[frame][variant] = None
    several = {frame: list(found) for frame, found in variants.items() if len(found) > 1}
    if not several:
        return []
    shown = ", ".join(f"frame {frame} in {len(found)} variants" for frame, found in sorted(several.items())[:4])
    ran = sum(regions[names[row]][0] in several for row in rows)
    return [("recompiled", "Torch-Compiled Region", ran, shown, ())]
