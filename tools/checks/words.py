"""Identifiers that hold a retired word of docs/glossary.md: `python -m tools.checks.words` prints where they stand.

With --write the counts that tests/docs/test_words.py holds are set to what is left today: after words were removed, or
after branches were merged that removed some.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
GLOSSARY = ROOT / "docs" / "glossary.md"
TABLE = ROOT / "tests" / "docs" / "test_words.py"
FOLDERS = ("profiler", "kernels", "app", "tritonworthy", "tools", "benchmarks")

BOUND_ONLY = frozenset({"found"})
"""Retired as the whole name of what is assigned or passed; within another name ("not_found") it is English."""

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
COUNTS = re.compile(r"(?<=^REMAINING = \{\n).*?(?=^\})", re.M | re.S)


@dataclass(frozen=True, slots=True)
class Use:
    """An identifier with a retired word. line: of its first place in the file."""

    word: str
    identifier: str
    path: str
    line: int


def retired_words(glossary: str) -> dict[str, str]:
    """Each retired word -> what to say instead: the rows of the table "not | but"."""
    table = glossary.split("| not | but |\n|-|-|\n", 1)[1]
    rows = (line.strip("|").split("|") for line in table.splitlines() if line.startswith("|"))
    return {word.strip(): instead.strip() for words, instead in rows for word in words.split(",")}


def words_of(identifier: str) -> set[str]:
    """The words of a name in either case: "HostPaced" and "host_paced" have the same."""
    return {word.lower() for word in WORD.findall(identifier)}


def uses_in(source: str, path: str, retired: Iterable[str]) -> list[Use]:
    """Those of one file, its own name among them: one for each different identifier and word."""
    tree = ast.parse(source)
    within = frozenset(retired) - BOUND_ONLY
    bound_only = frozenset(retired) & BOUND_ONLY
    uses: dict[tuple[str, str], Use] = {}
    for identifier, line in [(Path(path).stem, 1), *_identifiers(tree)]:
        for word in words_of(identifier) & within:
            uses.setdefault((word, identifier), Use(word, identifier, path, line))
    for identifier, line in _bound(tree):
        if (word := identifier.strip("_").lower()) in bound_only:
            uses.setdefault((word, f"{identifier}, line {line}"), Use(word, identifier, path, line))
    return list(uses.values())


def _identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.keyword(arg=str(name)):
                yield name, node.lineno
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from ((name, node.lineno) for alias in aliases for name in (alias.name, alias.asname) if name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


def _bound(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names that a value is given: by assignment of any kind, in a loop, a pattern or a handler; parameters, fields."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


def uses_in_folders(folders: Iterable[str] = FOLDERS) -> list[Use]:
    """Those of whole folders of the project, in the order of files."""
    retired = retired_words(GLOSSARY.read_text(encoding="utf-8"))
    return [
        use
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        for use in uses_in(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)), retired)
    ]


def counts_of(uses: Iterable[Use]) -> dict[str, int]:
    """How often each word is left, in the order of the alphabet; none of a word that is gone."""
    return dict(sorted(Counter(use.word for use in uses).items()))


def with_counts(test: str, counts: dict[str, int]) -> str:
    """The text of the test, its table replaced."""
    rows = "".join(f'    "{word}": {count},\n' for word, count in counts.items())
    text, replaced = COUNTS.subn(lambda _: rows, test, count=1)
    if not replaced:
        raise ValueError("the test has no table REMAINING")
    return text


def main() -> int:
    """Exit status 0: it only tells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only these")
    parser.add_argument("--write", action="store_true", help="set the counts of the test")
    arguments = parser.parse_args()
    uses = uses_in_folders()
    for use in uses:
        if not arguments.words or use.word in arguments.words:
            print(f"{use.path}:{use.line}: {use.identifier} ({use.word})")
    counts = counts_of(uses)
    print(", ".join(f"{word} {count}" for word, count in counts.items()) or "none is left")
    if arguments.write:
        TABLE.write_text(with_counts(TABLE.read_text(encoding="utf-8"), counts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
