"""The kernels with a file of their own as candidates for a region: which match each computes, and where it does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from kernels.host import Host
from kernels.libraries import fits
from kernels.libraries.adapters.operands import completed
from kernels.libraries.facts import facts_of
from kernels.libraries.launchers import Launcher
from kernels.libraries.patterns import bands
from kernels.libraries.patterns.narrowed import narrowed
from kernels.libraries.patterns.products import PRODUCTS
from kernels.libraries.patterns.recognised import CAUSAL_KIND, causal_convolutions
from kernels.libraries.patterns.recurrences import RECURRENCES
from kernels.libraries.patterns.rows import ROWS
from kernels.libraries.patterns.scaled_products import SCALED
from kernels.libraries.patterns.stored_weights import STORED
from kernels.libraries.patterns.tails import tail
from kernels.libraries.patterns.torch_calls import TORCH_CALLS
from kernels.ops.norm import layer_norm, rms_norm
from kernels.ops.scan.causal_conv1d import WIDEST
from kernels.ops.softmax import softmax
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match
from profiler.region.graph.nodes import is_call

Reason = Callable[[Graph, Match], str]


@dataclass(frozen=True, slots=True)
class Written:
    """One kernel. name: the candidate's, "triton:KERNEL", by which its adapter is found too. kinds: of the matches it
    takes. call: what the user writes, with the match's roles. reason: why it does not take a match, "" where it does.
    launcher: how it is called in the region's place, where it takes whole regions only. trained: it has a backward, and
    takes a part of a region where gradients are wanted; the function of `kernels.ops.trained` is called then.
    """

    name: str
    kinds: frozenset[str]
    call: str
    reason: Reason
    launcher: Launcher | None = None
    trained: bool = False

    def called(self, graph: Graph) -> str:
        """`call`, of the function that autograd knows where the region wants gradients."""
        return TRAINED.sub("from kernels.ops.trained import", self.call) if graph.region.requires_grad else self.call


TRAINED = re.compile(r"from kernels\.\w+ import")
LAUNCHERS: tuple[Launcher, ...] = (*ROWS, *PRODUCTS, *SCALED, *STORED, *TORCH_CALLS, *RECURRENCES)


def _rows(graph: Graph, item: Match) -> str:
    reason = fits.reason(graph, item, trained=True)
    bias = facts_of(item, graph, Host()).sizes.get("bias")
    return reason or ("a bias that is no vector" if bias and len(bias) != 1 else "")


def _alike(*roles: str, trained: bool = False) -> Reason:
    """In one of the dtypes, these operands of one dtype and the result too; the whole region, or a part of one with
    gradients where the kernel has a backward.
    """

    def reason(graph: Graph, item: Match) -> str:
        not_whole = fits.replaces(graph, item, trained)
        facts = facts_of(item, graph, Host())
        dtypes = {facts.dtypes[r] for r in roles if r in facts.dtypes}
        if not_whole or not dtypes:
            return not_whole or "operands that are not given"
        if dtypes - fits.DTYPES or len(dtypes) > 1:
            return f"operands of {', '.join(sorted(dtypes))}"
        written = [o.writes[0].dtype for o in graph.operations if o.name == item.output and o.writes]
        return f"{next(iter(dtypes))} in, {written[0]} out" if written and written[0] not in dtypes else ""

    return reason


def _tail(graph: Graph, item: Match) -> str:
    reason = _alike("a", "b", "bias", "residual")(graph, item)
    dtypes = facts_of(item, graph, Host()).dtypes
    mask = dtypes.get("mask", "bool")
    return reason or ("" if mask in ("bool", dtypes["a"]) else f"a mask of {mask}")


def _attention(graph: Graph, item: Match) -> str:
    reason = _alike("q", "k", "v", trained=True)(graph, item)
    sizes = facts_of(item, graph, Host()).sizes
    if reason or not sizes.get("q"):
        return reason
    if len(sizes["q"]) != 4 or sizes["q"][-1] > 256:
        return f"takes [batch, heads, time, up to 256], not {list(sizes['q'])}"
    q, k = sizes["q"], sizes.get("k", ())
    if len(k) == 4 and (k[0] != q[0] or not k[1] or q[1] % k[1]):
        return f"takes keys of as many batches and of heads that divide the queries', not {list(k)} for {list(q)}"
    rows = k if item.roles.get("k_transposed", True) else (*k[:-2], *k[:-3:-1])  # else K is [.., D, T]
    if sizes.get("v", rows) != rows:
        return f"takes keys and values of one shape, not {list(rows)} and {list(sizes['v'])}"
    if graph.region.requires_grad and item.roles.get("mask") is not None:
        return "no gradient with a mask that is a tensor"
    return "no dropout" if item.roles.get("dropout") else ""


def _causal_conv(graph: Graph, item: Match) -> str:
    width = item.roles["width"]
    reason = _alike("x", "weight", "bias", trained=True)(graph, item)
    return reason or ("" if width in range(2, WIDEST + 1) else f"takes filters of 2 to {WIDEST}, not {width}")


WRITTEN: tuple[Written, ...] = (
    Written(softmax.NAME, frozenset({softmax.KIND}), softmax.CALL, _rows, trained=True),
    Written(rms_norm.NAME, frozenset({rms_norm.KIND}), rms_norm.CALL, _rows, trained=True),
    Written(
        "triton:layer_norm", frozenset({"layer_norm"}),
        layer_norm.CALL, _rows, trained=True,
    ),
    Written(
        "triton:gated_activation", frozenset({"swiglu", "geglu"}),
        "from kernels.gated_activation import gated_activation\ny = gated_activation({a}, {b}, \"{activation}\")",
        _alike("a", "b", trained=True), trained=True,
    ),
    Written(
        "triton:matmul_epilogue", frozenset({"gemm_tail"}),
        "from kernels.matmul_epilogue import matmul_epilogue\n"
        "y = matmul_epilogue({a}, {b}, {bias}, \"{activation}\", {mask}, {residual})",
        _tail,
    ),
    Written(
        "triton:flash_attention", frozenset({"attention"}),
        "from kernels.flash_attention import flash_attention\n"
        "y = flash_attention({q}, {k}, {v}, {mask}, causal={causal}, scale={scale})",
        _attention, trained=True,
    ),
    Written(
        "triton:banded_attention", frozenset({bands.KIND}),
        "from kernels.flash_attention import flash_attention\n"
        "y = flash_attention({q}, {k}, {v}, None, causal={causal}, window={window}, cap={cap}, scale={scale})",
        _attention, trained=True,
    ),
    Written(
        "triton:causal_conv1d", frozenset({CAUSAL_KIND}),
        "from kernels.causal_conv1d import causal_conv1d\n"
        "y = causal_conv1d({x}, {weight}.squeeze(1), {bias}, {activation!r})",
        _causal_conv, trained=True,
    ),
    *(Written(k.name, frozenset({k.name}), k.call, k.reason, k, k.trained) for k in LAUNCHERS),
)  # fmt: skip
"""In the order in which they are listed."""


def written(name: str) -> Written | None:
    """The kernel of this candidate's name."""
    return next((w for w in WRITTEN if w.name == name), None)


