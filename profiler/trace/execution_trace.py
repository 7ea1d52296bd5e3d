"""Execution traces of torch.profiler.ExecutionTraceObserver: which tensor every operation read and made. Torch-free.

A Chrome trace has no tensor identities, overloads or strings; an execution trace recorded with it has. Both number
operations alike: `rf_id` here is "Record function id" there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from profiler.trace.errors import Damage, TraceError
from profiler.trace.read.source import Limits, Source

LIMITS = Limits(max_bytes=1024**3)
"""An execution trace is decoded as a whole: about its size in memory (one step of a large model: 10 to 100 MB)."""

MAX_NODES = 4_000_000

FLAT, NESTED = "flat", "nested"
LAYOUTS = ((re.compile(r"1\.0\.[01]"), FLAT), (re.compile(r"1\.(0\.[2-9]|1\.\d+)-chakra\.0\.0\.4"), NESTED))
"""Schema -> layout. torch 2.0 wrote 1.0.1 (flat keys); 1.0.2 to 1.1.1 nest them; strides came with 1.1.1."""

RECORD = (
    "Pass execution_trace_observer=ExecutionTraceObserver().register_callback(path) to torch.profiler.profile, and copy"
    " the file after the profiler has stopped."
)


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor at one moment. Both ids are used again once a tensor or its storage is freed.

    dtype: the Chrome trace's spelling ("c10::BFloat16"). strides: None before schema 1.1.1.
    """

    tensor: int
    storage: int
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument or result. kind: tensor, tensors (a list; None where a member is absent), value, none.

    Floats are rounded to six decimals by the writer: 1e-12 is 0.0 here. The Chrome trace has them whole.
    """

    kind: str
    tensors: tuple[Tensor | None, ...] = ()
    value: object = None


@dataclass(frozen=True, slots=True)
class Node:
    """One operation. schema: "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor", "" where it has none."""

    name: str
    schema: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]

    @property
    def overload(self) -> str:
        """`Tensor` of "aten::mul.Tensor(...)"; `default` where the schema names none."""
        head = self.schema.split("(", 1)[0]
        return head.rpartition(".")[2] if "." in head else "default"

    @property
    def changes_operands(self) -> bool:
        """The schema marks an argument as written to."""
        return "!" in self.schema.rpartition("->")[0]


class _Attribute(msgspec.Struct):
    name: str
    value: object = None


class _Node(msgspec.Struct):
    name: str = ""
    inputs: msgspec.Raw = msgspec.Raw(b"[]")
    outputs: msgspec.Raw = msgspec.Raw(b"[]")
    attrs: list[_Attribute] = []
    rf_id: int | None = None
    op_schema: str = ""
    input_types: msgspec.Raw = msgspec.Raw(b"[]")
    input_shapes: msgspec.Raw = msgspec.Raw(b"[]")
    output_types: msgspec.Raw = msgspec.Raw(b"[]")
    output_shapes: msgspec.Raw = msgspec.Raw(b"[]")


class _File(msgspec.Struct):
    schema: str
    nodes: list[_Node]


class _Side(msgspec.Struct):
    values: list[object] = []
    shapes: list[object] = []
    types: list[str] = []
    strides: list[object] = []


class Execution:
    """The operations of one execution trace by record id; each is decoded when it is asked for.

    damage: of the gzip file, which was read to its end all the same.
    """

    def __init__(self, schema: str, nodes: dict[int, _Node], nested: bool, damage: Damage = Damage.NONE) -> None:
        self.schema = schema
        self.damage = damage
        self._nodes = nodes
        self._nested = nested

    def __len__(self) -> int:
        return len(self._nodes)

    def name(self, record_id: int) -> str:
        """The operation's name; "" where there is none with this id."""
        node = self._nodes.get(record_id)
        return "" if node is None else node.name

    def node(self, record_id: int) -> Node | None:
        """The operation with this record id; None where there is none, or where its fields contradict each other."""
        raw = self._nodes.get(record_id)
        if raw is None:
            return None
        schema = raw.op_schema or _attribute(raw, "op_schema")
        try:
            if self._nested:
                sides = [msgspec.json.decode(text, type=_Side) for text in (raw.inputs, raw.outputs)]
            else:
                sides = [
                    _flat(raw.inputs, raw.input_types, raw.input_shapes),
                    _flat(raw.outputs, raw.output_types, raw.output_shapes),
                ]
            inputs, outputs = (tuple(_operands(side)) for side in sides)
        except (msgspec.DecodeError, ValueError):
            return None
        return Node(raw.name, schema if isinstance(schema, str) else "", inputs, outputs)


