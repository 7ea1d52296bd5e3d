"""The family of a region program: what kinds of operations it has in which order, whatever its sizes and dtypes.

Programs of one family are near to each other, so a family is never divided among the thirds of the corpus. Close
spellings are one family: a norm, a softmax, attention or a cross entropy written out by hand counts as its one call, a
bias added to a product as the product with a bias. Forward and training of one structure are one family too.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from profiler.region import op_kinds
from profiler.region.graph.fusion import through_views
from profiler.region.graph.lowering import Graph, lower
from profiler.region.graph.match_model import Match
from profiler.region.graph.operation import Operation
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse
from profiler.region.op_kinds import base_name

FIT, DEVELOPMENT, BLIND = THIRDS = ("fit", "development", "blind")

LABELS = (
    "convolution", "matmul", "attention", "norm", "reduction", "scan", "gather/scatter", "pointwise", "mixed",
)  # fmt: skip

MATCHED = {
    "attention": "attention", "rms_norm": "rms_norm", "layer_norm": "layer_norm", "softmax": "softmax",
    "cross_entropy": "loss",
}  # fmt: skip
"""Patterns of the product -> token."""

NORMS = {
    "native_layer_norm": "layer_norm", "layer_norm": "layer_norm", "_fused_rms_norm": "rms_norm",
    "rms_norm": "rms_norm", "native_group_norm": "group_norm", "group_norm": "group_norm",
}  # fmt: skip
NORM_TOKENS = frozenset({"layer_norm", "rms_norm", "group_norm", "batch_norm", "softmax"})

SAME_VALUES = frozenset({"_to_copy", "clone", "copy", "copy_", "alias", "contiguous", "lift_fresh_copy", "to"})
"""Copies that change no value: a dtype or a layout."""

BATCHED = frozenset({"bmm", "baddbmm"})
WITH_BIAS = frozenset({"addmm", "baddbmm", "addmv", "addbmm", "addr"})
LONGEST_PERIOD = 24
MAX_TOKENS = 40


@dataclass(frozen=True, slots=True)
class Family:
    """name: its tokens in order, apart by spaces. label: one of LABELS."""

    name: str
    label: str

    @property
    def third(self) -> str:
        return third_of(self.name)


def third_of(family: str) -> str:
    """Of a family's name, by its sha256: fit, development or blind."""
    return THIRDS[int.from_bytes(hashlib.sha256(family.encode()).digest()[:8], "big") % len(THIRDS)]


@lru_cache(maxsize=4096)
def family_of(text: str) -> Family:
    """Of the forward pass at the first sizes, of inputs that are contiguous, so that layouts do not tell. A region with
    a loop is a scan, however its rounds are unrolled. RegionError for a text that cannot be read or lowered."""
    region = parse(text)
    inputs = tuple(replace(i, requires_grad=False, channels_last=False, strides=None) for i in region.inputs)
    graph = lower(replace(region, inputs=inputs))
    loops = ["loop"] if any(isinstance(n, ast.For) for n in region.nodes) else []
    tokens = loops + fold_repeats(merge_neighbours(list(_tokens(graph))))
    if len(tokens) > MAX_TOKENS:
        rest = hashlib.sha256(" ".join(tokens[MAX_TOKENS:]).encode()).hexdigest()[:8]
        tokens = [*tokens[:MAX_TOKENS], f"and-{rest}"]
    label = label_of(tokens)
    if set(tokens) <= {"pointwise", "bias", "random", "copy"}:
        tokens = [*tokens, *_pointwise_shape(graph)]
    elif all(t == "bias" or t.startswith(("mm-", "bmm-")) for t in tokens):
        tokens = [*tokens, f"rank-{max(len(t.shape) for _, t in graph.inputs)}"]
    return Family(" ".join(tokens) or "nothing", label)


def label_of(tokens: Sequence[str]) -> str:
    """What the time goes to: the costliest kind present; mixed where two of the three heaviest are."""
    present = set(tokens)
    heavy = {
        "convolution": any(t.startswith("conv") for t in present),
        "matmul": any(t.startswith(("mm", "bmm")) for t in present),
        "attention": any(t.startswith("attention") for t in present) or _attends(tokens),
    }
    if _attends(tokens):
        heavy["matmul"] = any(t.startswith("mm") for t in present)
    chosen = [label for label, is_there in heavy.items() if is_there]
    if len(chosen) > 1:
        return "mixed"
    if chosen:
        return chosen[0]
    if present & {"fft", "other"}:
        return "mixed"
    if present & {"scan", "sort", "loop"}:
        return "scan"
    if present & {"gather", "scatter"}:
        return "gather/scatter"
    if present & NORM_TOKENS:
        return "norm"
    if any(t in ("loss", "pool") or t.startswith("reduce") for t in present):
        return "reduction"
    return "pointwise"


def _attends(tokens: Sequence[str]) -> bool:
    """A softmax between two batched products: attention in a form that no pattern of the product covers."""
    if "softmax" not in tokens:
        return False
    at = tokens.index("softmax")
    return any(t.startswith("bmm") for t in tokens[:at]) and any(t.startswith("bmm") for t in tokens[at:])


def merge_neighbours(tokens: Sequence[str]) -> list[str]:
    """The same token several times in a row is one."""
    return [t for i, t in enumerate(tokens) if not i or t != tokens[i - 1]]


def fold_repeats(tokens: Sequence[str]) -> list[str]:
    """A run of tokens that follows itself is one run: a loop's rounds, a model's layers."""
    folded = list(tokens)
    for period in range(2, LONGEST_PERIOD + 1):
        at = 0
        while at + 2 * period <= len(folded):
            if folded[at : at + period] == folded[at + period : at + 2 * period]:
                del folded[at : at + period]
            else:
                at += 1
    return merge_neighbours(folded)


