"""The random programs over the generator's newer operations: all are taken, and what is wrong or slow is told."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernels.codegen.generated import generate
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from tools.fuzz.claims import claimed
from tools.fuzz.new_operations import (
    ERROR,
    REFUSED,
    RIGHT,
    WRONG,
    Outcome,
    drawn,
    fault,
    fault_in_steps,
    table,
    texts_of,
)
from tools.fuzz.operation_families import input_bytes
from tools.fuzz.scatter_and_product_families import ALL, program_of_seed
from tools.records.launched_record import RECORDS


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("family", ALL)
def test_every_program_is_generated(family: str, size: str) -> None:
    for seed in range(12):
        text = program_of_seed(family, seed, size)
        assert text == program_of_seed(family, seed, size)
        assert generate(lower(parse(text))).sources, text
        assert input_bytes(text) <= (1 << 16 if size == "small" else 256 << 20), text


def exact(*outputs: torch.Tensor, selected: dict[int, object] | None = None) -> SimpleNamespace:
    return SimpleNamespace(outputs=outputs, selected=selected or {})


def test_a_wrong_number_and_an_index_of_another_value_are_faults() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0]])
    assert fault([x], [x], exact(x.double())) == ""
    assert "error" in fault([x * 1.01], [x], exact(x.double()))
    first, second, other = (torch.tensor([[i]]) for i in (1, 2, 3))
    chosen = exact(first, selected={0: (x.double(), 1, torch.int64)})
    assert fault([second], [first], chosen) == ""  # of an equal value
    assert fault([other], [first], chosen) == "output 0: indices of other values"
    assert "not torch.float32" in fault([x.bfloat16()], [x], exact(x.double()))


def test_a_quantised_number_may_be_on_the_next_step_and_no_further() -> None:
    near = torch.arange(-100, 100, dtype=torch.int8)
    wanted = near.double()
    off = near.clone()
    off[7] += 1
    assert fault_in_steps(near, wanted) == fault_in_steps(off, wanted) == ""
    assert "2 by one" not in fault_in_steps(off, wanted)
    off[9] += 2
    assert fault_in_steps(off, wanted) == "1 of 200 elements more than a step off, 1 by one"
    assert fault_in_steps(near + 1, wanted) == "0 of 200 elements more than a step off, 200 by one"
    small = torch.tensor([0.001953125, -0.001953125, 448.0]).to(torch.float8_e4m3fn)
    assert fault_in_steps(small, torch.tensor([0.0, 0.0, 416.0], dtype=torch.float64)) == ""


def test_the_table_has_the_median_by_family_and_tells_losses_and_errors() -> None:
    rows = [
        Outcome("scan", 0, "", RIGHT, kernels=1, generated_us=10.0, compiled_us=20.0, ratio=0.5),
        Outcome("scan", 1, "", RIGHT, kernels=2, kept=["sort"], generated_us=30.0, compiled_us=20.0, ratio=1.5),
        Outcome("scan", 2, "", RIGHT, kernels=1, generated_us=9.0, compiled_us=10.0, ratio=0.9),
        Outcome("pool", 0, "", WRONG, "output 0: 3 of 4 integers differ"),
        Outcome("pool", 1, "", ERROR, "the process ended with -11"),
        Outcome("pool", 2, "", REFUSED, "a window of 81 elements"),
    ]
    lines = table(rows).splitlines()
    assert lines[1].split() == ["scan", "3", "0", "0", "0", "4", "0.90", "1.50"]
    assert lines[2].split() == ["pool", "0", "1", "1", "1", "0"]
    assert lines[3:] == [
        "error: pool 1: the process ended with -11",
        "refused: pool 2: a window of 81 elements",
        "wrong: pool 0: output 0: 3 of 4 integers differ",
        "loss 1.50: scan 1: 30.0 µs, torch.compile 20.0; 2 kernels; aten: sort",
    ]


def test_drawn_programs_are_distinct_and_come_in_turns() -> None:
    families = ("bag", "gather", "topk")
    programs = drawn(families, 0, 24, "large")
    texts = [program_of_seed(family, seed) for family, seed in programs]
    assert len(set(texts)) == len(texts) == 72
    assert [family for family, _ in programs] == [*families] * 24
    rest = drawn(families, 0, 8, "large", known=texts)
    assert not {program_of_seed(family, seed) for family, seed in rest} & set(texts)


def test_an_item_is_claimed_once_and_without_a_folder_always(tmp_path: Path) -> None:
    shared = tmp_path / "claims"
    assert claimed(shared, "scan 1")
    assert not claimed(shared, "scan 1")
    assert claimed(shared, "scan 2")
    assert claimed(None, "scan 1")
    assert claimed(None, "scan 1")


def test_a_record_of_several_runs_is_as_good_as_what_one_run_wrote() -> None:
    record = json.loads((RECORDS / "new-operations-h200.json").read_text(encoding="utf-8"))
    texts = texts_of(record)
    assert len(record["runs"]) == 4 and len(texts) >= 300
    assert texts_of(record["runs"][0]) < texts
