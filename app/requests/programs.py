"""A program that somebody sends where a trace belongs: refused at once, by content. A server runs none."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from app.errors import Problem
from profiler.region.language import trees
from profiler.trace.errors import TraceError
from profiler.trace.read.limits import Limits
from profiler.trace.read.members import BROKEN, MOST_SCANNED, is_zip, wanted
from profiler.trace.read.source import Source

HEAD_BYTES = 64 * 1024
"""What a file of Python or a pickle is known by; a module's words about itself are shorter."""
MOST_BYTES = 4 * 1024 * 1024
"""Of JSON that may be a config or a definition: traces are larger."""

STATEMENT = re.compile(
    rb"^(?:#!.*\bpython|import\s+\w[\w.]*(?:\s+as\s+\w+)?\s*(?:$|[,;#])|from\s+\.*\w[\w.]*\s+import\b"
    rb"|(?:async\s+)?def\s+\w+\s*\(|class\s+\w+\s*[:(])",
    re.M,
)
"""At the beginning of a line of Python, and of no region's text and no JSON."""
TOP_LEVEL = re.compile(rb"^[^\s#)\]}]", re.M)
"""Where a statement begins that stands in no other."""
A_PICKLE = "a Python pickle, and pickles are never opened"
A_PROGRAM = "a Python program"
PICKLE = re.compile(rb"\x80[\x02-\x05]")
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
SURE_STATEMENTS = 2
"""A text with as many statements is a program even where this Python does not parse it."""
MOST_CUTS = 4
"""Statements left out at the end of a head, whose last one is cut, until the rest parses."""


class _Keys(msgspec.Struct):
    """Keys of a JSON object that tell what it is; of each only whether it is there, and a name."""

    trace_events: msgspec.Raw | UnsetType = msgspec.field(default=UNSET, name="traceEvents")
    axes: msgspec.Raw | UnsetType = UNSET
    inputs: msgspec.Raw | UnsetType = UNSET
    reference: msgspec.Raw | UnsetType = UNSET
    model_type: object = None
    nbformat: object = None


def refuse_program(path: Path) -> None:
    """Problem 422 for a file of Python, a notebook, a pickle, a definition or a model's config, packed or not.

    Of a zip the names tell. What cannot be read is for the reader to judge, and so is any other JSON.
    """
    try:
        if is_zip(path):
            _refuse_by_names(path)
            return
        with Source(path, Limits(max_bytes=MOST_BYTES)) as source:
            text = bytearray()
            while len(text) < HEAD_BYTES and (data := source.read()):
                text += data
            refuse_by_head(bytes(text))
            if not text.removeprefix(UTF8_MARK).lstrip().startswith(b"{"):
                return
            while len(text) <= MOST_BYTES and b'"traceEvents"' not in text and (data := source.read()):
                text += data
    except (TraceError, OSError):
        return
    _refuse_by_keys(bytes(text.removeprefix(UTF8_MARK)))


def refuse_by_head(head: bytes) -> None:
    """The same of a file's first bytes, for what they tell: a file of Python and a pickle."""
    if PICKLE.match(head):
        raise _refused(A_PICKLE, "FILE.py:FUNCTION")
    text = head.decode("utf-16", "ignore").encode() if head.startswith(UTF16_MARKS) else head.removeprefix(UTF8_MARK)
    if text.lstrip()[:1] not in (b"{", b"[") and b"\0" not in text and _is_python(text, len(head) >= HEAD_BYTES):
        raise _refused(A_PROGRAM, "FILE.py:FUNCTION")


def _is_python(text: bytes, is_cut: bool) -> bool:
    """Whether a text has a statement of Python and parses, or has several. is_cut: it goes on behind its end."""
    statements = len(STATEMENT.findall(text))
    if statements == 0 or statements >= SURE_STATEMENTS or text.startswith(b"#!"):
        return statements > 0
    ends = [len(text)]
    if is_cut:
        starts = [match.start() for match in TOP_LEVEL.finditer(text)]
        ends = [text.rfind(b"\n") + 1, *starts[: -MOST_CUTS - 1 : -1]]
    return any(STATEMENT.search(text, 0, end) and _parses(text[:end]) for end in ends)


def _parses(text: bytes) -> bool:
    try:
        trees.module(text.decode("utf-8", "replace"))
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return False
    return True


def _refuse_by_names(path: Path) -> None:
    """What torch.save writes, and an archive of Python alone."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist()[:MOST_SCANNED]]
    except BROKEN:
        return
    if any(wanted(name) for name in names):
        return
    if any(name == "data.pkl" or name.endswith("/data.pkl") for name in names):
        raise _refused(A_PICKLE, "FILE.py:FUNCTION")
    if any(name.lower().endswith((".py", ".ipynb")) for name in names):
        raise _refused(A_PROGRAM, "FILE.py:FUNCTION")


def _refuse_by_keys(text: bytes) -> None:
    try:
        keys = msgspec.json.decode(text, type=_Keys)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return
    if keys.trace_events is not UNSET:
        return
    if UNSET not in (keys.axes, keys.inputs, keys.reference):
        raise _refused("a definition, whose reference is a program", "def:DEFINITION.json")
    if isinstance(keys.nbformat, int):
        raise _refused("a notebook, which is a program", "FILE.py:FUNCTION")
    if isinstance(keys.model_type, str):
        raise _refused("the config of a model of transformers", "hf:CONFIG.json")


def _refused(what: str, named: str) -> Problem:
    return Problem(
        422, "trace-is-a-program", "That is a program, not a trace",
        f"The file is {what}. This server runs no program that it is sent.",
        remedy=f"On a machine of your own, `tritonworthy advise {named} --save step.json.gz` advises on it and writes a"
        " trace that can be uploaded.",
    )  # fmt: skip
