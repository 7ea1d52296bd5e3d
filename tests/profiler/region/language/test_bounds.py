"""No text of a few lines asks for more than its limits: what a call gives is counted before it runs."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import resource
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from profiler.region import limits
from profiler.region.graph.lowering import lower
from profiler.region.language import fanout, vocabulary
from profiler.region.language.checks import label_of
from profiler.region.language.program import program
from profiler.region.language.recorder import Recorder
from profiler.region.language.signatures import MisplacedError, bind, signatures
from profiler.region.language.text import parse
from profiler.region.model import RegionError
from tests.profiler.region.hostile.bounds import REFUSED, REFUSED_WITH_GRADIENTS, TAKEN

SECONDS = 3.0  # of the processor; each took memory or time without end
KIBIBYTES = 300_000


def refused(make: Callable[[Any], Any], text: str) -> RegionError:
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(RegionError) as caught:
        make(parse(text))
    assert time.process_time() - started < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < KIBIBYTES
    assert "FakeTensor" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("name", REFUSED)
def test_text_that_asked_for_work_without_end_is_refused_at_its_line(name: str) -> None:
    text, line, said = REFUSED[name]
    fault = refused(program, text)
    assert fault.line == line
    assert re.search(said, fault.message), fault.message


@pytest.mark.parametrize("name", REFUSED_WITH_GRADIENTS)
def test_backward_that_torch_does_not_have_is_refused_at_its_line(name: str) -> None:
    text, line, said = REFUSED_WITH_GRADIENTS[name]
    fault = refused(lower, text)
    assert fault.line == line
    assert re.search(said, fault.message), fault.message
    assert "^" in str(fault)


@pytest.mark.parametrize("name", TAKEN)
def test_scalars_sizes_of_nothing_and_other_orders_are_taken(name: str) -> None:
    built = program(parse(TAKEN[name]))
    given = [torch.zeros(i.shape, dtype=i.dtype) for i in built.inputs]
    made = built.module(*given)
    assert [tuple(m.shape) for m in made] == [tuple(o.shape) for o in built.outputs]


@pytest.mark.parametrize(
    "fault",
    [RuntimeError("a\nb"), IndexError(), TypeError("x"), AssertionError(), NotImplementedError(), RecursionError("d"),
     ValueError(), ZeroDivisionError("by zero"), OverflowError(), KeyError("k"), AttributeError("a")],
    ids=lambda f: type(f).__name__,
)  # fmt: skip
def test_whatever_torch_raises_is_an_error_at_the_line(fault: Exception) -> None:
    def fails() -> None:
        raise fault

    with pytest.raises(RegionError) as caught:
        Recorder("cpu").emit(ast.Name("x", lineno=3, col_offset=4), 3, fails, (), {})
    assert (caught.value.line, caught.value.column) == (3, 5)
    assert caught.value.message and "\n" not in caught.value.message


@pytest.mark.parametrize("fault", [MemoryError(), RuntimeError("std::bad_alloc")], ids=["Python's", "C++'s"])
def test_memory_that_runs_out_is_no_fault_of_the_text(fault: Exception) -> None:
    def fails() -> None:
        raise fault

    with pytest.raises(MemoryError):
        Recorder("cpu").emit(ast.Name("x", lineno=3, col_offset=4), 3, fails, (), {})


# -- counts before, and what real torch gives

X = torch.arange(24.0).reshape(2, 3, 4)
EMPTY = torch.zeros(0, 3)

LISTS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "split": [((X, 1), {}), ((X, 2, 1), {}), ((X, [1, 3], 2), {}), ((X, 3), {"dim": -1}), ((EMPTY, 2), {}),
              ((EMPTY, 0), {}), ((X, 99, 2), {}), ((X, 2, -1), {})],
    "unsafe_split": [((X, 1), {}), ((X, 3, 2), {}), ((EMPTY, 2), {})],
    "chunk": [((X, 2), {}), ((X, 3, 2), {}), ((X, 9, 1), {}), ((EMPTY, 4), {}), ((torch.zeros(10), 4), {}),
              ((torch.zeros(9), 5), {}), ((X,), {"dim": 2, "chunks": 3})],
    "unsafe_chunk": [((X, 2), {}), ((X, 3, 2), {}), ((EMPTY, 4), {}), ((X,), {"dim": 2, "chunks": 3})],
    "tensor_split": [((X, 3), {}), ((X, [1, 2], 2), {}), ((EMPTY, 5), {}), ((X, 7), {"dim": 1})],
    "hsplit": [((X, 3), {}), ((X, [1]), {}), ((EMPTY, 3), {})],
    "vsplit": [((X, 2), {}), ((X, [1, 1]), {}), ((EMPTY, 5), {})],
    "dsplit": [((X, 4), {}), ((X, [1, 2, 3]), {})],
    "unbind": [((X,), {}), ((X, 2), {}), ((X, -2), {}), ((EMPTY,), {}), ((X,), {"dim": 1})],
    "meshgrid": [((X[0, 0], X[0, 0]), {"indexing": "ij"}), (([X[0, 0], X[0, 1], X[0, 2]],), {"indexing": "ij"})],
    "broadcast_tensors": [((X, X[0]), {}), ((X, X, X[0, 0]), {})],
    "atleast_1d": [((X, X), {}), (([X, X, X],), {})],
    "atleast_2d": [((X, X), {}), (([X],), {})],
    "atleast_3d": [((X, X), {}), (([X, X],), {})],
    "where": [((X > 2,), {})],
}  # fmt: skip


def by_name(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    call = bind(target, args, kwargs)
    assert call is not None
    return dict(call.bound)


@pytest.mark.parametrize("name", fanout.COUNTS)
def test_lists_are_as_long_as_counted_in_every_order_of_arguments(name: str) -> None:
    for (args, kwargs), method in itertools.product(LISTS[name], (False, True)):
        target: Any = name if method else getattr(torch, name)
        if method and (name == "where" or name not in vocabulary.METHODS or not isinstance(args[0], torch.Tensor)):
            continue
        call = getattr(torch.Tensor, name) if method else target
        want = len(call(*args, **kwargs))
        assert fanout.outputs(name, bind(target, args, kwargs)) == want, (args, kwargs)
        bound = by_name(target, args, kwargs)
        if "tensors" in bound:
            continue
        first = next(iter(bound))
        rest = {k: v for k, v in bound.items() if k != first}
        for order in itertools.permutations(rest):
            named = {k: rest[k] for k in order}
            assert len(call(args[0], **named)) == want
            assert fanout.outputs(name, bind(target, (args[0],), named)) == want


def everything() -> list[tuple[str, Any]]:
    found = [(f"{m}.{n}", vocabulary.function(m, n)) for m, names in vocabulary.functions().items() for n in names]
    return sorted([*found, *((f".{n}", n) for n in vocabulary.METHODS - vocabulary.PLAIN_METHODS)], key=lambda f: f[0])


EVERYTHING = everything()


def test_everything_that_gives_a_list_is_counted() -> None:
    giving = {label_of(t) for _, t in EVERYTHING if any(s.outputs is None for s in signatures(t))}
    assert giving <= set(fanout.COUNTS)
    returned = {
        name.rpartition(".")[2]
        for name, target in EVERYTHING
        for overload in (getattr(torch.ops.aten, name.rpartition(".")[2], None) or torch.ops.aten.add).overloads()
        if "Tensor(a)[]" in str(getattr(getattr(torch.ops.aten, name.rpartition(".")[2], None), overload, ""))
    }
    assert returned <= set(fanout.COUNTS)


I = torch.tensor([1, 0])  # noqa: E741 - an index
SMALL: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    *(((x, *rest), {}) for x in (X, X[0], X[0, 0], X[0, 0, 0], EMPTY, X[None], X > 1, X.long())
      for rest in ((), (1,), (0,), (2, 0), (x,), (x, x), (0, I), (0, I, 1.0), ([1],), ((1, 1),), (0.5,), (x, 1),
                   (1, 1, 1))),
    *(((list_of,), {}) for list_of in ([X, X], (X[0], X[0]), [X[0, 0]])),
    ((3,), {}), ((2, 3), {}), ((0, 4, 3), {}), (([2, 2],), {}), (([2, 2], 1.0), {}),
    *(((X[0],), {"dim": 0, **more}) for more in ({}, {"keepdim": True}, {"index": I}, {"dtype": torch.float64})),
]  # fmt: skip


PUBLIC = [(n, t) for n, t in EVERYTHING if not n.startswith("aten.") or n[5:] in vocabulary.TORCH]
"""Without aten's own: some of them divide by zero, in C++, where arguments are wrong."""


