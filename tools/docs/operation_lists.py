"""Write what docs list of operations from their table: `python -m tools.docs.operation_lists`, --check to only compare.

docs/region-language.md gets the functions of the language and its limits, docs/cost.md the FLOPs of those operations
that no formula of the page names. The rest of both pages is written by hand.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from profiler.region import limits
from profiler.region.language import characters, text, vocabulary
from profiler.region.operations import OPERATIONS

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
LANGUAGE = DOCS / "region-language.md"
COST = DOCS / "cost.md"

FUNCTIONS = re.compile(r"(?<=-->\n)\*\*`F\.`\*\*.*?(?=\n\n## )", re.S)
"""Below the comment that says where the lists are from, up to the next section."""
LIMITS = re.compile(r"\| the text \|.*?(?=\n\n## )", re.S)
OTHERS = re.compile(r"(?m)^\| others \|.*\|$")
COUNTED = re.compile(r"`(\w+)` \d+")


def function_lists() -> str:
    """One paragraph for each module of the language, its functions in the order of the alphabet; then the methods."""
    parts = []
    for module, names in vocabulary.functions().items():
        parts.append(f"**`{module}.`** {' '.join(f'`{n}`' for n in sorted(names))}")
    methods = sorted(vocabulary.METHODS - vocabulary.TORCH)
    parts.append(f"**further methods** {' '.join(f'`{n}`' for n in methods)}")
    return "\n\n".join(parts)


def limit_rows() -> str:
    """The rows of the table of limits."""
    rows = {
        "the text": f"{characters.MAX_CHARS:,} characters, {characters.MAX_LINES} lines of {characters.MAX_LINE:,}",
        "brackets that are open": str(characters.MAX_BRACKETS),
        "inputs": f"{text.MAX_INPUTS}, of {limits.MAX_RANK} dimensions",
        "sizes of a symbol": str(text.MAX_SIZES),
        "one size": f"{limits.MAX_SIZE:,}",
        "operations, loops unrolled": f"{limits.MAX_OPERATIONS:,}",
        "operations as torch runs them, what a split gives and the backward counted": f"{limits.MAX_LOWERED:,}",
        "lists within lists": str(limits.MAX_NESTING),
        "values in one list, results of one operation": f"{limits.MAX_ITEMS:,}",
        "dimensions of a result": str(limits.MAX_RESULT_RANK),
        "one tensor": f"{limits.MAX_BYTES >> 40} TiB",
        "all tensors together": f"{limits.MAX_REGION_BYTES >> 40} TiB",
    }
    return "\n".join(f"| {of} | {most} |" for of, most in rows.items())


def other_flops(page: str) -> str:
    """The row of the operations whose FLOPs stand nowhere else on the page, of more than one an element."""
    named = set(COUNTED.findall(OTHERS.sub("", page)))
    others = [o for o in OPERATIONS if o.flops not in (None, 0, 1) and o.weighted is None and o.name not in named]
    return f"| others | {'; '.join(f'`{o.name}` {o.flops}' for o in others)} |"


def language_page(page: str) -> str:
    """docs/region-language.md with the lists of today."""
    return _replace(LIMITS, limit_rows(), _replace(FUNCTIONS, function_lists(), page))


def cost_page(page: str) -> str:
    """docs/cost.md with the row of today."""
    return _replace(OTHERS, other_flops(page), page)


def _replace(pattern: re.Pattern[str], new: str, page: str) -> str:
    replaced, count = pattern.subn(lambda _: new, page)
    if count != 1:
        raise ValueError(f"{pattern.pattern} stands {count} times on the page")
    return replaced


def main(arguments: list[str]) -> int:
    """Write both pages; with --check, 1 where one is not what the code gives."""
    stale = False
    for path, written in ((LANGUAGE, language_page), (COST, cost_page)):
        before = path.read_text(encoding="utf-8")
        after = written(before)
        stale |= before != after
        if "--check" not in arguments:
            path.write_text(after, encoding="utf-8")
    return int(stale and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
