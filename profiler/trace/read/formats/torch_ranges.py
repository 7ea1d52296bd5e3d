"""The ranges that PyTorch writes for other profilers: NVTX (torch.autograd.profiler.emit_nvtx), roctx on ROCm.

A range is named `aten::mm, seq = 5, op_id = 12, sizes = [[2, 3], [3, 4]], input_op_ids = [(7, 0), (3, 0)]`, of which
all but the name may be missing. A range that the user pushed is a name alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from msgspec import Raw

from profiler.trace.model import NONE
from profiler.trace.read.events import Args, Event

MOST_NAME = 4096
"""Characters of a range's name that are kept."""

_TAIL = re.compile(
    r"(?:, seq = (?P<sequence>\d{1,18}))?(?:, op_id = \d+)?(?:, sizes = (?P<sizes>\[[\[\]\d, -]*\]))?"
    r"(?:, input_op_ids = \[[^\]]*\])?$"
)
_BEGINS_TAIL = (", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = ")

_OPERATION = re.compile(
    r"[A-Za-z_][\w.]*::\w|triton_|CompiledFunction|Torch-Compiled Region: |AOTDispatcher |\w+Backward\d*$"
    r"|(?:detach_?|record_param_comms|_grad_sum_to_size|TorchDynamo Cache Lookup|Pregraph bytecode)$"
)
"""How the names of operations begin that torch.profiler lists as `cpu_op`; the last ones have no namespace."""


@dataclass(frozen=True, slots=True)
class Range:
    """One range: an operation's, else a user's. sizes: JSON of each argument's, "" where they are not recorded."""

    name: str
    is_operation: bool
    sequence: int = NONE
    sizes: str = ""


def parse_range(text: str) -> Range:
    """What a range's text says."""
    name, rest = _split(text)
    tail = _TAIL.match(rest)
    if not rest or tail is None:
        return Range(text[:MOST_NAME], _OPERATION.match(text) is not None)
    sequence = int(tail["sequence"]) if tail["sequence"] else NONE
    return Range(
        name[:MOST_NAME],
        sequence != NONE or _OPERATION.match(name) is not None,
        sequence,
        tail["sizes"] or "",
    )


def _split(text: str) -> tuple[str, str]:
    """The name, and what PyTorch put behind it: from the first of its keys."""
    places = [at for at in map(text.find, _BEGINS_TAIL) if at > 0]
    first = min(places, default=len(text))
    return text[:first], text[first:]


def range_event(text: str, pid: int, tid: int, start_us: float, duration_us: float) -> Event:
    """The event that torch.profiler would have written for this range."""
    told = parse_range(text)
    category = "cpu_op" if told.is_operation else "user_annotation"
    args = Args(sequence=told.sequence, dims=Raw(told.sizes.encode())) if told.is_operation else None
    return Event(cat=category, name=told.name, pid=pid, tid=tid, ts=start_us, dur=duration_us, args=args)
