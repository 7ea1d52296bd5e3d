"""A generated call whose Triton kernels are silent: torch's own operations read what they did not write."""

from __future__ import annotations

import torch

from kernels.candidates import build
from kernels.measure.candidate import launch_ablation
from profiler.region.language.text import parse

POOL = "x: f32[2, 4, 16, 16].requires_grad\nreturn F.max_pool2d(relu(x), 2, 1) * 2\n"


def test_a_gradient_that_goes_where_a_silent_kernels_index_points_ends_no_process() -> None:
    x = torch.randn(2, 4, 16, 16, requires_grad=True)
    run = build("triton:generated", parse(POOL), {}, "cpu")
    torch.use_deterministic_algorithms(True)
    try:
        with launch_ablation.silenced() as asked:
            (y,) = run(x)
            (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    finally:
        torch.use_deterministic_algorithms(False)
    assert asked
    assert gradient.shape == x.shape


def test_kernels_run_again_afterwards() -> None:
    x = torch.randn(2, 4, 16, 16, requires_grad=True)
    run = build("triton:generated", parse(POOL), {}, "cpu")
    with launch_ablation.silenced():
        run(x)
    (y,) = run(x)
    torch.testing.assert_close(y, torch.nn.functional.max_pool2d(torch.relu(x), 2, 1) * 2)
