"""A graph of torch calls and of our kernels as a Python function."""

from __future__ import annotations

import builtins
import json
import keyword
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from kernels.codegen.expressions import ops
from kernels.codegen.generated import Kernel
from kernels.codegen.text.source import Source
from kernels.starter_kit.module import PACKAGES, BundleError

MOST_CONSTANTS = 64
"""Elements of a constant tensor that is written into the text."""
GLOBALS = frozenset({"torch", "F", "math", "operator", "launched", "region", "kernel", *keyword.kwlist, *dir(builtins)})
LAUNCH = "launch_"
"""Begins the names of generated kernels' launchers."""
WHOLE = {"attention": "attention", "rms_norm": "rms_norm_call"}
"""The library calls that a region keeps whole, and what of kernels.starter_kit.runtime calls torch for them."""


def _is_ours(target: Any) -> bool:
    return str(getattr(target, "__module__", "")).partition(".")[0] in PACKAGES and not isinstance(target, Kernel)


@dataclass
class Code:
    """text: the function. imported: (module, name) of ours that it calls. sources: generated kernels, by module."""

    text: str = ""
    imported: list[tuple[str, str]] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)


def function(
    module: torch.fx.GraphModule, inputs: Sequence[str], name: str, doc: str, prefix: str, first: int = 1
) -> Code:
    """The module as `def name(inputs)`. prefix, first: generated kernels are called so, numbered from `first`.

    Raises BundleError where something has no text.
    """
    return _Writer(module, inputs, prefix, first).write(name, doc)


class _Writer:
    def __init__(self, module: torch.fx.GraphModule, inputs: Sequence[str], prefix: str, first: int) -> None:
        self.module = module
        self.given = iter(inputs)
        self.names: dict[torch.fx.Node, str] = {}
        self.code = Code()
        self.prefix, self.first = prefix, first
        called = {str(n.target.__name__) for n in module.graph.nodes if n.op == "call_function" and _is_ours(n.target)}
        self.taken = GLOBALS | called | set(WHOLE.values())
        self.inputs: list[str] = []

    def write(self, name: str, doc: str) -> Code:
        lines: list[str] = []
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self.names[node] = self.fresh(next(self.given))
                self.inputs.append(self.names[node])
            elif node.op == "get_attr":
                lines.append(f"{self.named(node)} = {self.constant(node)}")
            elif node.op == "output":
                lines.append(f"return {self.value(tuple(node.args[0]))}")
            else:
                text = self.call(node)
                lines.append(f"{self.named(node)} = {text}")
        head = [f"def {name}({', '.join(self.inputs)}):", f'    """{doc}"""']
        self.code.text = "\n".join([*head, *(f"    {line}" for line in lines)])
        return self.code

    def named(self, node: torch.fx.Node) -> str:
        self.names[node] = self.fresh(node.name)
        return self.names[node]

    def fresh(self, name: str) -> str:
        """The name, or with a number where it is taken."""
        unused, count = name, 1
        while unused in self.taken or unused in self.names.values() or unused.startswith(LAUNCH):
            count += 1
            unused = f"{name}_{count}"
        return unused

    def call(self, node: torch.fx.Node) -> str:
        if node.op == "call_method":
            owner, *rest = node.args
            return f"{self.value(owner)}.{node.target}({self.arguments(rest, node.kwargs)})"
        if node.op != "call_function":
            raise BundleError(f"{node.op} has no text")
        if node.target is operator.getitem:
            return f"{self.value(node.args[0])}[{self.index(node.args[1])}]"
        if isinstance(node.target, Kernel):
            return self.generated(node)
        assert callable(node.target)
        return f"{self.target(node.target)}({self.arguments(node.args, node.kwargs)})"

    def index(self, value: Any) -> str:
        if isinstance(value, tuple) and value:
            return ", ".join(self.index(v) for v in value)
        if isinstance(value, slice):
            parts = [value.start, value.stop, *([value.step] if value.step is not None else [])]
            return ":".join("" if p is None else self.value(p) for p in parts)
        return self.value(value)

    def arguments(self, args: Any, kwargs: Any) -> str:
        return ", ".join([*(self.value(a) for a in args), *(f"{k}={self.value(v)}" for k, v in kwargs.items())])

    def target(self, target: Callable[..., Any]) -> str:
        if isinstance(target, torch._ops.OpOverload):
            if target.namespace == "tritonworthy":
                name = WHOLE.get(target._schema.name.partition("::")[2])
                if name is None:
                    raise BundleError(f"{target} has no text")
                return self.ours("kernels.starter_kit.runtime", name)
            return f"torch.ops.{target}"
        path = torch.fx.node._get_qualified_name(target)
        if _is_ours(target):
            return self.ours(str(target.__module__), str(target.__name__))
        if path.startswith("torch.nn.functional."):
            return "F." + path.rpartition(".")[2]
        if path.startswith(("torch.", "operator.", "math.")):
            return path.replace("_operator.", "operator.")
        raise BundleError(f"{path} is not of torch")

    def ours(self, module: str, name: str) -> str:
        if (module, name) not in self.code.imported:
            self.code.imported.append((module, name))
        return name

    def generated(self, node: torch.fx.Node) -> str:
        assert isinstance(node.target, Kernel)
        source = node.target.source
        number = self.first + len(self.code.sources)
        part = f"{self.prefix}_{number}"
        self.code.sources[part] = source
        self.ours("kernels.starter_kit.runtime", "launched")
        parts = [f"({tuple(s.shape)}, {tuple(s.strides)}, {ops.TORCH_DTYPES[s.dtype]})" for s in source.outputs]
        outputs = ", ".join(parts)
        device = f"{self.inputs[0]}.device" if self.inputs else '"cuda"'
        return f"launched({LAUNCH}{part}, {self.value(tuple(node.args))}, ({outputs},), {device})"

    def constant(self, node: torch.fx.Node) -> str:
        value: Any = self.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor) or value.numel() > MOST_CONSTANTS:
            raise BundleError(f"{node.target} is too large a constant to be written down")
        device = f"{self.inputs[0]}.device" if self.inputs else '"cuda"'
        return f"torch.tensor({self.value(value.tolist())}, dtype={value.dtype}, device={device})"

    def value(self, value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            return self.names[value]
        if isinstance(value, torch.device):
            return f"{self.inputs[0]}.device"
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return str(value)
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, slice):
            return f"slice({self.value(value.start)}, {self.value(value.stop)}, {self.value(value.step)})"
        if isinstance(value, tuple):
            return f"({', '.join(self.value(v) for v in value)}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(self.value(v) for v in value)}]"
        if value is None or value is Ellipsis or isinstance(value, (bool, int, float, str)):
            return "..." if value is Ellipsis else json.dumps(value) if isinstance(value, str) else repr(value)
        raise BundleError(f"{type(value).__name__} has no text")
