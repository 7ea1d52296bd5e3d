"""Cross entropy of a linear layer: strips, pieces of rows, targets that are ignored or no class, what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernels.agreement import disagreement
from kernels.ops.matmul.linear_cross_entropy import (
    OPERATIONS,
    inputs,
    launch,
    linear_cross_entropy,
    linear_cross_entropy_with_gradient,
    rows_of_a_piece,
    space,
)
from kernels.ops.softmax import cross_entropy as losses
from kernels.spec import Maker, case

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

LOSS, WITH_GRADIENT = OPERATIONS


@pytest.mark.parametrize("sizes", [(8192, 128256), (200, 3000), (20, 200)])
def test_every_variant_agrees(sizes: tuple[int, int]) -> None:
    arguments = x, w, target, ignore, _ = inputs(case("f16", t=150, h=72, v=1100, reduction="none"), Maker())
    large = [torch.empty((n, 72), dtype=torch.float16, device="meta") for n in sizes]
    for variant in space(*large, True):
        constants = dict(variant.constants) | {"WHOLE_N": False, "EVEN_K": False}
        object.__setattr__(variant, "constants", tuple(constants.items()))
        made = torch.full((150,), math.nan)
        launch(variant, x, w, target, made, ignore)
        assert disagreement(LOSS, made, arguments) == "", str(variant)


@pytest.mark.parametrize("pieces", [1, 3])
def test_pieces_of_rows_add_up(pieces: int) -> None:
    """The last piece is shorter, and a whole piece is ignored."""
    arguments = x, w, target, ignore, _ = inputs(case("f32", t=600, h=20, v=30, ignored=7), Maker())
    target[256:512] = ignore
    piece_bytes = 30 * 4 * 256 * 3 // pieces
    assert rows_of_a_piece(30, 4, piece_bytes) == 768 // pieces
    got = linear_cross_entropy_with_gradient(x, w, target, ignore, "mean", piece_bytes)
    assert disagreement(WITH_GRADIENT, got, arguments) == ""
    assert bool((got[1][256:512] == 0).all())


@pytest.mark.parametrize("rows", [300, 512, 100])
def test_the_first_call_has_one_piece_of_logits_and_no_copies_of_it(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel that is chosen, where tuning copies what it is not told to leave, has the piece uncopied first."""
    first: dict[Any, bool] = {}
    pick = losses.tuner.pick

    def watched(key: Any, space: Any, launch: Any, *arguments: Any, uncopied: Any = ()) -> Any:
        first.setdefault(key, any(a is arguments[0] for a in uncopied))
        return pick(key, space, launch, *arguments, uncopied=uncopied)

    monkeypatch.setattr(losses.tuner, "pick", watched)
    arguments = x, w, target, ignore, _ = inputs(case("f32", t=rows, h=20, v=30), Maker())
    got = linear_cross_entropy_with_gradient(x, w, target, ignore, "mean", 30 * 4 * 256)
    assert disagreement(WITH_GRADIENT, got, arguments) == ""
    assert len(first) == len({min(rows, 256), rows % 256} - {0})
    assert all(first.values())


def test_a_piece_is_never_empty_and_of_whole_tiles() -> None:
    assert rows_of_a_piece(1 << 40, 2) == 256
    assert rows_of_a_piece(128256, 2) * 128256 * 2 <= 1 << 30
    assert rows_of_a_piece(128256, 2) % 256 == 0


def test_a_target_that_is_no_class_is_nan_and_an_ignored_one_nothing() -> None:
    x, w, target, *_ = inputs(case("f32", t=6, h=20, v=30), Maker())
    target[1], target[2], target[3] = 30, -100, -1
    made = linear_cross_entropy(x, w, target, reduction="none")
    assert torch.isnan(made).tolist() == [False, True, False, True, False, False]
    assert float(made[2]) == 0.0
    target[1], target[3] = 4, 5
    target = target.int()
    mean = linear_cross_entropy(x, w, target)
    assert torch.allclose(mean, F.cross_entropy(x @ w.T, target.long()), atol=1e-5)
    assert bool(torch.isnan(linear_cross_entropy(x, w, torch.full_like(target, -100))))


def test_a_loss_near_nothing_keeps_its_digits() -> None:
    """A logit that is no power of two: x log2(e) - at log2(e) as one multiply-add on a GPU is not 0 for it."""
    x, w = torch.full((1, 16), 1.0), torch.zeros((3, 16))
    w[1] = 1.875
    exact = math.log1p(2 * math.exp(-30.0))
    loss = float(linear_cross_entropy(x, w, torch.tensor([1])))
    assert loss == pytest.approx(exact, abs=1e-7)


X, W, T = torch.zeros((4, 8)), torch.zeros((5, 8)), torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: linear_cross_entropy(X, W.half(), T), TypeError, "alike"),
        (lambda: linear_cross_entropy(X, W, T.float()), TypeError, "i64 or i32"),
        (lambda: linear_cross_entropy(X, W[:, :4], T), ValueError, r"\[8\]|\[4, 8\]"),
        (lambda: linear_cross_entropy(X, W, T[:3]), ValueError, r"take targets \[4\], not \[3\]"),
        (lambda: linear_cross_entropy(X, W[:0], T), ValueError, "0 classes"),
        (lambda: linear_cross_entropy(X, W, T, reduction="max"), ValueError, "'max'"),
        (lambda: linear_cross_entropy_with_gradient(X, W, T, reduction="none"), ValueError, "mean, sum"),
        (lambda: linear_cross_entropy(X, W[0], T), ValueError, r"W \[V, H\]"),
    ],
)
def test_what_is_refused_says_why(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
