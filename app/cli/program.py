"""Programs as an input of the command line: a function of a Python file, a transformers config, a definition.

They are run, in a process of their own: the command line takes them, a server never does.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from app.cli.inputs import InputError
from app.cli.options import count, given_path

FUNCTION = re.compile(r".+\.py:[A-Za-z_]\w*")
CONFIG = "hf:"
DEFINITION_KEYS = frozenset({"axes", "inputs", "reference"})
MOST_BYTES = 4 * 1024 * 1024
"""Of a definition; traces that are looked at whether they are one are larger."""
TYPES = ("bf16", "f16", "f32")
MOST_BATCH, MOST_SEQUENCE = 1_000_000, 10_000_000


def program_options(parser: argparse.ArgumentParser) -> None:
    """How a program is run."""
    group = parser.add_argument_group("programs", "for model.py:make_model, hf:CONFIG.json and a definition.json")
    group.add_argument("--training", action="store_true", help="forward and backward; by default forward alone")
    group.add_argument("--dtype", choices=TYPES, help="type of weights and floating inputs; by default the program's")
    group.add_argument("--batch", type=count(1, MOST_BATCH), default=1, metavar="N", help="hf: examples in a batch")
    group.add_argument(
        "--sequence", type=count(1, MOST_SEQUENCE), default=1024, metavar="N", help="hf: tokens of an example"
    )
    group.add_argument(
        "--size", action="append", type=_size, default=[], metavar="NAME=N", help="definition: the size of an axis"
    )
    group.add_argument("--save", type=given_path, metavar="PATH", help="write the predicted trace (.json.gz)")


def _size(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not name or not value.isdigit() or int(value) < 1:
        raise argparse.ArgumentTypeError("a size is NAME=N")
    return name, int(value)


def is_program(name: str) -> bool:
    """Whether it names a program: by its form, a definition by its content."""
    if name.startswith(CONFIG) or FUNCTION.fullmatch(name):
        return True
    path = Path(name)
    if path.suffix != ".json":
        return False
    with suppress(OSError, ValueError, RecursionError):
        if path.stat().st_size <= MOST_BYTES:
            value = json.loads(path.read_bytes())
            return isinstance(value, dict) and value.keys() >= DEFINITION_KEYS
    return False


@contextmanager
def predicted_trace(arguments: argparse.Namespace, source: str) -> Iterator[Path]:
    """The file of the trace that is predicted for the program: where --save says, else one that is removed.

    Raises InputError.
    """
    from app.analysis.device_choice import choose_device
    from app.program.service import capability_of, write_predicted
    from profiler.program.model import ProgramError
    from profiler.program.request import Request

    device, _ = choose_device(arguments.device, None)
    request = Request(
        source, arguments.training, arguments.dtype, arguments.batch, arguments.sequence, dict(arguments.size),
        capability_of(device),
    )  # fmt: skip
    with TemporaryDirectory(prefix="tritonworthy-") as folder:
        path = arguments.save or Path(folder) / f"{_stem(source)}.json.gz"
        try:
            write_predicted(request, device, path)
        except ProgramError as error:
            raise InputError(f"{error.message}\n{error.remedy}".rstrip()) from None
        yield path


def _stem(source: str) -> str:
    """A file's name for a program: `model.make_model`, `llama`."""
    name = Path(source.removeprefix(CONFIG)).name
    return name.removesuffix(".json").replace(".py:", ".") or "program"
