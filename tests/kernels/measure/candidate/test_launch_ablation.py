"""A call whose Triton kernels are silent: what is not silent reads what they did not write."""

from __future__ import annotations

import pytest
import torch

from kernels.measure.candidate import launch_ablation


@pytest.mark.parametrize("make", [
    lambda: torch.empty(64, dtype=torch.int64), lambda: torch.empty_strided((8, 8), (8, 1), dtype=torch.int32),
    lambda: torch.empty_like(torch.full((64,), 7)), lambda: torch.full((64,), 7).new_empty(64),
    lambda: torch.full((64,), 7).new_empty_strided((8, 8), (8, 1)), lambda: torch.empty(64, dtype=torch.bool),
], ids=["empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "bool"])  # fmt: skip
def test_indices_that_no_kernel_wrote_are_one_number(make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)  # new memory is the largest number then
    try:
        assert make().any()
        with launch_ablation.silenced():
            assert not make().any()
        with launch_ablation.silenced(1):
            assert (make() == 1).all()
    finally:
        torch.use_deterministic_algorithms(False)
