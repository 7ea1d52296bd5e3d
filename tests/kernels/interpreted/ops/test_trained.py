"""A kernel that autograd knows has torch's own gradients; nothing is kept where nobody asks for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernels.ops import trained
from kernels.ops.attention import attention_backward
from kernels.ops.attention.flash_attention import reference as attention
from kernels.ops.elementwise.rope import reference as turned
from kernels.ops.matmul.grouped_gemm import reference as routed
from kernels.ops.matmul.linear_cross_entropy import wanted_gradients
from kernels.ops.pool.pool import Window
from kernels.ops.scan import causal_conv1d
from kernels.ops.scan.causal_conv1d import reference as convolution
from kernels.ops.scan.linear_recurrence import reference as recurrence
from kernels.ops.scatter import embedding_bag

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of lanes that are masked

Call = Callable[..., Any]
ROWS, COLUMNS = 5, 130


def normal(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed + sum(size)))


COS, SIN = normal(8, 16, seed=1), normal(8, 16, seed=2)
TARGET = torch.tensor([3, -100, 129, 0, 77])
X, W, B = normal(ROWS, COLUMNS), normal(COLUMNS, seed=3), normal(COLUMNS, seed=4)
Q, K = normal(2, 3, 8, 16, seed=5), normal(2, 2, 8, 16, seed=6)

EXPERTS_X, EXPERTS_W = normal(9, 20, seed=12), normal(3, 20, 24, seed=14)
ENDS, SOURCE = torch.tensor([0, 4, 4, 9]), torch.tensor([0, 1, 2, 3, 3, 2, 0, 0, 1])
ORDER = torch.tensor([8, 1, 0, 2, 4, 3, 6, 5, 7])

OFFSETS, INDICES = torch.tensor([0, 2, 2, 5]), torch.tensor([4, 1, 1, 0, 4, 2])
WINDOW = Window((3, 2), (2, 1), (1, 0))
IMAGE = normal(2, 3, 7, 6, seed=10)

HEADS = (normal(1, 4, 20, 16, seed=14), normal(1, 4, 20, 16, seed=15), normal(1, 4, 20, 16, seed=16))

CASES: dict[str, tuple[Call, Call, tuple[torch.Tensor, ...]]] = {
    "rms_norm": (trained.rms_norm, lambda x, w: F.rms_norm(x, (COLUMNS,), w, 1e-6), (X, W)),
    "rms_norm without weight": (trained.rms_norm, lambda x: F.rms_norm(x, (COLUMNS,), None, 1e-6), (X,)),
    "layer_norm": (trained.layer_norm, lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b), (X, W, B)),
    "layer_norm without weight": (trained.layer_norm, lambda x: F.layer_norm(x, (COLUMNS,)), (X,)),
    "layer_norm without bias": (trained.layer_norm, lambda x, w: F.layer_norm(x, (COLUMNS,), w), (X, W)),
    "softmax": (trained.softmax, lambda x: torch.softmax(x, -1), (X,)),
    "gated_activation": (trained.gated_activation, lambda a, b: F.silu(a) * b, (X, normal(ROWS, COLUMNS, seed=7))),
    "gated_activation of halves": (trained.gated_activation, lambda a: F.silu(a[:, :65]) * a[:, 65:], (X,)),
    "rope": (lambda q, k: trained.rope(q, k, COS, SIN), lambda q, k: turned(q, k, COS, SIN), (Q, K)),
    "rope of queries": (lambda q: trained.rope(q, None, COS, SIN), lambda q: turned(q, None, COS, SIN), (Q,)),
    "linear_recurrence": (
        trained.linear_recurrence, recurrence, (normal(2, 16, 32, seed=8).sigmoid(), normal(2, 16, 32, seed=9)),
    ),
    "flash_attention": (
        lambda q, k, v: trained.flash_attention(q, k, v, None, True), lambda q, k, v: attention(q, k, v, None, True),
        (HEADS[0], HEADS[1][:, :2], HEADS[2][:, :2]),
    ),
    "flash_attention with its log-sum-exp": (
        lambda q, k, v: trained.flash_attention(q, k, v, None, True, 7, 3.0, 0.5, True),
        lambda q, k, v: attention(q, k, v, None, True, 7, 3.0, 0.5, True), HEADS,
    ),
    "causal_conv1d": (
        lambda x, w: trained.causal_conv1d(x, w, None, "silu"), lambda x, w: convolution(x, w, None, "silu"),
        (normal(2, 5, 20, seed=10), normal(5, 4, seed=11)),
    ),
    "causal_conv1d between states": (
        lambda x, w, b, s: trained.causal_conv1d(x, w, b, None, s, True),
        lambda x, w, b, s: convolution(x, w, b, None, s, True),
        (normal(2, 5, 20, seed=10), normal(5, 3, seed=11), normal(5, seed=12), normal(2, 5, 2, seed=13)),
    ),
    "segment_reduce": (
        lambda x: trained.segment_reduce(x, OFFSETS, "mean").nan_to_num(),
        lambda x: torch.segment_reduce(x, "mean", offsets=OFFSETS, axis=0, unsafe=True).nan_to_num(), (X,),
    ),
    "embedding_bag": (
        lambda x, s: trained.embedding_bag(x, INDICES, OFFSETS, s, "sum", False),
        lambda x, s: F.embedding_bag(INDICES, x, OFFSETS, mode="sum", per_sample_weights=s),
        (X, normal(6, seed=11)),
    ),
    "embedding_bag of the largest": (
        lambda x: trained.embedding_bag(x, INDICES[:5], OFFSETS, None, "max"),
        lambda x: F.embedding_bag(INDICES[:5], x, OFFSETS, mode="max", include_last_offset=True), (X,),
    ),
    "max_pool": (
        lambda x: trained.max_pool(x, WINDOW), lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0)), (IMAGE,),
    ),
    "average_pool": (
        lambda x: trained.average_pool(x, WINDOW), lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 0)), (IMAGE,),
    ),
    "grouped_gemm": (
        lambda x, w: trained.grouped_gemm(x, w, ENDS), lambda x, w: routed(x, w, ENDS), (EXPERTS_X, EXPERTS_W),
    ),
    "grouped_gemm, gathered": (
        lambda x, w: trained.grouped_gemm(x, w, ENDS, SOURCE), lambda x, w: routed(x, w, ENDS, SOURCE),
        (EXPERTS_X[:4], EXPERTS_W),
    ),
    "grouped_gemm, weighted": (
        lambda x, w, s: trained.grouped_gemm(x, w, ENDS, SOURCE, ORDER, s),
        lambda x, w, s: routed(x, w, ENDS, SOURCE, ORDER, s), (EXPERTS_X[:4], EXPERTS_W, normal(9, seed=13)),
    ),
    **{
        f"linear_cross_entropy, {reduction}": (
            lambda x, w, r=reduction: trained.linear_cross_entropy(x, w, TARGET, reduction=r),
            lambda x, w, r=reduction: F.cross_entropy(x @ w.T, TARGET, reduction=r),
            (normal(ROWS, 40, seed=10), normal(COLUMNS, 40, seed=11)),
        )
        for reduction in ("mean", "sum")
    },
    **{
        f"cross_entropy, {reduction}": (
            lambda x, r=reduction: trained.cross_entropy(x, TARGET, reduction=r),
            lambda x, r=reduction: F.cross_entropy(x, TARGET, reduction=r),
            (X,),
        )
        for reduction in ("mean", "sum", "none")
    },
}  # fmt: skip


def outputs(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def run(call: Call, given: tuple[torch.Tensor, ...]) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor]]:
    """(results, gradients), upstream gradients drawn by the results' sizes."""
    leaves = [x.clone().requires_grad_() for x in given]
    results = outputs(call(*leaves))
    torch.autograd.backward(results, [normal(*r.shape, seed=20 + n) for n, r in enumerate(results)])
    return results, [x.grad for x in leaves if x.grad is not None]


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_torchs(name: str) -> None:
    ours, theirs, given = CASES[name]
    (results, gradients), (wanted, slopes) = run(ours, given), run(theirs, given)
    assert len(gradients) == len(slopes) == len(given)
    for one, other in zip((*results, *gradients), (*wanted, *slopes), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_without_gradients_nothing_is_kept(name: str) -> None:
    ours, _, given = CASES[name]
    assert all(r.grad_fn is None for r in outputs(ours(*given)))
    with torch.no_grad():
        assert all(not r.requires_grad for r in outputs(ours(*(x.clone().requires_grad_() for x in given))))


FROZEN = ("flash_attention", "causal_conv1d", "causal_conv1d between states")


@pytest.mark.parametrize("name", FROZEN)
def test_a_gradient_that_alone_is_wanted_is_torchs(name: str) -> None:
    ours, theirs, given = CASES[name]
    _, slopes = run(theirs, given)
    for i in range(len(given)):
        leaves = [x.clone().requires_grad_(n == i) for n, x in enumerate(given)]
        results = outputs(ours(*leaves))
        torch.autograd.backward(results, [normal(*r.shape, seed=20 + n) for n, r in enumerate(results)])
        assert [x.grad is not None for x in leaves] == [n == i for n in range(len(given))]
        torch.testing.assert_close(leaves[i].grad, slopes[i], rtol=1e-4, atol=1e-5)


def test_no_kernel_runs_for_a_gradient_that_nobody_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = HEADS

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a gradient that nobody asked for")

    monkeypatch.setattr(attention_backward, "launch_keys", never)
    leaf = q.clone().requires_grad_()
    trained.flash_attention(leaf, k, v).sum().backward()
    assert leaf.grad is not None
    monkeypatch.undo()
    monkeypatch.setattr(attention_backward, "launch_queries", never)
    leaf = v.clone().requires_grad_()
    trained.flash_attention(q, k, leaf).sum().backward()
    assert leaf.grad is not None


def test_sums_of_filters_that_are_frozen_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []
    launch = causal_conv1d.launch_backward

    def watched(*given: Any) -> None:
        made.append(given[-1] is not None)
        launch(*given)

    monkeypatch.setattr(causal_conv1d, "launch_backward", watched)
    x, w = normal(2, 5, 20, seed=10), normal(5, 4, seed=11)
    trained.causal_conv1d(x.clone().requires_grad_(), w).sum().backward()
    trained.causal_conv1d(x, w.clone().requires_grad_()).sum().backward()
    assert made == [False, True]


def test_rope_refuses_a_gradient_that_it_does_not_have() -> None:
    with pytest.raises(ValueError, match="no gradient for cos and sin"):
        trained.rope(Q, None, COS.clone().requires_grad_(), SIN)


def test_attention_refuses_a_gradient_with_a_bias() -> None:
    with pytest.raises(ValueError, match="no gradient with a bias"):
        trained.flash_attention(HEADS[0].clone().requires_grad_(), *HEADS[1:], torch.zeros(20, 20))


def test_a_result_of_attention_that_nobody_uses_has_no_gradient() -> None:
    q, k, v = (x.clone().requires_grad_() for x in HEADS)
    _, lse = trained.flash_attention(q, k, v, logsumexp=True)
    lse.sum().backward()
    assert q.grad is not None
    assert v.grad is not None
    assert not v.grad.any()


def test_a_second_backward_of_the_loss_is_no_wrong_gradient() -> None:
    """The first one scaled in place what the forward kept."""
    x = X.clone().requires_grad_()
    loss = trained.cross_entropy(x, TARGET) * 3.0
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="used up"):
        loss.backward()


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_operand_of_a_linear_loss_has_no_product_made(frozen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    product = torch.mm

    def counted(*given: torch.Tensor, **options: Any) -> torch.Tensor:
        made.append("mm")
        return product(*given, **options)

    monkeypatch.setattr(torch, "mm", counted)
    leaves = [normal(ROWS, 40), normal(COLUMNS, 40)]
    wanted = F.cross_entropy(leaves[0] @ leaves[1].T, TARGET)
    leaves[1 - frozen].requires_grad_()
    loss = trained.linear_cross_entropy(*leaves, TARGET)
    loss.backward()
    torch.testing.assert_close(loss, wanted)
    assert leaves[frozen].grad is None
    assert len(made) == 2, "the logits, and one gradient"
    gradients = wanted_gradients(*(t.detach() for t in leaves), TARGET, (frozen == 1, frozen == 0))[1:]
    assert gradients[frozen] is None
    torch.testing.assert_close(leaves[1 - frozen].grad, gradients[1 - frozen])


def test_a_mean_in_f16_has_no_gradient_and_says_so() -> None:
    x, w = normal(ROWS, 40).half(), normal(COLUMNS, 40).half().requires_grad_()
    with pytest.raises(ValueError, match="use bf16"):
        trained.linear_cross_entropy(x, w, TARGET)
    trained.linear_cross_entropy(x, w, TARGET, reduction="sum").backward()
    assert w.grad is not None


@pytest.mark.parametrize("asked", [0, 1, 2])
def test_one_gradient_of_a_grouped_product_alone(asked: int) -> None:
    given = (EXPERTS_X[:4], EXPERTS_W, normal(9, seed=13))
    (mine,), (wanted,) = (
        run(lambda *g, call=call: call(*given[:asked], *g, *given[asked + 1 :]), given[asked : asked + 1])[1]
        for call in (
            lambda x, w, s: trained.grouped_gemm(x, w, ENDS, SOURCE, ORDER, s),
            lambda x, w, s: routed(x, w, ENDS, SOURCE, ORDER, s),
        )
    )
    torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5)


