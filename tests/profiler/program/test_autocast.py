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


@pytest.mark.parametrize(
    ("does", "name", "dtype"),
    [
        (lambda y: torch.softmax(y, -1, torch.float32), "_softmax", "f32"),
        (lambda y: torch.softmax(y, -1, torch.bfloat16), "_softmax", "bf16"),
        (lambda y: torch.softmax(y, -1, None), "_softmax", "f32"),
        (lambda y: y.softmax(-1), "_softmax", "f32"),
        (lambda y: F.softmax(y, -1, 3, None), "_softmax", "f32"),
        (lambda y: F.softmax(y, -1, 3, torch.bfloat16), "_softmax", "bf16"),
        (lambda y: torch.log_softmax(y, -1, torch.bfloat16), "_log_softmax", "bf16"),
        (lambda y: F.log_softmax(y, dim=-1), "_log_softmax", "f32"),
        (lambda y: torch.softmax(input=y, dim=-1), "_softmax", "f32"),
        (lambda y: y.sum(-1), "sum", "f32"),
        (lambda y: y.sum(-1, dtype=torch.bfloat16), "sum", "bf16"),
        (lambda y: y.cumsum(-1), "cumsum", "f32"),
        (lambda y: torch.linalg.vector_norm(y, dim=-1), "linalg_vector_norm", "f32"),
    ],
)
def test_a_result_is_f32_unless_the_program_asks_for_a_type(
    does: Callable[[torch.Tensor], torch.Tensor], name: str, dtype: str
) -> None:
    def cast(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return does(layer(x))

    program = recorded(cast)
    assert not program.gaps
    assert written(program, name) == [dtype]


ROWS = torch.zeros(32, 64, dtype=torch.int64)
MIXED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "scatter_add": lambda y, x: y.scatter_add(0, ROWS.to("meta"), x),
    "dot": lambda y, x: torch.dot(y[0], x[0]),
    "vdot": lambda y, x: torch.vdot(y[0], x[0]),
    "tensordot": lambda y, x: torch.tensordot(y, x, dims=([1], [1])),
    "index_put": lambda y, x: y.index_put((ROWS[:, 0].to("meta"),), x),
    "addcmul": lambda y, x: torch.addcmul(y, y, x),
    "addcdiv": lambda y, x: torch.addcdiv(y, y, x, value=2.0),
    "atan2": lambda y, x: torch.atan2(y, x),
    "bilinear": lambda y, x: F.bilinear(y[:, :4], x[:, :4], x.new_zeros(3, 4, 4)),
    "grid_sample": lambda y, x: F.grid_sample(y[None, None], x.view(1, 32, 32, 2), align_corners=False),
    "cross": lambda y, x: torch.cross(y[:, :3], x[:, :3], dim=-1),
    "cat": lambda y, x: torch.cat([y, x]),
    "stack": lambda y, x: torch.stack((y, x)),
    "hstack": lambda y, x: torch.hstack([y, x]),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("mixed", [True, False])
def test_tensors_of_two_types_are_brought_to_the_widest(name: str, mixed: bool) -> None:
    results: list[torch.Tensor] = []

    def does(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = layer(x)
            results.append(MIXED[name](y, x if mixed else y * 2))
            return results[0]

    program = recorded(does)
    assert not program.gaps
    assert results[0].dtype == (torch.float32 if mixed else torch.bfloat16)
    casts = [c.operation for c in program.calls if c.name == "aten::_to_copy" and c.operation is not None]
    widened = [o for o in casts if o.writes[0].dtype == "f32"]
    assert bool(widened) == mixed
