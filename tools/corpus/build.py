"""Writes the corpus: programs from recorded traces and from the grammar, with their families and thirds.

    python -m tools.corpus.build --traces DIR

DIR: the tars of `tools/corpus/record_models.py`, or the traces that were in them. The same traces give the same bytes.
Prints counts only: nobody reads the blind third.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from app.accuracy.corpus.programs import FILE, Corpus, Origin, Program
from tools.corpus.fingerprints import program_of, structure_of
from tools.corpus.grammar.generate import QUOTAS, SEED, Generated, generated_programs
from tools.corpus.mined import mined_programs
from tools.corpus.sample import Sampled, sample

FROM_TRACES = 450

LICENCES = {
    "transformers": "Apache-2.0", "torchvision": "BSD-3-Clause", "timm": "Apache-2.0", "torch_geometric": "MIT",
    "torch": "BSD-3-Clause",
}  # fmt: skip
LIBRARIES = {"transformers": "transformers", "torchvision": "torchvision", "timm": "timm", "graph": "torch_geometric"}
"""Makers of rows -> whose models they are; all others are written in plain torch in this repository."""


def build(traces: Path | None, count: int = FROM_TRACES, processes: int = 1) -> Corpus:
    """traces: a folder of unpacked traces; without one, generated programs only."""
    sampled = sample(mined_programs(traces), count) if traces is not None else []
    if processes > 1:
        with ProcessPoolExecutor(processes) as pool:
            parts = list(pool.map(_generated, QUOTAS))
    else:
        parts = list(map(_generated, QUOTAS))
    generated = [item for part in parts for item in part]
    programs = [*map(_from_trace, sampled), *map(_from_grammar, generated)]
    return Corpus(SEED, LICENCES, tuple(unique(programs)))


def _generated(block: str) -> list[Generated]:
    return list(generated_programs(block))


def unique(programs: Iterable[Program]) -> list[Program]:
    """Each program once, the first that comes, in the order of names."""
    by_program: dict[str, Program] = {}
    for program in programs:
        by_program.setdefault(program_of(program.text), program)
    return sorted(by_program.values(), key=lambda p: p.name)


def _from_trace(item: Sampled) -> Program:
    source, admitted = item.program.source, item.admitted
    origin = Origin(
        "trace", source.model, LIBRARIES.get(source.library, "torch"), source.module, source.mode, source.dtype,
        source.device, source.time_us, source.calls, len(item.program.models),
    )  # fmt: skip
    return Program(
        f"trace-{program_of(admitted.text)[:10]}", admitted.text, admitted.family.name, admitted.family.label,
        admitted.family.third, admitted.mode, item.program.dtype, admitted.bytes_moved, admitted.flops, origin,
    )  # fmt: skip


def _from_grammar(item: Generated) -> Program:
    admitted = item.admitted
    return Program(
        f"made-{item.block}-{item.number:04}", admitted.text, admitted.family.name, admitted.family.label,
        admitted.family.third, admitted.mode, item.dtype, admitted.bytes_moved, admitted.flops,
        Origin("generated", block=item.block, number=item.number),
    )  # fmt: skip


def packed(corpus: Corpus) -> bytes:
    """The file's bytes: without a time in its head."""
    return gzip.compress(msgspec.json.encode(corpus), 9, mtime=0)


def manifest(corpus: Corpus) -> dict[str, object]:
    """Counts, and what was recorded: nothing of a program's text."""
    programs = corpus.programs
    models = sorted({(p.origin.library, p.origin.model) for p in programs if p.origin.kind == "trace"})
    return {
        "programs": len(programs),
        "seed": corpus.seed,
        "families": len({p.family for p in programs}),
        "structures": len({structure_of(p.text) for p in programs}),
        "origin": _counts(p.origin.kind for p in programs),
        "third": _counts(p.third for p in programs),
        "mode": _counts(p.mode for p in programs),
        "dtype": _counts(p.dtype for p in programs),
        "label": {a: _counts(p.third for p in programs if p.label == a) for a in sorted({p.label for p in programs})},
        "device": _counts(p.origin.device for p in programs if p.origin.device),
        "licences": corpus.licences,
        "models": {a: [m for library, m in models if library == a] for a in sorted({m[0] for m in models})},
        "programs_of_family": _counts(p.family for p in programs),
    }  # fmt: skip


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def unpack(folder: Path, target: Path) -> Path:
    """The folder that holds the traces: itself, or target with what its tars hold."""
    tars = sorted(folder.glob("*.tar"))
    for tar in tars:
        with tarfile.open(tar) as archive:
            archive.extractall(target, filter="data")
    return target if tars else folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the corpus and its manifest; prints counts."""
    parser = argparse.ArgumentParser(description="Writes the corpus of region programs.")
    parser.add_argument("--traces", type=Path, help="a folder of recorded traces or of tars of them")
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--count", type=int, default=FROM_TRACES, help="programs from traces, at most")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        traces = None if options.traces is None else unpack(options.traces, Path(scratch))
        corpus = build(traces, options.count, options.processes)
    options.out.write_bytes(packed(corpus))
    told = manifest(corpus)
    options.out.with_name("manifest.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({k: v for k, v in told.items() if k not in ("models", "programs_of_family")}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
