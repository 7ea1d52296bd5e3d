"""What an editor offers while a region is typed: every name of the language by the place where it may stand, with the
arguments that it takes. Made of `vocabulary`, `signatures` and the table of operations, so what is offered is read.
"""

from __future__ import annotations

import re
from functools import cache

from profiler.region.language import vocabulary
from profiler.region.language.completion_model import Name, Vocabulary
from profiler.region.language.signatures import Target, signatures
from profiler.region.language.text import SUFFIXES
from profiler.region.operations import OPERATIONS

BARE = ("F", "torch")
"""Modules that may be left out: `vocabulary.function` looks for a bare name in them, in this order."""

WORDS = ("for", "in", "range", "return", "True", "False", "None", "sizes")
"""What is no operation and may be written: loops, the end, constants, sizes that vary."""

KINDS = {op.name: op.kind for op in OPERATIONS}


@cache
def completion() -> Vocabulary:
    """Every name of the language."""
    functions = {
        module: [_name(name, target) for name in sorted(names) if (target := vocabulary.function(module, name))]
        for module, names in vocabulary.functions().items()
    }
    functions["math"] = [(name, "(x)", "") for name in sorted(vocabulary.MATH)]
    constants: dict[str, list[str]] = {"torch": sorted(vocabulary.TORCH_DTYPES)}
    for module, name in vocabulary.CONSTANTS:
        constants.setdefault(module, []).append(name)
    return {
        "bare": list(BARE),
        "functions": functions,
        "methods": [_method(name) for name in sorted(vocabulary.METHODS)],
        "properties": sorted(vocabulary.PROPERTIES),
        "constants": constants,
        "dtypes": list(vocabulary.DTYPES),
        "suffixes": list(SUFFIXES),
        "words": list(WORDS),
    }


def _name(name: str, target: Target) -> Name:
    """By the first way to call it, whose `self` is an input; an in-place method is of the kind of its operation."""
    ways = signatures(target)
    arguments = str(ways[0]) if ways else ""
    return name, re.sub(r"^\(self\b", "(input", arguments), KINDS.get(name) or KINDS.get(name.removesuffix("_"), "")


def _method(name: str) -> Name:
    """Without `self`, which stands before the dot."""
    _, arguments, kind = _name(name, name)
    return name, re.sub(r"^\(input\b(, )?", "(", arguments), kind
