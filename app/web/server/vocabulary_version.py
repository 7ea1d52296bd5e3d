"""Where the region language's names are served: an address that changes with what they are made of."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

import profiler.region

PATH = "/editor/vocabulary"
SOURCES = ("operations.py", "op_kinds.py", "language/completion.py", "language/signatures.py", "language/text.py",
           "language/vocabulary.py")  # fmt: skip
"""Below profiler/region: the files that the names and their arguments come from; torch says the rest."""


@cache
def vocabulary_version() -> str:
    """Of the names that this server knows, without asking the process that has torch for them."""
    folder = Path(profiler.region.__file__).parent
    made_of = [version("torch").encode(), *((folder / name).read_bytes() for name in SOURCES)]
    return hashlib.sha256(b"\0".join(made_of)).hexdigest()[:8]


def vocabulary_address() -> str:
    """The names' address, such as /editor/vocabulary?v=1a2b3c4d."""
    return f"{PATH}?v={vocabulary_version()}"
