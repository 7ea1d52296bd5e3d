"""Every operation's file has all of its parts, and compiles for GPUs that are not here."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.agreement import disagreement, unchanged
from kernels.operations import operation, operations
from kernels.spec import Maker, Operation, case

ALL = [pytest.param(o, id=o.name) for o in operations()]


def test_names_are_found_once() -> None:
    names = [o.name for o in operations()]
    assert len(set(names)) == len(names)
    assert names[0] == "vector_add"
    assert operation("vector_add").name == "vector_add"
    with pytest.raises(KeyError):
        operation("vector_subtract")


@pytest.mark.parametrize("found", ALL)
def test_an_operation_is_tried_timed_and_compiled(found: Operation) -> None:
    assert found.checks
    assert found.cases
    assert found.builds
    for c in found.cases:
        assert found.cost(c).bytes > 0


@pytest.mark.parametrize("found", ALL)
def test_inputs_are_the_same_for_a_seed_and_differ_between_seeds(found: Operation) -> None:
    c = found.checks[-1]

    def tensors(seed: int) -> list[torch.Tensor]:
        return [a for a in found.inputs(c, Maker(seed=seed)) if isinstance(a, torch.Tensor)]

    assert all(unchanged(a, b) for a, b in zip(tensors(1), tensors(1), strict=True))
    assert not all(unchanged(a, b) for a, b in zip(tensors(1), tensors(2), strict=True))


@pytest.mark.parametrize("found", ALL)
def test_a_wrong_result_is_seen(found: Operation) -> None:
    """One element of the reference's own result, changed: what passes must be the right numbers."""
    arguments = found.inputs(found.checks[-1], Maker(seed=1))
    right = found.reference(*arguments)
    outputs = list(right) if isinstance(right, tuple) else [right]
    assert disagreement(found, right, arguments) == ""
    for i, output in enumerate(outputs):
        wrong = [o.clone(memory_format=torch.contiguous_format) for o in outputs]
        if output.dtype.is_floating_point:
            scale = float(output.double().abs().max()) or 1.0
            number = float(wrong[i].view(-1)[output.numel() // 2])
            # Of 8-bit floats a quarter of the largest is within the rounding that is allowed.
            changed = -math.copysign(scale, number) if output.itemsize == 1 else number + 0.5 * scale
            wrong[i].view(-1)[output.numel() // 2] = changed
        else:
            wrong[i].view(-1)[output.numel() // 2] += 1
        assert disagreement(found, tuple(wrong) if isinstance(right, tuple) else wrong[0], arguments) != "", i


def test_forms_are_what_they_say() -> None:
    c = case("f16", rows=6, columns=40)
    shape = (c["rows"], c["columns"])
    strided = Maker(form="strided").normal(shape, torch.float16)
    assert strided.stride() == (56, 1)
    odd = Maker(form="misaligned").normal(shape, torch.float16)
    assert odd.data_ptr() % 16 != 0
    special = Maker(form="special").normal(shape, torch.float16)
    assert bool(special[0].isnan().any())
    assert bool(special[2].isinf().all())
    assert torch.equal(strided, odd)
