"""How each server of models is told to record: its calls, their bodies, and what it answers where it can't."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

EngineName = Literal["vllm", "sglang"]

START, STOP = "/start_profile", "/stop_profile"


@dataclass(frozen=True, slots=True)
class Engine:
    """A kind of server. turn_on: what to do where it has no such call."""

    name: EngineName
    title: str
    turn_on: str


VLLM = Engine(
    "vllm",
    "vLLM",
    'start it with --profiler-config \'{"profiler": "torch", "torch_profiler_dir": "DIR",'
    ' "torch_profiler_record_shapes": true}\' (vLLM before 0.13: VLLM_TORCH_PROFILER_DIR=DIR'
    " VLLM_TORCH_PROFILER_RECORD_SHAPES=1 in its environment), and give that folder as --output-dir",
)
SGLANG = Engine("sglang", "SGLang", "is that the address of an SGLang server itself, not of a router before it?")


def start_body(engine: Engine, output_dir: Path, steps: int | None) -> dict[str, object] | None:
    """The body of START; None for none. steps: after which it stops by itself.

    vLLM's folder and what it records are set when it starts; `max_iterations` is its name for steps, which older ones
    ignore. SGLang is told all of it.
    """
    if engine.name == "vllm":
        return None if steps is None else {"max_iterations": steps}
    body: dict[str, object] = {
        "output_dir": str(output_dir.resolve()),
        "activities": ["CPU", "GPU"],
        "record_shapes": True,
        "with_stack": True,
    }
    return body if steps is None else {**body, "num_steps": steps}
