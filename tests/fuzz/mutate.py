"""Mutations that know what an input is: a trace's events, a region's lines, an address's fields. Pure functions.

A mutation of bytes hardly ever leaves JSON whole; these do, and so reach what comes after the decoder.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode

from profiler.region.language.syntax import MODULES
from profiler.region.language.text import SUFFIXES
from profiler.region.language.vocabulary import ATEN, FACTORIES, FUNCTIONAL, METHODS, PROPERTIES, TORCH
from tests.fuzz.targets import EXECUTION

GZIP = b"\x1f\x8b"

NASTY: tuple[Any, ...] = (
    0, -1, 1, 2, 7, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e-320,
    1e308, -1e308, 1e15, float("nan"), float("inf"), float("-inf"), "", "0", "-1", "NaN", "1e400", "a" * 300, "\u0000",
    "\ud800", "é🙂", "]", "}, {", '"', "\\", None, True, False, [], {}, [[]], [[], []], [[1, 2], [3, 4]], [0], [-1],
    [2**40, 2**40], [[[[[]]]]], {"name": "x"},
)  # fmt: skip

KEYS = (
    "ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "bp", "External id", "external id",
    "Record function id", "Sequence number", "Fwd thread id", "Concrete Inputs", "Input type", "Input Strides",
    "Input Dims", "Input dims", "Ev Idx", "device", "stream", "correlation", "grid", "block", "bytes", "cbid",
    "kernel_backend", "kernel_file", "Python id", "Python parent id", "Python module id", "traceEvents",
    "deviceProperties", "distributedInfo", "rank", "world_size", "record_shapes", "with_stack", "schemaVersion",
    "graph id", "graph node id", "In msg nelems", "Out msg nelems", "Group size", "dtype", "Collective name",
    "schema", "nodes", "ctrl_deps", "inputs", "outputs", "values", "shapes", "types", "strides", "attrs", "value",
    "rf_id", "op_schema",
)  # fmt: skip
PHASES = ("X", "M", "s", "f", "i", "B", "E", "b", "e", "C", "", "XX", 7, None)
CATEGORIES = (
    "cpu_op", "kernel", "cuda_runtime", "cuda_driver", "gpu_memcpy", "gpu_memset", "user_annotation", "ac2g",
    "gpu_user_annotation", "python_function", "overhead", "fwdbwd", "hip_runtime", "cuda_sync", "Trace", "privateuse1",
)  # fmt: skip
NAMES = (
    "aten::mm", "aten::addmm", "aten::linear", "aten::copy_", "aten::to", "aten::add", "aten::mul", "aten::cat",
    "aten::softmax", "aten::_softmax", "aten::layer_norm", "aten::native_layer_norm", "aten::gelu", "aten::index",
    "aten::view", "aten::transpose", "aten::bmm", "aten::convolution", "aten::sum", "aten::item", "aten::nonzero",
    "aten::scaled_dot_product_attention", "aten::_foreach_add_", "aten::embedding", "aten::split", "aten::chunk",
    "autograd::engine::evaluate_function: MulBackward0", "MulBackward0", "AddmmBackward0", "Optimizer.step#AdamW.step",
    "ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#-1", "ProfilerStep#", "cudaLaunchKernel", "cudaGraphLaunch",
    "cudaMemcpyAsync", "cudaStreamSynchronize", "cuLaunchKernel", "hipLaunchKernel", "hipGraphLaunch",
    "nccl:all_reduce", "ncclDevKernel_AllReduce_Sum_bf16", "Memcpy HtoD (Pageable -> Device)", "triton_poi_fused_add_0",
    "Torch-Compiled Region: 0/0", "CompiledFunction", "TorchDynamo Cache Lookup", "## Call CompiledFxGraph abc ##",
    "nn.Module: Linear_0", "model.py(12): forward", "flash_fwd_kernel", "void cutlass::Kernel2<a>(b)",
)  # fmt: skip
DTYPES = ("float", "c10::BFloat16", "c10::Half", "double", "long int", "bool", "Scalar", "ScalarList", "TensorList",
          "GenericList", "", "c10::complex<float>", "c10::Float8_e4m3fn", "unsigned char", "nonsense")  # fmt: skip

Mutate = Callable[[bytes, int], bytes]
"""Of the fuzzer: changes bytes, at most so many come out."""


def mutate(kind: str, data: bytes, most: int, seed: int, raw: Mutate) -> bytes:
    """An input like this one, at most `most` bytes long. kind: as Target has it; raw: for what is not understood."""
    rng = random.Random(seed)
    by_kind = {"trace": _mutate_trace, "region": _mutate_region, "query": _mutate_query}
    if rng.random() < 0.2:
        return raw(data, most)
    found = by_kind[kind](data, rng, raw, most)
    return found if 0 < len(found) <= most else raw(data, most)


# --------------------------------------------------------------------------------------------------------------- traces


def _mutate_trace(data: bytes, rng: random.Random, raw: Mutate, most: int) -> bytes:
    first, mark, second = data.partition(EXECUTION)
    if mark and rng.random() < 0.6:
        return first + mark + _mutate_packed(second, rng, raw, most)
    return _mutate_packed(first, rng, raw, most) + mark + second


def _mutate_packed(data: bytes, rng: random.Random, raw: Mutate, most: int) -> bytes:
    if data.startswith(GZIP):
        try:
            text = zlib.decompressobj(31).decompress(data, 4 * most)
        except zlib.error:
            return raw(data, most)
        packed = gzip.compress(_mutate_json(text, rng, raw, most), 1, mtime=0)
        return raw(packed, most) if rng.random() < 0.2 else packed
    text = _mutate_json(data, rng, raw, most)
    return gzip.compress(text, 1, mtime=0) if rng.random() < 0.02 else text


def _mutate_json(text: bytes, rng: random.Random, raw: Mutate, most: int) -> bytes:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return raw(text, most)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        document = _mutate_document(document, rng)
    spaces = rng.choice(((",", ":"), (",", ":"), (", ", ": "), (" ,", " : ")))
    indent = 1 if rng.random() < 0.05 else None
    try:
        made = json.dumps(document, ensure_ascii=rng.random() < 0.5, separators=spaces, indent=indent)
    except (ValueError, RecursionError):
        return raw(text, most)
    return made.encode("utf-8", "surrogatepass")


def _mutate_document(document: Any, rng: random.Random) -> Any:
    """One change: of the list of events as a whole, or of one value anywhere in it."""
    key = next((k for k in ("traceEvents", "nodes") if isinstance(document, dict) and k in document), None)
    events = document if isinstance(document, list) else document.get(key) if key else None
    if not isinstance(events, list) or not events or rng.random() < 0.1:
        return _mutate_value(document, rng)
    at = rng.randrange(len(events))
    way = rng.randrange(9)
    if way == 0:
        del events[at]
    elif way == 1:
        events.insert(rng.randrange(len(events) + 1), json.loads(json.dumps(events[at])))
    elif way == 2:
        other = rng.randrange(len(events))
        events[at], events[other] = events[other], events[at]
    elif way == 3:
        events.insert(at, _event(rng))
    elif way == 4 and isinstance(events[at], dict):
        _shift(events[at], rng)
    else:
        events[at] = _mutate_value(events[at], rng)
    return document


def _event(rng: random.Random) -> dict[str, Any]:
    """An event of any category, with arguments that fit some other."""
    dims = [[rng.choice((0, 0, 1, 8, 64, 4096, 2**40, -1)) for _ in range(rng.randrange(4))] for _ in range(3)]
    strides = [[rng.choice((0, 0, 1, 8, 4096)) for _ in one] for one in dims]
    if rng.random() < 0.3:
        strides = [[0] * len(one) for one in dims]
    args = {
        "External id": rng.randrange(20), "correlation": rng.randrange(20), "stream": rng.choice((7, 20, -1)),
        "device": rng.randrange(2), "Input Dims": dims, "Input Strides": strides,
        "Input type": [rng.choice(DTYPES) for _ in range(3)],
        "Sequence number": rng.randrange(5), "Record function id": rng.randrange(20),
        "Concrete Inputs": ["", "1", "[1]"],
    }  # fmt: skip
    kept = {k: v for k, v in args.items() if rng.random() < 0.7}
    return {
        "ph": "X", "cat": rng.choice(CATEGORIES), "name": rng.choice(NAMES), "pid": rng.randrange(3),
        "tid": rng.randrange(3), "ts": rng.randrange(2000) / 2, "dur": rng.choice((0, 1, 10, 500)), "args": kept,
    }  # fmt: skip


def _shift(event: dict[str, Any], rng: random.Random) -> None:
    """Move it, stretch it, or give it another's numbers."""
    for key in ("ts", "dur"):
        if isinstance(event.get(key), int | float) and rng.random() < 0.5:
            event[key] = event[key] + rng.choice((-1000, -1, -0.001, 0.001, 1, 1000, 1e9))
    args = event.get("args")
    if isinstance(args, dict) and rng.random() < 0.5:
        args[rng.choice(("correlation", "External id", "stream"))] = rng.randrange(30)


