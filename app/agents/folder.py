"""Files by path below the folder that a server was started in: what leads out of it is refused, by whatever way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.agents.errors import AgentError
from app.check.safe import visible


@dataclass(frozen=True, slots=True)
class Folder:
    """root: without symbolic links in its path."""

    root: Path

    @staticmethod
    def of(path: Path) -> Folder:
        """The folder, as it is now. Raises AgentError where there is none."""
        root = path.resolve()
        if not root.is_dir():
            raise AgentError(f"{visible(path)}: no such folder")
        return Folder(root)

    def file(self, given: str) -> Path:
        """The file, every symbolic link followed. Raises AgentError for one that is not there, or not below."""
        shown = visible(given)
        try:
            path = (self.root / given).resolve()
        except (OSError, ValueError, RuntimeError):  # a loop of links, a NUL, a name that is too long
            raise AgentError(f"{shown}: not a path") from None
        if not given.strip() or not path.is_relative_to(self.root):
            raise AgentError(
                f"{shown}: outside of the folder that the server was started in, which is all that it reads"
            )
        try:
            is_file = path.is_file()
        except OSError:
            is_file = False
        if not is_file:
            raise AgentError(f"{shown}: no such file below {visible(self.root)}")
        return path

    def shown(self, path: Path) -> str:
        """The path from the folder on, as commands that are run in it take it."""
        return str(path.relative_to(self.root))
