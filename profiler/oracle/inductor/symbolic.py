"""Sizes that stay symbolic, and how often torch.compile compiles a region whose sizes vary.

torch.compile's default (dynamic=None): the first call is compiled for its own sizes; when another size comes, those
that differ become symbols and one more graph is compiled; it serves every size that its guards allow. After
`recompile_limit` graphs of one function it runs eagerly (torch._dynamo.config, 8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.fx
from torch._dynamo import config as dynamo_config
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from profiler.hardware import Device
from profiler.oracle.inductor.answer import first_line, read
from profiler.oracle.inductor.fake_gpu import DEVICE, NotAskableError
from profiler.oracle.inductor.pipeline import InductorOutput, collect_output, compile_forward, pretend_gpu
from profiler.oracle.model import WITHOUT_GPU, Prediction, Recompiles
from profiler.region.language.program import Program, program_in
from profiler.region.model import Region, RegionError

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Compiled:
    """One graph: at these sizes, with the symbols that stayed symbolic and the conditions under which it serves."""

    sizes: Sizes
    symbols: Mapping[str, sympy.Symbol]
    guards: tuple[Any, ...]
    ranges: Mapping[sympy.Symbol, Any]

    def serves(self, sizes: Sizes) -> bool:
        """Whether a call with these sizes runs this graph."""
        if any(sizes[n] != v for n, v in self.sizes.items() if n not in self.symbols):
            return False
        values = {symbol: sizes[name] for name, symbol in self.symbols.items()}
        inside = all(r.lower <= values[s] <= r.upper for s, r in self.ranges.items() if s in values)
        return inside and all(bool(g.subs(values)) for g in self.guards)


def recompiles(region: Region, device: Device, bindings: Sequence[Sizes] | None = None) -> Recompiles:
    """How torch.compile meets these sizes, one after the other. Raises RegionError as `program` does.

    Where a symbolic graph cannot be had, every new size is taken to be compiled anew, and `because` says why.
    """
    order = [dict(b) for b in (bindings or region.bindings)]
    graphs: list[_Compiled] = []
    served: list[int] = []
    because, prediction = "", None
    for sizes in order:
        serving = next((i for i, g in enumerate(graphs) if g.serves(sizes)), None)
        if serving is None:
            varying = {n for g in graphs for n in sizes if g.sizes[n] != sizes[n]}
            graph = _Compiled(sizes, {}, (), {})
            if varying and not because:
                try:
                    graph, prediction = _compile(region, sizes, varying, device)
                except NotAskableError:
                    raise
                except Exception as fault:  # the region needs its sizes as numbers, or Inductor refuses symbols
                    because = f"{type(fault).__name__}: {first_line(fault)}"
            graphs.append(graph)
            serving = len(graphs) - 1
        served.append(serving)
    limit = int(getattr(dynamo_config, "recompile_limit", 8))
    return Recompiles(
        tuple(tuple(sorted(s.items())) for s in order), tuple(served), len(graphs), limit, because, prediction
    )


def _compile(region: Region, sizes: Sizes, varying: set[str], device: Device) -> tuple[_Compiled, Prediction]:
    """Inductor's graph with the varying sizes symbolic."""
    if region.requires_grad:
        raise RegionError("symbolic sizes are asked of forward regions only", code="oracle-symbolic")
    output, environment = InductorOutput(), ShapeEnv()
    symbols: dict[str, sympy.Symbol] = {}
    values: dict[str, Any] = dict(sizes)
    for name in sorted(varying):
        source = ConstantSource(name)
        symbol = environment.create_symbol(sizes[name], source=source, dynamic_dim=DimDynamic.DYNAMIC)
        if isinstance(symbol, sympy.Symbol):  # 0 and 1 are never symbols
            symbols[name] = symbol
            values[name] = environment.create_symintnode(symbol, hint=sizes[name], source=source)
    with pretend_gpu(device, "default", output), collect_output(output, build=False):
        with environment.suppress_guards():
            built = program_in(region, values, DEVICE, FakeTensorMode(shape_env=environment))
        compile_forward(_with_sizes(built, region))
    empty = Prediction(
        device.name, "default", dict(sizes), False, symbolic=True, how=WITHOUT_GPU,
        torch=torch.__version__,
    )  # fmt: skip
    guards = tuple(g.expr for g in environment.guards)
    ranges = {s: r for s, r in environment.var_to_range.items() if s in symbols.values()}
    return _Compiled(sizes, symbols, guards, ranges), read(output, empty)


def _with_sizes(built: Program, region: Region) -> Program:
    """The program with its symbolic numbers computed from the inputs' sizes, as a user's code does."""
    graph = built.module.graph
    places: dict[sympy.Symbol, torch.fx.Proxy] = {}
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    with graph.inserting_after(placeholders[-1]):
        for node in reversed(placeholders):
            for axis, size in enumerate(node.meta["val"].shape):
                expression = size.node.expr if isinstance(size, torch.SymInt) else None
                if isinstance(expression, sympy.Symbol) and expression not in places:
                    size_node = graph.call_function(torch.ops.aten.sym_size.int, (node, axis))
                    size_node.meta["val"] = size
                    places[expression] = torch.fx.Proxy(size_node)

    def compute(value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return sympy_interp(PythonReferenceAnalysis, places, value.node.expr).node
        return value

    for node in list(graph.nodes):
        if node.op in ("call_function", "call_method") and node.target is not torch.ops.aten.sym_size.int:
            with graph.inserting_before(node):
                node.args = torch.fx.node.map_aggregate(node.args, compute)
                node.kwargs = torch.fx.node.map_aggregate(node.kwargs, compute)
    built.module.recompile()
    return built
