"""Region -> canonical aten graph, with each operation's tensors and kind. Text and trace meet here."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from profiler.region.graph.fallbacks import falls_back
from profiler.region.graph.flops import flops
from profiler.region.graph.nodes import name_of
from profiler.region.graph.operation import Operation, Tensor
from profiler.region.graph.tracing import BeyondTracingError, traced
from profiler.region.language.checks import sized_bincount
from profiler.region.language.opaque_ops import whole_operations
from profiler.region.language.program import Program, program
from profiler.region.language.recorder import one_line, place_of, quiet
from profiler.region.language.vocabulary import DTYPE_NAMES
from profiler.region.model import Region, RegionError
from profiler.region.operations import kind_of


@dataclass(frozen=True)
class Graph:
    """The region at one binding. module(*inputs) -> tuple of outputs.

    Where inputs require gradients: inputs are followed by one upstream gradient per floating output (`upstream_0`, ...)
    and outputs by the gradients. without_gradient: inputs that require one and get none, as no output depends on them.
    """

    region: Region
    binding: Mapping[str, int]
    inputs: tuple[tuple[str, Tensor], ...]
    operations: tuple[Operation, ...]
    outputs: tuple[str, ...]
    output_tensors: tuple[Tensor, ...]
    module: torch.fx.GraphModule
    program: Program
    without_gradient: frozenset[str] = frozenset()

    def operation(self, name: str) -> Operation:
        return self._by_name[name]

    @functools.cached_property
    def _by_name(self) -> dict[str, Operation]:
        return {o.name: o for o in self.operations}

    @functools.cached_property
    def named_calls(self) -> tuple[tuple[torch.fx.Node, str], ...]:
        """Every call with its base name, in the module's order."""
        return tuple((n, name_of(n)) for n in self.module.graph.nodes if n.op == "call_function")

    @functools.cached_property
    def users(self) -> Mapping[str, tuple[str, ...]]:
        """Operation or input name -> the operations that read it."""
        readers: dict[str, list[str]] = {}
        for item in self.operations:
            for name in dict.fromkeys(item.inputs):
                readers.setdefault(name, []).append(item.name)
        return {k: tuple(v) for k, v in readers.items()}


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """What torch adds 16-bit numbers up in.

    F.rms_norm without an eps takes this type's own, 1.2e-7 for bf16 (torch 2.11 on an H200, 2.11 and 2.13 on CPUs); its
    documentation says the input's, 7.8e-3, with which all rows come out 0.4 % too small.
    """
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


