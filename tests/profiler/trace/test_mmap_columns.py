"""Long columns in files, and work in pieces, change nothing but the memory."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.traces.trace_rows import kernel_table
from profiler.trace import Trace, mmap_columns, read_trace
from profiler.trace.analyze.kernel_links import enclosing, innermost, nesting
from profiler.trace.read.column import floats, ints, longs
from tests.profiler.trace.files import TRACES, real
from tests.profiler.trace.read.test_parallel_reader import assert_equal

NAMES = ["gpt2_train_autocast_eager_stack.json.gz", "hta_mi250_minitoy.json.gz", "t5_train_autocast_eager.json.gz"]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are long from 100 rows on, and pieces are of 64."""
    for module in ("mmap_columns", "analyze.kernel_links", "read.column"):
        monkeypatch.setattr(f"profiler.trace.{module}.LONG_ROWS", 100)
    for module in ("mmap_columns", "analyze.kernel_links"):
        monkeypatch.setattr(f"profiler.trace.{module}.PIECE_ROWS", 64)


def is_mapped(array: np.ndarray[Any, Any]) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return isinstance(base, mmap.mmap)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("short")
def test_a_trace_in_files_is_the_trace_in_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spilled: Trace = read_trace(TRACES / name, processes=1)
    table = kernel_table(spilled)
    monkeypatch.undo()
    alone = real(name)
    assert_equal(spilled, alone)
    for a, b in zip(spilled.steps, alone.steps, strict=True):
        assert (a.ops.tolist(), a.kernels.tolist(), a.memory.tolist()) == (
            b.ops.tolist(),
            b.kernels.tolist(),
            b.memory.tolist(),
        )
    assert spilled.notes == alone.notes
    want = {(r.op, r.detail, r.kernel): (r.calls, pytest.approx(r.time_us)) for r in kernel_table(alone)}
    assert {(r.op, r.detail, r.kernel): (r.calls, r.time_us) for r in table} == want
    if len(spilled.ops.name) > 100:
        assert is_mapped(spilled.ops.start_us)
        assert is_mapped(spilled.ops.parent)
    assert not is_mapped(alone.ops.start_us)


@pytest.mark.usefixtures("short")
def test_spans_that_do_not_nest_have_the_same_parents_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(7)
    thread = random.integers(0, 3, 3000).astype(np.int32)
    start = np.round(random.uniform(0, 1000, 3000), 1)
    end = start + np.round(random.exponential(30, 3000), 1)
    order, parent = nesting(thread, start, end)
    at_thread, at = random.integers(0, 4, 500).astype(np.int32), random.uniform(0, 1000, 500)
    sorted_spans = thread[order], start[order], end[order]
    found = innermost(at_thread, at, *sorted_spans, parent)
    assert is_mapped(parent)
    monkeypatch.undo()
    same_order, same_parent = nesting(thread, start, end)
    assert order.tolist() == same_order.tolist()
    assert parent.tolist() == same_parent.tolist() == enclosing(thread[order], end[order]).tolist()
    assert found.tolist() == innermost(at_thread, at, *sorted_spans, same_parent).tolist()


@pytest.mark.usefixtures("short")
def test_a_long_column_keeps_its_numbers_also_where_they_grow_wider() -> None:
    column = longs()
    want: list[int] = []
    for values in ([-1] * 150, [-1] * 30, list(range(120)), [2**40], list(range(250)), [5]):
        column.extend(values.copy, len(values))
        want += values
    assert column.longs().tolist() == want
    assert column.longs().tolist() == []
    constant = longs()
    constant.extend(lambda: [-1] * 1000, 1000)
    assert not any(constant.longs().strides)


def test_without_room_on_disk_the_columns_stay_in_memory(monkeypatch: pytest.MonkeyPatch, short: None) -> None:
    def full(*args: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    for column, kind in ((ints(), int), (floats(), float)):
        want = []
        for i in range(5):
            values = [kind(i * 60 + k) for k in range(60)]
            column.extend(values.copy, 60)
            want += values
        whole = column.drain()
        assert whole.tolist() == want
        assert not is_mapped(whole)
    name = "gpt2_train_autocast_eager_stack.json.gz"
    trace = read_trace(TRACES / name, processes=1)
    assert not is_mapped(trace.ops.start_us)
    monkeypatch.undo()
    assert_equal(trace, real(name))


def test_mapped_pages_leave_memory_when_they_rest() -> None:
    def resident_mb() -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("RssFile:", "RssShmem:"))) / 1024

    column = mmap_columns.empty(8_000_000, np.float64)
    before = resident_mb()
    column[:] = 3.0
    assert resident_mb() - before > 50
    mmap_columns.release(column[100:200])
    assert resident_mb() - before < 10
    assert float(column.sum()) == 24e6
