"""tritonworthy serve | advise | oracle | validate | check | watch | archive | calibrate | ...: the web, from a shell.

All but `serve`, `report` and `fleet` import neither FastAPI nor a database: they run where only torch, triton and numpy
are.
Exit status: 0 done; 1 the input is wrong; 2 it could not be measured, predicted or written, the settings or the usage
are wrong, or there is a fault in the command itself; 3 `advise`: the program came to an error half-way; 130
interrupted; 141 nobody reads the output any more. `check`, `watch` and `validate --kernel` have statuses of their own
for what they assert, and share the others.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from app import __version__
from app.agents.command import add_agents
from app.check.safe import visible
from app.cli.accuracy import add_accuracy
from app.cli.advise import add_advise
from app.cli.archive import add_archive
from app.cli.calibrate import add_calibrate
from app.cli.ci.check import add_check
from app.cli.ci.comment import add_comment
from app.cli.ci.history import add_history
from app.cli.ci.watch import add_watch
from app.cli.fleet import add_fleet
from app.cli.init import under_init
from app.cli.inputs import InputError
from app.cli.kit import add_kit
from app.cli.landscape import add_landscape
from app.cli.options import count, given_path
from app.cli.oracle import add_oracle
from app.cli.report import add_report
from app.cli.servers.capture import add_capture
from app.cli.streams import NoReaderError, OutputError, standard_streams
from app.cli.validate import add_validate
from app.thresholds import ThresholdError

BAD_INPUT, NOT_MEASURED = 1, 2
FAILED = 2
"""Not written, or a fault of the command: never 1, which says something of the input, or of what `check` asserts."""
INTERRUPTED, NO_READER = 130, 141
"""128 and the number of the signal, as a shell has it: SIGINT, SIGPIPE."""

DEBUG_VARIABLE = "TRITONWORTHY_DEBUG"
"""Set, a fault of the command shows its whole traceback."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    with standard_streams():
        try:
            try:
                return _run(argv)
            finally:
                sys.stdout.flush()
        except NoReaderError:  # `tritonworthy advise FILE | head`
            return NO_READER
        except OutputError as error:
            return _fail(str(error))
        except KeyboardInterrupt:
            return INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    """Run one command; what it raises of the input and of the system, and its own faults, as one line."""
    parser = _parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        getattr(arguments, "complain", parser.error)(f"unrecognized arguments: {' '.join(unknown)}")
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except (InputError, ThresholdError) as error:
        print(error, file=sys.stderr)
        return BAD_INPUT if isinstance(error, InputError) else NOT_MEASURED
    except (OutputError, NoReaderError):
        raise
    except ImportError as error:
        return _fail(f"cannot import what this command needs: {error}{install_hint(error)}")
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        description = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        hint = "" if os.environ.get(DEBUG_VARIABLE) else f"; {DEBUG_VARIABLE}=1 shows where"
        return _fail(f"internal error: {visible(description)} ({place}){hint}")


SERVER_PACKAGES = frozenset({
    "fastapi", "starlette", "uvicorn", "jinja2", "python_multipart", "pydantic", "pydantic_settings", "sqlalchemy",
    "alembic", "plotly", "prometheus_client", "psutil", "cachetools",
})  # fmt: skip
"""What `pip install tritonworthy` leaves out, by the names that are imported."""


def install_hint(error: ImportError) -> str:
    """What to install, where the web's packages are missing; else ""."""
    missing = (error.name or "").partition(".")[0]
    return "; it is of the web: pip install 'tritonworthy[server]'" if missing in SERVER_PACKAGES else ""


def _fail(message: str) -> int:
    """One line on stderr, after the traceback of what is being handled where that is wanted."""
    if os.environ.get(DEBUG_VARIABLE) and sys.exc_info()[0] is not None:
        traceback.print_exc()
    print(f"tritonworthy: {' '.join(message.split())}", file=sys.stderr)
    return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tritonworthy", description="Should I write a Triton kernel for this?")
    parser.add_argument("--version", action="version", version=f"tritonworthy {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="serve the web app; settings by TRITONWORTHY_* (docs/settings.md)")
    serve.add_argument("--host", help="address to listen on")
    serve.add_argument("--port", type=count(0, 65535), help="port to listen on; 0 picks a free one")
    serve.add_argument("--data-dir", type=given_path, help="folder of the database and uploads")
    serve.set_defaults(run=_serve)

    for add in (
        add_advise, add_capture, add_oracle, add_validate, add_check, add_comment, add_history, add_watch, add_archive,
        add_kit,
        add_landscape, add_accuracy, add_calibrate, add_fleet, add_report, add_agents,
    ):  # fmt: skip
        add(commands)
    return parser


def _serve(arguments: argparse.Namespace) -> int:
    def run() -> int:
        from app.cli.serve import Options, serve

        options: Options = {}
        if arguments.host is not None:
            options["host"] = arguments.host
        if arguments.port is not None:
            options["port"] = arguments.port
        if arguments.data_dir is not None:
            options["data_dir"] = arguments.data_dir
        return serve(options)

    return under_init(run)


if __name__ == "__main__":
    sys.exit(main())
