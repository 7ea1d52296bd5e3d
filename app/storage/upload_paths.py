"""Where uploaded files lie: the store keeps names, each server knows its own path of the folder that all share."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from typing_extensions import TypedDict

from app.objects.task import CheckSource, CheckTask, SentFile, Task


class TaskFiles(TypedDict, total=False):
    """The parts of a task that name files."""

    path: str
    companions: dict[str, SentFile]
    sources: list[CheckSource]
    baseline: CheckSource | None


def place_files(task: Task, folder: Path) -> Task:
    """A task with the names of its files replaced by their paths in the folder of uploads.

    Absolute paths, as older programs stored them, stay.
    """
    named = cast("TaskFiles", task)
    placed: TaskFiles = {}
    if "path" in named:
        placed["path"] = _place(named["path"], folder)
    if companions := named.get("companions"):
        placed["companions"] = {
            field: {"path": _place(file["path"], folder), "name": file["name"]} for field, file in companions.items()
        }
    if sources := named.get("sources"):
        placed["sources"] = [_place_source(source, folder) for source in sources]
    if baseline := named.get("baseline"):
        placed["baseline"] = _place_source(baseline, folder)
    return cast("Task", {**task, **placed})


def files(task: CheckTask, folder: Path) -> list[Path]:
    """The files that a check was sent with."""
    baseline = task.get("baseline")
    sources = [*task.get("sources", []), *([baseline] if baseline else [])]
    return [Path(_place(source["path"], folder)) for source in sources if "path" in source]


def _place_source(source: CheckSource, folder: Path) -> CheckSource:
    return {**source, "path": _place(source["path"], folder)} if "path" in source else source


def _place(path: str, folder: Path) -> str:
    return str((folder / path).resolve())
