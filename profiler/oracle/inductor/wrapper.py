"""Read the Python that Inductor wrote around its kernels: which kernels, which library calls, how often each.

The text is parsed, never run. Works on the text of a prediction and on that of a real compile alike.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from profiler.oracle.inductor.call_sites import Schema, Tensors, read_sites
from profiler.oracle.model import CallSite, Extern, OracleKernel
from profiler.region.language import trees

LIBRARIES = ("extern_kernels.", "torch.ops.", "aten.", "inductor_ops.", "_quantized.", "quantized.")
"""Names that the wrapper calls for work that no Triton kernel does."""

EAGER = frozenset({"sum", "zero_", "copy_", "fill_", "index_put_", "add_", "mul_"})
"""Tensor methods in the wrapper that launch a kernel: partial sums of a mixed-order reduction, cleared workspaces."""

NOT_LAUNCHED = re.compile(
    r"torch\.ops\.(aten\.)?(_assert\w*|sym_\w+|detach|alias|view|as_strided|reinterpret\w*)\b"
    r"|torch\.ops\.inductor\._?(alloc_from_pool|reinterpret_tensor|accumulate_grad_)"
)


@dataclass(frozen=True, slots=True)
class Written:
    """A wrapper's kernels in the order of their definitions, and its library calls in the order of the first call.

    nodes: by kernel name, the nodes of the traced program that went into it.
    """

    kernels: tuple[OracleKernel, ...]
    externs: tuple[Extern, ...]
    nodes: Mapping[str, tuple[str, ...]]


def read_wrapper(
    text: str,
    stage: str = "forward",
    bytes_moved: Mapping[str, int] | None = None,
    tensors: Tensors | None = None,
    schema: Schema = lambda _: (),
) -> Written:
    """Parse one wrapper. Raises SyntaxError where the text is no Python: then Inductor's form has changed.

    tensors: what the wrapper's names hold. schema: parameters of the operations. Without them the library calls are
    described as far as the text alone says.
    """
    tree = trees.module(text)
    comments = _comments(text)
    sources = _sources(tree)
    runs: Counter[str] = Counter()
    externs: dict[str, list[CallSite]] = {}
    for function in _bodies(tree):
        called: list[tuple[ast.Call, str]] = []
        for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
            name = trees.dotted_name(call.func)
            kernel, _, method = name.rpartition(".")
            if method == "run" and kernel in sources:
                runs[kernel] += 1
            elif name.startswith(LIBRARIES) and not NOT_LAUNCHED.match(name):
                called.append((call, name))
            elif isinstance(call.func, ast.Attribute) and call.func.attr in EAGER:
                called.append((call, call.func.attr))
        sites = read_sites(function, called, tensors or {}, schema)
        for _, name in called:
            externs.setdefault(_extern(name), [])
        for call, name in sorted(called, key=lambda c: (c[0].lineno, c[0].col_offset)):
            externs[_extern(name)].append(sites[id(call)])
    counts = bytes_moved or {}
    kernels = tuple(
        OracleKernel(name, _kind(source), runs[name], counts.get(name), comments.get(name, ((), ()))[1], source, stage)
        for name, source in sources.items()
        if runs[name]
    )
    nodes = {k.name: comments.get(k.name, ((), ()))[0] for k in kernels}
    return Written(kernels, tuple(Extern(n, len(s), stage, tuple(s)) for n, s in externs.items()), nodes)


def _sources(tree: ast.Module) -> dict[str, str]:
    """Kernel name -> its module's text: `name = async_compile.triton('name', '''...''')`."""
    texts: dict[str, str] = {}
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        call = node.value
        if trees.dotted_name(call.func) != "async_compile.triton" or not isinstance(node.targets[0], ast.Name):
            continue
        if len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
            texts[node.targets[0].id] = str(call.args[1].value).strip() + "\n"
    return texts


def _bodies(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions that call kernels and libraries; a partitioned graph has several."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (node.name == "call" or node.name.startswith("partition_")):
            yield node


def _extern(name: str) -> str:
    """extern_kernels.mm -> mm; torch.ops.aten.topk.default -> aten.topk; aten.randint.low_out -> aten.randint."""
    short = name.removeprefix("extern_kernels.").removeprefix("torch.ops.")
    parts = short.split(".")
    return ".".join(parts[:2]) if len(parts) > 2 else short


KIND = re.compile(r"@triton_heuristics\.(\w+)\(")


def _kind(source: str) -> str:
    match = KIND.search(source)
    return match.group(1) if match else "triton"


NODES = re.compile(r"^# Topologically Sorted Source Nodes: \[([^\]]*)\], Original ATen: \[([^\]]*)\]")
DEFINED = re.compile(r"^(\w+) = async_compile\.triton\(")


def _comments(text: str) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Kernel name -> (nodes, aten operations) that Inductor names above its definition."""
    comments: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    latest: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    for line in text.splitlines():
        if match := NODES.match(line):
            latest = (_names(match.group(1)), _names(match.group(2)))
        elif match := DEFINED.match(line):
            comments[match.group(1)] = latest
            latest = ((), ())
    return comments


def _names(text: str) -> tuple[str, ...]:
    return tuple(n.strip() for n in text.split(",") if n.strip())


def join(parts: tuple[Written, ...]) -> Written:
    """Several wrappers of one region: forward and backward. Names are told apart by their stage."""
    kernels = tuple(k for p in parts for k in p.kernels)
    externs = tuple(e for p in parts for e in p.externs)
    return Written(kernels, externs, {n: v for p in parts for n, v in p.nodes.items()})


def with_lines(kernels: tuple[OracleKernel, ...], nodes: Mapping[str, tuple[str, ...]],
               lines: Mapping[str, int]) -> tuple[OracleKernel, ...]:  # fmt: skip
    """The kernels with the lines of the region's text that went into them."""
    return tuple(
        replace(k, lines=tuple(sorted({lines[n] for n in nodes.get(k.name, ()) if lines.get(n)}))) for k in kernels
    )
