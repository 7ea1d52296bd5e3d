"""The region in float64: what its outputs would be without rounding, and which outputs need another comparison."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from kernels.measure.candidate.inputs import pieces, same_bits
from kernels.measure.candidate.random_values import argument, writes

FLOAT_CASTS = frozenset({"float", "half", "bfloat16", "double"})
SELECTING = frozenset({"argmax", "argmin", "topk", "sort", "argsort", "max", "min", "kthvalue", "median"})


class NoReferenceError(Exception):
    """float64 cannot express this region."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Expected outputs, then gradients, then what is left in the inputs `written`, in float64; integers and booleans in
    their own type.

    written: numbers of the inputs whose contents the program changes, and of others that were asked for.
    selected: output number -> (values that this output's indices point into, dimension, their type in the text).
    precision: "float64", or "float32" where float64 did not fit into memory.
    """

    outputs: tuple[torch.Tensor, ...]
    selected: Mapping[int, tuple[torch.Tensor, int, torch.dtype]]
    precision: str
    written: tuple[int, ...] = ()

    def of_outputs(self) -> Reference:
        """Without what is left in the inputs."""
        return replace(self, outputs=self.outputs[: len(self.outputs) - len(self.written)], written=())


def label(node: torch.fx.Node) -> str:
    """The operation's plain name: "topk" for torch.topk, .topk() and aten.topk."""
    target: Any = node.target
    name = target if isinstance(target, str) else str(getattr(target, "__name__", target))
    return name.removeprefix("aten.").split(".")[0]


def result_nodes(module: torch.fx.GraphModule) -> Sequence[Any]:
    """The nodes that are returned."""
    output = next(n for n in module.graph.nodes if n.op == "output")
    return output.args[0]  # type: ignore[no-any-return]


def selections(module: torch.fx.GraphModule) -> dict[int, tuple[torch.fx.Node, int, torch.fx.Node]]:
    """Output number -> (the node whose values the indices select, dimension, the index node)."""
    selected: dict[int, tuple[torch.fx.Node, int, torch.fx.Node]] = {}
    for number, value in enumerate(result_nodes(module)):
        node = value
        if label(node) == "getitem":
            if node.args[1] != 1:
                continue
            node = node.args[0]
        name = label(node)
        if name not in SELECTING or not node.args or not isinstance(node.args[0], torch.fx.Node):
            continue
        if node is value and name not in ("argmax", "argmin", "argsort"):
            continue
        position = 2 if name in ("topk", "kthvalue") else 1
        dim = argument(node, position, "dim", None if name.startswith("arg") and name != "argsort" else -1)
        if isinstance(dim, int):
            selected[number] = (node.args[0], dim, value)
    return selected


def _copies_as_cast(node: torch.fx.Node) -> bool:
    """Whether a cast between floating types makes a copy in the text, where in the wide type there is nothing to do."""
    if label(node) not in FLOAT_CASTS | {"to", "type", "type_as"} or not node.all_input_nodes:
        return False
    own, given = node.meta.get("val"), node.all_input_nodes[0].meta.get("val")
    if not isinstance(own, torch.Tensor) or not isinstance(given, torch.Tensor):
        return False
    return own.is_floating_point() and given.is_floating_point() and own.dtype != given.dtype


class Wide(torch.fx.Interpreter):
    """Runs the program with every floating type as `wide`; keeps the values of the nodes `keep`.

    Arguments are what any operation may be given, as torch.fx has them.
    """

    def __init__(self, module: torch.fx.GraphModule, wide: torch.dtype, keep: Sequence[torch.fx.Node]) -> None:
        super().__init__(module)
        self.wide = wide
        self.keep = set(keep)
        self.kept: dict[torch.fx.Node, torch.Tensor] = {}
        self.in_place = any(map(writes, module.graph.nodes))

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if self.in_place and _copies_as_cast(n) and value.data_ptr() == self.env[n.all_input_nodes[0]].data_ptr():
            value = value.clone()  # in the text's types it is a copy, and what is written into it stays there
        if n in self.keep:
            self.kept[n] = value
        return value

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = self._widened(args), self._widened(kwargs)
        if target in REPLACEMENTS:
            return REPLACEMENTS[target](*args, **kwargs)
        name = str(getattr(target, "__name__", target))
        if name in ("_softmax", "_log_softmax"):
            args = (*args[:2], False)  # half_to_float asks for a 16-bit input
        return super().call_function(target, args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in FLOAT_CASTS:
            return args[0].to(self.wide)
        if target == "view" and any(isinstance(a, torch.dtype) for a in (*args, *kwargs.values())):
            raise NoReferenceError("it looks at the bits of a number")
        return super().call_method(target, self._widened(args), self._widened(kwargs))

    def _widened(self, value: Any) -> Any:
        if isinstance(value, torch.dtype) and value.is_floating_point:
            return self.wide
        if isinstance(value, tuple | list):
            return type(value)(self._widened(v) for v in value)
        if isinstance(value, dict):
            return {k: self._widened(v) for k, v in value.items()}
        return value


def _scaled_mm(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor,
               bias: torch.Tensor | None = None, *_: Any, **__: Any) -> torch.Tensor:  # fmt: skip
    """torch._scaled_mm with per-tensor, per-row or per-column scales, in the inputs' own (wide) type."""
    product = (a @ b) * scale_a * scale_b
    return product if bias is None else product + bias


def _grouped_mm(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None = None, bias: torch.Tensor | None = None,
                out_dtype: Any = None, **_: Any) -> torch.Tensor:  # fmt: skip
    """F.grouped_mm: 3-D @ 3-D is bmm; rows of a 2-D `a` grouped by offs, each with its own b[g]."""
    if offs is None:
        return torch.bmm(a, b)
    ends = offs.tolist()
    starts = [0, *ends[:-1]]
    if a.dim() == 2 and b.dim() == 3:
        parts = [a[s:e] @ b[g] for g, (s, e) in enumerate(zip(starts, ends, strict=True))]
        tail = a.new_zeros((a.shape[0] - ends[-1], b.shape[-1]))
        return torch.cat([*parts, tail])
    if a.dim() == 2 and b.dim() == 2:
        return torch.stack([a[:, s:e] @ b[s:e] for s, e in zip(starts, ends, strict=True)])
    raise NoReferenceError("grouped_mm of these shapes has no float64 form here")


REPLACEMENTS: dict[Any, Callable[..., torch.Tensor]] = {torch._scaled_mm: _scaled_mm}
if hasattr(F, "grouped_mm"):
    REPLACEMENTS[F.grouped_mm] = _grouped_mm


def reference(
    module: torch.fx.GraphModule,
    inputs: Sequence[torch.Tensor],
    requires_grad: Sequence[bool],
    upstream: Sequence[torch.Tensor | None],
    wide: torch.dtype = torch.float64,
    watched: Collection[int] = (),
) -> Reference:
    """Outputs, then the gradients of the inputs that require one, then what is left in the inputs that it writes into,
    computed in `wide` without intermediate rounding.

    inputs are copied. upstream: one gradient per output, None for those without. watched: numbers of inputs whose
    contents are wanted although they may be as they were. Raises NoReferenceError where the operations have no such
    form, torch.OutOfMemoryError where it does not fit.
    """
    chosen = selections(module)
    runner = Wide(module, wide, [source for source, _, _ in chosen.values()])
    wanted = any(requires_grad)
    values = [widened(x, wide, grad) for x, grad in zip(inputs, requires_grad, strict=True)]
    try:
        with torch.set_grad_enabled(wanted):
            outputs = tuple(runner.run(*values))
            gradients = gradients_of(outputs, values, requires_grad, upstream, wide) if wanted else ()
    except (torch.OutOfMemoryError, NoReferenceError):
        raise
    except (RuntimeError, TypeError, NotImplementedError, ValueError, IndexError) as fault:
        raise NoReferenceError(str(fault).splitlines()[0][:300]) from None
    selected = {
        n: (runner.kept[source].detach(), dim, source.meta["val"].dtype) for n, (source, dim, _) in chosen.items()
    }
    written = changed(values, inputs, watched)
    results = tuple(o.detach() for o in (*outputs, *gradients, *(values[n] for n in written)))
    return Reference(results, selected, "float64" if wide == torch.float64 else "float32", written)


def changed(
    after: Sequence[torch.Tensor], before: Sequence[torch.Tensor], watched: Collection[int] = ()
) -> tuple[int, ...]:
    """Numbers of the tensors that are not as they were, and of those that are watched. after: may be in a wider type.

    Bits and not versions: batch norm writes its running statistics without a new version.
    """
    return tuple(
        n for n, (new, old) in enumerate(zip(after, before, strict=True))
        if n in watched or not all(same_bits(a, b.to(a.dtype)) for a, b in zip(pieces(new), pieces(old), strict=True))
    )  # fmt: skip


def widened(value: torch.Tensor, wide: torch.dtype, grad: bool) -> torch.Tensor:
    """A copy of an input in the wide type. Raises NoReferenceError for types that torch does not widen."""
    if value.dtype in (torch.float4_e2m1fn_x2, torch.float8_e8m0fnu):
        raise NoReferenceError("its block-scaled operands have no float64 form here")
    copied = value.detach().to(wide) if value.is_floating_point() else value.detach()
    if copied.data_ptr() == value.data_ptr():
        copied = copied.clone()
    return copied.requires_grad_(grad)


def gradients_of(
    outputs: Sequence[torch.Tensor],
    values: Sequence[torch.Tensor],
    requires_grad: Sequence[bool],
    upstream: Sequence[torch.Tensor | None],
    wide: torch.dtype,
) -> tuple[torch.Tensor, ...]:
    """Gradients of the inputs that require one, of those of `upstream`; zeros for an input that nothing depends on."""
    pairs = [(o, g.to(wide)) for o, g in zip(outputs, upstream, strict=True) if o.requires_grad and g is not None]
    wanted = [v for v, grad in zip(values, requires_grad, strict=True) if grad]
    if not pairs:
        raise NoReferenceError("no output depends on an input that requires a gradient")
    gradients = torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True)
    return tuple(torch.zeros_like(w) if g is None else g for g, w in zip(gradients, wanted, strict=True))
