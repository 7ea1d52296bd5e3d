"""Teams of programs that share rows. Here programs run one after another, so that none can wait for the next one: the
words that a team exchanges are there from the start, calculated in PyTorch, and each program writes its own again."""

from __future__ import annotations

import itertools

import pytest
import torch

from kernels.ops.norm.forward import Form
from kernels.ops.norm.forward import team as norm_team
from kernels.ops.norm.forward_kernels import norm_together
from kernels.ops.softmax.softmax import softmax_team
from kernels.ops.softmax.softmax import team as team_for_softmax
from kernels.ops.softmax.softmax_backward_team import softmax_backward_team
from kernels.ops.softmax.softmax_backward_team import team as team_for_backward

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
INFINITY = float("inf")
BLOCK = 128
ROWS = 7


def words(high: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    """Two f32 each in an int64."""
    return torch.stack((low, high), -1).contiguous().view(torch.int64).flatten()


def parts(x: torch.Tensor, fill: float) -> torch.Tensor:
    """x [rows, columns] in f32 as [rows, team, BLOCK]."""
    size = -(-x.shape[1] // BLOCK)
    padded = torch.nn.functional.pad(x.float(), (0, size * BLOCK - x.shape[1]), value=fill)
    return padded.view(x.shape[0], size, BLOCK)


@pytest.mark.parametrize(
    ("dtype", "halves", "columns", "stages"),
    [(torch.bfloat16, 2, 256, 3), (torch.float16, 2, 300, 1), (torch.float32, 1, 301, 1), (torch.float32, 1, 256, 3)],
)
@pytest.mark.parametrize("widen", [False, True])
def test_softmax_by_a_team_is_that_of_the_row(
    dtype: torch.dtype, halves: int, columns: int, stages: int, widen: bool
) -> None:
    x = (3 * torch.randn(ROWS, columns, generator=torch.Generator().manual_seed(5))).to(dtype)
    x[1, :BLOCK] = -INFINITY
    x[2] = -INFINITY
    x[3, 7] = INFINITY
    x[4, columns - 1] = torch.nan
    widen = widen and dtype != torch.float32
    top = parts(x, -INFINITY).amax(2)
    top = torch.where(top.isnan(), parts(x, -INFINITY).nan_to_num(nan=-INFINITY).amax(2), top)
    shift = torch.where(top == -INFINITY, 0.0, top)
    total = torch.exp(parts(x, -INFINITY) - shift[:, :, None]).sum(2)
    sync = torch.cat((words(top, total), torch.zeros(1, dtype=torch.int64)))
    before = sync.clone()
    y = torch.empty(x.shape, dtype=torch.float32 if widen else dtype)
    variant = team_for_softmax(columns, dtype, halves, widen, BLOCK, 4, stages)
    size = variant["TEAM"]
    softmax_team[(3 * size,)](x, y, sync, ROWS, columns // halves, columns // (1 if widen else halves), **variant.meta)
    torch.testing.assert_close(
        y.float(), torch.softmax(x.double(), 1).float(), equal_nan=True, rtol=1e-2 if y.element_size() == 2 else 1e-5,
        atol=1e-6,
    )  # fmt: skip
    assert sync[-1] == 3 * size, "each program draws one ticket"
    handed, there = sync[:-1].view(torch.float32).view(-1, 2), before[:-1].view(torch.float32).view(-1, 2)
    torch.testing.assert_close(handed[:, 0], there[:, 0], equal_nan=True)
    assert (sync[:-1] != 0).all()


@pytest.mark.parametrize(("dtype", "columns"), [(torch.bfloat16, 256), (torch.float16, 300)])
def test_softmax_s_gradient_by_a_team_is_that_of_the_row(dtype: torch.dtype, columns: int) -> None:
    source = torch.Generator().manual_seed(6)
    dy = torch.randn(ROWS, columns, generator=source).to(dtype)
    y = torch.softmax(3 * torch.randn(ROWS, columns, generator=source), 1).to(dtype)
    y[2], dy[3] = 0.0, 0.0
    dots = parts(y.float() * dy.float(), 0.0).sum(2)
    full = words(torch.zeros_like(dots), dots)
    sync = torch.cat((torch.where(full == 0, 1 << 31, full), torch.zeros(1, dtype=torch.int64)))
    dx = torch.empty_like(dy)
    variant = team_for_backward(columns, dtype, BLOCK, 4, 3)
    size, stride = variant["TEAM"], columns // 2
    softmax_backward_team[(2 * size,)](dy, y, dx, sync, ROWS, stride, stride, stride, 0, **variant.meta)
    wanted = torch._softmax_backward_data(dy.double(), y.double(), 1, torch.float64)
    torch.testing.assert_close(dx.double(), wanted, rtol=1e-2, atol=1e-4)
    assert (sync[:-1] != 0).all()
    assert sync[-1] == 2 * size, "each program draws one ticket"
    handed = sync[:-1].view(torch.float32).view(-1, 2)[:, 0].view(ROWS, -1)
    torch.testing.assert_close(handed, dots, rtol=1e-3, atol=1e-5)


FORMS = [
    Form(), Form(residual=True), Form(centered=True, bias=True, stats=True), Form(weight=False),
    Form(residual=True, centered=True, bias=True, stats=True),
]  # fmt: skip


@pytest.mark.parametrize(("form", "kind"), list(itertools.product(FORMS, ("pairs", "floats"))))
def test_a_norm_by_a_team_is_that_of_the_row(form: Form, kind: str) -> None:
    dtype, halves, columns, stages = (torch.float16, 2, 300, 3) if kind == "pairs" else (torch.float32, 1, 301, 1)
    source = torch.Generator().manual_seed(9)
    x, r = ((5 + torch.randn(ROWS, columns, generator=source)).to(dtype) for _ in range(2))
    x[2], r[2] = 0.0, 0.0
    w, b = (torch.randn(columns, generator=source).to(dtype) for _ in range(2))
    added = x + r if form.residual else x
    count = torch.tensor([min(BLOCK, columns - i) for i in range(0, columns, BLOCK)])
    means = parts(added, 0.0).sum(2) / count if form.centered else torch.zeros(ROWS, len(count))
    squares = parts(added, 0.0).square().sum(2)
    if form.centered:
        inside = parts(torch.ones_like(added), 0.0)
        squares = ((parts(added, 0.0) - means[:, :, None]) * inside).square().sum(2)
    full = words(means, squares)
    sync = torch.cat((torch.where(full == 0, 1 << 31, full), torch.zeros(1, dtype=torch.int64)))
    before = sync.clone()
    y, kept = torch.empty_like(x), torch.empty_like(x)
    mean, rstd = torch.empty(ROWS), torch.empty(ROWS)
    variant = norm_team(columns, dtype, halves, form, BLOCK, 4, stages)
    size, stride = variant["TEAM"], columns // halves
    norm_together[(2 * size,)](
        x, r, w, b, y, kept, mean, rstd, sync, ROWS, stride, stride, stride, 1e-6, 0, **variant.meta
    )
    wide = added.double()
    center = wide.mean(1, keepdim=True) if form.centered else 0.0
    scale = ((wide - center).square().mean(1, keepdim=True) + 1e-6).rsqrt()
    expected = (wide - center) * scale * (w.double() if form.weight else 1.0) + (b.double() if form.bias else 0.0)
    tolerance = 2e-3 if kind == "pairs" else 1e-4
    torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=tolerance)
    if form.residual:
        assert torch.equal(kept, added)
    if form.stats:
        torch.testing.assert_close(rstd.double(), scale.flatten(), rtol=1e-4, atol=0.0)
        torch.testing.assert_close(mean.double(), wide.mean(1), rtol=1e-5, atol=1e-6)
    handed, there = (s[:-1].view(torch.float32).view(-1, 2) for s in (sync, before))
    torch.testing.assert_close(handed, there, rtol=1e-4, atol=1e-6)
    assert (sync[:-1] != 0).all()
