"""Every operation with a file of its own, against float64, on its odd cases, in every form of input it claims."""

from __future__ import annotations

import pytest
import torch

from kernels.agreement import disagreement, unchanged
from kernels.operations import operations
from kernels.spec import Case, Maker, Operation

# numpy, which interprets the kernels, warns of the NaN that masked-out lanes compute and nobody stores
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CASES = [
    pytest.param(o, c, f, id=f"{o.name}-{c}-{f}")
    for o in operations()
    for c in o.checks
    if c.dtype not in o.wrong_interpreted
    for f in (o.forms if c == o.checks[-1] else o.forms[:1])
]
"""Every case plain; the last one in every form."""


@pytest.mark.parametrize(("operation", "case", "form"), CASES)
def test_it_is_as_exact_as_its_reference(operation: Operation, case: Case, form: str) -> None:
    arguments = operation.inputs(case, Maker(seed=3, form=form))
    kept = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    got = operation.run(*arguments)
    for before, after in zip(kept, arguments, strict=True):
        if isinstance(before, torch.Tensor):
            assert unchanged(before, after), "an input was changed"
    assert disagreement(operation, got, arguments) == ""
