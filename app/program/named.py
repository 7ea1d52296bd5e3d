"""Which program a name means, and the words by which the command line takes it again. Torch-free."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path

from profiler.program.request import Request

FUNCTION = re.compile(r".+\.py:[A-Za-z_]\w*")
CONFIG, DEFINITION = "hf:", "def:"
DEFINITION_KEYS = frozenset({"axes", "inputs", "reference"})
MOST_BYTES = 4 * 1024 * 1024
"""Of a file that is looked at whether it is a definition; traces are larger."""
MOST_BATCH, MOST_SEQUENCE, MOST_SIZE = 1_000_000, 10_000_000, 1_000_000_000_000
FORMS = "FILE.py:FUNCTION, hf:CONFIG.json or def:DEFINITION.json"
"""What a program is named by, in words."""


def is_program(name: str) -> bool:
    """Whether it names a program: by its form alone, for what a file holds may come from others. A file of that
    very name is meant before a program."""
    has_form = name.startswith((CONFIG, DEFINITION)) or FUNCTION.fullmatch(name) is not None
    return has_form and not os.path.lexists(name)


def is_definition(path: Path) -> bool:
    """Whether the file looks like a definition and not like a trace: who names it so forgot the prefix."""
    if path.suffix != ".json":
        return False
    with suppress(OSError, ValueError, RecursionError):
        if path.stat().st_size <= MOST_BYTES:
            value = json.loads(path.read_bytes())
            return isinstance(value, dict) and value.keys() >= DEFINITION_KEYS and "traceEvents" not in value
    return False


def prefix_missing(name: str) -> str:
    """What to say of a definition that is named without its prefix; "" for another file."""
    return (
        f"{name}: a definition. {DEFINITION}{name} runs its reference, with your rights"
        if is_definition(Path(name))
        else ""
    )


def trace_name(source: str) -> str:
    """A file's name for a program's trace: `model.make_model.json.gz`, `llama.json.gz`."""
    name = Path(source.removeprefix(CONFIG).removeprefix(DEFINITION)).name
    return f"{name.removesuffix('.json').replace('.py:', '.') or 'program'}.json.gz"


def words_of(request: Request, device: str | None) -> tuple[str, ...]:
    """What follows `tritonworthy advise` to ask about the same program once more; what is the default is not said."""
    default = Request(request.source)
    options: tuple[tuple[str, object, object], ...] = (
        ("--device", device, None),
        ("--dtype", request.dtype, default.dtype),
        ("--batch", request.batch, default.batch),
        ("--sequence", request.sequence, default.sequence),
    )
    words = [request.source, *(["--training"] if request.training else [])]
    words += [word for name, value, usual in options if value != usual for word in (name, str(value))]
    words += [word for name, size in (request.sizes or {}).items() for word in ("--size", f"{name}={size}")]
    return tuple(words)