def test_a_second_backward_of_a_linear_loss_is_no_wrong_gradient() -> None:
    x, w = normal(ROWS, 40).requires_grad_(), normal(COLUMNS, 40).requires_grad_()
    loss = trained.linear_cross_entropy(x, w, TARGET)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="used up"):
        loss.backward()


def test_an_upstream_gradient_of_one_changes_nothing_and_of_another_scales() -> None:
    plain, scaled = X.clone().requires_grad_(), X.clone().requires_grad_()
    trained.cross_entropy(plain, TARGET).backward()
    (trained.cross_entropy(scaled, TARGET) * 3.0).backward()
    assert plain.grad is not None
    assert scaled.grad is not None
    torch.testing.assert_close(scaled.grad, plain.grad * 3.0)


@pytest.mark.parametrize(("frozen", "unmade"), [(0, "_of_table"), (1, "_of_weights")])
def test_a_bag_s_gradient_that_nobody_asks_for_is_not_made(
    frozen: int, unmade: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs, given = CASES["embedding_bag"]
    monkeypatch.setattr(embedding_bag, unmade, None)  # a call would fail
    slopes = []
    for call in (ours, theirs):
        leaves = [x.clone().requires_grad_(n != frozen) for n, x in enumerate(given)]
        (call(*leaves) * 2.0).sum().backward()
        assert leaves[frozen].grad is None
        slopes.append(leaves[1 - frozen].grad)
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-4, atol=1e-5)
