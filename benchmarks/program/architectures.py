"""Records 30 architectures of transformers and torchvision on the CPU, forward and with backward.

What share of their FLOPs is recorded, seconds, peak memory and what fails, into tests/records/architectures.json. Where
some are named, the rows of the others stay.

    python -m benchmarks.program.architectures [NAME ...]

Needs transformers and torchvision, of which this project needs nothing else. Each runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from profiler.program.model import Program, ProgramError
from profiler.program.process import answered
from profiler.program.request import Request
from profiler.region import op_kinds

RECORD = Path(__file__).resolve().parents[2] / "tests" / "records" / "architectures.json"
LLAMA_70B = {
    "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip
CONFIGS: Mapping[str, Mapping[str, object]] = {
    "llama-70b": LLAMA_70B,
    **{
        kind: {"model_type": kind}
        for kind in (
            "llama", "mistral", "qwen2", "qwen3", "gemma2", "phi3", "gpt2", "gpt_neox", "opt", "falcon", "mixtral",
            "qwen3_moe", "t5", "bart", "whisper", "bert", "roberta", "deberta-v2", "vit", "swin", "mamba",
        )
    },
}  # fmt: skip
"""Sizes are those that transformers gives a type by default."""
VISION = (
    "resnet50",
    "efficientnet_b0",
    "mobilenet_v3_large",
    "densenet121",
    "convnext_tiny",
    "swin_t",
    "vit_b_16",
    "regnet_y_8gf",
)
BATCH, SEQUENCE = 8, 512
SOURCE = """\
import torch
import torchvision

def make_model():
    return torchvision.models.{name}().to(torch.bfloat16), torch.randn({batch}, 3, 224, 224, dtype=torch.bfloat16)
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One architecture, forward or with backward. flops_share: of torch's own count of the same step, None where
    nobody counted. gaps: what was assumed or left out; failure: why there is no whole record."""

    name: str
    library: str
    training: bool
    operations: int = 0
    launches: int = 0
    parameters: int = 0
    flops: int = 0
    flops_share: float | None = None
    seconds: float = 0.0
    peak_mb: int = 0
    gaps: list[str] = field(default_factory=list)
    failure: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Record them and write the file."""
    parser = argparse.ArgumentParser(description="record architectures")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--out", type=Path, default=RECORD)
    arguments = parser.parse_args(argv)
    with TemporaryDirectory() as folder:
        sources = written(Path(folder))
        rows = [
            row(name, library, source, training)
            for name, (library, source) in sources.items()
            if not arguments.names or name in arguments.names
            for training in (False, True)
        ]
    versions = json.loads(subprocess.run([sys.executable, "-c", VERSIONS], capture_output=True, check=True).stdout)
    if arguments.names and arguments.out.is_file():  # the others' rows stay
        anew = {(r.name, r.training): asdict(r) for r in rows}
        before = json.loads(arguments.out.read_text(encoding="utf-8"))["rows"]
        every = [anew.get((r["name"], r["training"]), r) for r in before]
    else:
        every = [asdict(r) for r in rows]
    record = {
        "date": datetime.now(UTC).date().isoformat(), "python": platform.python_version(), "versions": versions,
        "batch": BATCH, "sequence": SEQUENCE, "rows": every,
    }  # fmt: skip
    arguments.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


VERSIONS = (
    "import json, torch, torchvision, transformers as t;"
    "print(json.dumps({m.__name__: m.__version__ for m in (torch, torchvision, t)}))"
)


def written(folder: Path) -> dict[str, tuple[str, str]]:
    """Name -> (library, what the command line would be given), as files in the folder."""
    sources = {}
    for name, config in CONFIGS.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        sources[name] = ("transformers", f"hf:{path}")
    for name in VISION:
        path = folder / f"{name}.py"
        path.write_text(SOURCE.format(name=name, batch=BATCH), encoding="utf-8")
        sources[f"torchvision-{name}"] = ("torchvision", f"{path}:make_model")
    return sources


def row(name: str, library: str, source: str, training: bool) -> Row:
    """Record one."""
    request = Request(source, training=training, dtype="bf16", batch=BATCH, sequence=SEQUENCE, counted=True)
    began = time.perf_counter()
    try:
        answer = answered(request)
    except ProgramError as error:
        made = Row(name, library, training, failure=failure_of(error))
    else:
        assert answer.program is not None
        made = summary(name, library, answer.program, answer.counted_flops, answer.peak_bytes)
    made = Row(**{**asdict(made), "seconds": round(time.perf_counter() - began, 1)})
    print(made, flush=True)
    return made


def failure_of(error: ProgramError) -> str:
    """Why there is no record, and what to do, in a line of sentences."""
    return ". ".join(part for part in (error.message, error.remedy) if part).splitlines()[0]


def summary(name: str, library: str, program: Program, counted_flops: int, peak_bytes: int) -> Row:
    """What the record of one says."""
    operations = [c.operation for c in program.calls if c.operation is not None]
    flops = sum(o.flops for o in operations if o.kind in op_kinds.MATRIX_KINDS)
    ended = [f"{g.where}: {g.what}" for g in program.gaps if g.ends]
    return Row(
        name, library, program.training, len(operations), sum(o.kind != op_kinds.VIEW for o in operations),
        program.parameters, flops, round(flops / counted_flops, 4) if counted_flops else None, 0.0,
        round(peak_bytes / 1e6), [f"{g.where}: {g.what}" for g in program.gaps if not g.ends], *ended[:1],
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
