"""Workers that are under way before the plan says which candidates there are: imports and contexts during the planning.

A package of library calls takes seconds to import, and as many contexts as there are candidates are made one behind the
other by the driver: 1.6 s for eight, 3.5 s until FlagGems or Liger had been called (H200, warm caches). Each stays in a
process of its own: what a package does to torch it does to its own candidates alone. No torch.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence

from kernels.measure.messages import GetReady
from kernels.measure.processes.processes import Child, ForkServer

PACKAGES: Mapping[str, str] = {
    "liger_kernel": "liger_kernel.transformers.functional",
    "flag_gems": "flag_gems",
    "quack": "quack",
}
"""Packages whose calls are candidates -> what those calls import (kernels/libraries/calls)."""
PLAIN, COMPILING = "plain", "compiling"
EARLY: Mapping[str, int] = {PLAIN: 3, COMPILING: 2}
"""Contexts made during the planning: eager, a library call and a Triton kernel; two modes of torch.compile."""
LEAST_CORES = 8  # with fewer, they would take from the planning what they are to save


class WarmWorkers:
    """Children by what they have ready, each taken once."""

    def __init__(self, fork_server: ForkServer, module: str) -> None:
        self.fork_server = fork_server
        self.module = module
        self._waiting: dict[str, list[Child]] = {}

    def import_packages(self) -> None:
        """One child for each installed package, which begins with its import. Again: nothing new."""
        for package, module in PACKAGES.items():
            if package not in self._waiting and installed(package):
                self._add(package, GetReady(imports=module))

    def open_contexts(self, device: str, workers: int) -> None:
        """Children that make their context on the device now. workers: of torch.compile's pool, which comes first."""
        for kind, count in EARLY.items():
            for _ in range(count):
                self._add(kind, GetReady(device=device, workers=workers if kind == COMPILING else 0))

    def take(self, name: str) -> Child | None:
        """One that has ready what the candidate needs, under the candidate's name."""
        kind = COMPILING if name.startswith("compile") else PLAIN
        package = name.removeprefix("library:").split(".")[0] if name.startswith("library:") else ""
        for wanted in (package, kind):
            waiting = self._waiting.get(wanted, [])
            while waiting:
                child = waiting.pop()
                if child.still_there():
                    child.name = name
                    return child
                child.release()
        return None

    def close(self) -> None:
        """End those that nobody took."""
        self._end(list(self._waiting))

    def close_contexts(self) -> None:
        """End those that hold a part of the GPU, which is another's for now."""
        self._end(list(EARLY))

    def _end(self, kinds: Sequence[str]) -> None:
        for kind in kinds:
            for child in self._waiting.pop(kind, []):
                child.release()

    def _add(self, kind: str, request: GetReady) -> None:
        child = self.fork_server.fork(f"stand-by {kind}", self.module)
        child.hint(request)
        self._waiting.setdefault(kind, []).append(child)


def installed(package: str) -> bool:
    """Whether it can be found, without importing it."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False
