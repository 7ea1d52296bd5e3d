"""A region run in float64 with every result rounded by chance to the type that the text keeps it in.

What several such runs differ by is what roundings may cost an implementation on these inputs, element by element. It
says nothing of how any one implementation rounds: sums are made in any order, products read operands of the text's
type, and what one operation makes inside is kept in float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.measure.candidate.reference import Wide, gradients_of, label, widened
from kernels.measure.candidate.rounded_attention import RowSums, attention
from kernels.measure.candidate.rounding import UNIT, Rounding

PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "convolution", "convolution_backward"})
SCATTERED = frozenset({"index_add", "scatter_add", "index_put"})
SUMS = PRODUCTS | SCATTERED | {"sum", "mean", "cumsum", "nansum"}
"""Linear in their operands: what the order of a sum costs is what its terms are off by."""
MOVES = frozenset(
    """clone copy _to_copy cat stack index index_select gather where masked_fill constant_pad_nd flip roll repeat fill
    zero zeros zeros_like ones ones_like empty empty_like full full_like new_zeros new_ones new_empty new_full arange
    scalar_tensor lift_fresh _local_scalar_dense embedding tril triu gt lt ge le eq ne isnan isfinite logical_and
    logical_or logical_not topk sort argsort argmax argmin max min amax amin maximum minimum relu abs neg clamp
    clamp_min clamp_max scatter index_copy masked_scatter set_ one_hot unfold_backward slice_backward select_backward
    threshold_backward max_pool2d_with_indices""".split()
)
"""They return numbers that they were given: an operand off by a unit is another input, not a rounding."""
STATISTICS = frozenset({"native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit"})
"""What they return behind the first is kept in float32 for the backward."""
ONE_KERNEL = frozenset({"rms_norm", "scaled_dot_product_attention", "layer_norm", "group_norm", "linear", "matmul"})
"""One kernel in practice, several operations inside: only what it returns is in the text's type."""


CASTS = frozenset({"to", "float", "half", "bfloat16", "type", "type_as"})
"""Nothing to do in the wide type, and a rounding all the same."""
PASSING = frozenset({"to", "float", "half", "bfloat16", "contiguous", "type_as"})


@dataclass(slots=True)
class Kept:
    """What a node's numbers are kept in. inside: what its operations make on the way."""

    dtype: torch.dtype
    inside: torch.dtype


