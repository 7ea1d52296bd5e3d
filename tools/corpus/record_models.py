"""Traces of parts of real models with random weights, for the corpus of region programs. Runs on a machine with a GPU;
needs torch, and for its rows transformers, torchvision, torch_geometric and timm; nothing else of this repository.

    python -m tools.corpus.record_models --out DIR --seconds 200

One child process records one row. All of them prepare in parallel; several build their model and run one warm step at
the same time; each profiled step has the GPU for itself. A row that fails is written to DIR/report.json with its error
and costs no other row. What was recorded is packed into DIR/traces_N.tar: NAME.json.gz, and NAME.et.json.gz, the
execution trace that tells which operand is which value.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from tools.corpus.recording.made import Place
from tools.corpus.recording.parent import Parent
from tools.corpus.recording.rows import ROWS

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # or asking for a GPU in the parent spoils its children
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

IMPORTED = (
    "torchvision", "transformers", "transformers.modeling_utils", "transformers.masking_utils",
    "transformers.models.llama.modeling_llama", "timm", "torch_geometric.nn",
)  # fmt: skip
MAX_TAR_BYTES = 14_500_000
MAX_TARS = 4


def import_all() -> None:
    """Once in the parent, so that its forks have them. A library that is absent costs its rows only."""
    for name in IMPORTED:
        try:
            __import__(name)
        except Exception as fault:  # whatever a library's import does
            print(f"no {name}: {fault}", flush=True)


def pack(folder: Path, out: Path) -> list[str]:
    """The traces of the folder in tars of at most MAX_TAR_BYTES; gives the names of what no longer fitted."""
    stems = sorted(p.name.removesuffix(".et.json.gz") for p in folder.glob("*.et.json.gz"))
    parts: list[list[Path]] = [[]]
    left_out: list[str] = []
    used = 0
    for stem in sorted(stems, key=lambda s: hashlib.sha256(s.encode()).hexdigest()):
        files = [folder / f"{stem}.json.gz", folder / f"{stem}.et.json.gz"]
        if not files[0].exists():
            continue
        need = sum(f.stat().st_size + 1024 for f in files)
        if parts[-1] and used + need > MAX_TAR_BYTES:
            if len(parts) == MAX_TARS:
                left_out.append(stem)
                continue
            parts.append([])
            used = 0
        parts[-1] += files
        used += need
    for number, part in enumerate(parts):
        with tarfile.open(out / f"traces_{number}.tar", "w") as tar:
            for file in part:
                tar.add(file, file.name)
    return left_out


def main() -> int:
    """Records, packs and reports."""
    parser = argparse.ArgumentParser(description="Records traces of parts of real models.")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=200.0, help="of this machine's time, all in all")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a dry run")
    parser.add_argument("--tiny", action="store_true", help="narrow models and small batches, for a dry run")
    parser.add_argument("--workers", type=int, default=12, help="children alive at a time")
    parser.add_argument("--only", action="append", default=[], help="this row; may be given again")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    rows = [r for r in ROWS if not options.only or r.name in options.only]
    if options.list:
        for row in rows:
            print(f"{row.name}\t{row.maker}\t{row.mode}\t{row.dtype}\t{row.batch}x{row.size}\t{row.attention}")
        return 0
    if options.out is None:
        parser.error("--out is required")
    begin = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="traces_"))
    import_all()
    print(f"{time.monotonic() - begin:6.1f} s  imported", flush=True)
    left = options.seconds - (time.monotonic() - begin) - 6
    parent = Parent(rows, Place(options.device, options.tiny), folder, left, options.workers)
    parent.run()
    left_out = set(pack(folder, options.out))
    lines = [line | {"left_out": line["name"] in left_out} for line in parent.report]
    (options.out / "report.json").write_text(json.dumps(lines, indent=1))
    shutil.rmtree(folder, ignore_errors=True)
    done = sum(line["state"] == "done" for line in lines)
    print(
        f"{time.monotonic() - begin:6.1f} s  {done} of {len(rows)} rows recorded, {len(left_out)} left out", flush=True
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
