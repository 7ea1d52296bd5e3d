"""What each function of the language takes: its arguments bound by name, before anything is called.

Two ways of calling torch iterate over a tensor in the place of a list, element by element: Python functions
(`F.unfold(x, x)`), and `aten.NAME`, which tries TorchScript's overloads for Python lists as well. Both are bound here
first. Sources: the aten schemas, the annotations of torch's Python functions, and two small tables.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F

TENSOR, TENSORS, OPTIONAL_TENSORS = "Tensor", "List[Tensor]", "List[Optional[Tensor]]"
ANY = "any"
"""The type of a parameter: as an aten schema writes it, without Optional[...]; `ANY` is only Python's."""

WORDS: Mapping[str, str] = MappingProxyType(
    {
        "int": "a whole number", "float": "a number", "number": "a number", "complex": "a number", "bool": "a bool",
        "List[int]": "whole numbers", "List[float]": "numbers", "List[number]": "numbers", "List[bool]": "bools",
        "str": "a string", "Device": "a device", "ScalarType": "a dtype", "MemoryFormat": "a memory format",
        TENSORS: "a list of tensors", OPTIONAL_TENSORS: "a list of tensors", TENSOR: "a tensor",
    }
)  # fmt: skip
"""Types in the words of an error."""

ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"input": ("self",), "axis": ("dim", "dims"), "keepdims": ("keepdim",), "x": ("self",), "a": ("self",),
     "x1": ("self",), "x2": ("other",), "indices_or_sections": ("sections", "indices")}
)  # fmt: skip
"""Names that torch's functions take in addition to the schema's: their own for `self`, and numpy's."""

Target = Callable[..., object] | str
"""A function of torch, an operation of aten, or the name of a method."""
Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]
"""What a call is given: tensors, numbers, lists of these. Only the function that is called knows which."""

DISPATCHED: Mapping[Target, Callable[..., object]] = MappingProxyType(
    {
        F.max_pool1d: F.max_pool1d_with_indices, F.max_pool2d: F.max_pool2d_with_indices,
        F.max_pool3d: F.max_pool3d_with_indices, F.adaptive_max_pool1d: F.adaptive_max_pool1d_with_indices,
        F.adaptive_max_pool2d: F.adaptive_max_pool2d_with_indices,
        F.adaptive_max_pool3d: F.adaptive_max_pool3d_with_indices,
    }
)  # fmt: skip
"""Functions of `boolean_dispatch`, which say nothing of their arguments, and one each that does."""

BY_VALUES = frozenset({"tensor_indices_or_sections"})
"""Overloads that read from a tensor how many results there are: no fake tensor knows."""

UNANNOTATED_TENSORS = frozenset({"input", "self", "a", "b", "x1", "x2", "tensors", "matrices", "tensor"})
"""Parameters of torch's Python functions that are tensors and carry no annotation."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. type: see `ANY`; fixed: a list of this many numbers, or one number for all."""

    name: str
    type: str
    optional: bool = False  # takes None
    required: bool = True
    keyword_only: bool = False
    variadic: bool = False  # takes all positional arguments that are left
    fixed: int | None = None

    def takes_tensors_of(self, value: object) -> bool:
        """Whether the tensors in an argument, if any, are where this parameter takes tensors."""
        if self.variadic and isinstance(value, tuple):  # all that was left: tensors, or one list of them
            return all(self._takes(v, many=len(value) == 1) for v in value)
        return self._takes(value, many=False)

    def _takes(self, value: object, many: bool) -> bool:
        if isinstance(value, torch.Tensor):
            return self.type in (TENSOR, ANY) or (self.variadic and self.type == TENSORS)
        if isinstance(value, tuple | list):
            if self.type in (TENSORS, OPTIONAL_TENSORS, ANY) and (many or not self.variadic):
                return not any(isinstance(v, tuple | list) and _holds_tensor(v) for v in value)
            return not _holds_tensor(value)
        return True

    def takes(self, value: object, numbers_as_tensors: bool) -> bool:
        """Whether an overload of aten with this parameter takes the argument."""
        if value is None:
            return self.optional
        if isinstance(value, torch.Tensor):
            return self.type == TENSOR
        if isinstance(value, tuple | list):
            item = _item_of(self.type)
            return item is not None and all(item.takes(v, numbers_as_tensors) for v in value)
        if isinstance(value, bool):
            return self.type in ("bool", "int", "float", "number") or (self.type == TENSOR and numbers_as_tensors)
        if isinstance(value, int | torch.SymInt):
            one = self.fixed is not None and self.type in ("List[int]", "List[float]")
            number = self.type in ("bool", "int", "float", "number")
            return one or number or (self.type == TENSOR and numbers_as_tensors)
        if isinstance(value, float | torch.SymFloat):
            one = self.fixed is not None and self.type == "List[float]"
            return one or self.type in ("float", "number") or (self.type == TENSOR and numbers_as_tensors)
        kinds: tuple[tuple[type, str], ...] = (
            (str, "str"),
            (torch.dtype, "ScalarType"),
            (torch.device, "Device"),
            (torch.memory_format, "MemoryFormat"),
        )
        return any(isinstance(value, kind) and self.type == name for kind, name in kinds)

    @property
    def words(self) -> str:
        """What it takes, for an error."""
        return WORDS.get(self.type, "no tensor")


