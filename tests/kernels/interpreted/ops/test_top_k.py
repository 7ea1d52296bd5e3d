"""top_k: ties, NaN, rows of few numbers, rows in pieces: where a bound could lose a candidate or take one twice."""

from __future__ import annotations

import pytest
import torch

from kernels.ops.reduction import top_k as file
from kernels.ops.reduction.top_k import top_k

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("number", [0.0, -float("inf"), float("inf"), float("nan"), -3.0])
def test_of_equal_numbers_the_first_columns_are_taken(dtype: torch.dtype, number: float) -> None:
    values, indices = top_k(torch.full((1, 515), number, dtype=dtype), 17)
    assert indices.tolist() == [list(range(17))]
    assert torch.equal(values.nan_to_num(), torch.full((1, 17), number, dtype=dtype).nan_to_num())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_largest_side_by_side_leave_more_candidates_than_are_sorted_at_once(dtype: torch.dtype) -> None:
    x = torch.arange(640).float().to(dtype)[None, :]
    _, indices = top_k(x, 17)
    expected = torch.sort(x.float(), stable=True, dim=-1, descending=True).indices[:, :17]
    assert torch.equal(indices, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_nan_of_either_sign_is_above_infinity_and_the_bits_stay(dtype: torch.dtype) -> None:
    x = torch.zeros(1, 40, dtype=dtype)
    x[0, 3], x[0, 7], x[0, 30] = float("inf"), float("nan"), -torch.tensor(float("nan"))
    x[0, 20:25] = -float("inf")
    values, indices = top_k(x, 40)
    assert sorted(indices[0, :2].tolist()) == [7, 30]
    assert indices[0, 2] == 3
    assert indices[0, -5:].tolist() == [20, 21, 22, 23, 24]
    word = torch.int32 if dtype == torch.float32 else torch.int16
    assert torch.equal(values.view(word), x.view(word).gather(1, indices))


def test_the_last_piece_of_a_row_may_be_shorter_than_k() -> None:
    x = torch.full((2, file.PIECE + 3), -float("inf"))
    x[0, -3:] = torch.tensor([1.0, 3.0, 2.0])
    values, indices = top_k(x, 5)
    last = file.PIECE
    assert indices.tolist() == [[last + 1, last + 2, last, 0, 1], [0, 1, 2, 3, 4]]
    assert values[0, :3].tolist() == [3.0, 2.0, 1.0]


@pytest.mark.parametrize("fold", [0, 1])
def test_every_fold_of_groups_finds_the_same(fold: int) -> None:
    x = torch.randn(1, 1024, generator=torch.Generator().manual_seed(1))
    variants = [v for v in file.space(1, 1024, 17, x.dtype) if v.kernel is file.top_k_select]
    folds = sorted({v["FOLD"] for v in variants})
    assert len(folds) == 2
    variant = next(v for v in variants if v["FOLD"] == folds[fold])
    values, indices = torch.empty(1, 17), torch.empty(1, 17, dtype=torch.int64)
    file.launch(variant, x, values, indices)
    wanted = torch.topk(x, 17)
    assert torch.equal(values, wanted.values)
    assert torch.equal(indices, wanted.indices)


@pytest.mark.parametrize(
    ("shape", "k", "dtype", "fault"),
    [((2, 8), 0, torch.float32, ValueError), ((2, 8), 9, torch.float32, ValueError),
     ((2, 300), 257, torch.float32, ValueError), ((), 1, torch.float32, ValueError),
     ((2, 8), 2, torch.int32, TypeError)],
)  # fmt: skip
def test_what_it_does_not_take_is_refused(
    shape: tuple[int, ...], k: int, dtype: torch.dtype, fault: type[Exception]
) -> None:
    with pytest.raises(fault, match="top_k takes"):
        top_k(torch.zeros(shape, dtype=dtype), k)
