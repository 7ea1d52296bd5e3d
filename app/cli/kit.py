"""tritonworthy kit: a kernel as a file of your own, from a region's text or from what `validate --json` printed.

Exit status: 0 written; 1 the input is wrong; 2 there is no kernel: what else the kit has is written, with the
reason; or the kit cannot be written.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TypeGuard

from app.cli.options import given_path
from app.cli.streams import json_text
from app.objects.record import ValidationBody

OK, BAD_INPUT, NO_KERNEL, NOT_WRITTEN = 0, 1, 2, 2


def add_kit(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `kit` into the command line."""
    kit = commands.add_parser(
        "kit",
        help="a kernel as a file of your own: one file with its test and its benchmark",
        description="Writes a folder: the kernel in one file that runs alone with torch and triton, with its test and"
        " its benchmark; replay.py of the region for a bug report; README.md; validation.json.",
    )
    kit.add_argument("file", metavar="FILE", help="a region's text, or what `validate --json` printed; - for stdin")
    kit.add_argument(
        "--candidate", metavar="NAME", help="such as triton:softmax; by default the fastest that was right"
    )
    kit.add_argument("--shapes", metavar="JSON", help='sizes in use: [{"N": 37}]; by default those of the file')
    kit.add_argument(
        "--out", type=given_path, metavar="PATH", help="a folder, or a name that ends in .zip; by default ./NAME"
    )
    kit.add_argument("--json", action="store_true", help="print the API's object and write nothing")
    kit.set_defaults(run=_kit)


def _kit(arguments: argparse.Namespace) -> int:
    from app.analysis.service import make_kit
    from profiler.region.model import RegionError

    try:
        text, validation = _read(arguments.file)
        shapes = json.loads(arguments.shapes) if arguments.shapes else None
        made = make_kit(text, shapes=shapes, candidate=arguments.candidate, validation=validation)
    except OSError as error:
        print(f"{arguments.file}: {error.strerror}", file=sys.stderr)
        return BAD_INPUT
    except RecursionError:
        print("the JSON is nested too deep", file=sys.stderr)
        return BAD_INPUT
    except (RegionError, ValueError) as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except KeyError as error:
        print(f"{error.args[0]}: no such Triton kernel", file=sys.stderr)
        return BAD_INPUT
    if made.why:
        print(f"no kernel: {made.why}", file=sys.stderr)
    if arguments.json:
        body = {"name": made.name, "candidate": made.candidate, "why": made.why, "files": dict(made.files)}
        print(json_text(body))
        return NO_KERNEL if made.why else OK
    out = arguments.out or Path(made.name)
    try:
        if out.suffix == ".zip":
            out.write_bytes(made.archive())
            print(out)
        else:
            out.mkdir(parents=True, exist_ok=True)
            for name, content in made.files.items():
                (out / name).write_text(content, encoding="utf-8")
                print(out / name)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return NOT_WRITTEN
    return NO_KERNEL if made.why else OK


def _read(file: str) -> tuple[str, ValidationBody | None]:
    """The region's text, and the validation where the file is one. Raises OSError, ValueError."""
    text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    if not text.lstrip().startswith("{"):
        return text, None
    body: object = json.loads(text)
    if not _is_validation(body):
        raise ValueError(f"{file}: neither a region's text nor a validation")
    return body["region"], body


def _is_validation(body: object) -> TypeGuard[ValidationBody]:
    """By the keys that a kit is made of."""
    return isinstance(body, dict) and isinstance(body.get("region"), str) and isinstance(body.get("candidates"), list)
