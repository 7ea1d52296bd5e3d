"""What to do about the notes on another tool's file, in words of that tool; a trace's own are torch.profiler's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from profiler.trace.model import Note, Trace
from profiler.trace.read.formats.recording import RECORD_NSYS, RECORD_ROCPROFV3, Tool

STEP = 'torch.cuda.nvtx.range_push("step") before each step and torch.cuda.nvtx.range_pop() after it'
NO_STACKS = "{tool} records none that are read here: a trace of torch.profiler with with_stack=True names modules."


@dataclass(frozen=True, slots=True)
class _Words:
    """record: the command. operators: how operators and their sizes come into the file. nodes: kernels of graphs."""

    record: str
    operators: str
    nodes: str


_WORDS: Mapping[Tool, _Words] = {
    "nsys": _Words(
        RECORD_NSYS,
        "Record PyTorch's operators: nsys profile --pytorch=autograd-shapes-nvtx, or run the step inside "
        "torch.autograd.profiler.emit_nvtx(record_shapes=True)",
        "Record a graph's kernels with --cuda-graph-trace=node; for their operators record a step without CUDA graphs",
    ),
    "rocprofv3": _Words(
        RECORD_ROCPROFV3,
        "Record PyTorch's operators: run the step inside torch.autograd.profiler.emit_nvtx(record_shapes=True), with "
        "--marker-trace",
        "For the operators of a graph's kernels record a step without graphs",
    ),
}


def with_remedies(trace: Trace, tool: Tool) -> Trace:
    """The trace with the tool's own remedies; without the note on unmarked steps where ranges of the user mark them."""
    return replace(trace, notes=tuple(_of_tool(trace, tool)))


def _of_tool(trace: Trace, tool: Tool) -> Iterator[Note]:
    words = _WORDS[tool]
    remedies = {
        "no-kernels": f"Record the GPU's work: {words.record}",
        "no-ops": f"{words.operators}. {words.record}",
        "no-shapes": f"{words.operators}. {words.record}",
        "graph-launches": f"{words.nodes}. {words.record}",
        "launched-before-window": "Call torch.cuda.synchronize() where recording begins, or record from the program's "
        "start.",
        "dropped-events": f"Record again with a current {tool}: {words.record}",
        "no-profiler-steps": f"Mark each step: {STEP}.",
        "no-modules": NO_STACKS.format(tool=tool),
    }
    for note in trace.notes:
        if note.code == "no-profiler-steps" and trace.step_source == "annotation":
            continue
        yield replace(note, remedy=remedies.get(note.code, note.remedy))
