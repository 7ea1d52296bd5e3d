"""The committed corpus: thirds share nothing, programs are what the parser and the grammar of families make of them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict

import pytest

from app.accuracy.corpus.programs import BLIND, FILE, FIT, THIRDS, load_corpus, load_programs
from app.archive.program_fingerprint import fingerprint
from profiler.region.language.text import parse, to_text
from tools.corpus.admission import admit
from tools.corpus.families import LABELS
from tools.corpus.mined import MIN_US

PROGRAMS = load_corpus().programs


def test_there_are_600_programs_under_names_of_their_own() -> None:
    assert len(PROGRAMS) >= 600
    assert len({p.name for p in PROGRAMS}) == len(PROGRAMS)
    assert FILE.stat().st_size < 2_000_000


def test_no_program_and_no_structure_is_in_two_thirds() -> None:
    assert len({fingerprint(p.text, "same") for p in PROGRAMS}) == len(PROGRAMS)
    for level in ("other-layout", "other-sizes"):
        thirds: dict[str, set[str]] = defaultdict(set)
        for program in PROGRAMS:
            thirds[fingerprint(program.text, level)].add(program.third)
        assert {len(t) for t in thirds.values()} == {1}, level


def test_the_third_is_the_familys_hash() -> None:
    for program in PROGRAMS:
        number = int(hashlib.sha256(program.family.encode()).hexdigest()[:16], 16)
        assert program.third == THIRDS[number % 3], program.name


def test_no_structure_has_more_than_three_sizes_of_one_origin() -> None:
    counts = Counter((fingerprint(p.text, "other-sizes"), p.origin.kind) for p in PROGRAMS)
    assert max(counts.values()) <= 3


def test_every_program_is_as_the_parser_prints_it() -> None:
    for program in PROGRAMS:
        region = parse(program.text)
        assert to_text(region) == program.text, program.name
        assert (program.mode == "training") == region.requires_grad, program.name
        assert not region.symbols


@pytest.mark.parametrize("rest", range(3))
def test_a_tenth_of_the_programs_lowers_to_what_was_written_of_it(rest: int) -> None:
    """All were lowered when the file was made; the rest would take a minute.

    A family keeps the name, and so the third, of that day, though a pattern may be recognised since; FLOPs are counted
    otherwise since where an operation is one that was several.
    """
    for program in PROGRAMS[rest::30]:
        admitted = admit(program.text)
        assert admitted is not None, program.name
        assert admitted.family.label == program.label, program.name
        assert admitted.bytes_moved == program.bytes_moved, program.name
        assert admitted.flops == pytest.approx(program.flops, rel=0.15), program.name


def test_every_label_is_in_every_third_and_no_third_is_small() -> None:
    labels = {(p.label, p.third) for p in PROGRAMS}
    assert {label for label, _ in labels} == set(LABELS)
    assert all((label, third) in labels for label in LABELS for third in THIRDS)
    assert min(Counter(p.third for p in PROGRAMS).values()) >= 0.22 * len(PROGRAMS)


def test_families_are_small_beside_the_corpus() -> None:
    families = Counter(p.family for p in PROGRAMS)
    assert len(families) >= 150
    assert max(families.values()) <= 0.04 * len(PROGRAMS)


def test_dtypes_and_modes_are_those_of_practice() -> None:
    share = {d: n / len(PROGRAMS) for d, n in Counter(p.dtype for p in PROGRAMS).items()}
    assert 0.35 <= share["bf16"] <= 0.6
    assert 0.25 <= share["f32"] <= 0.5
    assert 0.04 <= share["f16"] <= 0.2
    assert 0.04 <= share["autocast"] <= 0.2
    assert 0.25 <= sum(p.mode == "training" for p in PROGRAMS) / len(PROGRAMS) <= 0.6


def test_programs_of_traces_say_where_they_were_seen() -> None:
    seen = [p for p in PROGRAMS if p.origin.kind == "trace"]
    assert len(seen) >= 350
    assert len({p.origin.model for p in seen}) >= 60
    for program in seen:
        assert program.origin.library in load_corpus().licences
        assert program.origin.time_us >= MIN_US
        assert program.origin.models >= 1


def test_the_manifest_counts_the_file() -> None:
    told = json.loads(FILE.with_name("manifest.json").read_text())
    assert told["programs"] == len(PROGRAMS)
    assert told["programs_of_family"] == Counter(p.family for p in PROGRAMS)
    assert told["third"] == Counter(p.third for p in PROGRAMS)


def test_a_third_is_asked_for_by_its_name() -> None:
    assert {p.third for p in load_programs(FIT)} == {FIT}
    assert len(load_programs(*THIRDS)) == len(PROGRAMS)
    for wrong in ((), ("test",), (FIT, BLIND.upper())):
        with pytest.raises(ValueError, match="thirds of the corpus"):
            load_programs(*wrong)
