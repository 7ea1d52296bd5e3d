"""Log lines: for people, or one JSON object a line. What users send begins no line, moves no cursor, hides no text.

On the standard library alone: the lines of uvicorn, SQLAlchemy and Alembic come by `logging` whatever writes ours, and
what counts here, the escaping, structlog leaves to its renderers as well.
"""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

JOB: ContextVar[str] = ContextVar("job", default="")
"""The id of the job that this thread sees through: on every line that it logs."""

Format = Literal["text", "json"]


def configure(format: Format) -> None:
    """Let every logger of this process write lines of that format to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)  # tells all that it could do


class JsonLines(logging.Formatter):
    """{"time", "level", "logger", "message"} and, where there are any, "job" and "exception". ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if job := JOB.get():
            line["job"] = job
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextLines(logging.Formatter):
    """TIME LEVEL LOGGER: [JOB] MESSAGE; the lines of a traceback are indented."""

    def format(self, record: logging.LogRecord) -> str:
        job = f"[{JOB.get()}] " if JOB.get() else ""
        line = f"{_time(record)} {record.levelname} {record.name}: {job}{escape_controls(record.getMessage())}"
        if not record.exc_info:
            return line
        trace = self.formatException(record.exc_info).split("\n")
        return "\n".join([line, *(f"    {escape_controls(part)}" for part in trace)])


def escape_controls(text: str) -> str:
    """Control characters, line ends of any alphabet and marks of direction as their escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