@dataclass(frozen=True, slots=True)
class Signature:
    """One way to call a function. outputs: how many tensors come out, None where that depends on the arguments.

    overload: the operation of aten that is called, None where the function itself is.
    """

    parameters: tuple[Parameter, ...]
    outputs: int | None = 1
    overload: Any = None

    def __str__(self) -> str:
        parameters = [p.name if p.required else f"{p.name}=..." for p in self.parameters if p.name != "out"]
        return f"({', '.join(parameters)})"

    def parameter(self, name: str) -> Parameter:
        return next(p for p in self.parameters if p.name == name)

    def bind(self, args: Args, kwargs: Kwargs) -> dict[str, object] | None:
        """Arguments by the parameters' names, as Python binds them; None where they do not fit."""
        bound: dict[str, object] = {}
        rest = list(args)
        for parameter in self.parameters:
            if parameter.variadic:
                if rest:
                    bound[parameter.name] = _spread(parameter, rest)
                rest = []
            elif rest and not parameter.keyword_only:
                bound[parameter.name] = rest.pop(0)
        if rest:
            return None
        names = {p.name for p in self.parameters}
        for keyword, value in kwargs.items():
            name = next((n for n in (keyword, *ALIASES.get(keyword, ())) if n in names), None)
            if name is None or name in bound:
                return None
            bound[name] = value
        if any(p.required and p.name not in bound for p in self.parameters):
            return None
        return bound

    def misplaced(self, bound: Mapping[str, object]) -> Parameter | None:
        """The first parameter that is given a tensor, or tensors, which it does not take."""
        return next((p for p in self.parameters if p.name in bound and not p.takes_tensors_of(bound[p.name])), None)


_ALPHA_FIRST = Signature((Parameter("self", TENSOR), Parameter("alpha", "number"), Parameter("other", TENSOR)))
OLD_ORDER = frozenset({"add", "sub"})
"""torch takes `add(x, 2, y)` for x + 2 y still; other calls of that time have more arguments than a schema."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function's arguments, bound by one of its signatures."""

    signature: Signature
    bound: Kwargs

    def first(self, *names: str, default: Any = None) -> Any:
        """The argument of the first of these names that was given."""
        return next((self.bound[n] for n in names if n in self.bound), default)


class MisplacedError(Exception):
    """No signature of the function takes these arguments."""


def bind(target: Target, args: Args, kwargs: Kwargs) -> Call | None:
    """The call by the first signature that takes it; None where the function's signatures are not known to us in full.

    args, kwargs: with FakeTensors in them. Raises MisplacedError for a tensor where none belongs, and for arguments of
    `aten.NAME` and of what gives a list that fit no signature: what is not bound cannot be bounded.
    """
    candidates = signatures(target)
    exact = isinstance(target, torch._ops.OpOverloadPacket)
    numbers = exact and torch._C._should_allow_numbers_as_tensors(str(getattr(target, "__name__", "")))
    misplaced: str = ""
    nearly: Call | None = None
    for signature in candidates:
        bound = signature.bind(args, kwargs)
        if bound is None:
            continue
        wrong = signature.misplaced(bound)
        if wrong is not None:
            misplaced = misplaced or f"{wrong.name} is {wrong.words}, not {_describe(bound[wrong.name])}"
        elif all(signature.parameter(n).takes(v, numbers) for n, v in bound.items()):
            return Call(signature, bound)
        elif not exact:  # torch's own parser says what is wrong, and goes through no tensor
            nearly = nearly or Call(signature, bound)
    if nearly is not None:
        return nearly
    if misplaced:
        raise MisplacedError(misplaced)
    if candidates and (exact or any(s.outputs is None for s in candidates)):
        ways = " or ".join(dict.fromkeys(str(s) for s in candidates[:3]))
        raise MisplacedError(f"the arguments do not fit {ways}"[:220])
    return None


@functools.cache
def signatures(target: Target) -> tuple[Signature, ...]:
    """The ways to call a function of `vocabulary`, or a method by its name; () where torch says nothing about it."""
    if isinstance(target, str):
        if inspect.isfunction(getattr(torch.Tensor, target, None)):
            return (_of_python(getattr(torch.Tensor, target), _lists(target)),)
        old = (_ALPHA_FIRST,) if target in OLD_ORDER else ()
        return (*_of_schemas(getattr(torch.ops.aten, target, None), method=True), *old)
    if isinstance(target, torch._ops.OpOverloadPacket):
        return tuple(_of_schemas(target, exact=True))
    if target is torch.einsum:
        return ()  # `checks.refuse` knows its two ways
    target = DISPATCHED.get(target, target)
    name = str(getattr(target, "__name__", ""))
    if name in OLD_ORDER:
        return (*_of_schemas(getattr(torch.ops.aten, name)), _ALPHA_FIRST)
    if inspect.isfunction(target):
        return (_of_python(target, _lists(name)),)
    return tuple(_of_schemas(getattr(torch.ops.aten, name, None)))


