"""Own: the Triton kernels that this app has for a region, as text, and as the compiler makes them for a GPU.

`own` reads and writes text only; `machines` compiles and belongs into a process of its own. Nothing is launched.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import asdict

import msgspec
import torch

from kernels.candidates import Candidate, build, candidates
from kernels.codegen.index import Unsupported
from kernels.host import Host
from kernels.kernel_listing_model import Own, Part
from profiler.region.graph.lowering import Graph, lower
from profiler.region.language.program import program
from profiler.region.language.text import parse

RIGHT = ("ok", "correct")
"""What became of a candidate whose code may be shown as one that works."""
MOST_KERNELS = 8
"""Kernels of one region that are compiled: each takes seconds."""


def own(
    text: str,
    sizes: Mapping[str, int] | None = None,
    candidate: str | None = None,
    validation: Mapping[str, object] | None = None,
) -> Own:
    """Our Triton for a region. candidate: by default the fastest of the validation that was right, else the first.

    validation: as the API has it. Raises RegionError for a text that cannot be read, KeyError for a candidate that does
    not fit the region.
    """
    graph = lower(parse(text), sizes)
    offered = [c for c in candidates(graph, Host()) if c.tool == "triton"]
    able = {c.name: c for c in offered if c.available}
    order = _order(able, validation)
    if candidate is not None and candidate not in able:
        raise KeyError(candidate)
    name = candidate or (order[0] if order else "")
    if not name:
        return Own(reason="; ".join(f"{c.name}: {c.reason}" for c in offered) or "no Triton kernel fits this region")
    chosen = able[name]
    source = chosen.source or _functions(name)
    parts = chosen.kernels or (Part(name, source, _lines_of(graph, chosen.part)),)
    return Own(name, chosen.call, source, tuple(n for n in order if n != name), parts=parts)


def _lines_of(graph: Graph, part: Collection[str] | None) -> tuple[int, ...]:
    """The lines of the region's text that operations are from; of all of them where `part` is None."""
    written = {o.line for o in graph.operations if part is None or o.name in part}
    return tuple(sorted(written - {0}))


class _Time(msgspec.Struct):
    median: float


class _Measured(msgspec.Struct):
    name: str
    status: str = ""
    time_us: _Time | None = None


class _Validation(msgspec.Struct):
    """What is read of one."""

    candidates: list[_Measured] | None = None


def _order(able: Mapping[str, Candidate], validation: Mapping[str, object] | None) -> list[str]:
    """The measured ones first, the fastest in front; none that was wrong."""
    seen = {c.name: c for c in msgspec.convert(validation or {}, _Validation).candidates or ()}
    right = [n for n in able if n not in seen or seen[n].status in RIGHT]
    times = {n: time_us.median for n in right if n in seen and (time_us := seen[n].time_us)}
    return sorted(right, key=lambda n: times.get(n, float("inf")))


def _functions(name: str) -> str:
    """The jit functions of a kernel with a file of its own, each once."""
    from kernels.operations import operation

    try:
        builds = operation(name.removeprefix("triton:")).builds
    except KeyError:
        return ""
    functions = dict.fromkeys(b.variant.kernel for b in builds)
    return "\n\n".join(
        f"{'@gluon.jit' if f.is_gluon() else '@triton.jit'}\n{_without_decorator(f.fn)}" for f in functions
    )


def _without_decorator(function: object) -> str:
    """The text of a function from its def on."""
    lines = inspect.getsource(function).splitlines()  # type: ignore[arg-type]
    return "\n".join(lines[next(i for i, line in enumerate(lines) if line.startswith("def ")) :]).strip()


def machines(text: str, sizes: Mapping[str, int] | None, candidate: str, target: str) -> list[dict[str, object]]:
    """Every kernel that one call of a candidate launches, compiled for a target: `Machine.to_dict` with `findings`.

    Of a tuned kernel the configuration that its model puts first. Raises Unsupported, CompileError. For a process of
    its own: it replaces what launches kernels.
    """
    from kernels.measure.landscape.offline import NO_MEMORY, compiled, unlaunched
    from profiler.oracle.compiler.findings import findings

    region = parse(text)
    torch.set_grad_enabled(region.requires_grad)
    call = build(candidate, region, dict(sizes or {}), NO_MEMORY)
    fakes = program(region, sizes, NO_MEMORY).inputs
    given = [
        torch.empty_strided(tuple(f.shape), f.stride(), dtype=f.dtype, device=NO_MEMORY, requires_grad=i.requires_grad)
        for f, i in zip(fakes, region.inputs, strict=True)
    ]
    with unlaunched(target) as asked:
        results = call(*given)
        wanted = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
        if wanted:
            torch.autograd.backward(wanted, [torch.empty_like(r) for r in wanted])
    made: list[dict[str, object]] = []
    seen: set[object] = set()
    for function, arguments, options in asked:
        if function in seen or len(made) == MOST_KERNELS:
            continue
        seen.add(function)
        machine = compiled(function, arguments, options, target)
        made.append(machine.to_dict() | {"findings": [asdict(f) for f in findings(machine)]})
    if not made:
        raise Unsupported("this candidate launches no Triton kernel of its own here")
    return made
