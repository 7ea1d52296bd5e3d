"""What `profiler.region.language.completion` says of the language's names, as data. No torch."""

from __future__ import annotations

from typing import TypeAlias

from typing_extensions import TypedDict

Name: TypeAlias = tuple[str, str, str]
"""A name, the arguments that it takes as "(input, dim=...)", "" where nothing is known of them, and the kind of what it
computes."""


class Vocabulary(TypedDict):
    """functions, constants: by module; methods, properties: behind a dot; suffixes: behind an input's type.

    bare: the modules that may be left out, in the order in which a name is looked for.
    """

    bare: list[str]
    functions: dict[str, list[Name]]
    methods: list[Name]
    properties: list[str]
    constants: dict[str, list[str]]
    dtypes: list[str]
    suffixes: list[str]
    words: list[str]
