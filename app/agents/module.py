"""advise_module: a program below the folder -> its predicted trace. Its Python is run, in a process of its own within
the limits of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from app.agents.brief.fit import one_line
from app.agents.errors import AgentError
from app.agents.folder import Folder
from app.agents.questions import AdviseModule
from app.agents.tell import Tell
from app.check.safe import visible
from app.program.named import CONFIG, DEFINITION, FORMS, FUNCTION, is_definition
from profiler.program.request import Request

LONGEST_ERROR = 300
"""Tokens of what a program said."""


def request_of(question: AdviseModule, folder: Folder) -> Request:
    """The program with its file below the folder, by its path from there. Raises AgentError."""
    default = Request("")
    source = _source(question["program"], folder)
    for form, told, given in (
        (CONFIG, "batch and sequence go", question["batch"] or question["sequence"]),
        (DEFINITION, "sizes go", question["sizes"]),
    ):
        if given and not source.startswith(form):
            raise AgentError(f"{told} with {form}")
    return Request(
        source,
        question["training"],
        question["dtype"],
        question["batch"] or default.batch,
        question["sequence"] or default.sequence,
        question["sizes"] or {},
    )


def _source(given: str, folder: Folder) -> str:
    if given.startswith(CONFIG):
        return CONFIG + folder.shown(_config(given.removeprefix(CONFIG), folder))
    if given.startswith(DEFINITION):
        return DEFINITION + folder.shown(folder.file(given.removeprefix(DEFINITION)))
    if FUNCTION.fullmatch(given):
        path, _, function = given.rpartition(":")
        return f"{_shown(folder.file(path), folder)}:{function}"
    path_given, _, rest = given.partition(".py:")
    if rest:
        raise AgentError(f"{visible(given)}: {visible(rest)} is no function's name; {FORMS} is wanted")
    file = folder.file(path_given)
    of_json = f"{DEFINITION}FILE runs a definition" if is_definition(file) else f"a config is {CONFIG}FILE"
    told = {".py": ": say which function, FILE.py:FUNCTION", ".json": f": {of_json}"}.get(file.suffix, "")
    raise AgentError(f"{visible(given)}: no program{told}; {FORMS} is wanted; a trace is for advise_trace")


def _shown(path: Path, folder: Folder) -> str:
    """The path from the folder on, such that it is not taken for another form."""
    shown = folder.shown(path)
    return f"./{shown}" if shown.startswith((CONFIG, DEFINITION)) else shown


def _config(given: str, folder: Folder) -> Path:
    """A config, or the one of a model's folder."""
    try:
        return folder.file(f"{given}/config.json")
    except AgentError:
        return folder.file(given)


@contextmanager
def predicted(question: AdviseModule, request: Request, tell: Tell) -> Iterator[Path]:
    """The predicted trace, removed in the end. tell: of the recording alone. Raises AgentError."""
    from contextlib import ExitStack

    from app.analysis.device_choice import DeviceUnknownError, choose_device
    from app.program.service import predicted_trace
    from profiler.program.model import ProgramError
    from profiler.program.process import LIMITS

    budget_s = min(question["budget_s"] or LIMITS.timeout_s, LIMITS.timeout_s)

    def on_wait(taken_s: float) -> None:
        tell(min(1.0, taken_s / budget_s), f"recording {request.source}: {taken_s:.0f} s of at most {budget_s:.0f} s")

    tell(0.0, f"recording {request.source}")
    with ExitStack() as stack:
        try:
            device, _ = choose_device(question["device"], None)
            limits = replace(LIMITS, timeout_s=budget_s)
            path = stack.enter_context(predicted_trace(request, device, limits=limits, on_wait=on_wait))
        except ProgramError as error:
            raise AgentError(one_line(f"{error.message}. {error.remedy}".rstrip(" ."), LONGEST_ERROR)) from None
        except DeviceUnknownError as error:
            raise AgentError(f"{error.message} {error.remedy}".strip()) from None
        except OSError as error:
            raise AgentError(f"{visible(request.source)}: {error.strerror}") from None
        yield path
