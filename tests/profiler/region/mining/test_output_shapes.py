"""How many tensors a recorded operation gives is known before it runs, and is what torch gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from profiler.region.limits import MAX_ITEMS
from profiler.region.mining.output_shapes import ALLOWED, MAX_ROUNDS, call, is_bounded, result_count
from profiler.region.mining.units import Argument, Sig

X = torch.empty(12, 6, 4, device="meta")
EMPTY = torch.empty(0, 6, device="meta")
aten = torch.ops.aten
CALLS: list[tuple[Any, dict[str, Any]]] = [
    (aten.split.Tensor, {"self": X, "split_size": 5, "dim": 0}),
    (aten.split.Tensor, {"self": X, "split_size": 5, "dim": -1}),
    (aten.split.Tensor, {"self": EMPTY, "split_size": 5}),
    (aten.split.Tensor, {"self": EMPTY, "split_size": 0}),
    (aten.split.sizes, {"self": X, "split_size": [5, 7], "dim": 0}),
    (aten.split_with_sizes.default, {"self": X, "split_sizes": [1, 5], "dim": 1}),
    (aten.unsafe_split.Tensor, {"self": X, "split_size": 1, "dim": 1}),
    (aten.unsafe_split_with_sizes.default, {"self": X, "split_sizes": [1, 5], "dim": 1}),
    (aten.chunk.default, {"self": X, "chunks": 3, "dim": 1}),
    (aten.chunk.default, {"self": X, "chunks": 100, "dim": 2}),
    (aten.chunk.default, {"self": EMPTY, "chunks": 7}),
    (aten.unsafe_chunk.default, {"self": X, "chunks": 6, "dim": 0}),
    (aten.tensor_split.sections, {"self": X, "sections": 30}),
    (aten.tensor_split.indices, {"self": X, "indices": [1, 2, 9]}),
    (aten.hsplit.int, {"self": X, "sections": 3}),
    (aten.vsplit.int, {"self": X, "sections": 4}),
    (aten.dsplit.int, {"self": X, "sections": 2}),
    (aten.dsplit.array, {"self": X, "indices": [1, 2]}),
    (aten.unbind.int, {"self": X}),
    (aten.unbind.int, {"self": X, "dim": 1}),
    (aten.meshgrid.default, {"tensors": [X[:, 0, 0], X[0, :, 0]]}),
    (aten.broadcast_tensors.default, {"tensors": [X, X[:1], X[0]]}),
    (aten._foreach_add.Scalar, {"self": [X, X], "scalar": 1}),
    (aten.add.Tensor, {"self": X, "other": X}),
    (aten.var_mean.dim, {"self": X, "dim": [0]}),
]


@pytest.mark.parametrize(("overload", "arguments"), CALLS, ids=[f"{o}-{i}" for i, (o, _) in enumerate(CALLS)])
def test_the_number_is_what_torch_gives(overload: Any, arguments: Mapping[str, Any]) -> None:
    made = overload(**arguments)
    given = len(made) if isinstance(made, tuple | list) else 1
    counted = result_count(overload._schema, arguments)
    assert counted is not None
    # chunk and tensor_split may give fewer than are asked for
    assert given <= counted <= max(given, int(arguments.get("chunks", 0)))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("unsafe_split", (2**30, 1, 0)),
        ("split", (2**30, 1, 0)),
        ("unsafe_chunk", (2**30, 2**30, 0)),
        ("chunk", (2**30, 2**30, 0)),
        ("tensor_split", (4, 2**30, 0)),
        ("unbind", (2**30, 0)),
        ("unbind", (MAX_ITEMS + 1, 0)),
    ],
)
def test_what_gives_more_than_the_limit_is_not_run(name: str, arguments: tuple[int, ...]) -> None:
    """Small enough to be run by mistake only where the limit is the least."""
    size, *rest = arguments
    given = (Argument("tensor", (Sig("f32", (size,), (1,)),)), *(Argument("value", (), v) for v in rest))
    found = call(name, given)
    assert found is not None
    assert not found.outputs_known


def test_at_the_limit_it_is_run() -> None:
    given = (Argument("tensor", (Sig("f32", (MAX_ITEMS, 3), (3, 1)),)), Argument("value", (), 0))
    found = call("unbind", given)
    assert found is not None
    assert [s.dims for s in found.outputs] == [(3,)] * MAX_ITEMS


def test_differences_of_differences_have_a_limit() -> None:
    for rounds, known in ((MAX_ROUNDS, True), (100_000_000, False)):
        arguments = {"self": torch.empty(2**30, device="meta"), "n": rounds, "dim": -1}
        assert is_bounded(aten.diff.default._schema, arguments) is known


def test_every_list_that_a_trace_may_ask_for_is_counted_or_refused() -> None:
    """A list whose length nothing here tells is not run; none of the operations of today is among those."""
    unknown = []
    for name in sorted(ALLOWED):
        packet = getattr(aten, name, None)
        for label in packet.overloads() if packet is not None else ():
            schema = getattr(packet, label)._schema
            if any(str(r.type) == "List[Tensor]" for r in schema.returns):
                given = {a.name: _sample(str(a.type)) for a in schema.arguments}
                if result_count(schema, given) is None:
                    unknown.append(f"{name}.{label}")
    assert unknown == ["tensor_split.tensor_indices_or_sections"]


def _sample(kind: str) -> Any:
    if kind.startswith("List[Tensor]"):
        return [X, X]
    return X if kind == "Tensor" else [1, 2] if kind.startswith("List[") else 1
