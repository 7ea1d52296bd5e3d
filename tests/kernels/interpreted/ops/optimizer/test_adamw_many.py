"""AdamW over many tensors follows torch.optim.AdamW step by step, in place; what does not fit together is refused."""

from __future__ import annotations

import pytest
import torch

from kernels.ops.optimizer.adamw_many import AdamW, launch_trial, space


def _model(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(4)
    shapes = ((7, 130), (33,), (2, 3, 4, 5), (), (0, 4))
    made = [torch.randn(s).to(dtype) for s in shapes]
    made[2] = made[2].to(memory_format=torch.channels_last)
    return made


def _zeros(parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.zeros_like(p, dtype=torch.float32) for p in parameters]


def _gradients(parameters: list[torch.Tensor], step: int) -> list[torch.Tensor]:
    """Other tensors in every step, as a loop that sets gradients to None has."""
    torch.manual_seed(step)
    return [torch.randn_like(p) for p in parameters]


def test_five_steps_are_those_of_torch() -> None:
    ours, theirs = _model(), [p.clone().requires_grad_() for p in _model()]
    state = AdamW(ours, _zeros(ours), _zeros(ours))
    optimizer = torch.optim.AdamW(theirs, lr=0.01, weight_decay=0.1)
    for step in range(1, 6):
        for p, g in zip(theirs, _gradients(ours, step), strict=True):
            p.grad = g
        optimizer.step()
        state.step(_gradients(ours, step), 0.01, step, weight_decay=0.1)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=2e-6, atol=1e-6)


def test_a_parameter_of_16_bits_is_its_master_rounded() -> None:
    ours = _model(torch.bfloat16)
    masters = [p.float() for p in ours]
    state = AdamW(ours, _zeros(ours), _zeros(ours), masters)
    for step in range(1, 4):
        state.step(_gradients(ours, step), 1e-4, step)
    for p, master in zip(ours, masters, strict=True):
        assert torch.equal(p, master.to(torch.bfloat16))
    assert not torch.equal(masters[0], ours[0].float())


@pytest.mark.parametrize("infinite", [0.0, 1.0])
def test_gradients_are_scaled_back_and_a_step_with_infinite_ones_changes_nothing(infinite: float) -> None:
    ours, plain = _model(), _model()
    state, other = AdamW(ours, _zeros(ours), _zeros(ours)), AdamW(plain, _zeros(plain), _zeros(plain))
    large = [g * 1024 for g in _gradients(ours, 1)]
    state.step(large, 0.01, 1, grad_scale=torch.tensor(1024.0), found_inf=torch.tensor(infinite))
    other.step(_gradients(ours, 1), 0.01, 1)
    for a, b, before in zip(ours, plain, _model(), strict=True):
        assert torch.equal(a, before) if infinite else torch.allclose(a, b, rtol=1e-6)
    assert torch.equal(ours[0], _model()[0]) == bool(infinite)


def test_a_step_goes_to_the_memory_that_a_parameter_has_now() -> None:
    """`p.data = other`, as moving a model to a flat buffer does, leaves the tensor and changes its address."""
    ours, plain = _model(), _model()
    states = [AdamW(m, _zeros(m), _zeros(m)) for m in (ours, plain)]
    for state in states:
        state.step(_gradients(ours, 1), 0.01, 1)
    old = ours[0].detach()
    before, ours[0].data = old.clone(), ours[0].clone()
    ours[1].data = torch.zeros(5)
    ours[1].data = plain[1].clone()
    for state in states:
        state.step(_gradients(ours, 2), 0.01, 2)
    assert torch.equal(old, before)
    for a, b in zip(ours, plain, strict=True):
        assert torch.equal(a, b)


def test_the_memory_of_the_last_gradient_as_another_dtype_or_shape_is_refused() -> None:
    p, g = torch.zeros(8), torch.ones(8)
    state = AdamW([p], [torch.zeros(8)], [torch.zeros(8)])
    state.step([g], 0.1, 1)
    with pytest.raises(TypeError, match=r"gradient 0 is torch\.int32"):
        state.step([g.view(torch.int32)], 0.1, 2)
    with pytest.raises(ValueError, match="gradient 0 is"):
        state.step([g[:4]], 0.1, 2)
    p.data = p.data[:4]
    with pytest.raises(ValueError, match="average 0 is"):
        state.step([g[:4]], 0.1, 2)


def test_timing_variants_changes_no_parameter() -> None:
    ours = _model()
    state = AdamW(ours, _zeros(ours), _zeros(ours))
    gradients = _gradients(ours, 1)  # read once more below
    state.step(gradients, 0.0, 1, weight_decay=0.0)
    before = [p.clone() for p in ours]
    constants = (("COLUMNS", 10), ("DTYPE", torch_dtype()), ("GRADIENT", torch_dtype()), ("MASTER", False),
                 ("SCALED", False), ("CHECKED", False), ("ALIGNED", False))  # fmt: skip
    numbers = (0.5, 0.5, 0.9, 0.999, 0.1, 0.001, 1.0, 1e-8)
    launch_trial(space(constants)[0], state._table, state, state._table, state._table, numbers)
    assert all(torch.equal(a, b) for a, b in zip(ours, before, strict=True))
    assert any(bool(room[:5].abs().sum() > 0) for room in state.trial().scratch[:1])


def torch_dtype() -> object:
    from kernels.ops.shared.rows import DTYPES

    return DTYPES[torch.float32]


def test_what_does_not_belong_together_is_refused() -> None:
    ours = _model()
    with pytest.raises(ValueError, match="at least one"):
        AdamW([], [], [])
    with pytest.raises(ValueError, match="4 tensors of average for 5"):
        AdamW(ours, _zeros(ours)[:4], _zeros(ours))
    with pytest.raises(TypeError, match="average 0 is"):
        AdamW(ours, _model(torch.bfloat16), _zeros(ours))
    with pytest.raises(ValueError, match="square 0 is"):
        AdamW(ours, _zeros(ours), [torch.zeros(130, 7).T, *_zeros(ours)[1:]])
    with pytest.raises(ValueError, match="parameter 1 is parameter 0 again"):
        AdamW([ours[0], ours[0]], _zeros(ours[:1] * 2), _zeros(ours[:1] * 2))
    with pytest.raises(ValueError, match="square 1 is square 0 again"):
        AdamW([ours[0], ours[0].clone()], _zeros(ours[:1] * 2), _zeros(ours[:1]) * 2)
    with pytest.raises(TypeError, match=r"not torch\.float64"):
        AdamW(_model(torch.float64), _zeros(ours), _zeros(ours))
    state = AdamW(ours, _zeros(ours), _zeros(ours))
    with pytest.raises(ValueError, match="steps count from 1"):
        state.step(_gradients(ours, 1), 0.1, 0)
    with pytest.raises(ValueError, match="gradient 1 is"):
        state.step([ours[0], ours[1][:1].expand(33), *ours[2:]], 0.1, 1)
    with pytest.raises(ValueError, match="grad_scale is one number"):
        state.step(_gradients(ours, 1), 0.1, 1, grad_scale=torch.ones(2))
