"""What the editor offers is what the language reads: every name, no other, with arguments that torch takes."""

from __future__ import annotations

import re

import pytest

from profiler.region.language import vocabulary
from profiler.region.language.completion import WORDS, completion
from profiler.region.language.text import SUFFIXES, parse
from profiler.region.model import ITEMSIZE
from tests.docs.test_region_language import DOCS

KNOWN = completion()


def names(rows: list[tuple[str, str, str]]) -> list[str]:
    return [name for name, _, _ in rows]


def test_the_functions_are_those_that_the_documentation_lists() -> None:
    listed = {m: set(re.findall(r"`(\w+)`", rest)) for m, rest in re.findall(r"(?m)^\*\*`(.*)\.`\*\* (.*)$", DOCS)}
    offered = {module: set(names(rows)) for module, rows in KNOWN["functions"].items() if module != "math"}
    assert offered == listed


def test_every_function_and_method_is_there_once() -> None:
    for rows in (*KNOWN["functions"].values(), KNOWN["methods"]):
        assert len(names(rows)) == len(set(names(rows)))
    assert set(names(KNOWN["methods"])) == vocabulary.METHODS


def test_a_bare_name_is_looked_for_in_the_modules_that_are_named_in_this_order() -> None:
    for module in reversed(KNOWN["bare"]):
        for name in names(KNOWN["functions"][module]):
            assert vocabulary.function("", name) is not None
    both = set(names(KNOWN["functions"]["F"])) & set(names(KNOWN["functions"]["torch"]))
    first, _ = KNOWN["bare"]
    assert both
    for name in both:
        assert vocabulary.function("", name) is vocabulary.function(first, name)


@pytest.mark.parametrize(
    ("module", "name", "arguments", "kind"),
    [
        ("F", "gelu", "(input, approximate=...)", "pointwise"),
        ("F", "softmax", "(input, dim=..., _stacklevel=..., dtype=...)", "softmax"),
        ("torch", "matmul", "(input, other)", "gemm"),
        ("math", "sqrt", "(x)", ""),
    ],
)
def test_arguments_are_those_of_torch(module: str, name: str, arguments: str, kind: str) -> None:
    assert [name, arguments, kind] in [list(row) for row in KNOWN["functions"][module]]


def test_what_stands_before_the_dot_is_no_argument_of_a_method() -> None:
    methods = {name: arguments for name, arguments, _ in KNOWN["methods"]}
    assert methods["add_"] == "(other, alpha=...)"
    assert methods["abs"] == "()"
    assert not any(re.match(r"\((self|input)\b", arguments) for arguments in methods.values())


def test_types_and_suffixes_are_the_languages() -> None:
    assert set(KNOWN["dtypes"]) == set(ITEMSIZE)
    assert tuple(KNOWN["suffixes"]) == SUFFIXES


def test_the_words_are_read_where_they_may_stand() -> None:
    text = (
        "n: sizes[4, 8]\nx: f32[n]\nfor i in range(2):\n    x = x + 1\n"
        "y = x.sum(dim=None, keepdim=True)\nz = x.sum(0, False)\nreturn y, z\n"
    )
    assert all(re.search(rf"\b{word}\b", text) for word in WORDS)
    assert parse(text).outputs == ("y", "z")
