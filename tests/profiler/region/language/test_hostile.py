"""Hostile texts: refused with their place, in bounded time and memory, and never run."""

from __future__ import annotations

import ast
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.region import limits
from profiler.region.graph.lowering import lower
from profiler.region.language.characters import read_lines
from profiler.region.language.program import program
from profiler.region.language.text import parse, to_text
from profiler.region.model import Input, Region, RegionError, Symbol
from tests.conftest import ROOT
from tests.profiler.region.hostile.corpus import BODIES, CORPUS, LINES

GOOD = sorted((ROOT / "tests" / "regions").glob("*.txt"))
BUDGET_S = 1.0  # the aim is 0.1; benchmarks/server/hostile.py prints what it is

DANGEROUS = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "socket.connect", "ctypes.dlopen",
             "shutil.rmtree", "os.remove", "pickle.find_class", "import")  # fmt: skip

_watched: list[list[str]] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _watched and event in DANGEROUS:
        _watched[-1].append(f"{event} {args[:1]}")


sys.addaudithook(_hook)


@pytest.fixture
def watched() -> Iterator[list[str]]:
    """What the interpreter is asked to import, start or connect to."""
    program(parse("x: f32[8, 4]\nreturn layer_norm(x, [4])\n"))  # torch imports parts of itself on first use
    seen: list[str] = []
    _watched.append(seen)
    yield seen
    _watched.remove(seen)


def refuse(text: str) -> RegionError:
    with pytest.raises(RegionError) as caught:
        program(parse(text))
    return caught.value


@pytest.mark.parametrize("name", CORPUS)
def test_hostile_text_is_refused_at_its_place(name: str, watched: list[str]) -> None:
    text, line = CORPUS[name]
    times = []
    for _ in range(2):
        started = time.perf_counter()
        fault = refuse(text)
        times.append(time.perf_counter() - started)
    assert fault.line == line
    lines = read_lines(text)
    assert 1 <= fault.line <= max(1, len(lines))
    assert 1 <= fault.column <= len(lines[fault.line - 1]) + 2
    assert fault.code.startswith("region-")
    assert fault.message
    assert "\n" not in fault.message
    assert len(str(fault)) < 2_000
    str(fault).encode()  # no lone surrogate reaches a page
    assert min(times) < BUDGET_S
    assert [w for w in watched if "torch" not in w and "sympy" not in w and "numpy" not in w] == []
    assert not Path("owned").exists()


def test_lines_name_entries_that_exist() -> None:
    assert set(LINES) <= set(BODIES)


def test_generated_code_holds_nothing_of_the_text_but_names_and_numbers() -> None:
    """torch.fx compiles what it prints: an input called as a builtin, or as a name fx uses, must not change it."""
    x = torch.arange(8.0)
    for name in ("self", "slice", "getattr", "inf", "nan", "device", "operator", "input", "len", "None_", "print",
                 "math_", "fx_pytree", "relu", "add", "getitem", "int"):  # fmt: skip
        text = f"{name}: f32[8]\ny = relu({name}[1:5]) * float('inf') + {name}[0]\nreturn y[..., None], {name} + 1\n"
        got = program(parse(text)).module(x)
        want = torch.relu(x[1:5]) * float("inf") + x[0]
        assert torch.equal(got[0], want[..., None])
        assert torch.equal(got[1], x + 1)


@pytest.mark.parametrize("name", ["and", "None", "lambda", "nn", "math", "torch", "f32", "range", "sizes"])
def test_names_that_mean_something_are_no_inputs(name: str) -> None:
    assert refuse(f"{name}: f32[8]\nreturn x\n").line == 1


def test_list_put_into_itself_is_a_copy() -> None:
    built = program(parse("x: f32[2]\na = [x]\na.append(a[0])\nb = a\nb.append(x * 2)\ny = cat(a)\nreturn y\n"))
    assert built.outputs[0].shape == (6,)


