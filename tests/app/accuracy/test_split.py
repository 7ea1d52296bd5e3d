"""The split and the labels are data: they do not drift with the code that made them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from app.accuracy import labels, split
from app.archive import record_store
from tests.conftest import ROOT

FROZEN = "2c1757c4b9d23b7bdbe5105e99c1d0d541fec729557d6098127b760a38a3a1c6"

TOOLS = {"torch.compile": "compile", "library": "library", "triton": "triton", "skip": "eager"}
"""A label's word -> the tool of a Candidate."""

TEXTS = {p.stem: p.read_text() for p in sorted((ROOT / "tests" / "regions").glob("*.txt"))}


def test_the_frozen_split_is_the_one_of_the_first_commit() -> None:
    """A hash of the file: no region changes sides to make a figure look better."""
    held = json.dumps(dict(sorted(split.load_split().items())), separators=(",", ":"))
    assert hashlib.sha256(held.encode()).hexdigest() == FROZEN


def test_exactly_half_of_what_was_frozen_is_for_the_test() -> None:
    sides = list(split.load_split().values())
    assert sides.count(split.TEST) == sides.count(split.FIT) == len(sides) // 2


@pytest.mark.parametrize("name", TEXTS)
def test_every_region_is_frozen_under_todays_hash(name: str) -> None:
    assert split.program(TEXTS[name]) in split.load_split()


def test_what_the_archive_had_is_frozen() -> None:
    first = [r for r in record_store.records(record_store.FOLDER) if r["date"] <= "2026-11-21"]
    assert first
    assert all(split.program(r["region"]) in split.load_split() for r in first)


def test_other_sizes_names_and_layouts_stay_in_the_same_half() -> None:
    one = "x: bf16[8, 64]\nw: bf16[64]\ny = silu(x) * w\nreturn y\n"
    other = "N: sizes[3, 9]\na: bf16[N, 512].strides(1, 9)\nb: bf16[512]\nz = silu(a)\nq = z * b\nreturn q\n"
    assert split.program(one) == split.program(other)
    assert split.program(one) != split.program(one.replace("silu", "gelu"))


@pytest.mark.parametrize(("program", "side"), [("7" + "f" * 15, "fit"), ("8" + "0" * 15, "test")])
def test_a_program_that_came_later_goes_by_its_hash(program: str, side: str) -> None:
    assert split.half(program) == side


def from_published(entry: Mapping[str, Any]) -> labels.Label:
    """A label of one entry of regions.json. KeyError for a word that is no tool."""
    words = re.findall(r"torch\.compile|library|triton|skip", entry["accept"])
    objective = "memory" if entry["why"].startswith("memory objective") else "time"
    accepted = tuple(TOOLS[w] for w in dict.fromkeys(words))
    return labels.Label(entry["name"], TOOLS[entry["expected"]], accepted, float(entry["share"]), objective)


def test_the_labels_are_the_published_ones(data: Path) -> None:
    published = {e["name"]: e for e in json.loads((data / "regions" / "regions.json").read_text())}
    wanted = {labels.key(text): published[name] for name, text in TEXTS.items()}
    assert {k: asdict(v) for k, v in labels.labels().items()} == {
        k: asdict(from_published(v)) for k, v in wanted.items()
    }


def test_a_labels_words_are_tools() -> None:
    label = from_published(
        {"name": "n", "expected": "torch.compile", "accept": "triton(tie<=5%),library", "share": 0.1, "why": "w"}
    )
    assert (label.expected, label.accepted, label.objective) == ("compile", ("triton", "library"), "time")
