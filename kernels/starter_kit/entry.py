"""The end of a kit's file: the region as functions, the kernel's call, the sizes; and the whole file around it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch.fx

from kernels.candidates import GENERATED, replaced
from kernels.codegen.generated import generate
from kernels.codegen.text.source import Source
from kernels.hand_written import written
from kernels.measure.candidate.inputs import smallest_extent, weight_scales
from kernels.measure.candidate.random_values import random_outputs
from kernels.measure.candidate.reduce import reduced, with_sizes
from kernels.measure.records import label_of
from kernels.operations import operations
from kernels.spec import Case, Operation
from kernels.starter_kit import graph_code, region_code
from kernels.starter_kit.bundle import bundle
from kernels.starter_kit.module import Module, read
from kernels.starter_kit.selecting import selected
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.model import Region

ENTRY = "kernels.your_region"
HARNESS = "kernels.starter_kit.runtime"
INSTEAD = {("kernels.tuning", "Tuner"): (HARNESS, "Tuner")}
"""The kit tunes in its own process and keeps nothing on disk."""
MOST_ODD, ODD_ELEMENTS = 8, 100_000
"""Cases of the kernel alone, and how large the product of a case's sizes may be: Triton's interpreter is slow."""
PRELUDE = ("import math", "import operator", "import sys", "", "import torch", "import torch.nn.functional as F")


@dataclass
class _Entry:
    """The module that is bundled, while it is written."""

    functions: dict[str, str] = field(default_factory=dict)  # name -> text
    imported: list[tuple[str, str, str]] = field(default_factory=list)  # module, name, as
    texts: dict[str, str] = field(default_factory=dict)  # generated kernels' modules

    def add(self, name: str, text: str) -> str:
        """The name under which this function stands: another's with the same text, else its own, made unique."""
        for known, other in self.functions.items():
            if _body(other, known) == _body(text, name):
                return known
        final, count = name, 1
        while final in self.functions:
            count += 1
            final = f"{name}_{count}"
        self.functions[final] = text.replace(f"def {name}(", f"def {final}(", 1)
        return final

    def take(self, module: str, name: str, alias: str = "") -> None:
        if (module, name, alias or name) not in self.imported:
            self.imported.append((module, name, alias or name))

    def text(self, ends: Sequence[str]) -> str:
        lines = [f"from {m} import {n}" + ("" if a == n else f" as {a}") for m, n, a in self.imported]
        return "\n\n\n".join(["\n".join([*PRELUDE, *lines]), *self.functions.values(), *ends]) + "\n"


def _body(text: str, name: str) -> str:
    return text.replace(f"def {name}(", "def _(", 1)


def _program(region: Region, sizes: Mapping[str, int]) -> torch.fx.GraphModule:
    return program(region, sizes).module


def _small(region: Region, sizes: Mapping[str, int]) -> Region | None:
    """The region at sizes for the interpreter, in f32 where it has bf16, which the interpreter rounds wrongly."""
    smaller = reduced(region, sizes)
    wide = with_sizes(smaller, {}, {}, {"bf16": "f32"}) if smaller is not None else None
    return wide or smaller


def _record(kind: str, label: str, inputs: Sequence[str], rest: str) -> list[str]:
    """One Shape or Case over several lines."""
    listed = [f"            {item}," for item in inputs]
    return [
        f"    {kind}(",
        f"        {json.dumps(label)},",
        "        (",
        *listed,
        "        ),",
        f"        {rest},",
        "    ),",
    ]


def _inputs(region: Region, sizes: Mapping[str, int]) -> list[str]:
    return region_code.inputs(region, sizes, weight_scales(_program(region, sizes)), smallest_extent(region, sizes))


def _sized(
    region: Region, bindings: Sequence[Mapping[str, int]], small: Region | None, said: str
) -> list[tuple[Region, dict[str, int], str, bool]]:
    """(region, sizes, label, whether for the interpreter) of each binding, and of `small` where there is one."""
    bound = [(region, dict(b), label_of(b) or "the region's sizes", False) for b in bindings]
    return bound if small is None else [*bound, (small, {}, said, True)]


def kernel_file(region: Region, bindings: Sequence[Mapping[str, int]], candidate: str, doc: str) -> str:
    """The whole text of the kernel's file. Raises BundleError, Unsupported or ValueError where there can be none."""
    entry = _Entry()
    operation = next((o for o in operations() if f"triton:{o.name}" == candidate), None)
    shapes = []
    for item, sizes, label, is_small in _sized(region, bindings, _small(region, bindings[0]), "small sizes"):
        prefix = "small_" if is_small else ""
        names = (
            entry.add(f"{prefix}region", _region(item, f"{prefix}region")),
            entry.add(f"{prefix}region_in_float64", _region(item, f"{prefix}region_in_float64", True)),
            _call(entry, item, sizes, candidate, f"{prefix}kernel"),
        )
        more = ", small=True" if is_small else ""
        random = tuple(sorted(random_outputs(_program(item, sizes))))
        more += f", random={random}" if random else ""
        dims, sources = selected(item, sizes)
        if sources is not None:
            pointed = f"{prefix}pointed_into_in_float64"
            more += f", selected={dims}, sources={entry.add(pointed, _region(sources, pointed, True))}"
        shapes += _record("Shape", label, _inputs(item, sizes), f"{', '.join(names)}{more}")
    for name in ("Input", "Shape", "main"):
        entry.take(HARNESS, name)
    odd = _odd(entry, operation) if operation is not None else []
    ends = ["\n".join(["SHAPES = (", *shapes, ")", *odd]),
            f'if __name__ == "__main__":\n    sys.exit(main(SHAPES{", ODD" if odd else ""}))']  # fmt: skip
    texts = {**entry.texts, ENTRY: entry.text(ends)}
    return bundle(ENTRY, texts, {**INSTEAD, **_shared(entry.texts)}, doc)


