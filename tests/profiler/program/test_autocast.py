"""What would break: autocast that is not seen, weights cast at each use, casts where it is off."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from profiler.program.model import Program
from profiler.program.record import Workload, record


class Called(nn.Module):
    """A linear layer and what a test does with it."""

    def __init__(self, does: Callable[[nn.Linear, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer, self.does = nn.Linear(64, 64), does

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.does(self.layer, x)


def recorded(does: Callable[[nn.Linear, torch.Tensor], torch.Tensor], *, training: bool = False) -> Program:
    return record("program", lambda: Workload(Called(does), (torch.randn(32, 64),), {}), training=training)


def written(program: Program, name: str) -> list[str]:
    """The types of what calls of that name write."""
    operations = [c.operation for c in program.calls if c.name == f"aten::{name}" and c.operation is not None]
    return [o.writes[0].dtype for o in operations]


@pytest.mark.parametrize(("dtype", "name"), [(torch.bfloat16, "bf16"), (torch.float16, "f16")])
def test_products_run_in_its_type_and_norms_and_softmax_in_f32(dtype: torch.dtype, name: str) -> None:
    def does(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=dtype):
            y = layer(x)
            return F.layer_norm(y, (64,)) + torch.softmax(y @ y.t(), -1) @ y

    program = recorded(does)
    assert written(program, "addmm") == [name]
    assert written(program, "mm") == [name, name]
    assert written(program, "native_layer_norm") == ["f32"]
    assert written(program, "_softmax") == ["f32"]
    assert not program.gaps


def test_a_weight_is_cast_once_in_a_context_and_again_in_the_next() -> None:
    def does(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = layer(layer(x))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return layer(y)

    program = recorded(does, training=True)
    forward = [c.operation for c in program.calls if c.name == "aten::_to_copy" and c.operation and not c.backward]
    assert sorted(o.writes[0].shape for o in forward) == [(32, 64), (64,), (64,), (64, 64), (64, 64)]
    gradients = [c.operation for c in program.calls if c.name == "aten::_to_copy" and c.operation and c.backward]
    assert {o.writes[0].dtype for o in gradients} == {"f32"}


def test_where_it_is_off_nothing_is_cast() -> None:
    def does(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16), torch.autocast("cuda", enabled=False):
            y = layer(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):  # another device's
            return layer(y)

    program = recorded(does)
    assert written(program, "addmm") == ["f32", "f32"]
    assert not written(program, "_to_copy")


def test_attention_of_heads_runs_in_its_type() -> None:
    attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def does(_: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return attention.to("meta")(x[None], x[None], x[None], need_weights=False)[0]

    program = recorded(does, training=True)
    kernels = [c for c in program.calls if c.operation is not None and "attention" in c.name]
    assert kernels
    assert {c.operation.reads[0].dtype for c in kernels if c.operation} == {"bf16"}
