"""Router: what softmax and top-k by hand give, for any renormalisation, order of ties and wrong arguments."""

from __future__ import annotations

import pytest
import torch

from kernels.ops.reduction import router as file
from kernels.ops.reduction.router import router

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def test_of_equal_logits_the_lower_expert_comes_first() -> None:
    weights, experts = router(torch.zeros(2, 40, dtype=torch.bfloat16), 5)
    assert experts.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert torch.equal(weights, torch.full((2, 5), 0.2))


def test_sorting_and_maxima_choose_alike() -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    collected = []
    variants = file.space(4, 64, 8, x.dtype, renormalise=True)
    for by_sorting in (False, True):
        variant = next(v for v in variants if v["SORTED"] == by_sorting)
        weights, experts = torch.empty(4, 8), torch.empty(4, 8, dtype=torch.int64)
        file.launch(variant, x, weights, experts)
        collected.append((weights, experts))
    (a, i), (b, j) = collected
    assert torch.equal(i, j)
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(a, file.reference(x, 8)[0])


def test_a_nan_of_either_sign_reaches_every_weight() -> None:
    x = torch.randn(2, 16, generator=torch.Generator().manual_seed(2))
    x[0, 3], x[1, 15] = float("nan"), -torch.tensor(float("nan"))
    assert bool(router(x, 4)[0].isnan().all())


def test_leading_axes_are_kept() -> None:
    x = torch.randn(2, 3, 10, generator=torch.Generator().manual_seed(3))
    weights, experts = router(x, 2, renormalise=False)
    assert weights.shape == experts.shape == (2, 3, 2)
    torch.testing.assert_close(weights, torch.softmax(x, -1).gather(-1, experts))


@pytest.mark.parametrize(
    ("shape", "k", "dtype", "fault"),
    [((2, 8), 0, torch.float32, ValueError), ((2, 8), 9, torch.float32, ValueError),
     ((2, 100), 65, torch.float32, ValueError), ((2, 1025), 2, torch.float32, ValueError),
     ((), 1, torch.float32, ValueError), ((2, 8), 2, torch.float64, TypeError)],
)  # fmt: skip
def test_what_it_does_not_take_is_refused(
    shape: tuple[int, ...], k: int, dtype: torch.dtype, fault: type[Exception]
) -> None:
    with pytest.raises(fault, match="router takes"):
        router(torch.zeros(shape, dtype=dtype), k)
