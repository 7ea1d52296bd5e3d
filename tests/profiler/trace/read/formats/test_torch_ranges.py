"""The names of PyTorch's ranges, as its source writes them."""

from __future__ import annotations

import pytest

from profiler.trace.model import NONE
from profiler.trace.read.formats.torch_ranges import MOST_NAME, Range, parse_range, range_event
from tests.profiler.trace.files import TRACES, loaded
from tests.profiler.trace.nsys_export import emitted

SIZES = "[[2, 3], [3, 4]]"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("aten::mm", Range("aten::mm", True)),
        ("aten::mm, seq = 5", Range("aten::mm", True, 5)),
        (f"aten::mm, seq = 5, op_id = 12, sizes = {SIZES}", Range("aten::mm", True, 5, SIZES)),
        (f"aten::mm, op_id = 2, sizes = {SIZES}, input_op_ids = [(7, 0), (3, 1)]",
         Range("aten::mm", True, NONE, SIZES)),
        (f"aten::mm, seq = 5, sizes = {SIZES}, input_op_ids = []", Range("aten::mm", True, 5, SIZES)),
        ("autograd::engine::evaluate_function: AddmmBackward0, seq = 5, op_id = 40",
         Range("autograd::engine::evaluate_function: AddmmBackward0", True, 5)),
        ("AddmmBackward0", Range("AddmmBackward0", True)),
        ("MyFunction, seq = 3", Range("MyFunction", True, 3)),
        ("ProfilerStep#3, op_id = 9", Range("ProfilerStep#3", False)),
        ("forward, encoder, op_id = 9", Range("forward, encoder", False)),
        ("train step 4", Range("train step 4", False)),
        ("Optimizer.step#AdamW.step", Range("Optimizer.step#AdamW.step", False)),
        ("nccl:all_reduce", Range("nccl:all_reduce", False)),
        ("loss, seq = many", Range("loss, seq = many", False)),
        ("aten::mm, sizes = [[2, 3], oops", Range("aten::mm, sizes = [[2, 3], oops", True)),
        ("", Range("", False)),
    ],
)  # fmt: skip
def test_a_range_s_text_says_name_sequence_and_sizes(text: str, told: Range) -> None:
    assert parse_range(text) == told


def test_operations_and_annotations_of_recorded_traces_stay_what_they_are() -> None:
    """By the names alone, without the sequence numbers that would give them away."""
    wrong: dict[str, set[str]] = {}
    seen = 0
    for path in sorted(TRACES.glob("*.json.gz")):
        if ".et." in path.name:
            continue
        for event in loaded(path.name)["traceEvents"]:
            category = event.get("cat")
            if event.get("ph") == "X" and category in ("cpu_op", "user_annotation"):
                seen += 1
                if parse_range(emitted(event["name"], {})).is_operation != (category == "cpu_op"):
                    wrong.setdefault(category, set()).add(event["name"])
    assert seen > 100_000
    assert wrong.get("user_annotation", set()) == set()
    # what users named themselves: torch.autograd.Function, and record_function of old versions of PyTorch
    assert len(wrong.get("cpu_op", set())) <= 30


def test_a_hostile_text_takes_no_time_and_no_room() -> None:
    for text in ("a, seq = " * 50_000, "aten::mm, sizes = " + "[" * 100_000, "x" * 1_000_000, ", seq = 1"):
        assert len(parse_range(text).name) <= MOST_NAME


def test_the_event_is_the_one_that_torch_would_have_written() -> None:
    event = range_event(f"aten::mm, seq = 5, sizes = {SIZES}", 1, 2, 3.0, 4.0)
    assert (event.cat, event.name, event.pid, event.tid, event.ts, event.dur) == ("cpu_op", "aten::mm", 1, 2, 3.0, 4.0)
    assert event.args is not None
    assert (event.args.sequence, bytes(event.args.dims)) == (5, SIZES.encode())
    assert range_event("step 1", 1, 2, 3.0, 4.0).cat == "user_annotation"