def _nasty(rng: random.Random) -> Any:
    """A value of one's own: what is changed inside it later is not changed for all inputs to come."""
    return copy.deepcopy(rng.choice(NASTY))


def _mutate_value(value: Any, rng: random.Random) -> Any:
    """The same value with one change somewhere inside."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        way = rng.random()
        if way < 0.1:
            del value[key]
        elif way < 0.2:
            value[rng.choice(KEYS)] = copy.deepcopy(value[key])
        elif way < 0.25:
            value[rng.choice(KEYS)] = _nasty(rng)
        elif key in ("ph", "cat", "name") and way < 0.8:
            value[key] = rng.choice({"ph": PHASES, "cat": CATEGORIES, "name": NAMES}[key])
        else:
            value[key] = _mutate_value(value[key], rng)
        return value
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        way = rng.random()
        if way < 0.15:
            del value[at]
        elif way < 0.3:
            value.insert(at, copy.deepcopy(value[at]))
        else:
            value[at] = _mutate_value(value[at], rng)
        return value
    if isinstance(value, bool) or value is None:
        return _nasty(rng)
    if isinstance(value, int) and rng.random() < 0.6:
        return value + rng.choice((-1, 1, 2, -value, value, 2**31, 2**63))
    if isinstance(value, str) and rng.random() < 0.5:
        return rng.choice((*NAMES, *DTYPES, value[: len(value) // 2], value * 2))
    return _nasty(rng)


# -------------------------------------------------------------------------------------------------------------- regions

_TOKEN = re.compile(r"\d+\.?\d*|\w+|\*\*|//|<<|>>|[<>=!]=|\s+|.", re.DOTALL)
NUMBERS = ("0", "1", "-1", "2", "8", "64", "1.5", "1e-5", "1e400", "2**62", "10**9", "9223372036854775807", "True",
           "None", "...", "float('-inf')", "'sum'", "()", "[]", "[1, 2]", "(0, 1)", "slice", "bf16",
           "x.shape[0]")  # fmt: skip
DECLARED = ("f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "u8", "bool", "sizes")
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>", "<", "<=", "==", "!=", "~", "=", "+=",
             ",", ".", ":", "(", ")", "[", "]")  # fmt: skip
CALLABLE = tuple(sorted({*FUNCTIONAL, *TORCH, *METHODS, *FACTORIES, *PROPERTIES, *(f"aten.{n}" for n in ATEN)}))


def _mutate_region(data: bytes, rng: random.Random, raw: Mutate, most: int) -> bytes:
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(lines))
        way = rng.randrange(10)
        if way == 0 and len(lines) > 1:
            del lines[at]
        elif way == 1:
            lines.insert(at, lines[rng.randrange(len(lines))])
        elif way == 2:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif way == 3:
            lines.insert(at, _line(rng))
        elif way == 4:
            lines[at] = f"    {lines[at]}" if rng.random() < 0.5 else lines[at].lstrip()
        else:
            lines[at] = _mutate_line(lines[at], rng)
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def _line(rng: random.Random) -> str:
    name = rng.choice(("x", "y", "z", "w"))
    if rng.random() < 0.15:
        return f"{name}: {_type(rng)}"
    other = rng.choice(("x", "y", "w", "1", "2.0"))
    call = rng.choice(CALLABLE)
    return rng.choice((
        f"{name} = {call}({other})", f"{name} = {call}({other}, {rng.choice(NUMBERS)})", f"{name} = {other}.{call}()",
        f"{name} = x.{call}({rng.choice(NUMBERS)}, {rng.choice(NUMBERS)})",
        f"{name} = {other} {rng.choice(OPERATORS)} {other}", f"{name} = {name}[{rng.choice(NUMBERS)}:, None]",
        f"{name}: {rng.choice(DECLARED)}[{rng.choice(NUMBERS)}, {rng.choice(NUMBERS)}].{rng.choice(SUFFIXES)}",
        f"for i in range({rng.choice(NUMBERS)}):\n    {name} = {other} + i", f"{name} = []\n{name}.append({other})",
        f"return {name}, {other}",
    ))  # fmt: skip


def _type(rng: random.Random) -> str:
    """Of an input: any rank from 0, sizes of 0, strides of 0."""
    sizes = [rng.choice((0, 0, 1, 1, 2, 8, 64, 127)) for _ in range(rng.choice((0, 0, 1, 2, 2, 3, 4)))]
    strides = rng.choice(([0] * len(sizes), [rng.choice((0, 1, 8)) for _ in sizes]))
    suffix = f".strides({', '.join(map(str, strides))})" if sizes and rng.random() < 0.4 else ""
    gradient = ".requires_grad" if rng.random() < 0.2 else ""
    return f"{rng.choice(DECLARED[:-1])}[{', '.join(map(str, sizes)) or '()'}]{suffix}{gradient}"


def _mutate_line(line: str, rng: random.Random) -> str:
    tokens = _TOKEN.findall(line)
    if not tokens:
        return _line(rng)
    name, declares, _ = line.partition(":")
    if declares and name.isidentifier() and rng.random() < 0.2:
        return f"{name}: {_type(rng)}"
    at = rng.randrange(len(tokens))
    token = tokens[at]
    if token[0].isdigit():
        new = rng.choice((*NUMBERS, "4096", "3", "7"))
    elif token in DECLARED:
        new = rng.choice(DECLARED)
    elif token.isidentifier():
        new = rng.choice(("x", "y", "w", rng.choice(CALLABLE), rng.choice(SUFFIXES), *sorted(MODULES)))
    else:
        new = rng.choice(OPERATORS)
    way = rng.random()
    if way < 0.15:
        del tokens[at]
    elif way < 0.3:
        tokens.insert(at, new)
    elif way < 0.4:
        tokens[at] = f"({token})"
    else:
        tokens[at] = new
    return "".join(tokens)


# ---------------------------------------------------------------------------------------------------------------- query

FIELDS = ("share_of_step", "uniqueness", "irregularity", "bound", "kind", "share", "faster", "known", "example")
WORDS = ("memory", "compute", "gemm", "attention", "elementwise", "quantised_gemm", "normalisation", "reduction",
         "custom", "0", "1", "0.5", "0,5", "-1", "1e400", "nan", "inf", "1e-320", "\u0661", "1_0", "", " ", "0x1",
         "\u0000")  # fmt: skip


def _mutate_query(data: bytes, rng: random.Random, raw: Mutate, most: int) -> bytes:
    pairs = parse_qsl(data.decode("latin-1"), keep_blank_values=True) or [("share", "1")]
    at = rng.randrange(len(pairs))
    way = rng.randrange(4)
    if way == 0:
        pairs.append((rng.choice(FIELDS), rng.choice(WORDS)))
    elif way == 1:
        del pairs[at]
    elif way == 2:
        pairs[at] = (pairs[at][0], rng.choice(WORDS))
    else:
        pairs[at] = (pairs[at][0], raw(pairs[at][1].encode(), 40).decode("latin-1"))
    return urlencode(pairs).encode()
