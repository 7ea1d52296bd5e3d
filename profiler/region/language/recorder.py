"""Recorder: calls torch's functions on FakeTensors, within bounds, and keeps each call as a torch.fx node."""

from __future__ import annotations

import ast
import contextlib
import logging
import operator
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from profiler.region.language import scalar_values, vocabulary
from profiler.region.language.checks import Checking, RefusedError, label_of, nodes_in, refuse, tensors_in
from profiler.region.language.fanout import example_size, outputs, rounds
from profiler.region.language.signatures import Args, Call, Kwargs, MisplacedError, Target, bind
from profiler.region.language.syntax import error
from profiler.region.language.value_ranges import Ranges
from profiler.region.limits import (
    MAX_BYTES,
    MAX_ITEMS,
    MAX_LOWERED,
    MAX_OPERATIONS,
    MAX_REGION_BYTES,
    MAX_RESULT_RANK,
)
from profiler.region.model import Input, RegionError

REFUSED_KEYWORDS = frozenset({"out", "generator", "pin_memory", "layout", "requires_grad", "names", "jiterator"})
"""They say where and how a result is kept, which the region does not decide."""
SPARSE = ("sparse", "sparse_grad")
"""What lookups call a gradient that holds the rows that were looked up alone."""


@contextmanager
def quiet() -> Iterator[None]:
    """Without torch's 40-line traceback per refused call, and without a CUDA context for a fake tensor.

    Up to torch 2.11 the first fake CUDA tensor makes a real one (init_gpu_context); a web process must not.
    """
    log = logging.getLogger("torch._subclasses.fake_tensor")
    disabled = log.disabled
    log.disabled = True  # another level would have every logger of the process forget what it remembers
    original = getattr(fake_tensor, "init_gpu_context", None)
    if original is not None:
        setattr(fake_tensor, "init_gpu_context", lambda *_: None)  # noqa: B010 (its type forbids plain assignment)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations, of no use on the server's console
            yield
    finally:
        log.disabled = disabled
        if original is not None:
            setattr(fake_tensor, "init_gpu_context", original)  # noqa: B010


