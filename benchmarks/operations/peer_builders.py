"""How a call to compare with is made: of a package's function, of its backward, for some cases only.

A builder gets the Case and gives a function of the operation's own arguments. It raises NotHereError where the package
is not installed or does not take the case.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from kernels.spec import Case

LIGER = "liger_kernel.ops"

Call = Callable[..., Any]
Builder = Callable[[Case], Call]


class NotHereError(Exception):
    """The peer is not installed, or cannot run the case."""


def package(name: str, attribute: str) -> Any:
    """`attribute` of a module. Raises NotHereError."""
    try:
        return getattr(import_module(name), attribute)
    except Exception as fault:  # a package may fail in any way while it is imported
        told = f"{type(fault).__name__}: {str(fault)[:80]}"
        raise NotHereError(f"{name.split('.')[0]} is not installed ({told})") from fault


def always(call: Call) -> Builder:
    """A call that takes every case."""
    return lambda case: call


def of(name: str, attribute: str, use: Callable[..., Any]) -> Builder:
    """`use(function, *arguments)` of a package's function."""

    def build(case: Case) -> Call:
        function = package(name, attribute)
        return lambda *arguments: use(function, *arguments)

    return build


def backward_of(name: str, attribute: str, forward: Callable[..., Any], leaves: Callable[..., Any]) -> Builder:
    """The backward of an autograd function, its forward run once: forward(function, *leaves) gives y;
    leaves(*arguments) the tensors that want gradients. The first argument is y's gradient."""

    def build(case: Case) -> Call:
        function = package(name, attribute)
        kept: dict[str, Any] = {}

        def call(dy: torch.Tensor, *arguments: Any) -> Any:
            if not kept:
                kept["leaves"] = [t.detach().requires_grad_() for t in leaves(*arguments)]
                kept["y"] = forward(function, *kept["leaves"])
            return torch.autograd.grad(kept["y"], kept["leaves"], dy, retain_graph=True)

        return call

    return build


def only(condition: Callable[[Case], bool], why: str, build: Builder) -> Builder:
    """A builder for some cases."""

    def checked(case: Case) -> Call:
        if not condition(case):
            raise NotHereError(why)
        return build(case)

    return checked
