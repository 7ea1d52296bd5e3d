"""What is read stands below the folder: no path and no link leads out of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.agents.errors import AgentError
from app.agents.folder import Folder


@pytest.fixture
def here(tmp_path: Path) -> Folder:
    """A folder with a file, a folder, and links within it and out of it; beside it stands what is none of it."""
    inside = tmp_path / "task"
    (inside / "sub").mkdir(parents=True)
    (inside / "step.json").write_text("{}")
    (inside / "sub" / "step.json").write_text("{}")
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "task-too").mkdir()
    (tmp_path / "task-too" / "step.json").write_text("{}")
    (inside / "within").symlink_to("sub/step.json")
    (inside / "out").symlink_to(tmp_path / "secret.json")
    (inside / "out-relative").symlink_to("../secret.json")
    (inside / "out-folder").symlink_to(tmp_path)
    (inside / "chain").symlink_to("out")
    (inside / "loop").symlink_to("loop")
    (inside / "dangling").symlink_to("nothing")
    os.mkfifo(inside / "pipe")
    return Folder.of(inside)


@pytest.mark.parametrize(
    "given", ["step.json", "sub/step.json", "./sub/../step.json", "within", "sub/../../task/step.json"]
)
def test_a_file_below_the_folder_is_read_however_it_is_named(here: Folder, given: str) -> None:
    path = here.file(given)
    assert path.is_file() and here.file(str(here.root / given)) == path
    assert (here.root / here.shown(path)) == path


@pytest.mark.parametrize(
    "given",
    [
        "../secret.json", "sub/../../secret.json", "/etc/passwd", "out", "out-relative", "out-folder/secret.json",
        "chain", "../task-too/step.json", "..", "", "   ",
    ],
)  # fmt: skip
def test_nothing_leads_out_of_the_folder(here: Folder, given: str) -> None:
    with pytest.raises(AgentError, match="outside of the folder"):
        here.file(given)
    with pytest.raises(AgentError, match="outside of the folder"):
        here.file(str(here.root.parent / "secret.json"))


def test_what_is_outside_is_refused_alike_whether_it_is_there_or_not(here: Folder) -> None:
    told = set()
    for name in ("secret.json", "nothing.json"):
        with pytest.raises(AgentError) as refused:
            here.file(f"../{name}")
        told.add(str(refused.value).replace(name, ""))
    assert len(told) == 1


@pytest.mark.parametrize("given", ["nothing.json", "sub", "dangling", "pipe", ".", "step.json/more"])
def test_what_is_no_file_is_said_so(here: Folder, given: str) -> None:
    with pytest.raises(AgentError, match="no such file below"):
        here.file(given)


@pytest.mark.parametrize("given", ["loop", "a\0b", "x" * 5000, "y/" * 3000])
def test_what_is_no_path_is_an_error_and_no_fault(here: Folder, given: str) -> None:
    with pytest.raises(AgentError):
        here.file(given)


def test_the_folder_itself_may_be_a_link_and_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("")
    (tmp_path / "link").symlink_to("real")
    assert Folder.of(tmp_path / "link").file("a.txt") == tmp_path / "real" / "a.txt"
    with pytest.raises(AgentError, match="no such folder"):
        Folder.of(tmp_path / "nothing")
