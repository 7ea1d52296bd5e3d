"""What would break: a copy that the driver makes told as a kernel, or a kernel that changes a layout told as a copy."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from app.program.memory_copies import is_memory_copy
from app.program.service import write_predicted
from profiler.program.model import Call, Signature
from profiler.program.request import Request
from profiler.region.graph.operation import Operation, Tensor
from tests.app.program.test_layout import PROGRAMS, device


def tensor(shape: tuple[int, ...], stride: tuple[int, ...], dtype: str = "bf16") -> Tensor:
    return Tensor(shape, stride, dtype, 0, 2 * shape[0] * shape[1])


def call(name: str, source: Tensor, written: Tensor) -> Call:
    operation = Operation("call_0", f"{name}.default", name, "copy", (), (source,), (written,), 0, 0)
    return Call(f"aten::{name}", -1, Signature(), operation, 0, -1, False)


ROWS, COLUMNS = tensor((8, 16), (16, 1)), tensor((8, 16), (1, 8))


@pytest.mark.parametrize(
    ("name", "source", "written", "copied"),
    [
        ("clone", ROWS, ROWS, True),
        ("clone", COLUMNS, COLUMNS, True),
        ("copy_", ROWS, ROWS, True),
        ("clone", COLUMNS, ROWS, False),
        ("clone", tensor((8, 16), (16, 1), "f32"), ROWS, False),
        ("copy_", tensor((8, 16), (32, 1)), tensor((8, 16), (32, 1)), False),
        ("copy_", tensor((8, 16), (0, 1)), tensor((8, 16), (0, 1)), False),
        ("add", ROWS, ROWS, False),
    ],
)
def test_alike_and_without_gaps(name: str, source: Tensor, written: Tensor, copied: bool) -> None:
    assert is_memory_copy(call(name, source, written)) is copied


def test_a_predicted_trace_has_the_copy_as_torch_profiler_names_it(tmp_path: Path) -> None:
    path = tmp_path / "step.json.gz"
    write_predicted(Request(f"{PROGRAMS}:pads_nothing"), device("H200"), path)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    (copy,) = (e for e in events if e["cat"] == "gpu_memcpy")
    assert copy["name"] == "Memcpy DtoD (Device -> Device)"
    assert [e["name"] for e in events if e["cat"] == "kernel"] == ["predicted:aten::relu"]
    (asked,) = (e for e in events if e["name"] == "cudaMemcpyAsync")
    assert asked["args"]["correlation"] == copy["args"]["correlation"]
