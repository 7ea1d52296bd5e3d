"""Every way to launch the recurrence gives the same states: segments in one program, chunks in several."""

from __future__ import annotations

import pytest
import torch

from kernels.ops.scan import linear_recurrence as ops


@pytest.mark.parametrize("backward", [False, True])
def test_every_way_to_cut_time_gives_the_same_states(backward: bool) -> None:
    torch.manual_seed(1)
    a, b, h = (torch.randn(1, 37, 6) for _ in range(3))
    tiles = ((4, 1, 4, 1, 1), (2, 4, 4, 1, 1), (2, 2, 8, 1, 4), (3, 1, 8, 1, 2))
    variants = [ops.variant((1, 37, 6), backward, *tile) for tile in tiles]
    for variant in variants:
        y, z = torch.full_like(a, 7.0), torch.full_like(a, 7.0)
        ops.launch(variant, a, b, h, y, z)
        if backward:
            wanted = ops.backward_reference(b.double(), a.double(), h.double())
            torch.testing.assert_close(z.double(), wanted[0], atol=1e-4, rtol=1e-4, msg=str(variant))
            torch.testing.assert_close(y.double(), wanted[1], atol=1e-4, rtol=1e-4, msg=str(variant))
        else:
            torch.testing.assert_close(
                y.double(), ops.reference(a.double(), b.double()), atol=1e-4, rtol=1e-4, msg=str(variant)
            )


def test_the_doubling_reference_is_the_loop() -> None:
    torch.manual_seed(2)
    a, b = torch.randn(2, 300, 3, dtype=torch.float64), torch.randn(2, 300, 3, dtype=torch.float64)
    h = torch.zeros(2, 3, dtype=torch.float64)
    for t in range(300):
        h = a[:, t] * h + b[:, t]
    torch.testing.assert_close(ops.reference(a, b)[:, -1], h)


def test_the_backward_is_what_autograd_finds() -> None:
    torch.manual_seed(3)
    a, b = (torch.randn(2, 60, 5, dtype=torch.float32, requires_grad=True) for _ in range(2))
    h = ops.reference(a, b)
    dh = torch.randn_like(h)
    wanted = torch.autograd.grad(h, (a, b), dh)
    got = ops.linear_recurrence_backward(dh, a.detach(), h.detach())
    torch.testing.assert_close(got[0], wanted[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(got[1], wanted[1], atol=1e-4, rtol=1e-4)


def test_a_nan_stays_in_its_channel_and_after_its_step() -> None:
    a, b = torch.rand(1, 200, 3), torch.randn(1, 200, 3)
    b[0, 77, 1] = torch.nan
    h = ops.linear_recurrence(a, b)
    assert torch.equal(h.isnan(), ops.reference(a, b).isnan())
    assert int(h.isnan().sum()) == 123


def test_shapes_and_dtypes_that_differ_are_refused() -> None:
    x = torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match="one shape"):
        ops.linear_recurrence(x, torch.zeros(1, 2, 4))
    with pytest.raises(TypeError, match="alike"):
        ops.linear_recurrence(x, x.half())


def test_long_sequences_of_few_channels_are_cut_into_chunks() -> None:
    assert any(v["CHUNKS"] > 1 for v in ops.space((1, 65536, 1024), False))
    assert all(v["CHUNKS"] == 1 for v in ops.space((64, 128, 256), False))
