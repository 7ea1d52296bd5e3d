"""The programs of the corpus, as `python -m tools.corpus.build` wrote them.

Thirds are of families of structure: what is fitted on one third is developed on another, and tested once on the third
that nobody has looked at.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import msgspec

FIT, DEVELOPMENT, BLIND = THIRDS = ("fit", "development", "blind")

FILE = Path(__file__).resolve().parent / "programs.json.gz"


class Origin(msgspec.Struct, frozen=True):
    """Where a program is from. kind: trace or generated.

    Of a trace: model (the row that was recorded), library, module, mode and dtype of the model, the GPU's name, the
    time of one eager call in µs with all its kernels, calls in the step, and how many models have the program. Of a
    generated one: its block of the grammar and the number of the draw.
    """

    kind: str
    model: str = ""
    library: str = ""
    module: str = ""
    model_mode: str = ""
    model_dtype: str = ""
    device: str = ""
    time_us: float = 0.0
    calls: float = 0.0
    models: int = 0
    block: str = ""
    number: int = 0


class Program(msgspec.Struct, frozen=True):
    """One region program at one size. mode: forward or training. dtype: bf16, f16, f32, autocast or another's name.

    bytes_moved: inputs and outputs once; flops: as the product counts them.
    """

    name: str
    text: str
    family: str
    label: str
    third: str
    mode: str
    dtype: str
    bytes_moved: int
    flops: int
    origin: Origin


class Corpus(msgspec.Struct, frozen=True):
    """All of it. seed: of sampling and grammar. licences: of the libraries whose models were recorded."""

    seed: int
    licences: dict[str, str]
    programs: tuple[Program, ...]


@cache
def load_corpus() -> Corpus:
    """The committed file."""
    return read_corpus(FILE)


def read_corpus(file: Path) -> Corpus:
    """OSError where it cannot be read, msgspec.ValidationError for another shape."""
    return msgspec.json.decode(gzip.decompress(file.read_bytes()), type=Corpus)


def load_programs(*thirds: str) -> tuple[Program, ...]:
    """The programs of these thirds. ValueError for a name that is none."""
    unknown = set(thirds) - set(THIRDS)
    if unknown or not thirds:
        raise ValueError(f"thirds of the corpus are {', '.join(THIRDS)}, not {', '.join(sorted(unknown)) or 'none'}")
    return tuple(p for p in load_corpus().programs if p.third in thirds)