class _Rounds(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Rounds what each aten operation returns, forward and backward. now: of the node that is being run."""

    def __init__(self, rounding: Rounding) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rounding = rounding
        self.now = Kept(torch.float32, torch.float32)
        self.of_gradient: dict[Any, Kept] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::").rstrip("_")
        changes = func._schema.is_mutable
        if func.is_view or (name in MOVES and not changes):
            return func(*args, **kwargs)
        backward = torch._C._current_autograd_node()
        kept = self.now if backward is None else self.of_gradient.get(backward, Kept(torch.float32, torch.float32))
        if not changes and name not in MOVES:
            args = self._operands(name, args, kept.dtype, _statistics(func))
        result = func(*args, **kwargs)
        if changes:
            for target in args[0] if args and isinstance(args[0], list | tuple) else args[:1]:
                if isinstance(target, torch.Tensor) and target.is_floating_point():
                    target.copy_(self.rounding.to(target, kept.inside))
            return result
        if isinstance(result, torch.Tensor):
            return self._result(result, kept.inside)
        if isinstance(result, tuple | list):
            narrow = [torch.float32 if n and name in STATISTICS else kept.inside for n in range(len(result))]
            return type(result)(self._result(r, d) for r, d in zip(result, narrow, strict=True))
        return result

    def _operands(self, name: str, args: Sequence[Any], dtype: torch.dtype, written: frozenset[int]) -> tuple[Any, ...]:
        """written: positions of what the operation writes into, which nothing may stand in the place of."""
        size = UNIT * math.sqrt(max(1.0, _terms(name, args) / 2)) if name in SUMS else UNIT
        made = list(args)
        for n, value in enumerate(args):
            if isinstance(value, torch.Tensor) and value.is_floating_point() and n not in written:
                narrow = self.rounding.to(value, dtype) if name in PRODUCTS else value
                made[n] = self.rounding.jitter(narrow, size)
        return tuple(made)

    def _result(self, value: Any, dtype: torch.dtype) -> Any:
        wanted = isinstance(value, torch.Tensor) and value.is_floating_point()
        return self.rounding.to(value, dtype) if wanted else value


def _statistics(func: Any) -> frozenset[int]:
    """Positions of running statistics, which batch norm writes into although its schema does not say so."""
    return frozenset(n for n, a in enumerate(func._schema.arguments) if a.name in ("running_mean", "running_var"))


def _terms(name: str, args: Sequence[Any]) -> int:
    """How many terms each of its sums has, about."""
    first = next((a for a in args if isinstance(a, torch.Tensor)), None)
    if first is None or not first.dim():
        return 1
    if name in ("addmm", "baddbmm"):
        return int(args[1].shape[-1])
    if name == "convolution":
        return math.prod(int(s) for s in args[1].shape[1:])
    if name == "convolution_backward":
        return max(1, int(args[0].numel()) // int(args[0].shape[1]))
    if name in PRODUCTS:
        return int(first.shape[-1])
    if name in SCATTERED:
        return max(1, max(a.numel() for a in args if isinstance(a, torch.Tensor)) // max(1, first.numel()))
    given = args[1] if len(args) > 1 else None
    dims = [given] if isinstance(given, int) else given if isinstance(given, list | tuple) and given else None
    return math.prod(int(first.shape[d]) for d in dims or range(first.dim()) if isinstance(d, int))


class _Boundary(torch.autograd.Function):
    """A value as the text's type holds it, and its gradient likewise."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, rounding: Rounding, dtype: torch.dtype) -> torch.Tensor:
        ctx.rounding, ctx.dtype = rounding, dtype
        return rounding.to(value, dtype).view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.rounding.to(gradient, ctx.dtype), None, None


class RoundedRun(Wide):
    """The program with its results rounded. exact: nodes whose result is left as it is (quantised outputs)."""

    def __init__(
        self, module: torch.fx.GraphModule, wide: torch.dtype, keep: Sequence[torch.fx.Node], rounding: Rounding,
        exact: frozenset[torch.fx.Node],
    ) -> None:  # fmt: skip
        super().__init__(module, wide, keep)
        self.rounding, self.exact = rounding, exact
        self.mode = _Rounds(rounding)
        self.node: torch.fx.Node | None = None
        self.of_product = {n: s for n in module.graph.nodes if (s := _softmax_before(n)) is not None}
        self.row_sums: dict[torch.fx.Node, RowSums] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op in ("placeholder", "output", "get_attr"):
            return super().run_node(n)
        dtype = self.wide if n in self.exact else kept_in(n)
        one = label(n) in ONE_KERNEL
        self.node = n
        self.mode.now = Kept(dtype, torch.float32 if one and dtype != torch.float64 else dtype)
        value = super().run_node(n)
        if (one or label(n) in CASTS) and isinstance(value, torch.Tensor) and value.is_floating_point():
            value = _Boundary.apply(value, self.rounding, dtype)  # type: ignore[no-untyped-call]
            if n in self.keep:
                self.kept[n] = value
        self._label(value)
        if n in self.of_product.values():
            self.row_sums[n] = RowSums(self.rounding, value.detach())
            self.row_sums[n].watch_scores(self.env[n.args[0]])  # type: ignore[index]
        elif n in self.of_product:
            self.row_sums[self.of_product[n]].watch_result(value, dtype)
        return value

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is F.scaled_dot_product_attention and self.node is not None:
            return attention(self.rounding, kept_in(self.node), *args, **kwargs)
        return super().call_function(target, args, kwargs)

    def _label(self, value: Any) -> None:
        """What the gradients of this node's operations are kept in."""
        waiting = [v.grad_fn for v in (value if isinstance(value, tuple | list) else (value,))
                   if isinstance(v, torch.Tensor) and v.grad_fn is not None]  # fmt: skip
        while waiting:
            one = waiting.pop()
            if one in self.mode.of_gradient:
                continue
            self.mode.of_gradient[one] = self.mode.now
            waiting += [f for f, _ in one.next_functions if f is not None]


def _softmax_before(node: torch.fx.Node) -> torch.fx.Node | None:
    """The softmax whose probabilities are this product's first operand."""
    if label(node) not in ("matmul", "bmm") or not isinstance(node.args[0], torch.fx.Node):
        return None
    one = node.args[0]
    while label(one) in PASSING and one.args and isinstance(one.args[0], torch.fx.Node):
        one = one.args[0]
    return one if label(one) == "softmax" and isinstance(one.args[0], torch.fx.Node) else None


def kept_in(node: torch.fx.Node) -> torch.dtype:
    """The floating type of the node's result in the text; float32 for what has none."""
    value: Any = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else (value,)
    types = [v.dtype for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()]
    return types[0] if types else torch.float32


@dataclass(frozen=True, slots=True)
class Run:
    """Outputs, then gradients, then what was left in inputs, and the values of the nodes that were kept."""

    outputs: tuple[torch.Tensor, ...]
    kept: Mapping[torch.fx.Node, torch.Tensor] = field(default_factory=dict)


def rounded_run(
    module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor], requires_grad: Sequence[bool],
    upstream: Sequence[torch.Tensor | None], wide: torch.dtype, rounding: Rounding, keep: Sequence[torch.fx.Node],
    exact: frozenset[torch.fx.Node], written: Sequence[int] = (),
) -> Run:  # fmt: skip
    """One run with roundings. inputs are copied. written: as `run_of` has it."""
    runner = RoundedRun(module, wide, keep, rounding, exact)
    with runner.mode:
        return run_of(runner, inputs, requires_grad, upstream, written)


def run_of(
    runner: Wide, inputs: Sequence[torch.Tensor], requires_grad: Sequence[bool],
    upstream: Sequence[torch.Tensor | None], written: Sequence[int] = (),
) -> Run:  # fmt: skip
    """The program run as the runner runs it, on copies of the inputs. written: numbers of those whose contents behind
    the run are wanted, too."""
    values = [widened(x, runner.wide, grad) for x, grad in zip(inputs, requires_grad, strict=True)]
    wanted = any(requires_grad)
    with torch.set_grad_enabled(wanted), torch.autograd.set_multithreading_enabled(False):
        outputs = tuple(runner.run(*values))
        gradients = gradients_of(outputs, values, requires_grad, upstream, runner.wide) if wanted else ()
    left = [values[n] for n in written]
    return Run(
        tuple(o.detach() for o in (*outputs, *gradients, *left)), {n: v.detach() for n, v in runner.kept.items()}
    )