def shape_of(item: Input, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The input's shape with its symbols replaced."""
    return tuple(sizes[s] if isinstance(s, str) else s for s in item.shape)


def empty_input(item: Input, sizes: Mapping[str, int], device: str) -> torch.Tensor:
    """An uninitialised tensor of the input's shape, dtype and layout."""
    shape, dtype = shape_of(item, sizes), vocabulary.DTYPES[item.dtype]
    if item.strides is not None:
        return torch.empty_strided(shape, item.strides, dtype=dtype, device=device)
    if item.channels_last:
        return torch.empty(shape, dtype=dtype, device=device, memory_format=torch.channels_last)
    return torch.empty(shape, dtype=dtype, device=device)


class Recorder:
    """Holds the graph. Every node's meta has `val`, its fake, and `custom`: the line, how the user calls it, the place
    of its expression in the text (lineno, col_offset, end_lineno, end_col_offset of ast), and whether it gives several.
    """

    def __init__(self, device: str, mode: FakeTensorMode | None = None) -> None:
        self.device = device
        self.mode = mode or FakeTensorMode()
        self.checking = Checking()
        self.graph = torch.fx.Graph()
        self.operations = 0
        self.bytes = 0
        self.storages: set[int] = set()
        self.leaves: set[int] = set()  # storages of inputs that require a gradient
        self.reached: set[torch.fx.Node] = set()  # values through which a gradient passes
        self.ranges = Ranges()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """What torch calls here is run on fakes, and checked. To enter once: it costs as much as an operation."""
        with self.mode, torch.no_grad(), self.checking:
            yield

    def input(self, item: Input, sizes: Mapping[str, int]) -> torch.fx.Node:
        """A placeholder with a fake of the input, if that is no larger than any GPU's memory at these sizes."""
        shape = shape_of(item, sizes)
        reach = 1 + sum(max(0, n - 1) * s for n, s in zip(shape, item.strides or (), strict=False))
        for size in shape if item.strides is None else ():
            reach *= size
        if reach * vocabulary.DTYPES[item.dtype].itemsize > MAX_BYTES:
            sizes_text = ", ".join(map(str, shape))
            message = f"{item.name} would be {item.dtype}[{sizes_text}]: more than any GPU holds"
            raise RegionError(message, code="region-too-large", line=max(1, item.line))
        try:
            fake = empty_input(item, sizes, self.device)
        except MemoryError:
            raise
        except Exception as fault:  # strides of [0, 2^40, 2^40] do not fit 64 bits
            message = f"{item.name} cannot be made: {one_line(fault)}"
            raise RegionError(message, code="region-too-large", line=max(1, item.line)) from None
        self.storages.add(fake.untyped_storage()._cdata)
        if item.requires_grad:
            self.leaves.add(fake.untyped_storage()._cdata)
        self.bytes += fake.untyped_storage().nbytes()
        if self.bytes > MAX_REGION_BYTES:
            message = "the region's inputs together are larger than any GPU"
            raise RegionError(message, code="region-too-large", line=max(1, item.line))
        node = self.graph.placeholder("input_self" if item.name == "self" else item.name)
        node.target = node.name  # fx renames what shadows a builtin, but not in the generated signature
        node.meta["val"] = fake
        self.ranges.declare(fake, item)
        if item.requires_grad:
            self.reached.add(node)
        return node

    def emit(self, node: ast.AST, line: int, target: Target, args: Args, kwargs: dict[str, Any]) -> object:
        """The call as a node, or a tuple of nodes. Raises RegionError at `node` where torch or CUDA would refuse it."""
        self.operations += 1
        if self.operations > MAX_OPERATIONS:
            raise error(node, f"more than {MAX_OPERATIONS} operations", code="region-too-long")
        refused = REFUSED_KEYWORDS & kwargs.keys()
        if refused:
            raise error(node, f"{min(refused)} is not part of the language", code="region-type")
        scalar_values.weigh(node, args, tuple(kwargs.values()))
        fakes: Any = torch.fx.node.map_aggregate((args, kwargs), _fake)  # type: ignore[arg-type]
        refuse(node, target, fakes[0], fakes[1])
        self.keep_leaves(node, target, fakes[0], fakes[1])
        self.checking.gradient = bool(self.reached) and self.is_reached(args, kwargs)
        try:
            call = self.bounded(node, target, fakes[0], fakes[1])
            self.keep_dense(node, call, args, kwargs)
            result = call_on_fakes(target, call, fakes[0], fakes[1])
        except RefusedError as fault:
            raise error(node, str(fault), hint=fault.hint, code=fault.code) from None
        except (RegionError, MemoryError):
            raise
        except Exception as fault:  # torch raises every kind; all of them mean that the call does not fit
            if "bad_alloc" in str(fault):
                raise MemoryError(str(fault)) from None
            raise self.misfit(node, fault, fakes[0]) from None
        for tensor in tensors_in(result):
            self.measure(node, tensor)
        if label_of(target) == "bincount":
            self.keep_bins(node, fakes[0][0], result)
        self.ranges.note(label_of(target), call, fakes[0], fakes[1], result)
        kind = "call_method" if isinstance(target, str) else "call_function"
        new_node = self.graph.create_node(kind, target, args, kwargs)
        new_node.meta["val"] = result
        if self.checking.gradient:
            self.reached.add(new_node)
            changed = next((a for a in args if isinstance(a, torch.fx.Node)), new_node)
            self.reached.add(changed if label_of(target).endswith("_") else new_node)
        several = isinstance(result, tuple | list)
        new_node.meta["custom"] = {"line": line, "label": label_of(target), "at": place_of(node), "several": several}
        if isinstance(result, tuple | list):
            return tuple(self.part(new_node, i, part) for i, part in enumerate(result))
        if not isinstance(result, torch.Tensor):
            raise error(node, "this gives no tensor", code="region-type")
        return new_node

    def bounded(self, node: ast.AST, target: Target, args: Args, kwargs: Kwargs) -> Call | None:
        """The call's arguments by name, if it is no more work than a region may be."""
        label = label_of(target)
        try:
            call = bind(target, args, kwargs)
        except MisplacedError as fault:
            raise error(node, f"{label}: {fault}", hint=operands(args), code="region-type") from None
        if outputs(label, call) > MAX_ITEMS:
            raise error(node, f"{label} gives more than {MAX_ITEMS} tensors", code="region-too-long")
        if rounds(label, call) > MAX_LOWERED:
            raise error(node, f"{label} goes through more than {MAX_LOWERED:,} rounds", code="region-too-long")
        self.checking.count(max(0, outputs(label, call) - 1), f"what {label} gives")
        return call

    def is_reached(self, args: Args, kwargs: Kwargs) -> bool:
        """A gradient passes through some argument."""
        return not self.reached.isdisjoint(nodes_in(args, kwargs))

    def keep_dense(self, node: ast.AST, call: Call | None, args: Args, kwargs: Kwargs) -> None:
        """Refuses calls whose gradient is a sparse tensor: its size depends on the data, and nothing here reads one."""
        asked = next((n for n in SPARSE if call is not None and call.first(n)), None) if self.reached else None
        if asked is None or call is None:
            return
        table = call.first("weight", "self", "input")
        if any(n.meta["val"] is table and n in self.reached for n in nodes_in(args, kwargs)):
            message = f"{asked}=True asks for a sparse gradient, which is not part of the language"
            raise error(node, message, hint=f"leave {asked} out: the gradient is dense then", code="region-type")

    def keep_leaves(self, node: ast.AST, target: Target, args: Args, kwargs: Kwargs) -> None:
        """Autograd refuses to change an input that requires a gradient."""
        if not self.leaves or not (label_of(target).endswith("_") or kwargs.get("inplace")):
            return
        changed = next(tensors_in(args), None)
        if changed is not None and changed.untyped_storage()._cdata in self.leaves:
            message = "an input that requires a gradient cannot be changed in place"
            raise error(node, message, hint="change a copy: y = x.clone()", code="region-type")

    def keep_bins(self, node: ast.AST, values: torch.Tensor, counted: object) -> None:
        """Refuses a bincount whose values may lie beyond the bins that minlength makes: its result would be longer."""
        bins = example_size(counted.shape[0]) if isinstance(counted, torch.Tensor) else 0
        known = self.ranges.of(values)
        if known is None or known[0] < 0 or known[1] >= bins:
            said = "nothing bounds them" if known is None else f"they may be from {known[0]} to {known[1]}"
            message = f"the size of this depends on the data: values must be from 0 to {bins - 1}, and {said}"
            hint = f"declare the input .below({bins}), or count x.clamp(0, {bins - 1}) or x % {bins}"
            raise error(node, message, hint=hint, code="region-shape")

    def measure(self, node: ast.AST, tensor: torch.Tensor) -> None:
        """Refuses tensors that no GPU holds, and regions whose tensors together come to more than any does."""
        if tensor.dim() > MAX_RESULT_RANK:
            raise error(node, f"the result has {tensor.dim()} dimensions", code="region-too-large")
        count = tensor.element_size()
        for size in tensor.shape:
            count *= int(size)
        if count > MAX_BYTES:
            shape = ", ".join(str(s) for s in tensor.shape)
            raise error(node, f"the result has the shape [{shape}]: more than any GPU holds", code="region-too-large")
        with contextlib.suppress(NotImplementedError, RuntimeError):  # a tensor without storage has no bytes
            storage = tensor.untyped_storage()
            if storage._cdata not in self.storages:
                self.storages.add(storage._cdata)
                self.bytes += storage.nbytes()
        if self.bytes > MAX_REGION_BYTES:
            raise error(node, "the region's tensors together are larger than any GPU", code="region-too-large")

    def part(self, whole: torch.fx.Node, i: int, value: object) -> torch.fx.Node:
        node = self.graph.call_function(operator.getitem, (whole, i))
        if whole in self.reached:
            self.reached.add(node)
        node.meta["val"] = value
        node.meta["custom"] = whole.meta["custom"]
        return node

    def misfit(self, node: ast.AST, fault: Exception, args: Args) -> RegionError:
        message = re.sub(r"got (FakeTensor|meta tensor)", "got", one_line(fault))
        if type(fault).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
            hint = "sizes cannot depend on values: where(condition, a, b), or repeat_interleave(..., output_size=n)"
            return error(node, f"the size of this depends on the data ({message[:80]})", hint=hint, code="region-shape")
        return error(node, message, hint=operands(args), code="region-shape")


def call_on_fakes(target: Target, call: Call | None, args: Args, kwargs: Kwargs) -> object:
    """The result on fakes. Of `aten.NAME` the overload that the arguments fit: trying all goes through a tensor."""
    if isinstance(target, str):
        return getattr(args[0], target)(*args[1:], **kwargs)
    overload = None if call is None else call.signature.overload
    return (overload or target)(*args, **kwargs)


def operands(args: Args) -> str:
    """The tensors of a call, for a hint: their types and shapes."""
    shapes = [f"{vocabulary.DTYPE_NAMES.get(t.dtype, t.dtype)}{list(t.shape)}" for t in tensors_in(args)]
    return "operands: " + ", ".join(shapes) if shapes else ""


def place_of(node: ast.AST) -> tuple[int, int, int, int]:
    """The place of an expression or statement in its source, as ast counts: lines from 1, columns in UTF-8 bytes."""
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    return first, getattr(node, "col_offset", 0), last or 0, getattr(node, "end_col_offset", 0) or 0


def _fake(value: object) -> object:
    return value.meta["val"] if isinstance(value, torch.fx.Node) else value


def one_line(fault: Exception) -> str:
    """The first line of what torch says, short enough for a page."""
    lines = str(fault).strip().splitlines()
    return re.sub(r"\s+", " ", lines[0] if lines else type(fault).__name__)[:240]
