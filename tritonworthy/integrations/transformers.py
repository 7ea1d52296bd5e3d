"""A callback for the Trainer of Hugging Face's transformers."""

from __future__ import annotations

import os

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tritonworthy.recorder import SKIP, TIMED, Capture, capture


class CaptureCallback(TrainerCallback):
    """Records steps of a training: `Trainer(..., callbacks=[CaptureCallback("step.json.gz")])`.

    A step is the Trainer's: of an optimizer, with all its accumulated batches. stop: end the training once the
    recording is done. The rest is as `tritonworthy.capture` takes it; `capture` has the recording.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, url: str | None = None, token: str | None = None, skip: int = SKIP,
        timed: int = TIMED, execution_trace: bool = True, quiet: bool = False, stop: bool = False,
    ) -> None:  # fmt: skip
        self.capture: Capture = capture(
            path, url=url, token=token, skip=skip, timed=timed, execution_trace=execution_trace, quiet=quiet
        )
        self.stop = stop

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self.capture.begin()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self.capture.step()
        if self.stop and self.capture.done:
            control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self.capture.end()
