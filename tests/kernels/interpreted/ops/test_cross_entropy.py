"""Cross entropy with its gradient: every variant, in place, rows that do not count, targets that are no class."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.ops.softmax import cross_entropy as ce
from kernels.tuning import Variant

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def kinds(variants: list[Variant]) -> list[Variant]:
    """One of each kernel and number of held pieces: warps and stages do not exist in the interpreter."""
    return list({(v.kernel, dict(v.constants).get("HELD")): v for v in variants}.values())


@pytest.mark.parametrize(("columns", "smoothing"), [(5000, 0.0), (5000, 0.1), (65538, 0.1)])
def test_however_much_of_a_row_is_held(columns: int, smoothing: float) -> None:
    torch.manual_seed(0)
    x, target = (torch.randn(2, columns) * 3).half(), torch.tensor([columns - 1, ce.IGNORE])
    x[0, 7] = -math.inf if smoothing == 0 else 1.0
    loss, gradient = ce.reference_gradient(x.double(), target, ce.IGNORE, smoothing, "none")
    for variant in kinds(ce.space(columns, x.dtype, True, True, smoothing > 0)):
        losses, d = torch.full((2,), math.nan), torch.full_like(x, math.nan)
        ce.launch(variant, x, target, losses, d, torch.ones(1), ce.IGNORE, smoothing)
        torch.testing.assert_close(losses, loss.float())
        assert float((d.double() - gradient).norm()) <= 1e-3 * float(gradient.norm()), variant
        assert not d[1].any()


@pytest.mark.parametrize(("dtype", "columns"), [(torch.bfloat16, 4098), (torch.float32, 301)])
def test_in_place_it_is_the_same_gradient_over_the_logits(dtype: torch.dtype, columns: int) -> None:
    x, target = torch.randn(2, 2, columns).to(dtype), torch.tensor([[5, 4], [ce.IGNORE, 7]])
    loss, gradient = ce.cross_entropy_with_gradient(x, target)
    again, over = ce.cross_entropy_with_gradient(x, target, in_place=True)
    assert over.data_ptr() == x.data_ptr()
    assert torch.equal(over, gradient)
    assert torch.equal(again, loss)
    with pytest.raises(ValueError, match="contiguous"):
        ce.cross_entropy_with_gradient(x.transpose(0, 1), target, in_place=True)


def test_the_mean_over_no_rows_is_nan_and_their_gradient_is_zero() -> None:
    x, target = torch.randn(3, 50), torch.full((3,), ce.IGNORE)
    loss, gradient = ce.cross_entropy_with_gradient(x, target)
    assert math.isnan(float(loss))
    assert not gradient.any()
    assert float(ce.cross_entropy(x, target, reduction="sum")) == 0.0


def test_another_ignored_class_and_32_bit_targets() -> None:
    x, target = torch.randn(4, 50), torch.tensor([1, 0, 2, 0], dtype=torch.int32)
    wanted = torch.nn.functional.cross_entropy(x, target.long(), ignore_index=0)
    torch.testing.assert_close(ce.cross_entropy(x, target, ignore_index=0), wanted)


@pytest.mark.parametrize("beyond", [0, -1, -5])
@pytest.mark.parametrize("columns", [50, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_target_that_is_no_class_gives_nan_and_writes_nowhere_else(
    dtype: torch.dtype, columns: int, beyond: int
) -> None:
    x = torch.randn(3, columns).to(dtype)
    right, wrong = torch.tensor([1, 2, 3]), torch.tensor([1, beyond or columns, 3])
    losses, d = ce.cross_entropy_with_gradient(x, right, reduction="none")
    others, e = ce.cross_entropy_with_gradient(x, wrong, reduction="none")
    assert others.isnan().tolist() == [False, True, False]
    assert torch.equal(losses[::2], others[::2])
    assert torch.equal(d[::2], e[::2])


def test_what_is_not_taken_is_said() -> None:
    x, target = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(TypeError, match="float64"):
        ce.cross_entropy(x.double(), target)
    with pytest.raises(TypeError, match="targets of i64"):
        ce.cross_entropy(x, target.float())
    with pytest.raises(ValueError, match=r"targets \[2\], not \[1\]"):
        ce.cross_entropy(x, target[:1])
    with pytest.raises(ValueError, match="reduction"):
        ce.cross_entropy(x, target, reduction="max")
    with pytest.raises(ValueError, match="label_smoothing"):
        ce.cross_entropy(x, target, label_smoothing=1.5)
