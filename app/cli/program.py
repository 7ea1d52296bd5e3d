"""Programs as an input of the command line: a function of a Python file, a transformers config, a definition.

They are run, in a process of their own: the command line takes them, a server never does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from app.cli.inputs import InputError
from app.cli.options import count, given_path
from app.program.named import MOST_BATCH, MOST_SEQUENCE, MOST_SIZE
from profiler.program.request import TYPES, Request


def program_options(parser: argparse.ArgumentParser) -> None:
    """How a program is run."""
    group = parser.add_argument_group(
        "programs", "for model.py:make_model, hf:CONFIG.json and def:DEFINITION.json, which run with your rights"
    )
    group.add_argument(
        "--no-program", action="store_true", help="FILE is no program, whatever its name: nothing of it is run"
    )
    group.add_argument("--training", action="store_true", help="forward and backward; by default forward alone")
    group.add_argument("--dtype", choices=TYPES, help="type of weights and floating inputs; by default the program's")
    group.add_argument("--batch", type=count(1, MOST_BATCH), default=1, metavar="N", help="hf: examples in a batch")
    group.add_argument(
        "--sequence", type=count(1, MOST_SEQUENCE), default=1024, metavar="N", help="hf: tokens of an example"
    )
    group.add_argument(
        "--size", action="append", type=_size, default=[], metavar="NAME=N", help="def: the size of an axis"
    )
    group.add_argument("--save", type=given_path, metavar="PATH", help="write the predicted trace (.json.gz)")


def _size(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not name or not (value.isascii() and value.isdigit()) or len(value) > 20 or not 1 <= int(value) <= MOST_SIZE:
        raise argparse.ArgumentTypeError(f"a size is NAME=N, N from 1 to {MOST_SIZE:,}")
    return name, int(value)


def request_of(arguments: argparse.Namespace, source: str) -> Request:
    """The program and how it is run, by the options."""
    return Request(
        source, arguments.training, arguments.dtype, arguments.batch, arguments.sequence, dict(arguments.size)
    )


@contextmanager
def predicted_trace(arguments: argparse.Namespace, source: str) -> Iterator[Path]:
    """The file of the trace that is predicted for the program: where --save says, else one that is removed.

    Raises InputError.
    """
    from app.analysis.device_choice import choose_device
    from app.program import service
    from profiler.program.model import ProgramError

    device, _ = choose_device(arguments.device, None)
    with ExitStack() as stack:
        try:
            path = stack.enter_context(service.predicted_trace(request_of(arguments, source), device, arguments.save))
        except ProgramError as error:
            raise InputError(f"{error.message}\n{error.remedy}".rstrip()) from None
        except OSError as error:
            raise InputError(f"{error.filename or source}: {error.strerror}") from None
        yield path
