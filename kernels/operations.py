"""The operations that have a file of their own: every file below `kernels.ops` that ends in OPERATIONS."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from kernels import ops
from kernels.spec import Operation

FIRST = "kernels.ops.vector_add"
"""The file to read first, and so the first that is listed."""


def module_names() -> list[str]:
    """Every module below `kernels.ops`, the one to read first in front, then by room and name. Imports packages."""
    names = [m.name for m in pkgutil.walk_packages(ops.__path__, f"{ops.__name__}.") if not m.ispkg]
    return sorted(names, key=lambda name: (name != FIRST, name))


@cache
def operations() -> tuple[Operation, ...]:
    """All of them, in the order of their modules. Imports every file, and with them Triton."""
    return tuple(o for name in module_names() for o in getattr(import_module(name), "OPERATIONS", ()))


def operation(name: str) -> Operation:
    """The operation of this name. Raises KeyError."""
    for each in operations():
        if each.name == name:
            return each
    raise KeyError(name)
