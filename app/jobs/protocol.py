"""What the queue asks of a runner: LocalRunner on this machine, RayRunner on a fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from app.jobs.exit_reason import Ended
from app.jobs.local_runner import Limits, Message, Verdict


class Runner(Protocol):
    """Sees one job after the other through, each in a child process. Thread-safe."""

    def run(
        self,
        command: Sequence[str],
        request: Mapping[str, object],
        *,
        limits: Limits,
        log: Path,
        on_progress: Callable[[Message], None] = ...,
        tick: Callable[[], Verdict] = ...,
        cwd: Path | None = None,
    ) -> Ended:
        """Run to the end, which may be ExitReason.LOST: where the child ran is gone, and the job is to be done again.

        "{fd}" in the command becomes the descriptor to answer on. tick is called several times a second: "cancel" asks
        the child to end, "drop" kills it at once.
        """
        ...

    def keep(self, command: Sequence[str], *, logs: Path, cwd: Path | None = None) -> bool:
        """Have a child ready for the next run of that command, where that helps; False where the last one died."""
        ...

    def forget(self) -> None:
        """End what is kept ready: the GPU that it was made for is suspect. More may be kept later."""
        ...

    def close(self) -> None:
        """Give back what is kept."""
        ...

    def lanes(self, kind: str) -> int:
        """How many jobs of a kind may be under way at once."""
        ...

    def full(self) -> frozenset[str]:
        """Kinds of GPU of which none is free for one more job: the queue leaves their jobs waiting."""
        ...
