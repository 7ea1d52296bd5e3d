"""Prefill against decode by shapes: what the recordings' files themselves say, and steps made up for it."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from typing import Any

import pytest

from app.trace_report.comparison.compare import compare_traces, step_headline
from app.trace_report.comparison.serving import serving
from tests.app import samples
from tests.app.trace_report.reports import reported
from tests.profiler.trace.files import TRACES

Json = dict[str, Any]
PREFILL, COMPILED = "llama_prefill_bf16_eager.json.gz", "llama_prefill_bf16_compiled.json.gz"
DECODE = "llama_decode_bf16_eager.json.gz"


def part(name: str, operands: list[str], op: str = "linear", time_us: float = 100.0, calls: float = 1.0) -> Json:
    shape = {"binding": {}, "operands": operands, "calls": calls, "time_us_per_step": time_us}
    return samples.region(name, time_us=time_us) | {
        "key": f"{name}{operands}", "shapes": [shape], "source": {"module": "", "ops": [op]}, "calls_per_step": calls
    }  # fmt: skip


def step(batch: int, tokens: int, keys: int, hidden: int = 512) -> Json:
    """A layer of a model: two products and attention."""
    x = f"x: bf16[{batch}, {tokens}, {hidden}]"
    return trace(
        part("up", [x, f"w: bf16[{4 * hidden}, {hidden}]"]),
        part("out", [x, f"w: bf16[{hidden}, {hidden}]"]),
        part("attention", [f"q: bf16[{batch}, 8, {tokens}, 64]", f"k: bf16[{batch}, 2, {keys}, 64]"], "sdpa"),
    )


def trace(*regions: Json) -> Json:
    times = {"count": 5, "left_out": 0, "median_us": 900.0, "low_us": 899.0, "high_us": 901.0, "shortest_us": 899.0,
             "longest_us": 901.0}  # fmt: skip
    return samples.trace([*regions]) | {"rests": [], "step_times": times, "device": "NVIDIA H200"}


@pytest.mark.parametrize("name", [PREFILL, COMPILED, DECODE])
def test_tokens_are_those_of_the_attention_calls_in_the_file(name: str) -> None:
    """The query's sizes of every attention call, from the events alone, by the calls that have them most."""
    with gzip.open(TRACES / name) as file:
        events = json.load(file)["traceEvents"]
    calls = Counter(
        e["args"]["Input Dims"][0][-2]
        for e in events
        if re.fullmatch(r"aten::(_scaled_dot_product_cudnn_attention|scaled_dot_product_attention)", e.get("name", ""))
        if e.get("args", {}).get("Input Dims")
    )  # fmt: skip
    told = reported(name)["serving"]
    assert told["tokens"] == calls.most_common(1)[0][0]
    assert told["kind"] == ("decode" if told["tokens"] == 1 else "prefill")


@pytest.mark.parametrize("other", [PREFILL, COMPILED])
def test_a_recorded_prefill_against_a_decode_of_the_same_model_has_no_verdict(other: str) -> None:
    prefill, decode = reported(other), reported(DECODE)
    comparison = compare_traces(prefill, decode)
    assert comparison["refused"] and step_headline(comparison) == "Not the same work"
    assert "A is a prefill, B a decode (2,048 tokens and 1 token of each sequence" in comparison["verdict"]
    assert {r["verdict"] for r in comparison["rows"] if r["a_count"] and r["b_count"]} == {"no verdict"}
    assert "A is a decode, B a prefill" in compare_traces(decode, prefill)["because"]


def test_recordings_of_one_prefill_keep_their_verdict_and_shorter_sequences_do_not() -> None:
    assert not compare_traces(reported(PREFILL), reported(COMPILED))["refused"]
    shorter = compare_traces(reported(PREFILL), reported("llama_eager_attention_prefill.json.gz"))
    assert "the products of A have 8,192 rows, those of B 2,048" in shorter["because"]


def test_steps_of_two_models_are_other_work_though_their_parts_have_the_same_names() -> None:
    vision = reported("timm_vit_base_bf16_eager.json.gz")
    assert "no matrix product of either has weights" in compare_traces(reported(PREFILL), vision)["because"]


def test_the_batch_is_told_by_the_rows_where_the_sequences_are_as_long() -> None:
    four, eight = step(4, 1, 700), step(8, 1, 700)
    assert "the products of A have 4 rows, those of B 8" in compare_traces(four, eight)["because"]
    assert not compare_traces(four, step(4, 1, 900))["refused"], "a cache that grew"
    assert not compare_traces(step(4, 512, 512), step(4, 600, 600))["refused"], "sequences that are a little longer"


def test_without_attention_the_products_tell_one_token_of_each_sequence() -> None:
    decode = [r for r in step(4, 1, 700)["regions"] if r["name"] != "attention"]
    assert serving(decode) == {"kind": "decode", "tokens": 1, "single_share": 1.0}
    flat = part("mm", ["x: bf16[4, 512]", "w: bf16[512, 2048]"], "mm")
    assert serving([flat]) is None, "four rows may be four sequences or one of four tokens"
    assert serving([samples.region("old")]) is None


def test_a_prefill_before_many_decoded_tokens_leaves_the_step_a_decode() -> None:
    mixed = [*step(4, 1, 700)["regions"] * 7, *step(4, 128, 128)["regions"]]
    assert serving(mixed) == {"kind": "decode", "tokens": 1, "single_share": 7 / 8}


def test_joined_weights_are_the_same_model() -> None:
    x = "x: bf16[4, 64, 512]"
    joined = trace(part("qkv", [x, "w: bf16[1536, 512]"], time_us=150), part("out", [x, "w: bf16[512, 512]"]))
    separate = trace(part("q", [x, "w: bf16[512, 512]"], calls=4, time_us=250), part("up", [x, "w: bf16[2048, 512]"]))
    assert "rows" not in compare_traces(joined, separate)["because"]
    assert "weights" not in compare_traces(joined, separate)["because"]
