"""Programs as an input of the command line: a function of a Python file, a transformers config, a definition.

They are run, in a process of their own: the command line takes them, a server never does.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from app.cli.inputs import InputError
from app.cli.options import count, given_path
from app.program.named import CONFIG, DEFINITION, MOST_BATCH, MOST_SEQUENCE, MOST_SIZE
from app.program.workloads import FILE, WorkloadError, sizes_of
from profiler.program.request import TYPES, Request

OF_PROGRAMS, OF_CONFIGS, OF_DEFINITIONS = ("training", "dtype", "save"), ("batch", "sequence"), ("size", "workload")
OF_TRACES, OF_REGIONS = ("companion", "execution_trace"), ("share", "step_time_us", "objective")
UNSET: Sequence[object] = (None, False, [], "time")
"""What an option is that was not given; by default the time is what counts (--objective)."""
SUFFIXES = (".json", ".json.gz")


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
    group.add_argument("--batch", type=count(1, MOST_BATCH), metavar="N", help="hf: examples in a batch, 1 by default")
    group.add_argument(
        "--sequence", type=count(1, MOST_SEQUENCE), metavar="N", help="hf: tokens of an example, 1,024 by default"
    )
    group.add_argument(
        "--size", action="append", type=_size, default=[], metavar="NAME=N", help="def: the size of an axis"
    )
    group.add_argument(
        "--workload",
        type=count(1, MOST_SIZE),
        metavar="N",
        help=f"def: the sizes of line N of the {FILE} beside it; --size goes before them",
    )
    group.add_argument("--save", type=given_path, metavar="PATH", help="write the predicted trace (.json, .json.gz)")


def _size(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not name or not (value.isascii() and value.isdigit()) or len(value) > 20 or not 1 <= int(value) <= MOST_SIZE:
        raise argparse.ArgumentTypeError(f"a size is NAME=N, N from 1 to {MOST_SIZE:,}")
    return name, int(value)


def request_of(arguments: argparse.Namespace, source: str) -> Request:
    """The program and how it is run, by the options. Raises InputError."""
    default = Request(source)
    return Request(
        source,
        arguments.training,
        arguments.dtype,
        arguments.batch or default.batch,
        arguments.sequence or default.sequence,
        {**_workload_sizes(arguments, source), **dict(arguments.size)},
    )


def _workload_sizes(arguments: argparse.Namespace, source: str) -> Mapping[str, int]:
    if arguments.workload is None:
        return {}
    try:
        return sizes_of(Path(source.removeprefix(DEFINITION)), arguments.workload)
    except WorkloadError as error:
        raise InputError(str(error)) from None
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from None


def refuse_program_options(arguments: argparse.Namespace) -> None:
    """For a trace or a region's text. Raises InputError."""
    _refuse(arguments, (*OF_PROGRAMS, *OF_CONFIGS, *OF_DEFINITIONS), "a program (docs/module.md)")


def check_program_options(arguments: argparse.Namespace, source: str) -> None:
    """Before a program is run: whether each option has an effect, and whether --save can be written.

    Raises InputError.
    """
    _refuse(arguments, OF_TRACES, "a trace")
    _refuse(arguments, OF_REGIONS, "a region's text")
    if not source.startswith(CONFIG):
        _refuse(arguments, OF_CONFIGS, CONFIG)
    if not source.startswith(DEFINITION):
        _refuse(arguments, OF_DEFINITIONS, DEFINITION)
    if arguments.save is not None:
        _check_save(arguments.save, source)


def _refuse(arguments: argparse.Namespace, names: Sequence[str], place: str) -> None:
    """Raises InputError where one of these options was given: they go with something else."""
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) not in UNSET]
    if given:
        raise InputError(f"{' and '.join(given)} {'go' if len(given) > 1 else 'goes'} with {place}")


def _check_save(path: Path, source: str) -> None:
    if not path.name.endswith(SUFFIXES):
        raise InputError(f"--save {path}: a trace is written, as .json or .json.gz")
    if not path.parent.is_dir():
        raise InputError(f"--save {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK) or path.is_dir():
        raise InputError(f"--save {path}: cannot be written")
    asked = Path(source.removeprefix(CONFIG).removeprefix(DEFINITION))
    if path.exists() and any(one.exists() and path.samefile(one) for one in (asked, asked / "config.json")):
        raise InputError(f"--save {path}: is the program itself")


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
