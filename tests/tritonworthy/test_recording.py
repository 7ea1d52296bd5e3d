"""What is said of a recording: its files' names, and which of two is the one to read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tritonworthy.recording import Recording, describe, files_of, stacks_are_free

PATH, STACKS = Path("step.json.gz"), Path("step.stacks.json.gz")
RECORDING = Recording(PATH, PATH, STACKS, Path("step.et.json.gz"), 10e3, 10.4e3, 20e3, has_gpu=True)


def test_each_rank_has_files_of_its_own() -> None:
    names = {path.name for rank in (None, 0, 1) for path in vars_of(files_of(Path("a/step.json.gz"), rank))}
    assert len(names) == 12
    assert {"step.json.gz", "step.rank0.json.gz", "step.rank1.stacks.json.gz", "step.et.json.gz"} <= names
    assert files_of(Path("step.json")).plain == Path("step.plain.json")


def vars_of(files: object) -> list[Path]:
    return [getattr(files, name) for name in ("path", "plain", "stacks", "execution_trace")]


@pytest.mark.parametrize("name", ["step.pt", ".json", "step.json.bz2", "step"])
def test_a_name_that_the_reader_would_not_take_for_a_trace_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="ends in"):
        files_of(Path(name))


def test_stacks_are_read_where_they_cost_the_step_nothing() -> None:
    assert stacks_are_free(10e3, 10.9e3) and not stacks_are_free(10e3, 11.1e3)


def test_slowdown_is_of_the_trace_to_read_and_its_execution_trace_goes_with_stacks_alone() -> None:
    assert RECORDING.slowdown == pytest.approx(1.04) and not RECORDING.disturbed
    assert RECORDING.observed is None
    stacks = replace(RECORDING, path=STACKS)
    assert stacks.slowdown == 2.0 and stacks.disturbed
    assert stacks.observed == Path("step.et.json.gz")
    assert replace(RECORDING, bare_us=None).slowdown is None


def test_words_tell_of_the_slowdown_the_other_file_and_a_host_without_a_gpu() -> None:
    said = describe(replace(RECORDING, plain_us=13e3, has_gpu=False))
    assert said[0] == "recorded step.json.gz, 13.00 ms a step, 1.30 times the 10.00 ms without the profiler"
    assert [word in " ".join(said) for word in ("overstated", str(STACKS), "no GPU here")] == [True] * 3
    assert len(describe(RECORDING)) == 2


def test_a_profiler_that_seems_to_make_steps_faster_is_told_as_unsteady() -> None:
    first = describe(replace(RECORDING, plain_us=0.2e3))[0]
    assert first == "recorded step.json.gz, 0.20 ms a step, 10.00 ms without the profiler; unsteady: slowdown not told"
    assert "0.95 times" in describe(replace(RECORDING, plain_us=9.5e3))[0]
