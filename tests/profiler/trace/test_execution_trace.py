"""Execution traces: what ExecutionTraceObserver writes is read, older layouts too; damage is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from profiler.trace import TraceError
from profiler.trace.execution_trace import read_execution
from profiler.trace.read.source import Limits
from tests.conftest import DATA

REAL = DATA / "traces" / "llama_eager_attention_prefill.et.json.gz"


def plain() -> dict[str, Any]:
    """The recorded file as json.load has it."""
    with gzip.open(REAL) as file:
        answer: dict[str, Any] = json.load(file)
    return answer


def attributes(node: dict[str, Any]) -> dict[str, Any]:
    return {a["name"]: a["value"] for a in node["attrs"]}


def written(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def refused(path: Path, limits: Limits | None = None) -> TraceError:
    with pytest.raises(TraceError) as caught:
        read_execution(path) if limits is None else read_execution(path, limits)
    assert caught.value.remedy
    return caught.value


def test_every_operation_is_found_by_its_record_id() -> None:
    execution = read_execution(REAL)
    nodes = [n for n in plain()["nodes"] if attributes(n)["rf_id"]]
    assert len(execution) == len({attributes(n)["rf_id"] for n in nodes}) > 1000
    for recorded in nodes:
        node = execution.node(attributes(recorded)["rf_id"])
        assert node is not None
        assert node.name == recorded["name"]
        for operand, value, dims in zip(
            node.inputs, recorded["inputs"]["values"], recorded["inputs"]["shapes"], strict=True
        ):
            if operand.kind == "tensor":
                tensor = operand.tensors[0]
                assert tensor is not None
                assert ([tensor.tensor, tensor.storage], list(tensor.dims)) == (value[:2], dims)


def test_overloads_and_writes_come_from_the_schema() -> None:
    execution = read_execution(REAL)
    found = [execution.node(attributes(n)["rf_id"]) for n in plain()["nodes"] if attributes(n)["op_schema"]]
    by_name = {n.name: n for n in found if n is not None}
    assert by_name["aten::pow"].overload == "Tensor_Scalar"
    assert by_name["aten::silu"].overload == "default"
    assert by_name["aten::copy_"].changes_operands
    assert not by_name["aten::view"].changes_operands


def test_lists_strings_and_infinities_keep_their_values(tmp_path: Path) -> None:
    node = {
        "id": 5, "name": "aten::odd", "ctrl_deps": 1,
        "inputs": {
            "values": [[[4, 5, 0, 8, 4, "cpu"], "<None>"], "tanh", "-inf", [2, -1], "cuda:0"],
            "shapes": [[[2, 4], []], [], [], [[], []], []],
            "types": ["GenericList[Tensor(float),None]", "String", "Double", "GenericList[Int,Int]", "Device"],
            "strides": [[[4, 1], []], [], [], [[], []], []],
        },
        "outputs": {"values": [], "shapes": [], "types": [], "strides": []},
        "attrs": [{"name": "rf_id", "type": "uint64", "value": 7}],
    }  # fmt: skip
    path = written(tmp_path / "et.json", {"schema": "1.1.1-chakra.0.0.4", "nodes": [node]})
    found = read_execution(path).node(7)
    assert found is not None
    listed, text, infinite, sizes, device = found.inputs
    assert listed.tensors[0] is not None
    assert (listed.tensors[0].dims, listed.tensors[0].strides, listed.tensors[1]) == ((2, 4), (4, 1), None)
    assert (text.value, infinite.value, sizes.value, device.kind) == ("tanh", float("-inf"), (2, -1), "none")


def flat(node: dict[str, Any]) -> dict[str, Any]:
    """The node as torch 2.0 wrote it."""
    known = attributes(node)
    sides = {
        f"{side}{suffix}": node[f"{side}s"][key]
        for side in ("input", "output")
        for suffix, key in (("s", "values"), ("_types", "types"), ("_shapes", "shapes"))
    }
    return {"id": node["id"], "name": node["name"], "rf_id": known["rf_id"], "op_schema": known["op_schema"], **sides}


def test_the_flat_layout_of_torch_2_0_gives_the_same_tensors(tmp_path: Path) -> None:
    content = plain()
    path = written(tmp_path / "et.json", {"schema": "1.0.1", "nodes": [flat(n) for n in content["nodes"]]})
    old, new = read_execution(path), read_execution(REAL)
    assert len(old) == len(new)
    for node in content["nodes"]:
        one, two = (e.node(attributes(node)["rf_id"]) for e in (old, new))
        if one is None or two is None:
            assert one is two
            continue
        ids = [[(t.tensor, t.storage) for o in n.inputs for t in o.tensors if t] for n in (one, two)]
        assert ids[0] == ids[1]
        assert one.overload == two.overload


def test_a_file_cut_off_is_said_to_be(tmp_path: Path) -> None:
    whole = gzip.decompress(REAL.read_bytes())
    (tmp_path / "cut.json").write_bytes(whole[: len(whole) // 2])
    error = refused(tmp_path / "cut.json")
    assert error.code == "execution-trace-damaged"
    assert "cut off" in error.message
    (tmp_path / "cut.json.gz").write_bytes(REAL.read_bytes()[:9_000])
    assert refused(tmp_path / "cut.json.gz").code == "execution-trace-damaged"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ({"traceEvents": []}, "execution-trace-not-one"),
        ([1, 2], "execution-trace-not-one"),
        ({"schema": "1.1.1-chakra.0.0.4", "nodes": "none"}, "execution-trace-not-one"),
        ({"schema": "1.1.1-chakra.0.0.4", "nodes": []}, "execution-trace-not-one"),
        ({"schema": "9.9", "nodes": [{"id": 1, "rf_id": 3}]}, "execution-trace-version"),
    ],
)
def test_other_files_are_named_as_such(content: object, code: str, tmp_path: Path) -> None:
    assert refused(written(tmp_path / "et.json", content)).code == code


def test_a_file_beyond_the_limit_is_not_decoded() -> None:
    assert refused(REAL, Limits(max_bytes=10_000)).code == "trace-too-large"


def test_a_node_whose_fields_contradict_each_other_is_absent(tmp_path: Path) -> None:
    content = plain()
    node = next(n for n in content["nodes"] if n["name"] == "aten::mul")
    node["inputs"]["types"] = node["inputs"]["types"][:1]
    path = written(tmp_path / "et.json", content)
    assert read_execution(path).node(attributes(node)["rf_id"]) is None
    assert read_execution(REAL).node(attributes(node)["rf_id"]) is not None
