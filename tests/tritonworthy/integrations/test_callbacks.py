"""Recording from the real libraries, where they are installed; the hooks and fields that are relied on are theirs."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.libraries import library


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.linear(x).squeeze(-1)
        return {"loss": (y - labels).square().mean(), "logits": y}


DATA: list[Any] = [{"x": torch.randn(16), "labels": torch.tensor(1.0)} for _ in range(80)]


def overridden(callback: type, base: type) -> dict[str, tuple[list[str], list[str]]]:
    """Hook -> the parameters of ours and of the library's."""
    hooks = [name for name in vars(callback) if name.startswith("on_")]
    return {
        name: (list(inspect.signature(getattr(callback, name)).parameters),
               list(inspect.signature(getattr(base, name)).parameters))
        for name in hooks
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_a_trainer_of_transformers_records_and_stops(tmp_path: Path) -> None:
    transformers = library("transformers")
    library("accelerate")
    from tritonworthy.integrations.transformers import CaptureCallback

    hooks = overridden(CaptureCallback, transformers.TrainerCallback)
    assert set(hooks) == {"on_train_begin", "on_step_end", "on_train_end"}
    assert all(ours == theirs for ours, theirs in hooks.values())
    callback = CaptureCallback(tmp_path / "step.json.gz", skip=1, quiet=True, stop=True)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), per_device_train_batch_size=4, report_to=[], save_strategy="no",
        use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(model=Net(), args=arguments, train_dataset=DATA, callbacks=[callback])
    trainer.train()
    assert callback.capture.recording is not None
    assert trainer.state.global_step == callback.capture.steps_wanted


@pytest.mark.filterwarnings("ignore")
def test_a_fit_of_lightning_records_and_stops(tmp_path: Path) -> None:
    lightning = library("lightning.pytorch")
    from tritonworthy.integrations.lightning import CaptureCallback

    hooks = overridden(CaptureCallback, lightning.Callback)
    assert set(hooks) == {"on_train_start", "on_train_batch_end", "on_train_end", "on_exception"}
    assert all(ours == theirs for ours, theirs in hooks.values())

    class Fitted(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return self.net(batch["x"], batch["labels"])["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

    callback = CaptureCallback(tmp_path / "step.json.gz", skip=1, quiet=True, stop=True)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[callback], default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Fitted(), torch.utils.data.DataLoader(DATA, batch_size=4))
    assert callback.capture.recording is not None
    assert trainer.global_step == callback.capture.steps_wanted


@pytest.mark.filterwarnings("ignore")
def test_accelerate_writes_two_steps_with_stacks(tmp_path: Path) -> None:
    accelerate = library("accelerate")
    from profiler.trace import read_trace
    from tritonworthy.integrations.accelerate import profile_kwargs

    accelerator = accelerate.Accelerator(cpu=True)
    model = accelerator.prepare(Net())
    with accelerator.profile(profile_kwargs(tmp_path / "step.json.gz", skip=2)) as profiler:
        for row in DATA[:8]:
            model(row["x"][None], row["labels"][None])["loss"].backward()
            profiler.step()
    trace = read_trace(tmp_path / "step.json.gz")
    assert (trace.profiler_steps, trace.has_shapes, trace.has_stacks) == (2, True, True)
