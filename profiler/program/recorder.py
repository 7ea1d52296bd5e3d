"""What reaches the device: every call below autograd with its tensors, recorded as it is made on the meta device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakIdKeyDictionary

from profiler.program.counts import MOST_KEPT, Counts, computed, counted
from profiler.program.frames import Stacks, user_line
from profiler.program.guesses import READS, SIZED, all_true, guess_of, nonzero_of
from profiler.program.model import Gap, ProgramError
from profiler.program.routing import Routed, follow, numbers, picked, subject_of
from profiler.program.stand_ins import Chosen
from profiler.region.graph.lowering import operation_of, tensor_of
from profiler.region.graph.operation import Operation
from profiler.region.graph.tracing import tensors_in

aten = torch.ops.aten
MOST_CALLS = 300_000
"""Of one step. A loop over tokens that was meant for a GPU would otherwise fill the memory."""
MARK = "tritonworthy call "
"""Begins the name of the event by which a call is told among the profiler's."""


@dataclass(frozen=True, slots=True)
class Reached:
    """One call, None for the operation where it only made others. stack, waits: as in `model.Call`."""

    operation: Operation | None
    stack: int
    waits: bool = False


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """calls: in the order in which they began, as the profiler's marks of this mode. to_host: what is copied now
    goes to the host."""

    def __init__(self, chosen: Chosen) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.chosen = chosen
        self.calls: list[Reached | None] = []
        self.gaps: dict[Gap, None] = {}
        self.stacks = Stacks()
        self.storages: dict[int, int] = {}
        self.to_host = False
        self.routed = WeakIdKeyDictionary()
        """Tensor -> Routed, of those that say where tokens go among experts."""
        self.counts = WeakIdKeyDictionary()
        """Tensor -> Counts, of those that say how many tokens experts get, and what is computed of them alone."""

    def note_wait(self, name: str) -> None:
        """The host waits here until the GPU has done all before it, and nothing is brought: a call of that name."""
        self.gap("the host waits for the GPU (synchronize)")
        index = len(self.calls)
        self.calls.append(Reached(None, self.stacks.here(), waits=True))
        with torch._C._profiler._RecordFunctionFast(name), torch._C._profiler._RecordFunctionFast(f"{MARK}{index}"):
            pass

    def gap(self, what: str) -> None:
        """Note it, with the line of the user's program that is running."""
        self.gaps.setdefault(Gap(what, user_line()))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        index = len(self.calls)
        if index >= MOST_CALLS:
            raise ProgramError(f"the step runs more than {MOST_CALLS:,} operations", "Record a shorter step.")
        self.calls.append(None)
        with torch._C._profiler._RecordFunctionFast(f"{MARK}{index}"):
            pass
        stack = self.stacks.here()
        if func in self.chosen or func._can_decompose():
            with self:
                made = self.chosen.get(func, func.decompose)(*args, **kwargs)
            if made is not NotImplemented:
                self.calls[index] = Reached(None, stack)
                return made
        torch._C._autograd._enable_record_function(False)
        try:
            args, kwargs = tree_map(_on_meta, tuple(args)), tree_map(_on_meta, dict(kwargs))
            known = computed(func, args, kwargs, self.counts) if self.counts else None
            result = self._run(func, args, kwargs, known)
            self._follow(func, args, result)
            self._keep(func, args, kwargs, result, known)
            operation = (
                self._described(func, args, kwargs, result, index) if _of_device((args, kwargs, result)) else None
            )
            waits = operation is not None and (self.to_host or _reads_values(func, args, kwargs))
            self.calls[index] = Reached(operation, stack, waits)
        finally:
            torch._C._autograd._enable_record_function(True)
        return result

    def _run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], known: Any) -> Any:
        """The call's result without memory. What depends on values is answered by what is known of it, else by a
        guess, and noted."""
        if func is aten._local_scalar_dense.default:
            if args[0].device.type != "meta":
                return func(*args, **kwargs)
            if (counts := self.counts_of(args[0])) is not None:
                self.gap(f"{READS}; {counts.said()}")
                return counts.values.item()
            answer = self._assumed(args[0])
            self.gap(f"{READS}; assumed {answer}")
            return answer
        if func is aten.nonzero.default and (routed := self._routed(args[0])) is not None:
            self.gap(f"{SIZED} (nonzero); {routed.said(args[0])}")
            made = nonzero_of(args[0], routed.true_of(args[0]))
            if routed.is_of_experts(args[0]):
                self.routed[made] = numbers(routed)
            return made
        if known is not None and guess_of(func) is not None:
            self.gap(f"{SIZED}; {self._known_of((args, kwargs)).routed.spread()}")
            return tree_map(_without_memory, known)
        if func is aten.bincount.default and (routed := self._routed(args[0])) is not None and routed.density is None:
            args = (args[0], args[1] if len(args) > 1 else None, max(routed.experts, *args[2:], 0))
        if (guess := guess_of(func)) is not None:
            result, told = guess(*args, **kwargs)
            if told:
                self.gap(told)
            return result
        if func in _BY_MASKS:
            args = (args[0], self._as_positions(args[1]), *args[2:])
        try:
            return func(*args, **kwargs)
        except NotImplementedError:
            if func.namespace == "aten":
                raise
            self.gap(f"{func} tells no sizes of its result (no fake implementation); assumed those of its first tensor")
            return _like_the_first(func, args)

    def _as_positions(self, indices: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Masks as the positions of which as many are true as can be."""
        positions: list[torch.Tensor | None] = []
        for index in indices:
            if index is None or index.dtype not in (torch.bool, torch.uint8):
                positions.append(index)
                continue
            routed = self._routed(index)
            true = index.numel() if routed is None else routed.true_of(index)
            told = all_true(index) if routed is None else routed.said(index)
            self.gap(f"{SIZED} (a mask as index); {told}")
            positions += [torch.empty((true,), dtype=torch.int64, device="meta") for _ in index.shape]
        return positions

    def _assumed(self, value: torch.Tensor) -> Any:
        """What a value is taken for: true or 1; what few of a router's elements are is false."""
        routed = self._routed(value)
        if routed is not None and routed.density is not None and routed.density < 0.5 and value.dtype == torch.bool:
            return False
        return torch.ones((), dtype=value.dtype, device="cpu").item()

    def _routed(self, tensor: torch.Tensor) -> Routed | None:
        return self.routed.get(tensor)  # type: ignore[no-any-return, no-untyped-call]

    def counts_of(self, tensor: torch.Tensor) -> Counts | None:
        """Its values, where they follow from how many tokens experts get; None where nobody knows them."""
        return self.counts.get(tensor)  # type: ignore[no-any-return, no-untyped-call]

    def _known_of(self, values: Any) -> Counts:
        """The first that is known of a call's arguments, one of which is."""
        return next(c for t in tensors_in(values) if (c := self.counts_of(t)) is not None)

    def _keep(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, known: Any) -> None:
        """Note which values are known; of what is written with others they are no more."""
        if known is not None:
            source = self._known_of((args, kwargs)).routed
            for made, values in zip(tensors_in(result), tensors_in(known), strict=True):
                if values.numel() <= MOST_KEPT and values.shape == made.shape:
                    self.counts[made] = Counts(values, source)
            return
        if func._schema.is_mutable and args and isinstance(args[0], torch.Tensor):
            self.counts.pop(args[0], None)  # type: ignore[no-untyped-call]
        name = func._schema.name.rpartition("::")[2]
        if self.routed and isinstance(subject := subject_of(name, args), torch.Tensor):
            routed = self._routed(subject)
            if routed is not None and (counts := counted(name, routed, args, result)) is not None:
                self.counts[result] = counts

    def _follow(self, func: Any, args: Sequence[Any], result: Any) -> None:
        """Note where a router's choice goes."""
        name = func._schema.name.rpartition("::")[2]
        if (choice := picked(name, args, result)) is not None:
            self.routed[choice[0]] = choice[1]
        elif self.routed and isinstance(subject := subject_of(name, args), torch.Tensor):
            routed = self._routed(subject)
            if routed is not None:
                self.routed.update(follow(name, routed, args, result))

    def _described(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, index: int
    ) -> Operation | None:
        """The call as data; None for one that cannot be counted."""
        graph = torch.fx.Graph()
        nodes: dict[int, torch.fx.Node] = {}

        def node_of(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            if id(value) not in nodes:
                nodes[id(value)] = graph.placeholder(f"operand{len(nodes)}")
                nodes[id(value)].meta["val"] = value.detach() if value.requires_grad else value
            return nodes[id(value)]

        node_args, node_kwargs = tree_map(node_of, tuple(args)), tree_map(node_of, dict(kwargs))
        node = graph.create_node("call_function", _functional(func), node_args, node_kwargs, f"call_{index}")
        node.meta["val"] = result
        try:
            return operation_of(node, lambda value: tensor_of(value, self.storages), {})
        except (IndexError, KeyError, TypeError, ValueError, AttributeError, RuntimeError, AssertionError) as fault:
            self.gap(f"{func} could not be counted ({type(fault).__name__})")
            return None
        finally:
            for one in graph.nodes:  # which are rings: they would hold the tensors, and autograd would copy those
                one.meta.clear()


def _functional(func: Any) -> Any:
    """What computes the same and writes into nothing: that is what times were measured of."""
    name = func._schema.name.rpartition("::")[2]
    if not name.endswith("_") or name.endswith("__") or func.namespace != "aten" or name in _OVERWRITING:
        return func
    packet = getattr(torch.ops.aten, name[:-1], None)
    return getattr(packet, func._overloadname, func) if packet is not None else func


_OVERWRITING = frozenset({"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"})


def _of_device(values: Any) -> bool:
    """Whether any tensor is the GPU's: a number that the program keeps on the host reaches nothing."""
    return any(t.device.type == "meta" for t in tensors_in(values))


def _reads_values(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether what it gives depends on values, which the host waits for: a number, or how large its result is."""
    if func in _BY_MASKS:
        return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    if func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is not None:
        return False
    return torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


_BY_MASKS = (aten.index.Tensor, aten.index_put_.default, aten.index_put.default)


def _on_meta(value: Any) -> Any:
    """A tensor that has memory, other than a number, as one that has none."""
    if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() > 0:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return value


def _without_memory(value: Any) -> Any:
    return torch.empty_like(value, device="meta") if isinstance(value, torch.Tensor) else value


def _like_the_first(func: Any, args: Sequence[Any]) -> Any:
    first = next(tensors_in(args), None)
    results = [torch.empty_like(first) for r in func._schema.returns if first is not None]
    return results[0] if len(results) == 1 else tuple(results) or None