def matches(graph: Graph, library_matches: Iterable[Match]) -> tuple[Match, ...]:
    """What the kernels may be tried on: the matches found with all their roles, a matrix product with its tail, a
    convolution along time, attention within a band, and the region as a whole.
    """
    known = narrowed(graph, tuple(library_matches))
    launched = (m for k in LAUNCHERS for m in k.matches(graph, known))
    own = (*tail(graph), *launched, *causal_convolutions(graph), *bands.matches(graph))
    return (*own, *(_settled(graph, completed(graph, m)) for m in known))


def taken(kernel: Written, among: Iterable[Match]) -> list[Match]:
    """Those of its kinds."""
    return [m for m in among if m.kind in kernel.kinds]


def roles_of(item: Match) -> Mapping[str, object]:
    """For the call: what is not there is None."""
    absent = dict.fromkeys(("weight", "bias", "mask", "residual"))
    return {**absent, "causal": False, "scale": None, "activation": "silu", **item.roles}


def _settled(graph: Graph, item: Match) -> Match:
    """Where torch's own call gives a tuple, with the part that is the result as output."""
    nodes = {n.name: n for n in graph.module.graph.nodes}
    node = nodes.get(item.output)
    if node is not None and is_call(node, "native_layer_norm"):
        first = next((u for u in node.users if is_call(u, "getitem") and u.args[1] == 0), None)
        return item if first is None else replace(item, output=first.name)
    return item