@pytest.mark.parametrize(("name", "target"), PUBLIC, ids=[n for n, _ in PUBLIC])
def test_real_calls_bind_and_give_as_many_tensors_as_counted(name: str, target: Any) -> None:
    """What real torch takes of small tensors is bound, and comes to the number of tensors that was counted."""
    for args, kwargs in SMALL:
        if (isinstance(target, str) or name.startswith("aten.")) and not isinstance(args[0], torch.Tensor):
            continue  # aten.exp(3) is TorchScript's
        given = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        try:
            function = getattr(torch.Tensor, target) if isinstance(target, str) else target
            made = function(*given, **kwargs)
        except Exception:
            continue
        if _reads_a_number(target, args, kwargs):
            continue
        call = bind(target, args, kwargs)
        counted = fanout.outputs(label_of(target), call)
        tensors = len(made) if isinstance(made, tuple | list) else 1
        several = call is not None and call.signature.outputs is None
        assert tensors == counted if several else tensors <= max(4, counted), (args, kwargs)


def _reads_a_number(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Real torch takes a tensor of one element for a number, by reading it: a region has no values to read.

    Its Python functions compute with whatever they are given, against their own annotations.
    """
    scalar = any(isinstance(a, torch.Tensor) and a.numel() == 1 for a in args[label_of(target) != "arange" :])
    try:
        bind(target, args, kwargs)
    except MisplacedError:
        script = isinstance(target, torch._ops.OpOverloadPacket) and (
            0.5 in [a for a in args if isinstance(a, float)] or label_of(target) in ("index_put", "log")
        )  # TorchScript takes 0.5 for a bool, log(x, y) of numbers, and goes through a tensor for a list of them
        return scalar or script or label_of(target) == "tensor_split" or inspect.isfunction(target)
    return False


# -- a tensor where none belongs


@pytest.mark.parametrize(("name", "target"), EVERYTHING, ids=[n for n, _ in EVERYTHING])
def test_a_large_tensor_in_any_place_is_answered_at_once(name: str, target: Any) -> None:
    """2^30 elements in the place of each argument in turn: refused, or a tensor there is right."""
    head = "x: f32[1073741824]\nw: f32[4, 4]\n"
    call = f"w{name}" if isinstance(target, str) else name
    known = signatures(target)
    places = {p.name for s in known for p in s.parameters if p.name not in ("self", "out")}
    texts = [f"{call}()", f"{call}(x)", f"{call}(x, x)", f"{call}(w, x)", f"{call}(w, 0, x)", f"{call}((x, x), x)"]
    texts += [f"{call}({'' if isinstance(target, str) else 'w, '}{place}=x)" for place in sorted(places)]
    for text in texts:
        started = time.process_time()
        try:
            program(parse(f"{head}y = {text}\nreturn y\n"))
        except RegionError as fault:
            assert fault.line >= 3
        assert time.process_time() - started < SECONDS, text


def test_no_overload_of_aten_takes_a_list_where_another_takes_a_tensor() -> None:
    """So that a call that one overload takes is not first tried as a list, element by element, when it is run again."""
    for name in vocabulary.ATEN:
        packet = getattr(torch.ops.aten, name)
        kinds: dict[str, set[str]] = {}
        for signature in signatures(packet):
            for parameter in signature.parameters:
                kinds.setdefault(parameter.name, set()).add(parameter.type)
        for place, types in kinds.items():
            assert not ("Tensor" in types and any(t.startswith("List") for t in types)), (name, place)


def test_rounds_that_fit_with_gradients_are_lowered_soon() -> None:
    fit = limits.MAX_LOWERED // (1 + limits.BACKWARD_OF["native_layer_norm"]) - 5
    text = "x: f32[64, 64].requires_grad\nfor i in range({}):\n    x = layer_norm(x, (64,))\nreturn x\n"
    assert len(lower(parse(text.format(fit))).operations) >= 2 * fit
    assert refused(program, text.format(fit + 6)).line == 3
    program(parse(text.format(fit + 6).replace(".requires_grad", "")))


def test_a_recurrence_of_128_rounds_may_have_a_gradient() -> None:
    text = (
        "a: f32[8, 128, 16].requires_grad\nb: f32[8, 128, 16].requires_grad\nh = zeros_like(b[:, 0])\no = []\n"
        "for t in range(b.shape[1]):\n    h = a[:, t] * h + b[:, t]\n    o.append(h)\nreturn stack(o, 1)\n"
    )
    assert program(parse(text)).outputs[0].shape == (8, 128, 16)
