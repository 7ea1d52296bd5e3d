"""The blind third by its one command, on a made one: recorded before it is shown, and seen in no other way."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from app import cli
from app.accuracy.corpus import looks, measured, programs
from app.accuracy.corpus.document import NO_LOOK
from app.accuracy.corpus.measured import write_measured
from app.accuracy.corpus.programs import Corpus
from app.cli import corpus_accuracy
from app.objects.record import ArchiveRecord
from tests.app.accuracy.corpus.made import H100, H200, corpus_with_blind, development_records

MEASURED, UNMEASURED = 2, 1


@pytest.fixture(scope="module")
def records() -> list[ArchiveRecord]:
    """Two programs on one device, and one of them on another as well."""
    return [*development_records(MEASURED), *development_records(1, H100)]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: list[ArchiveRecord]) -> Path:
    """A folder under git with docs, records of looks and of the development third, and few measured programs."""
    for name in ("ROOT", "DOCS"):
        monkeypatch.setattr(corpus_accuracy, name, tmp_path)
    monkeypatch.setattr(looks, "LOOKS", tmp_path / "looks.json")
    monkeypatch.setattr(looks, "DEVELOPED", tmp_path / "development.json")
    monkeypatch.setattr(measured, "FILE", tmp_path / "measured.jsonl.gz")
    write_measured(measured.FILE, records)
    (tmp_path / "accuracy.md").touch()
    for command in (("init", "-q"), ("add", "accuracy.md"), ("commit", "-q", "-m", "first")):
        identity = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *command], check=True)
    return tmp_path


@pytest.fixture
def blind(checkout: Path, monkeypatch: pytest.MonkeyPatch, corpus: Corpus) -> Path:
    """The same with a blind third of programs that the project may look at."""
    monkeypatch.setattr(programs, "load_corpus", lambda: corpus)
    return checkout


@pytest.fixture(scope="module")
def corpus(records: list[ArchiveRecord]) -> Corpus:
    return corpus_with_blind(records, UNMEASURED)


def test_a_look_is_on_record_and_published_with_both_ways_of_predicting(
    blind: Path, records: list[ArchiveRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = blind
    assert cli.main(["accuracy", "blind"]) == 0
    shown = capsys.readouterr().out
    (look,) = looks.load_looks(checkout / "looks.json")
    head = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True)
    assert (look["commit"], look["changed"]) == (head.stdout.strip(), False)
    own, scaled = look["figures"]
    for figures in (own, scaled):
        assert figures["programs"] == MEASURED + UNMEASURED
        assert {d["device"]: d["measured"] for d in figures["devices"]} == {H100: 1, H200: MEASURED}
    assert {d["device"]: (d["atlas"], d["own"]) for d in own["devices"]} == {H100: (H100, True), H200: (H200, True)}
    assert {d["device"]: (d["atlas"], d["own"]) for d in scaled["devices"]} == {
        H100: (H200, False), H200: (H100, False),
    }  # fmt: skip
    document = (checkout / "accuracy.md").read_text()
    assert look["commit"][:10] in document and NO_LOOK not in document
    assert "another's atlas" in shown and "By family and mode" in shown
    text = json.dumps(look) + shown + document
    assert not [r["name"] for r in records if r["name"] in text]  # no program is named

    assert cli.main(["accuracy", "blind", "--json"]) == 0
    first, second = looks.load_looks(checkout / "looks.json")
    assert first == look and second["changed"]  # the page was written and not committed
    assert json.loads(capsys.readouterr().out) == second


def test_the_blind_third_is_not_shown_in_passing(blind: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--json"], ["--write"], ["--oracle", "auto"]):
        assert cli.main(["accuracy", "--corpus", "blind", *more]) == 2
        said = capsys.readouterr()
        assert "puts every look on record" in said.err and not said.out
    assert not (blind / "looks.json").exists()


def test_without_a_commit_or_a_measurement_there_is_no_look(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_measured(checkout / "measured.jsonl.gz", [])
    assert cli.main(["accuracy", "blind"]) == 2
    assert "no program of the blind third was measured yet" in capsys.readouterr().err
    bare = checkout / "bare"
    bare.mkdir()
    monkeypatch.setattr(corpus_accuracy, "ROOT", bare)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(checkout))
    assert cli.main(["accuracy", "blind"]) == 2
    assert "is no git checkout with a commit" in capsys.readouterr().err
    assert not (checkout / "looks.json").exists()


def test_the_file_of_the_development_third_is_written_by_every_way_of_predicting(
    checkout: Path, records: list[ArchiveRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["accuracy", "--corpus", "development", "--write"]) == 0
    held = looks.load_development(checkout / "development.json")
    assert held is not None and len({f["prediction"] for f in held["figures"]}) == len(held["figures"]) == 4
    assert {f["third"] for f in held["figures"]} == {"development"}
    document = (checkout / "accuracy.md").read_text()
    assert all(f["prediction"] in document for f in held["figures"])
    assert capsys.readouterr().err.count("3 of 3") == 4  # each way, and no other


def test_a_third_that_may_be_looked_at_is_shown_with_its_programs(
    checkout: Path, records: list[ArchiveRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["accuracy", "--corpus", "development", "--scaled-atlas", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    assert {d["atlas"] for d in run["devices"]} == {H100, H200} and not any(d["own"] for d in run["devices"])
    assert {o["program"] for o in run["outcomes"]} == {r["name"] for r in records}
    assert cli.main(["accuracy", "--corpus", "development"]) == 0
    text = capsys.readouterr().out
    assert all(o["program"] in text for o in run["outcomes"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--write", "--corpus", "fit"],
        ["--write", "--corpus", "development", "--oracle", "auto"],
        ["--write", "--scaled-atlas"],
        ["--corpus", "fit", "--records", "."],
    ],
)
def test_what_does_not_go_together_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["accuracy", *arguments]) == 2
    said = capsys.readouterr()
    assert said.err and not said.out
