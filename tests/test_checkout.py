"""The checkout is the whole of what exists: nothing in it reads a file that is not in it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import DATA, ROOT

MOST_TRACE_BYTES = 25_000_000
"""Of the traces together: everybody who clones the project fetches them."""

COPIED = ("static/vendor/", "tests/browser/vendor/", "tests/fuzz/corpus/", "tests/data/")
"""Texts of others, and inputs that a fuzzer made."""

MODULE_PATH = re.compile(r"Path\(__file__\)(?:\.resolve\(\))?((?:\.parent\b|\.parents\[\d+\])+)")
ABOVE_ROOT = re.compile(r"\bROOT\.parents?\b|\.\./shared|\bshared/traces|\"shared\" / \"traces\"|/work(?:space)?/")
THIS = "tests/test_checkout.py"
LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)")


def tracked() -> list[str]:
    """What git tracks, or all that is here where there is no git: an unpacked archive."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [name for name in done.stdout.split("\0") if (ROOT / name).is_file()]
    here = (p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file())
    return [str(p) for p in here if p.parts[0] != ".venv"]


def texts() -> Iterator[tuple[str, str]]:
    """Our own texts, by their paths."""
    for name in tracked():
        if not name.startswith(COPIED):
            try:
                yield name, (ROOT / name).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # a picture


def steps_up(chain: str) -> int:
    """How many folders above the module's file a chain of .parent and .parents[n] ends."""
    return chain.count(".parent") - chain.count(".parents") + sum(int(n) + 1 for n in re.findall(r"\[(\d+)\]", chain))


def test_no_module_finds_its_files_above_the_root() -> None:
    chains = [(name, m[1]) for name, text in texts() if name.endswith(".py") for m in MODULE_PATH.finditer(text)]
    assert len(chains) > 50
    assert [(name, chain) for name, chain in chains if steps_up(chain) > len(Path(name).parts)] == []


def test_no_text_names_a_folder_outside() -> None:
    named = {
        name: sorted(set(ABOVE_ROOT.findall(text)))
        for name, text in texts()
        if name != THIS and ABOVE_ROOT.search(text)
    }
    assert named == {}


def test_links_of_the_documents_lead_to_what_is_here() -> None:
    documents = [(name, text) for name, text in texts() if name.endswith(".md")]
    assert len(documents) > 15
    missing = [
        (name, link)
        for name, text in documents
        for link in LINK.findall(text)
        if not (target := (ROOT / name).parent / link).exists() or not target.resolve().is_relative_to(ROOT)
    ]
    assert missing == []


@pytest.mark.parametrize("folder", ["attacks", "measurements", "regions", "traces"])
def test_the_manifest_names_every_file(folder: str) -> None:
    manifest = (DATA / folder / "MANIFEST.md").read_text(encoding="utf-8")
    assert "licence" in manifest
    for path in (p for p in (DATA / folder).iterdir() if p.name != "__pycache__"):
        assert path.name.removesuffix(".et.json.gz") in manifest or path.name == "MANIFEST.md", path


def test_every_trace_has_a_source_and_a_licence() -> None:
    manifest = (DATA / "traces" / "MANIFEST.md").read_text(encoding="utf-8")
    recorded, copied = (s.splitlines() for s in manifest.split("\n## ")[1:])
    ours = {line.split("|")[1] for line in recorded if line.startswith("|") and ".json" in line}
    rows = [line.split("|")[1:4] for line in copied if line.startswith("|") and ".json" in line]
    there = {p.name for p in (DATA / "traces").glob("*.json*") if ".et." not in p.name} - {"expected.json"}
    assert ours.isdisjoint(name for name, _, _ in rows)
    assert ours | {name for name, _, _ in rows} == there
    for name, source, licence in rows:
        repository = source.split(":")[0].split("/")[1]
        assert licence in ("MIT", "BSD-3"), name
        text = (DATA / "traces" / "licences" / f"{repository}.txt").read_text(encoding="utf-8")
        assert text.lstrip("# ").startswith({"MIT": "MIT License", "BSD-3": "BSD 3-Clause License"}[licence]), name


def test_the_traces_are_small_enough_to_clone() -> None:
    assert sum(p.stat().st_size for p in (DATA / "traces").rglob("*") if p.is_file()) < MOST_TRACE_BYTES
