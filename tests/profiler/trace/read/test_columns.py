"""What the columns hold: order, shapes, modules, streams, times."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from profiler.trace import read_trace
from profiler.trace.model import NONE, Detail
from tests.profiler.trace.files import EXPECTED, kernel, launch, loaded, op, real, written


@pytest.mark.parametrize("name", [n for n in sorted(EXPECTED) if not n.startswith("large")])
def test_columns_are_in_the_order_that_the_model_promises(name: str) -> None:
    trace = real(name)
    ops = trace.ops
    rows = list(zip(ops.thread.tolist(), ops.start_us.tolist(), (-ops.end_us).tolist(), strict=True))
    assert rows == sorted(rows)
    assert (np.diff(trace.kernels.start_us) >= 0).all()
    assert (np.diff(trace.memory.start_us) >= 0).all()
    assert (np.diff(trace.annotations.start_us) >= 0).all()
    assert all(a.start_us <= b.start_us for a, b in pairwise(trace.steps))


def test_shapes_types_strides_and_values_are_those_of_the_file() -> None:
    name = "handrolled_blocks_bf16_eager.json.gz"
    want = sorted(
        (e for e in loaded(name)["traceEvents"] if e.get("cat") == "cpu_op"), key=lambda e: (e["ts"], -e["dur"])
    )
    trace = real(name)
    assert len(trace.threads) >= 1
    assert len(want) == len(trace.ops.name)

    def frozen(value: object) -> object:
        return tuple(map(frozen, value)) if isinstance(value, list) else value

    for row, event in enumerate(want):
        assert trace.names[trace.ops.name[row]] == event["name"]
        args = event["args"]
        index = int(trace.ops.detail[row])
        if "Input Dims" not in args:
            assert index == NONE
            continue
        detail = trace.details[index]
        assert detail.dims == frozen(args["Input Dims"])
        assert detail.types == tuple(args["Input type"])
        assert detail.strides == frozen(args["Input Strides"])
        assert detail.concrete == tuple(args["Concrete Inputs"])
        assert trace.ops.external_id[row] == args["External id"]
        assert trace.ops.record_id[row] == args["Record function id"]
        assert trace.ops.sequence[row] == args.get("Sequence number", NONE)


def test_equal_shapes_share_one_detail_whatever_the_spacing(tmp_path: Path) -> None:
    one = op("a", 0, 1, **{"Input Dims": [[2, 3], [], [[1, 2], [3, 4]]], "Input type": ["float", "", "TensorList"]})
    two = {**one, "ts": 5}
    text = "[" + json.dumps(one, separators=(",", ":")) + "," + json.dumps(two, indent=2) + "]"
    trace = read_trace(written(tmp_path, text))
    assert trace.details == (Detail(((2, 3), (), ((1, 2), (3, 4))), ("float", "", "TensorList")),)
    assert trace.ops.detail.tolist() == [0, 0]


def test_shapes_that_are_no_lists_cost_the_shapes_only(tmp_path: Path) -> None:
    odd = [{"Input Dims": 3}, {"Input Dims": [[{"a": 1}]]}, {"Input Dims": None}, {"Input Dims": "\0"}]
    events = [op(f"o{i}", 10 * i, 5, **args) for i, args in enumerate(odd)]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    assert len(trace.ops.name) == 4
    assert trace.dropped == 0


def test_modules_are_the_path_of_nested_frames_on_the_ops_own_thread(tmp_path: Path) -> None:
    def frame(name: str, ts: float, dur: float, tid: int = 1) -> dict[str, object]:
        return {"ph": "X", "cat": "python_function", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}

    events = [
        frame("nn.Module: Model_0", 0, 100),
        frame("model.py(12): forward", 1, 98),
        frame("nn.Module: Block_2", 10, 50),
        frame("nn.Module: RMSNorm_0", 20, 10),
        op("aten::mul", 22, 2),
        op("aten::add", 40, 2),
        op("aten::mm", 80, 2),
        op("aten::t", 200, 2),
        op("aten::sum", 22, 2, tid=2),
    ]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    paths = {
        (trace.names[n], trace.threads[t][1]): trace.modules[m] if m != NONE else None
        for n, t, m in zip(trace.ops.name, trace.ops.thread, trace.ops.module, strict=True)
    }
    assert paths == {
        ("aten::mul", "1"): "Model_0/Block_2/RMSNorm_0",
        ("aten::add", "1"): "Model_0/Block_2",
        ("aten::mm", "1"): "Model_0",
        ("aten::t", "1"): None,
        ("aten::sum", "2"): None,
    }


def test_the_norms_of_a_real_model_are_found_by_their_module() -> None:
    trace = real("llama_prefill_bf16_eager_stack.json.gz")
    norms = {path for path in trace.modules if path.split("/")[-1].startswith("LlamaRMSNorm")}
    assert len(norms) == 17  # eight layers, twice a layer, and the last one
    assert all(path.startswith("LlamaForCausalLM_0/LlamaModel_0/") for path in norms)
    for norm in norms:
        inside = trace.modules.index(norm)
        rows = [i for i in range(len(trace.ops.name)) if trace.ops.module[i] == inside and trace.ops.parent[i] == NONE]
        names = [trace.names[trace.ops.name[i]].removeprefix("aten::") for i in rows]
        assert names == ["to", "pow", "mean", "add", "rsqrt", "mul", "to", "mul"]


def test_streams_are_numbers_however_they_are_written(tmp_path: Path) -> None:
    spellings: list[tuple[object, object]] = [(7, 7), ("9", 0), ("0x1f", 0), (None, "stream 12"), (None, "gpu")]
    events = []
    for i, (stream, tid) in enumerate(spellings):
        event = kernel(i, 1, 0)
        event["tid"] = tid
        event["args"] = {} if stream is None else {"stream": stream}
        events.append(event)
    assert read_trace(written(tmp_path, json.dumps(events))).kernels.stream.tolist() == [7, 9, 31, 12, NONE]


def test_nanoseconds_survive_large_timestamps(tmp_path: Path) -> None:
    base = 4373772488606
    text = json.dumps([op("a", 1, 2), op("b", 3, 4), launch(5, 1), kernel(6, 1, 1)])
    for value, ts in ((1, "000.001"), (3, "000.002"), (5, "000.003"), (6, "100.999")):
        text = text.replace(f'"ts": {value},', f'"ts": {base + int(ts[:3])}{ts[3:]},')
    trace = read_trace(written(tmp_path, text))
    assert trace.ops.start_us.tolist() == [0.0, 0.001]
    assert trace.kernels.start_us.tolist() == [100.998]
    assert trace.kernels.launch_us.tolist() == [0.002]


def test_ids_that_no_column_can_hold_are_absent_not_wrong(tmp_path: Path) -> None:
    events = [
        op("a", 0, 10, **{"External id": 10159970886766084423}),
        launch(1, 10159970886766084423),
        kernel(5, 1, 10159970886766084423),
    ]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    assert trace.ops.external_id.tolist() == [NONE]
    assert trace.kernels.correlation.tolist() == [NONE]
    assert trace.kernels.op.tolist() == [NONE]