def read_execution(path: Path | str, limits: Limits = LIMITS) -> Execution:
    """Reads what ExecutionTraceObserver wrote: .json or .json.gz, schema 1.0.1 to 1.1.x.

    Raises TraceError: `execution-trace-damaged` (cut off, no JSON), `execution-trace-not-one` (other JSON),
    `execution-trace-version` (another schema), `trace-too-large`, `trace-empty`, `trace-bad-gzip`. OSError
    where the file cannot be opened.
    """
    data = bytearray()
    with Source(Path(path), limits) as source:
        while chunk := source.read():
            data += chunk
        truncated, damage = source.truncated, source.damage
    try:
        file = msgspec.json.decode(data, type=_File)
    except msgspec.ValidationError as error:
        raise TraceError("execution-trace-not-one", f"This is no execution trace: {_short(error)}.", RECORD) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        cut = truncated or "truncated" in str(error)
        what = "is cut off" if cut else f"is no valid JSON ({_short(error)})"
        raise TraceError("execution-trace-damaged", f"The execution trace {what}.", RECORD) from None
    layout = next((name for pattern, name in LAYOUTS if pattern.fullmatch(file.schema)), None)
    if layout is None:
        raise TraceError(
            "execution-trace-version",
            f"Execution traces of schema {file.schema[:40]!r} are not known: 1.0.1 to 1.1.x-chakra.0.0.4 are.",
            "Record it with torch 2.0 to 2.11, or give the trace without it.",
        )
    if len(file.nodes) > MAX_NODES:
        raise TraceError("trace-too-large", f"The execution trace has more than {MAX_NODES} nodes.", "Record one step.")
    nodes: dict[int, _Node] = {}
    for node in file.nodes:
        record_id = node.rf_id if node.rf_id is not None else _attribute(node, "rf_id")
        if (
            isinstance(record_id, int) and record_id and not node.name.startswith("[pytorch|")
        ):  # process and thread nodes have 0
            nodes.setdefault(record_id, node)
    if not nodes:
        raise TraceError(
            "execution-trace-not-one",
            "No operation of the execution trace has a record id (rf_id) to find it by in the trace.",
            RECORD,
        )
    return Execution(file.schema, nodes, layout == NESTED, damage)


def _short(error: Exception) -> str:
    return str(error)[:120].rstrip(".")


def _attribute(node: _Node, name: str) -> object:
    return next((a.value for a in node.attrs if a.name == name), None)


def _flat(values: msgspec.Raw, types: msgspec.Raw, shapes: msgspec.Raw) -> _Side:
    return _Side(
        msgspec.json.decode(values, type=list[object]),
        msgspec.json.decode(shapes, type=list[object]),
        msgspec.json.decode(types, type=list[str]),
    )


def _operands(side: _Side) -> Iterator[Operand]:
    if len(side.values) != len(side.types) or len(side.shapes) != len(side.types):
        raise ValueError("values, types and shapes differ in number")
    strides: Sequence[object] = side.strides if len(side.strides) == len(side.types) else [None] * len(side.types)
    for value, kind, dims, stride in zip(side.values, side.types, side.shapes, strides, strict=True):
        yield _operand(value, kind, dims, stride)


def _operand(value: object, kind: str, dims: object, strides: object) -> Operand:
    if kind.startswith("Tensor("):
        tensor = _tensor(value, kind, dims, strides)
        return Operand("none") if tensor is None else Operand("tensor", (tensor,))
    if kind.startswith("GenericList["):
        members = kind[len("GenericList[") : -1].split(",") if kind != "GenericList[]" else []
        if any(m.startswith("Tensor") for m in members) and isinstance(value, list):
            rows = zip(members, value, _list(dims, len(members)), _list(strides, len(members)), strict=True)
            return Operand("tensors", tuple(_tensor(v, m, d, s) for m, v, d, s in rows))
        if isinstance(value, list) and all(isinstance(v, bool | int | float | str) for v in value):
            return Operand("value", (), tuple(_number(v) for v in value))
        return Operand("none")
    if kind in ("Int", "Double", "Bool") and isinstance(value, bool | int | float | str):
        number = _number(value)
        return Operand("none") if isinstance(number, str) else Operand("value", (), number)
    if kind == "String" and isinstance(value, str):
        return Operand("value", (), value)
    return Operand("none")


def _number(value: bool | int | float | str) -> bool | int | float | str:
    """Infinities and NaN are written as text."""
    return float(value) if isinstance(value, str) and value in ("inf", "-inf", "nan", "-nan") else value


def _list(value: object, count: int) -> list[object]:
    return value if isinstance(value, list) and len(value) == count else [None] * count


def _tensor(value: object, kind: str, dims: object, strides: object) -> Tensor | None:
    """[tensor id, storage id, offset, elements, bytes of one, device]; None for an undefined one."""
    if not kind.startswith("Tensor(") or not isinstance(value, list) or len(value) < 2 or not isinstance(dims, list):
        return None
    tensor, storage = value[0], value[1]
    if not isinstance(tensor, int) or not isinstance(storage, int) or not all(isinstance(d, int) for d in dims):
        return None
    has_strides = isinstance(strides, list) and len(strides) == len(dims) and all(isinstance(s, int) for s in strides)
    return Tensor(tensor, storage, kind[7:-1], tuple(dims), tuple(strides) if has_strides else None)  # type: ignore[arg-type]