def _lists(name: str) -> bool:
    """Whether some overload of aten by this name gives a list of tensors."""
    return any(s.outputs is None for s in _of_schemas(getattr(torch.ops.aten, name, None)))


def _of_schemas(packet: Any, *, method: bool = False, exact: bool = False) -> Iterator[Signature]:
    """The dispatcher's overloads of an operation; TorchScript's own, for Python lists and numbers, are left out."""
    for name in packet.overloads() if packet is not None else ():
        overload = getattr(packet, name)
        if not torch._C._dispatch_has_kernel(overload.name()):
            continue
        schema = overload._schema
        if name in BY_VALUES or (exact and any(a.is_out for a in schema.arguments)):
            continue
        parameters = [_of_argument(a) for a in schema.arguments]
        if method:  # x.where(mask, y) is where(mask, x, y)
            parameters.sort(key=lambda p: p.name != "self")
        if not exact:
            _spread_numbers(parameters, 1 if method else 0)
        several = any(str(r.type) == TENSORS for r in schema.returns)
        yield Signature(tuple(parameters), None if several else len(schema.returns), overload if exact else None)


UNDEFINED = frozenset({"attn_bias", "cum_seq_q", "cum_seq_k"})
"""What backwards of attention take as None where the forward had none, though their schemas say Tensor."""


def _of_argument(argument: torch._C.Argument) -> Parameter:
    kind, type_text = str(argument.real_type), str(argument.type)
    optional = kind.startswith("Optional[")
    kind = kind.removeprefix("Optional[").removesuffix("]") if optional else kind
    if kind not in ("ScalarType", "MemoryFormat", "Layout"):
        kind = type_text.removeprefix("Optional[").removesuffix("]") if optional else type_text
    return Parameter(
        argument.name,
        kind,
        optional or argument.name in UNDEFINED,
        required=not argument.has_default_value() and not (argument.kwarg_only and optional),
        keyword_only=argument.kwarg_only,
        fixed=argument.N,  # type: ignore[attr-defined]  # not in the stubs
    )


def _spread_numbers(parameters: list[Parameter], at: int) -> None:
    """`x.view(2, 3)`, `zeros(2, 3)`: sizes that are the only positional argument may be given one by one."""
    positional = [p for p in parameters if not p.keyword_only]
    if len(positional) == at + 1 and positional[at].type == "List[int]":
        sizes = parameters[at]
        parameters[at] = Parameter(sizes.name, sizes.type, sizes.optional, sizes.required, variadic=True)


def _of_python(function: Callable[..., object], several: bool) -> Signature:
    """By a Python function's annotations. several: it gives a list of tensors."""
    parameters = []
    for item in inspect.signature(function).parameters.values():
        variadic = item.kind is inspect.Parameter.VAR_POSITIONAL
        parameters.append(
            Parameter(
                item.name,
                _of_annotation(item, variadic),
                optional=True,
                required=item.default is inspect.Parameter.empty and not variadic,
                keyword_only=item.kind is inspect.Parameter.KEYWORD_ONLY,
                variadic=variadic,
            )
        )
    return Signature(tuple(parameters), None if several else 1)


def _of_annotation(item: inspect.Parameter, variadic: bool) -> str:
    """`Tensor`, `List[Tensor]`, or what else the parameter takes, which is no tensor."""
    if item.annotation is inspect.Parameter.empty:
        tensor, lists = item.name in UNANNOTATED_TENSORS, False
        kind = "number"
    else:
        text = getattr(item.annotation, "__name__", "") if isinstance(item.annotation, type) else ""
        text = text or str(item.annotation)
        lists = "list[torch.Tensor]" in text
        tensor = "Tensor" in text.replace("list[torch.Tensor]", "")
        kind = {"bool": "bool", "str": "str", "int": "int"}.get(text.removesuffix(" | None"), "number")
        kind = "List[int]" if "list[int]" in text else kind
    if variadic and (tensor or lists):
        return TENSORS
    return ANY if tensor and lists else TENSORS if lists else TENSOR if tensor else kind


def _spread(parameter: Parameter, rest: list[object]) -> object:
    """What a variadic parameter is given: one list, or all that is left."""
    if len(rest) == 1 and isinstance(rest[0], tuple | list) and parameter.type != TENSORS:
        return rest[0]
    return tuple(rest)


def _item_of(kind: str) -> Parameter | None:
    """One of a list's values."""
    inner = kind.removeprefix("List[").removesuffix("]")
    if inner == kind:
        return None
    optional = inner.startswith("Optional[")
    return Parameter("", inner.removeprefix("Optional[").removesuffix("]") if optional else inner, optional)


def _holds_tensor(value: object) -> bool:
    if isinstance(value, tuple | list):
        return any(_holds_tensor(v) for v in value)
    return isinstance(value, torch.Tensor)


def _describe(value: object) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else "these tensors"