BINDINGS = {
    "x: f32[N, N]\nreturn x\n": 2,
    "x: f32[8]\ny = zeros(N, N)\nreturn y\n": 3,
    "x: f32[8]\ny = x.expand(N, N, 8)\nreturn y\n": 3,
    "x: f32[8]\nfor i in range(N):\n    x = x + 1\nreturn x\n": 3,
    "x: f32[8]\nreturn x[N]\n": 3,
    "x: f32[8, N].strides(1, 1099511627776)\nreturn x + 1\n": 2,
}


@pytest.mark.parametrize("rest", BINDINGS)
def test_region_that_explodes_at_a_later_binding(rest: str) -> None:
    """Sizes can come from a request too, and are then in no text."""
    region = parse("N: sizes[2]\n" + rest)
    program(region, {"N": 2})
    for made in (program, lower):
        with pytest.raises(RegionError) as caught:
            made(region, {"N": 2**40})
        assert caught.value.line == BINDINGS[rest]


def test_no_memory_is_taken_for_what_is_large_but_allowed() -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lower(parse("x: f32[1048576, 1048576]\ny = softmax(x, -1) @ x\nreturn y, arange(2**38)\n"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_limits_hold_just_at_the_limit() -> None:
    assert limits.MAX_OPERATIONS % 3 == 0
    count = limits.MAX_OPERATIONS // 3
    loop = f"x: f32[2]\nfor i in range({count}):\n    x = x + 1 * x - 1\nreturn x\n"
    parse(loop)
    assert refuse(loop.replace(f"({count})", f"({count + 1})")).code == "region-too-long"
    assert len(parse("x: f32[1]\n" + "x = x\n" * 597 + "return x").statements) == 597


def survives(text: str) -> None:
    """Parses and round-trips, or says where it is wrong; the same for the program."""
    try:
        region = parse(text)
        assert parse(to_text(region)) == region
        program(region)
    except RegionError as fault:
        assert fault.line >= 1
        assert fault.column >= 1
        str(fault).encode()


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=200))
def test_any_characters_in_a_body(body: str) -> None:
    survives(f"x: bf16[8, 4]\ny = {body}\nreturn y\n")


@settings(max_examples=120, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_mutations_of_good_texts(which: int, seed: int, edits: int) -> None:
    rng = random.Random(seed)
    text = GOOD[which].read_text(encoding="utf-8")
    pieces = [*"()[], \n0-@x:'\t\0_~é", "**", "10**9", ".T", "None", "...", "for i in range(3):\n    ", "1e400",
              "return ", "f32", ".below(3)", "True", "x[0]"]  # fmt: skip
    for _ in range(edits):
        at = rng.randrange(len(text) + 1)
        if rng.random() < 0.5:
            text = text[:at] + rng.choice(pieces) + text[at:]
        else:
            text = text[:at] + text[at + rng.randrange(1, 6) :]
    survives(text)


names = st.sampled_from(["x", "y", "n", "torch", "F", "relu", "cat", "zeros", "len", "range", "float", "bf16", "os"])
numbers = st.sampled_from(
    ["0", "1", "-1", "2", "1.5", "1e400", "10**9", "2**62", "True", "None", "...", "'sum'", "'a'"]
)
expressions = st.recursive(
    names | numbers,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from([*"+-*/@%&|<>", "**", "//", "=="]), inner),
        st.builds("{}({})".format, st.sampled_from(["relu", "cat", "torch.sum", "F.pad", "x.view", "x.expand", "zeros",
                                                    "softmax", "len", "max", "einsum", "aten.view", "math.sqrt"]),
                  st.lists(inner, max_size=3).map(", ".join)),
        st.builds("{}[{}]".format, inner, st.lists(inner, min_size=1, max_size=3).map(", ".join)),
        st.builds("{}.{}".format, inner, st.sampled_from("T shape dtype data __class__ sum() real".split())),
        st.builds("[{}]".format, st.lists(inner, max_size=3).map(", ".join)),
        st.builds("({},)".format, inner),
        st.builds("-{}".format, inner),
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=250, deadline=None)
@given(st.lists(expressions, min_size=1, max_size=3))
def test_any_expression(lines: list[str]) -> None:
    body = "\n".join(f"y{i} = {line}" for i, line in enumerate(lines))
    survives(f"n: sizes[3]\nx: f32[4, n]\ny: i64[4].below(4)\n{body}\nreturn y0\n")