def _region(region: Region, name: str, exact: bool = False) -> str:
    return region_code.function(replace(region, name="region"), name, exact)


def _call(entry: _Entry, region: Region, sizes: Mapping[str, int], candidate: str, name: str) -> str:
    """Writes the function that calls the kernel; its name."""
    graph = lower(region, sizes)
    if candidate == GENERATED:
        module = generate(graph).module
        doc = "The region by generated kernels, for these sizes alone."
    else:
        kernel = written(candidate)
        assert kernel is not None
        module = replaced(kernel, graph)
        doc = f"The region with {candidate.removeprefix('triton:')} in the place of what it computes."
    prefix = "small" if name.startswith("small_") else "kernel"
    first = 1 + sum(m.startswith(f"kernels.{prefix}_") for m in entry.texts)
    code = graph_code.function(module, [n for n, _ in graph.inputs], name, doc, prefix, first)
    for where, what in code.imported:
        entry.take(where, what)
    for part, source in code.sources.items():
        entry.texts[f"kernels.{part}"] = _generated(source)
        entry.take(f"kernels.{part}", "launch", graph_code.LAUNCH + part)
    return entry.add(name, code.text)


def _generated(source: Source) -> str:
    """A generated kernel's text with its opening comment as docstring."""
    lines = source.text.split("\n")
    count = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    said = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[:count])
    doc = said.replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{doc}\n"""\n' + "\n".join(lines[count:])


def _shared(texts: Mapping[str, str]) -> dict[tuple[str, str], tuple[str, str]]:
    """Helpers that several generated kernels have alike: all but the first stand for the first."""
    known: dict[bytes, tuple[str, str]] = {}
    same: dict[tuple[str, str], tuple[str, str]] = {}
    for name, text in texts.items():
        module = read(name, text)
        for item in module.items:
            if len(item.names) != 1 or len(module.binding(*item.names)) != 1 or not _alone(module, item.names, same):
                continue
            (bound,) = item.names
            lines = b"\n".join(module.lines[item.first : item.last + 1])
            if lines in known:
                same[name, bound] = known[lines]
            else:
                known[lines] = (name, bound)
    return same


def _alone(module: Module, names: frozenset[str], same: Mapping[tuple[str, str], object]) -> bool:
    """It reads nothing of its module but itself and what is shared already."""
    items = [i for i in module.items if i.names == names]
    read_names = {r.path[0] for i in items for r in i.found.references} - names
    return all(not module.binding(n) or (module.name, n) in same for n in read_names)


def _odd(entry: _Entry, operation: Operation) -> list[str]:
    """ODD: small cases of the operation's own list, over all its dtypes."""
    parts = (operation.run, operation.reference, operation.inputs)
    if any(getattr(p, "__name__", "<") in ("<", "<lambda>") for p in parts):
        return []
    able = [c for c in operation.checks if 0 < _elements(c) <= ODD_ELEMENTS]
    chosen = [able[i * len(able) // MOST_ODD] for i in range(MOST_ODD)] if len(able) > MOST_ODD else able
    if not chosen or operation.indices:
        return []
    aliases = [f"{operation.name}{end}" for end in ("", "_reference", "_inputs")]
    for part, alias in zip(parts, aliases, strict=True):
        name = str(part.__name__)
        entry.take(str(part.__module__), name, name if alias == operation.name and name == alias else alias)
    entry.take("kernels.spec", "case")
    entry.take(HARNESS, "Odd")
    cases = [f"            {_case(c)}," for c in chosen]
    forms = tuple(f for f in operation.forms if f != "special")
    return [
        "ODD = (", "    Odd(", f"        {', '.join(aliases)},", "        (", *cases, "        ),",
        f"        forms={_strings(forms)}, wrong_interpreted={_strings(operation.wrong_interpreted)},", "    ),", ")",
    ]  # fmt: skip


def _strings(values: Sequence[str]) -> str:
    """A tuple of strings in double quotes."""
    return f"({' '.join(json.dumps(v) + ',' for v in values)})"


def _elements(c: Case) -> int:
    """No more than the product of its sizes."""
    count = 1
    for _, value in c.sizes:
        count *= value if isinstance(value, int) and not isinstance(value, bool) else 1
    return count


def _case(c: Case) -> str:
    sizes = "".join(f", {k}={json.dumps(v) if isinstance(v, str) else repr(v)}" for k, v in c.sizes)
    return f'case("{c.dtype}"{sizes})'


def replay_file(region: Region, bindings: Sequence[Mapping[str, int]]) -> str:
    """The text of replay.py."""
    entry = _Entry()
    cases = []
    said = "small sizes, for a host without a GPU"
    for item, sizes, label, is_small in _sized(region, bindings, reduced(region, bindings[0]), said):
        name = "small_region" if is_small else "region"
        final = entry.add(name, _region(item, name))
        cases += _record("Case", label, _inputs(item, sizes), f"{final}{', small=True' if is_small else ''}")
    entry.take(HARNESS, "Input")
    for name in ("Case", "replay"):
        entry.take("kernels.starter_kit.replay_runtime", name)
    ends = ["\n".join(["CASES = (", *cases, ")"]), 'if __name__ == "__main__":\n    sys.exit(replay(CASES))']
    doc = "Replays one region eagerly and under torch.compile, for a bug report. Written by Tritonworthy.\n"
    return bundle(ENTRY, {ENTRY: entry.text(ends)}, INSTEAD, doc)
