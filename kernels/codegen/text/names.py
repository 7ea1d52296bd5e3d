"""Names in generated text: identifiers only, none that shadows what the kernel uses."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from kernels.codegen.expressions import ops

RESERVED = frozenset({
    "tl", "triton", "torch", "row", "col", "outer", "inner", "at", "pid", "in_row", "in_col",
    "inside", "start", "lane", "count", "float", "range",
    "BLOCK", "BLOCK_M", "BLOCK_N", "ROWS", "INTERPRETED", "launch", "run", "configs", "grid", "print", "min",
    "max", "sum", "abs", "int", "bool", "len", "device", "meta", "seed", "best", "getattr", "libdevice",
    *ops.HELPERS,
})  # fmt: skip

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Names:
    """Hands out identifiers, each once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken) | RESERVED

    def new(self, wanted: str) -> str:
        """`wanted` where it is free and an identifier, else something near it."""
        clean = wanted if IDENTIFIER.fullmatch(wanted) else "v_" + re.sub(r"[^A-Za-z0-9_]", "_", wanted)
        clean = clean[:60].lstrip("_") or "v"
        if not clean[0].isalpha():
            clean = f"v{clean}"
        name, count = clean, 0
        while name in self.taken or keyword.iskeyword(name) or re.fullmatch(r"d\d+", name):
            count += 1
            name = f"{clean}_{count}"
        self.taken.add(name)
        return name


def comment(text: str) -> str:
    """One line of the user's text as a comment: nothing in it can end the line."""
    plain = "".join(c if c.isprintable() else "?" for c in text).strip()
    return f"# {plain[:160]}"