class _Lowering(torch.fx.Interpreter):
    """Runs the user's program under make_fx and carries each node's line and label to aten."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        super().__init__(torch.nn.Module(), graph=graph)
        self.current: torch.fx.Node | None = None  # of the user's program, None in the backward

    def run_node(self, n: torch.fx.Node) -> Any:
        self.current = n if n.op != "output" else None
        return super().run_node(n)

    @property
    def custom(self) -> Mapping[str, object] | None:
        """What is kept of the call that runs, None in the backward."""
        return None if self.current is None else self.current.meta.get("custom")

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is F.dropout and args[0].device.type != "cuda" and (len(args) < 3 or args[2] is not False):
            # On a CPU fake dropout is bernoulli_ + div_; on CUDA it is this one kernel.
            if kwargs.get("training", True):
                rate = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
                return torch.ops.aten.native_dropout(args[0], rate, True)[0]
        if target is F.scaled_dot_product_attention:
            return self.attention(*args, **kwargs)
        if target in (F.rms_norm, torch.rms_norm):
            return self.rms_norm(*args, **kwargs)
        if target is torch.bincount:
            return sized_bincount(*args, **kwargs)
        return super().call_function(target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        return sized_bincount(*args, **kwargs) if target == "bincount" else super().call_method(target, args, kwargs)

    def attention(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> object:  # fmt: skip
        return whole_operations().attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)

    def rms_norm(
        self, input: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None,
        eps: float | None = None,
    ) -> object:  # fmt: skip
        eps = torch.finfo(sum_dtype(input.dtype)).eps if eps is None else eps
        return whole_operations().rms_norm(input, list(normalized_shape), weight, eps)


def lower(region: Region, binding: Mapping[str, int] | None = None, device: str = "cpu") -> Graph:
    """The aten graph at one binding; raises RegionError as `program` does.

    With inputs that require gradients the graph holds forward and backward, as autograd lays them out.
    """
    return _lowered(region, binding, program(region, binding, device))


NAMES_IN_TRAINING: Mapping[str, str] = {"_embedding_bag_forward_only": "_embedding_bag"}
"""What torch calls where nobody asks for a gradient -> what it calls in its place where one is asked for."""


def _lowered(region: Region, binding: Mapping[str, int] | None, built: Program, in_training: bool = False) -> Graph:
    """in_training: operations are named as in the graph with gradients."""
    grad = region.requires_grad
    runner = _Lowering(built.graph)
    with quiet(), built.mode:
        upstream = [torch.empty_like(o) for o in built.outputs if o.is_floating_point()] if grad else []
        reached: dict[str, bool] = {}
        run = _joint(runner, region, reached) if grad else _forward(runner)
        try:
            module = _traced(run, (*built.inputs, *upstream), runner)
        except MemoryError:
            raise
        except Exception as fault:  # autograd refuses (a value changed in place, no derivative), or torch fails
            raise _lowering_error(built.region, runner.current, fault) from None
    module.graph.eliminate_dead_code(is_impure_node=_mutates)
    for node in module.graph.nodes if in_training else ():
        if (name := NAMES_IN_TRAINING.get(name_of(node))) is not None:
            node._rename(name)
    _keep_names_apart(region, module)
    module.recompile()
    chosen = dict(region.bindings[0] if binding is None else binding)
    without = frozenset(name for name, is_reached in reached.items() if not is_reached)
    return replace(graph_of(region, chosen, built, module), without_gradient=without)


def _traced(
    run: Callable[..., tuple[torch.Tensor, ...]], inputs: Sequence[torch.Tensor], runner: _Lowering
) -> torch.fx.GraphModule:
    try:
        return traced(run, inputs, lambda: runner.custom)
    except BeyondTracingError:
        with torch.fx.traceback.preserve_node_meta():
            module: torch.fx.GraphModule = make_fx(run)(*inputs)
        return module


def _lowering_error(region: Region, node: torch.fx.Node | None, fault: Exception) -> RegionError:
    """The error at the place of the call that torch was at; of the backward, which has none, at the return."""
    message = one_line(fault)
    if not isinstance(fault, RuntimeError) or isinstance(fault, RecursionError):
        message = f"torch fails {'here' if node is not None else 'in the backward'}: {message}"
    at = node.meta["custom"]["at"] if node is not None and "custom" in node.meta else place_of(region.returned[0])
    line, column, end_line, end_column = at
    end = end_column + 1 if end_line == line else None
    return RegionError(
        message, code="region-shape", line=max(1, line), column=column + 1, end_column=end, text=region.source
    )


def without_grad(region: Region) -> Region:
    """The region with no input that requires a gradient."""
    return replace(region, inputs=tuple(replace(i, requires_grad=False) for i in region.inputs))


def written_alone(graph: Graph) -> Graph:
    """The graph of what was written: without the backward that autograd adds, which would hide the patterns."""
    if not graph.region.requires_grad:
        return graph
    region, built = without_grad(graph.region), graph.program
    if any(i.device.type != "cpu" for i in built.inputs):
        built = program(region, graph.binding)
    # Else its calls are the same: with gradients only more of them are refused.
    return replace(_lowered(region, graph.binding, built, in_training=True), region=graph.region)


def _keep_names_apart(region: Region, module: torch.fx.GraphModule) -> None:
    """An operation must not be called as an input is: `mul: bf16[8]` and aten.mul."""
    input_names = {i.name for i in region.inputs}
    for node in module.graph.nodes:
        if node.op != "placeholder" and node.name in input_names:
            node._rename(f"{node.name}_operation")


def _mutates(node: torch.fx.Node) -> bool:
    """In-place operations stay: their effect is on an input or on a value read later."""
    if node.op in ("placeholder", "output"):
        return True
    schema = getattr(node.target, "_schema", None)
    return bool(schema is not None and schema.is_mutable)


def _forward(runner: _Lowering) -> Callable[..., tuple[torch.Tensor, ...]]:
    def forward(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            return tuple(runner.run(*inputs))

    return forward


def _joint(runner: _Lowering, region: Region, has: dict[str, bool]) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Outputs and the gradients of the inputs that require them; after the inputs come the upstream gradients, one per
    floating output. has: filled with whether each input that requires a gradient gets one.
    """

    def joint(*arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs, upstream = arguments[: len(region.inputs)], arguments[len(region.inputs) :]
        values = [x.detach().requires_grad_(i.requires_grad) for x, i in zip(inputs, region.inputs, strict=True)]
        outputs = tuple(runner.run(*values))
        leaves = [v for v, i in zip(values, region.inputs, strict=True) if i.requires_grad]
        pairs = zip((o for o in outputs if o.is_floating_point()), upstream, strict=True)
        reached = [(o, g) for o, g in pairs if o.requires_grad]
        gradients = torch.autograd.grad([o for o, _ in reached], leaves, [g for _, g in reached], allow_unused=True)
        wanted = [i.name for i in region.inputs if i.requires_grad]
        has.update({name: g is not None for name, g in zip(wanted, gradients, strict=True)})
        return (*(o.detach() for o in outputs), *(g for g in gradients if g is not None))

    return joint


def graph_of(
    region: Region,
    binding: Mapping[str, int],
    built: Program,
    module: torch.fx.GraphModule,
    names: Sequence[str] | None = None,
) -> Graph:
    """A Graph from an aten module whose nodes carry their fakes. names: of its inputs, where they are not lower()'s."""
    storages: dict[int, int] = {}

    def tensor(value: torch.Tensor) -> Tensor:
        return tensor_of(value, storages)

    inputs: list[tuple[str, Tensor]] = []
    operations: list[Operation] = []
    outputs: tuple[str, ...] = ()
    output_tensors: tuple[Tensor, ...] = ()
    rename: dict[str, str] = {}
    input_names = (*(i.name for i in region.inputs), *(f"upstream_{i}" for i in range(len(built.outputs))))
    placeholders = iter(input_names if names is None else names)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            rename[node.name] = next(placeholders)
            inputs.append((rename[node.name], tensor(node.meta["val"])))
        elif node.op == "output":
            results = [r for r in node.args[0] if isinstance(r, torch.fx.Node)]
            outputs = tuple(rename.get(r.name, r.name) for r in results)
            output_tensors = tuple(tensor(r.meta["val"]) for r in results)
        elif node.op == "call_function" and node.target is not operator.getitem:
            operations.append(operation_of(node, tensor, rename))
        elif node.op == "get_attr":
            constant = tensor(getattr(module, str(node.target)))
            operations.append(Operation(node.name, "constant", "constant", "constant", (), (), (constant,), 0, 0))
        if node.op == "call_function" and node.target is operator.getitem:
            source = node.args[0]
            assert isinstance(source, torch.fx.Node)
            rename[node.name] = rename.get(source.name, source.name)
    return Graph(region, binding, tuple(inputs), tuple(operations), outputs, output_tensors, module, built)


def tensor_of(value: torch.Tensor, storages: dict[int, int]) -> Tensor:
    """A tensor as data. storages: the numbers of the storages that were seen, which it adds to."""
    return Tensor(
        tuple(value.shape),
        tuple(value.stride()),
        DTYPE_NAMES.get(value.dtype, str(value.dtype)),
        storages.setdefault(value.untyped_storage()._cdata, len(storages)),
        addressed_bytes(value),
        int(value.storage_offset()),
        int(value.untyped_storage().nbytes()),
    )


def operation_of(node: torch.fx.Node, tensor: Callable[[torch.Tensor], Tensor], rename: Mapping[str, str]) -> Operation:
    """A call as data, of a node whose meta, and whose operands', have the tensors. rename: of its operands' names."""
    sources = node.all_input_nodes
    target = str(node.target)
    values = [n.meta["val"] for n in sources]
    reads = tuple(tensor(v) for v in values if isinstance(v, torch.Tensor))
    writes = tuple(tensor(v) for v in _flat(node.meta.get("val")))
    custom = node.meta.get("custom") or {}
    label = str(custom.get("label") or target.split(".")[1])
    return Operation(
        name=node.name,
        target=target,
        label=label if label not in ("to", "float", "half", "bfloat16", "type_as") else "to",
        kind=kind_of(target),
        inputs=tuple(rename.get(n.name, n.name) for n in sources),
        reads=reads,
        writes=writes,
        flops=flops(node),
        line=int(custom.get("line", 0)),
        axes=_axes(node),
        mutated=tuple(
            tensor(v) for v in _mutated_tensors(node) if tensor(v).storage not in {w.storage for w in writes}
        ),
        accumulates=_argument(node, "accumulate") is True,
        falls_back=falls_back(node),
    )


def _argument(node: torch.fx.Node, name: str) -> object:
    """An argument by its name in the operation's schema; None where it has none, or it is left out."""
    for position, argument in enumerate(getattr(getattr(node.target, "_schema", None), "arguments", ())):
        if argument.name == name:
            return node.args[position] if position < len(node.args) else node.kwargs.get(name)
    return None


def _mutated_tensors(node: torch.fx.Node) -> Iterator[torch.Tensor]:
    """The tensors that the schema says are written into."""
    for argument in getattr(getattr(node.target, "_schema", None), "arguments", ()):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = _argument(node, argument.name)
            for part in value if isinstance(value, list | tuple) else [value]:
                if isinstance(part, torch.fx.Node) and isinstance(part.meta.get("val"), torch.Tensor):
                    yield part.meta["val"]


def _axes(node: torch.fx.Node) -> tuple[int, ...]:
    """The `dim` argument, made non-negative."""
    value = _argument(node, "dim")
    sources = [n.meta["val"] for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    dims = [value] if isinstance(value, int) else list(value) if isinstance(value, list | tuple) else []
    if not sources:
        return ()
    rank = max(1, sources[0].dim())
    return tuple(sorted(d % rank for d in dims if isinstance(d, int)))


def _flat(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _flat(part)


def addressed_bytes(value: torch.Tensor) -> int:
    """Distinct bytes that a tensor addresses: the product of its sizes where the stride is not 0, in bytes."""
    count = 1
    for size, stride in zip(value.shape, value.stride(), strict=True):
        if stride != 0:
            count *= size
        elif size == 0:
            return 0
    return count * value.element_size()
