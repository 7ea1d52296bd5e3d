"""A program that somebody sends where a trace belongs: refused at once, by content. A server runs none."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from app.errors import Problem
from profiler.trace.errors import TraceError
from profiler.trace.read.limits import Limits
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
PICKLE = re.compile(rb"\x80[\x02-\x05]")
UTF8_MARK = b"\xef\xbb\xbf"


class _Keys(msgspec.Struct):
    """Keys of a JSON object that tell what it is; of each only whether it is there, and a name."""

    trace_events: msgspec.Raw | UnsetType = msgspec.field(default=UNSET, name="traceEvents")
    axes: msgspec.Raw | UnsetType = UNSET
    inputs: msgspec.Raw | UnsetType = UNSET
    reference: msgspec.Raw | UnsetType = UNSET
    model_type: object = None


def refuse_program(path: Path) -> None:
    """Problem 422 for a file of Python, a pickle, a definition or a model's config, packed by gzip or not.

    What cannot be read is for the reader to judge, and so is any other JSON.
    """
    try:
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
    begins = head.removeprefix(UTF8_MARK).lstrip()[:1]
    if PICKLE.match(head):
        raise _refused("a Python pickle, and pickles are never opened", "FILE.py:FUNCTION")
    if begins not in (b"{", b"[") and b"\0" not in head and STATEMENT.search(head):
        raise _refused("a Python program", "FILE.py:FUNCTION")


def _refuse_by_keys(text: bytes) -> None:
    try:
        keys = msgspec.json.decode(text, type=_Keys)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return
    if keys.trace_events is not UNSET:
        return
    if UNSET not in (keys.axes, keys.inputs, keys.reference):
        raise _refused("a definition, whose reference is a program", "def:DEFINITION.json")
    if isinstance(keys.model_type, str):
        raise _refused("the config of a model of transformers", "hf:CONFIG.json")


def _refused(what: str, named: str) -> Problem:
    return Problem(
        422, "trace-is-a-program", "That is a program, not a trace",
        f"The file is {what}. This server runs no program that it is sent.",
        remedy=f"On a machine of your own, `tritonworthy advise {named} --save step.json.gz` advises on it and writes a"
        " trace that can be uploaded.",
    )  # fmt: skip
