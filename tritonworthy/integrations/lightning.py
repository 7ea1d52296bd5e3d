"""A callback for Lightning's Trainer, by either of its names: lightning.pytorch or pytorch_lightning."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tritonworthy.recorder import SKIP, TIMED, Capture, capture

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback


class CaptureCallback(Callback):
    """Records steps of a fit: `Trainer(..., callbacks=[CaptureCallback("step.json.gz")])`.

    A step is a batch. stop: end the fit once the recording is done. The rest is as `tritonworthy.capture` takes it;
    `capture` has the recording.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, url: str | None = None, token: str | None = None, skip: int = SKIP,
        timed: int = TIMED, execution_trace: bool = True, quiet: bool = False, stop: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.capture: Capture = capture(
            path, url=url, token=token, skip=skip, timed=timed, execution_trace=execution_trace, quiet=quiet
        )
        self.stop = stop

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.capture.begin()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        self.capture.step()
        if self.stop and self.capture.done:
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.capture.end()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.capture.end()
