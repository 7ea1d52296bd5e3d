"""What a candidate may not replace in the process that measures it, and the threads that it may not leave running.

The clocks that are used were taken before any candidate was loaded (`timing`); this finds one that tried, and one
that replaced a function of this package. It cannot hold against code that rewrites memory: see docs/validation.md.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from kernels.measure.messages import REPLACED

OUTSIDE: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("json", json, ("dumps", "loads")),
    ("msgspec", msgspec, ("to_builtins", "convert")),
    ("time", time, ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "sleep")),
    ("torch", torch, ("allclose", "equal", "isclose", "randn", "rand", "randint", "where")),
    ("torch.testing", torch.testing, ("assert_close",)),
    ("torch.cuda", torch.cuda, ("Event", "Stream", "synchronize", "current_stream", "_sleep")),
    ("torch.cuda.Event", torch.cuda.Event, ("record", "elapsed_time", "synchronize", "query", "wait")),
)
"""(name, where, attributes) of what a measurement could be fooled through."""
OWN = "kernels.measure."


class TamperedError(Exception):
    """The candidate replaced something that measures it."""


@dataclass(frozen=True, slots=True)
class Stood:
    """What a name stood for: `owner`'s attribute `key`, and a function's code at that time."""

    owner: Any
    key: str
    value: Any
    code: types.CodeType | None

    def same(self) -> bool:
        """Whether it stands for the same now. Plain lookups: 300 take 0.07 ms, a second snapshot took 1.5 (H200)."""
        now = _attribute(self.owner, self.key)
        return now is self.value and (self.code is None or now.__code__ is self.code)


def snapshot() -> dict[str, Stood]:
    """Name -> what it stands for now; functions and methods of this package with their code."""
    stood = {f"{name}.{key}": _stood(owner, key) for name, owner, keys in OUTSIDE for key in keys}
    for name, module in list(sys.modules.items()):
        if name.startswith(OWN) and module is not None:
            stood[name] = Stood(sys.modules, name, module, None)
            stood |= {f"{name}.{key}": item for key, item in _functions(module, name).items()}
    return stood


def _attribute(owner: Any, key: str) -> Any:
    """As it stands in the owner's own dictionary: a descriptor is not bound, so that it can be compared by identity."""
    if owner is sys.modules:
        return sys.modules.get(key)
    here = vars(owner)
    return here[key] if key in here else getattr(owner, key, None)


def _stood(owner: Any, key: str) -> Stood:
    value = _attribute(owner, key)
    return Stood(owner, key, value, value.__code__ if isinstance(value, types.FunctionType) else None)


def _functions(module: types.ModuleType, name: str) -> dict[str, Stood]:
    stood: dict[str, Stood] = {}
    for key, value in vars(module).items():
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
            stood[key] = _stood(module, key)
        elif isinstance(value, type) and value.__module__.startswith(OWN):  # such as what its answers are made of
            stood[key] = _stood(module, key)
            if value.__module__ == name:
                methods = [part for part, method in vars(value).items() if isinstance(method, types.FunctionType)]
                stood |= {f"{key}.{part}": _stood(value, part) for part in methods}
    return stood


def replaced(before: Mapping[str, Stood]) -> list[str]:
    """Names of `before` that stand for something else now. What was added since is no matter."""
    return [name for name, item in before.items() if not item.same()]


def check(before: Mapping[str, Stood]) -> None:
    """Raises TamperedError where something was replaced."""
    if names := replaced(before):
        raise TamperedError(f"{REPLACED} {', '.join(names[:4])} in the process that measures it")


def threads() -> frozenset[int]:
    """Python's threads of this process; not those of torch's own engine that once ran Python code."""
    dummy = threading._DummyThread
    return frozenset(t.ident or 0 for t in threading.enumerate() if not isinstance(t, dummy))


def left_running(before: frozenset[int]) -> list[str]:
    """Names of the threads that were started since and still run."""
    new = threads() - before
    return [t.name for t in threading.enumerate() if t.ident in new]