# -- regions of every kind print as text that reads back the same


def _printed(expression: str) -> str:
    """As Python prints it; "0" for what Python cannot read (`1.T`)."""
    try:
        return ast.unparse(ast.parse(expression, mode="eval"))
    except SyntaxError:
        return "0"


canonical = expressions.map(_printed)
dtypes = st.sampled_from(["f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "u8", "bool"])
symbols = st.lists(st.integers(1, 64), min_size=2, max_size=2)


@st.composite
def regions(draw: st.DrawFn) -> Region:
    varying = [Symbol(n, tuple(draw(symbols))) for n in ("N", "M")[: draw(st.integers(0, 2))]]
    inputs = []
    for i in range(draw(st.integers(1, 4))):
        dtype = draw(dtypes)
        choices = st.integers(0, 1024) | st.sampled_from([s.name for s in varying] or [1])
        shape = tuple(draw(st.lists(choices, max_size=4)))
        floating = dtype[0] == "f" or dtype == "bf16"
        options: dict[str, Any] = {}
        if floating and draw(st.booleans()):
            options["requires_grad"] = True
        if not floating and dtype != "bool" and draw(st.booleans()):
            options["below"] = draw(st.integers(1, 127))
        elif draw(st.booleans()):
            options["ones"] = draw(st.floats(0, 1))
        if len(shape) == 4 and draw(st.booleans()):
            options["channels_last"] = True
        elif draw(st.booleans()):
            options["strides"] = tuple(draw(st.integers(0, 4096)) for _ in shape)
        inputs.append(Input(f"x{i}", dtype, shape, **options))
    lines = tuple(f"y{i} = {draw(canonical)}" for i in range(draw(st.integers(0, 3))))
    outputs = tuple(f"x{i}" for i in range(draw(st.integers(1, len(inputs)))))
    return Region(tuple(inputs), lines, outputs, tuple(varying), output_tuple=len(outputs) > 1 or draw(st.booleans()))


@settings(max_examples=200, deadline=None)
@given(regions())
def test_printed_region_reads_back_the_same(region: Region) -> None:
    text = to_text(region)
    try:
        again = parse(text)
    except RegionError as fault:  # an expression of the strategy that is not in the language
        assert fault.line > len(region.symbols) + len(region.inputs), text
        return
    assert again == region
    assert to_text(again) == text


def test_memory_that_ends_while_a_flat_text_is_parsed_is_not_called_a_deep_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(text: str) -> ast.Module:
        raise MemoryError

    flat = "x: f32[64, 128]\n" + "x = gelu(x) * 2 + softmax(x, -1)\n" * 300 + "return x\n"
    parse(flat)
    monkeypatch.setattr("profiler.region.language.trees.module", full)
    with pytest.raises(MemoryError):
        parse(flat + "\n")  # the same text would come from the cache


@pytest.mark.parametrize("nested", ["-" * 6000, "x**" * 3000, "-x**" * 2000])
def test_nesting_that_ends_the_parsers_stack_is_told_as_such(nested: str) -> None:
    rows = "\n".join(nested[at : at + 1200] for at in range(0, len(nested), 1200))
    with pytest.raises(MemoryError):
        ast.parse(f"y = (\n{rows}x\n)")
    assert refuse(f"x: f32[2]\ny = (\n{rows}x\n)\nreturn y\n").code == "region-too-deep"
