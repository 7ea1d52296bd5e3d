"""No backward kernel lies idle: each operation that has one is a candidate where gradients are wanted."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module

import pytest

from kernels.candidates import hand_written
from kernels.hand_written import WRITTEN, Written
from kernels.operations import module_names, operations
from kernels.ops import trained
from profiler.region.graph.lowering import lower, written_alone
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse
from tests.kernels.ops.trained_regions import TRAINED

BACKWARD = ("_backward", "_with_gradient")
"""How the operations end that make gradients, in their own pass or in the forward's."""
FORWARD = {"attention": "flash_attention"}
"""Where the forward is not called as its backward without that end."""
UNREACHED = {"selective_scan": "no pattern knows a region's loop over states of two axes"}


def stem(name: str) -> str | None:
    """The operation that this one makes gradients of; None where it makes none."""
    ends = [end for end in BACKWARD if name.endswith(end)]
    return FORWARD.get(name.removesuffix(ends[0]), name.removesuffix(ends[0])) if ends else None


DIFFERENTIABLE = sorted({forward for o in operations() if (forward := stem(o.name)) is not None})


def backward_functions() -> Iterator[tuple[str, str]]:
    """(module, name) of every function of the folder that is called the backward of an operation."""
    forwards = {o.name for o in operations()}
    for module_name in module_names():
        module = import_module(module_name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            forward = FORWARD.get(name.removesuffix("_backward"), name.removesuffix("_backward"))
            if name.endswith("_backward") and function.__module__ == module_name and forward in forwards:
                yield module_name, name


@pytest.mark.parametrize("operation", DIFFERENTIABLE)
def test_what_has_a_backward_kernel_is_a_candidate_in_a_region_with_gradients(operation: str) -> None:
    candidate = f"triton:{operation}"
    texts = [text for name, text in TRAINED.values() if name == candidate]
    if operation in UNREACHED:
        assert not texts
        assert candidate not in {w.name for w in WRITTEN}, "it is one now: it needs a region in TRAINED"
        return
    assert texts, f"{operation} has a backward kernel and no region in TRAINED that it is a candidate in"
    for text in texts:
        graph = written_alone(lower(parse(text)))
        assert graph.region.requires_grad
        (found,) = (c for c in hand_written(graph, match(graph)) if c.name == candidate)
        assert found.available, found.reason
        assert found.call.startswith("from kernels.ops.trained import "), "the function that autograd knows"


@pytest.mark.parametrize("written", [w for w in WRITTEN if w.trained], ids=lambda w: w.name)
def test_what_is_offered_with_a_backward_is_a_function_that_autograd_knows(written: Written) -> None:
    function = written.call.splitlines()[0].rpartition(" import ")[2]
    assert callable(getattr(trained, function)), function
    assert written.name in {name for name, _ in TRAINED.values()}


def test_every_backward_of_the_folder_is_an_operation_that_is_checked_and_timed() -> None:
    known = {o.name for o in operations()}
    assert [f"{module}.{name}" for module, name in backward_functions() if name not in known] == []
    of_one_pass = {stem(name) for name in known if name.endswith("_with_gradient")}
    assert {stem(name) for _, name in backward_functions()} | of_one_pass == set(DIFFERENTIABLE)
