"""Prefill and decode are told apart by what vLLM's and SGLang's annotations say."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

import pytest

from profiler.trace import read_trace
from profiler.trace.analyze.serving_phases import DECODE, MIXED, PREFILL, Phase, phase_of, phases
from tests.profiler.trace.files import annotation, kernel, launch, loaded, op, real, written

NAMES = {
    "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)": Phase(
        DECODE, 0, 0, 32, 32, 55086
    ),
    "execute_15360_context_15(sq15360sk15360sqsq15728640sqsk15728640)_generation_0(sq0sk0sqsq0sqsk0)": Phase(
        PREFILL, 15, 15360, 0, 0, 15360
    ),
    "execute_context_2(2048)_generation_30(30)": Phase(MIXED, 2, 2048, 30, 30),
    "step[EXTEND bs=15 toks=15360]": Phase(PREFILL, 15, 15360),
    "step[DECODE bs=8 toks=8]": Phase(DECODE, 0, 0, 8, 8),
    "step[IDLE bs=0 toks=0]": None,
    "execute_0_context_0(sq0sk0)_generation_0(sq0sk0)": None,
    "ProfilerStep#3": None,
    "capture_32_FULL": None,
}


@pytest.mark.parametrize("name", NAMES)
def test_an_annotation_says_which_requests_and_tokens_a_step_has(name: str) -> None:
    assert phase_of(name) == NAMES[name]


HOSTILE = (
    "execute_" + "_" * 5_000, "execute_" + "7_" * 5_000, "execute_" + "new_cached_" * 5_000, "execute_" * 5_000,
    "execute_context_1(" * 5_000, "execute_context_" + "9" * 5_000 + "(1)_generation_0(0)", "step[" + "A" * 5_000,
    "step[DECODE bs=" + "9" * 5_000,
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_that_is_made_to_be_slow_to_read_is_read_at_once(name: str) -> None:
    told = phase_of(name)
    assert told is None or told.kind == DECODE


def test_what_stands_before_the_context_is_words_and_numbers_with_underscores() -> None:
    """Every text of up to five pieces, against the rule written out piece by piece."""
    piece = re.compile(r"(?:new|cached)?_?\d*_")
    for size in range(6):
        for pieces in product(("new", "cached", "_", "7", "x"), repeat=size):
            before = "".join(pieces)
            ends = {0}
            for at in range(len(before)):
                if at in ends:
                    ends |= {end for end in range(at + 1, len(before) + 1) if piece.fullmatch(before, at, end)}
            told = phase_of(f"execute_{before}context_1(2)_generation_0(0)")
            assert (told is not None) == (len(before) in ends), before


@pytest.mark.parametrize(("name", "kind"), [("tl_vllm_decode_full_exec", DECODE), ("tl_sglang_prefilldecode", PREFILL)])
def test_real_serving_traces_are_of_the_phase_that_they_annotate(name: str, kind: str) -> None:
    file = f"{name}.json.gz"
    (only,) = phases(real(file))
    total = sum(e["dur"] for e in loaded(file)["traceEvents"] if e.get("cat") == "kernel")
    assert (only.phase.kind, only.steps) == (kind, 1)
    assert only.kernel_us == pytest.approx(total, rel=0.001)
    assert {n.code for n in real(file).notes} >= {"serving-phases"}


def test_kernels_of_prefill_and_of_decode_are_counted_apart(tmp_path: Path) -> None:
    events = [
        annotation("execute_100_context_1(sq100sk100)_generation_0(sq0sk0)", 0, 100),
        annotation("step[EXTEND bs=1 toks=100]", 10, 80),
        annotation("execute_8_context_0(sq0sk0)_generation_8(sq8sk800)", 200, 50),
        annotation("execute_4_context_0(sq0sk0)_generation_4(sq4sk400)", 300, 50),
    ]
    for i, (at, dur) in enumerate(((20.0, 500.0), (210.0, 30.0), (310.0, 20.0), (400.0, 7.0))):
        events += [op("aten::mm", at, 5), launch(at + 1, i + 1), kernel(1000.0 * (i + 1), dur, i + 1)]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    first, second = phases(trace)
    assert (first.phase.kind, first.kernel_us, first.steps) == (PREFILL, 500.0, 1)
    assert (second.phase.kind, second.kernel_us, second.steps) == (DECODE, 50.0, 2)
    assert second.phase.decode_requests == 8
    note = next(n for n in trace.notes if n.code == "serving-phases")
    assert "Record each kind by itself" in note.remedy and note.message.startswith("Prefill of 1 request")


def test_a_trace_without_such_annotations_has_no_phases() -> None:
    assert not phases(real("gpt2_train_autocast_eager.json.gz"))
