"""Models written here: each runs and, where its row trains, gives every parameter that its loss uses a gradient."""

from __future__ import annotations

import pytest
import torch

from tools.corpus.recording.libraries import read_inputs
from tools.corpus.recording.made import Place, tensors_of
from tools.corpus.recording.makers import MAKERS
from tools.corpus.recording.rows import ROWS, Row
from tools.corpus.recording.steps import lion, step_of

SMALL = (
    "pointnet_train", "nerf_train", "vqvae_train", "gan_discriminator_train", "wavenet_infer", "lstm_cell_infer",
)  # fmt: skip


@pytest.mark.parametrize("row", [r for r in ROWS if r.name in SMALL], ids=lambda r: r.name)
def test_a_step_runs_and_training_changes_the_parameters(row: Row) -> None:
    torch.manual_seed(1)
    made = MAKERS[row.maker](row, Place("cpu", True))()
    before = [p.detach().clone() for p in made.model.parameters()]
    step_of(row, made, "cpu")()
    changed = [not torch.equal(p, q) for p, q in zip(made.model.parameters(), before, strict=True)]
    assert any(changed) == (row.mode == "train")
    assert all(p.grad is None for p in made.model.parameters())


def test_lion_goes_against_the_sign_of_moment_and_gradient() -> None:
    p = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
    p.grad = torch.tensor([2.0, -3.0])
    lion([p])()
    assert torch.allclose(p.detach(), torch.tensor([1.0 - 1e-5 - 1e-4, 1.0 - 1e-5 + 1e-4]), atol=1e-7)


def test_inputs_are_what_their_line_says() -> None:
    torch.manual_seed(1)
    line = "input_ids=ids:b,s attention_mask=mask:b,s labels=below7:b x=float:b,3,s/4 ones=ones:b return_loss=true"
    made = read_inputs(line, 4, 64, 100, torch.bfloat16, "cpu")
    assert made["input_ids"].shape == (4, 64) and made["input_ids"].min() >= 0 and made["input_ids"].max() < 100
    assert made["labels"].shape == (4,) and made["labels"].max() < 7
    assert made["x"].shape == (4, 3, 16) and made["x"].dtype == torch.bfloat16
    assert made["attention_mask"].sum(1).tolist() == [32, 43, 54, 64]
    assert made["return_loss"] is True
    assert made["ones"].tolist() == [1.0] * 4


def test_the_tensors_of_an_output_are_its_floating_ones_in_order() -> None:
    a, b, i = torch.ones(1), torch.ones(2), torch.ones(3, dtype=torch.long)
    assert [t.numel() for t in tensors_of({"x": [a, i, (b,)], "y": None})] == [1, 2]