def _tokens(graph: Graph) -> Iterator[str]:
    covered: dict[str, str] = {}
    last: dict[str, str] = {}
    for item in match(graph):
        if item.kind in MATCHED:
            covered |= dict.fromkeys(item.operations, item.output)
            last[item.output] = _attention(graph, item) if item.kind == "attention" else MATCHED[item.kind]
    for operation in graph.operations:
        if operation.name in covered:
            if operation.name in last:
                yield last[operation.name]
            continue
        yield from _operation_tokens(graph, operation)


def _attention(graph: Graph, item: Match) -> str:
    """Which scores are left out or changed, however that is written: causal, by a mask or bias, at random."""
    roles = item.roles
    causal, masked, dropped = bool(roles.get("causal")), roles.get("mask") is not None, bool(roles.get("dropout"))
    if not item.by_hand:
        node = next(n for n in graph.module.graph.nodes if n.name == item.output)
        given = dict(zip(("q", "k", "v", "mask", "dropout", "causal"), node.args, strict=False))
        causal, masked, dropped = bool(given.get("causal")), given.get("mask") is not None, bool(given.get("dropout"))
    parts = [name for name, there in (("causal", causal), ("masked", masked), ("dropout", dropped)) if there]
    return "-".join(["attention", *parts])


def _operation_tokens(graph: Graph, operation: Operation) -> Iterator[str]:
    name, kind = base_name(operation.target), operation.kind
    if kind in (op_kinds.VIEW, op_kinds.CONSTANT) or name in SAME_VALUES:
        return
    if kind == op_kinds.GEMM:
        yield _product(graph, operation, name)
        if name in WITH_BIAS:
            yield "bias"
    elif kind == op_kinds.CONVOLUTION:
        yield _convolution(graph, operation)
    elif kind == op_kinds.REDUCTION:
        yield "pool" if "pool" in name else _reduction(operation)
    elif kind == op_kinds.NORMALISATION:
        yield NORMS.get(name, "batch_norm")
    elif kind == op_kinds.COPY:
        yield "copy"
    elif name in ("add", "add_") and _adds_bias(graph, operation):
        yield "bias"
    else:
        yield kind


def _product(graph: Graph, operation: Operation, name: str) -> str:
    """mm, or bmm where both operands have a batch; a letter for each: t where it is read transposed, else n."""
    operands = operation.reads[-2:]
    letters = "".join("n" if t.stride and t.stride[-1] == 1 else "t" for t in operands)
    ranks = [_source_rank(graph, n) for n in operation.inputs[-2:]]
    return f"{'bmm' if name in BATCHED and min(ranks) > 2 else 'mm'}-{letters}"


def _source_rank(graph: Graph, name: str) -> int:
    """Dimensions of what stands behind views: a matrix that is repeated over a batch has two."""
    source = through_views(graph, name)
    inputs = dict(graph.inputs)
    return len(inputs[source].shape) if source in inputs else len(graph.operation(source).writes[0].shape)


def _adds_bias(graph: Graph, operation: Operation) -> bool:
    """One operand is a vector that the region is given."""
    inputs = dict(graph.inputs)
    sources = [through_views(graph, name) for name in operation.inputs]
    return any(len(inputs[name].shape) == 1 < len(operation.writes[0].shape) for name in sources if name in inputs)


def _convolution(graph: Graph, operation: Operation) -> str:
    node = next(n for n in graph.module.graph.nodes if n.name == operation.name)
    weight = node.args[1].meta["val"]
    transposed = len(node.args) > 6 and bool(node.args[6])
    grouped = len(node.args) > 8 and node.args[8] != 1
    strided = len(node.args) > 3 and any(s != 1 for s in node.args[3])
    padded = len(node.args) > 4 and any(p != 0 for p in node.args[4])
    dilated = len(node.args) > 5 and any(d != 1 for d in node.args[5])
    traits = {
        "transposed": transposed, "strided": strided, "padded": padded, "dilated": dilated, "grouped": grouped,
        "bias": node.args[2] is not None,
    }  # fmt: skip
    return "-".join([f"conv{weight.dim() - 2}d", *(name for name, there in traits.items() if there)])


def _reduction(operation: Operation) -> str:
    """Over all dimensions, over the last ones, over others, or over the last and others with some kept between."""
    rank = max((len(t.shape) for t in operation.reads), default=0)
    axes = set(operation.axes)
    if not axes or len(axes) == rank:
        return "reduce-all"
    if axes == set(range(rank - len(axes), rank)):
        return "reduce-last"
    return "reduce-both" if rank - 1 in axes else "reduce-outer"


def _pointwise_shape(graph: Graph) -> Iterator[str]:
    """What tells chains of pointwise operations apart: how many, of how many inputs, and whether one is stretched."""
    working = [
        o for o in graph.operations
        if o.kind not in (op_kinds.VIEW, op_kinds.CONSTANT) and base_name(o.target) not in SAME_VALUES
    ]  # fmt: skip
    count = len(working)
    yield "long" if count > 12 else "middle" if count > 5 else "short" if count > 2 else f"{count}-operations"
    inputs = [t.shape for _, t in graph.inputs]
    yield f"{min(len(inputs), 5)}-inputs"
    yield "stretched" if any(_stretches(a, b) for a in inputs for b in inputs) else "even"


def _stretches(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """A dimension of the one is absent or 1 where the other's is not."""
    if not small:
        return False
    return len(small) < len(large) or any(a == 1 != b for a, b in zip(small[::-1], large[::-1], strict=False))
