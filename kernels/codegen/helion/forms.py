"""Which regions have a Helion source: a pointwise chain, rows with reductions, a product with what follows it.

Every tensor is seen as a matrix of the region's rows and columns: whole, one number a row, one number a column, or one
number. What does not fit is refused with the reason.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.fx

from kernels.codegen.helion.expressions import POINTWISE, REDUCTIONS
from kernels.codegen.index import Unsupported
from kernels.codegen.nodes import base as base_name
from kernels.codegen.nodes import bind, fake
from profiler.region.graph.lowering import Graph

FULL, KEPT, ROW, COLUMN, ONE = "full", "kept", "row", "column", "one"
"""[rows, columns]; [rows, 1]; [rows]; [columns]; a single number."""

VIEWS = frozenset("view _unsafe_view reshape unsqueeze squeeze expand t transpose permute alias detach clone".split())
PRODUCTS = frozenset({"mm", "addmm"})
MULTIPLIED = frozenset({torch.float16, torch.bfloat16, torch.float32})
"""What a product takes: it adds up in f32, which holds neither f64 nor whole numbers."""
NORMS = frozenset({"native_layer_norm", "_fused_rms_norm", "rms_norm"})
SOFTMAX = frozenset({"_softmax", "_log_softmax"})
VARIANCES = frozenset({"var", "var_mean"})
CHAIN, ROWS, PRODUCT = "chain", "rows", "product"


KNOWN = frozenset({*POINTWISE, *REDUCTIONS, *NORMS, *SOFTMAX, *VARIANCES, *PRODUCTS})


def base(node: torch.fx.Node) -> str:
    """The operation's name; "getitem" for a part of several results."""
    return "getitem" if node.target is operator.getitem else base_name(node)


@dataclass(frozen=True, slots=True)
class Form:
    """kind: chain, rows or product. rows, columns: of the matrix that tiles walk over. roles: of every value.

    host: views of inputs, made before the kernel starts. product: the matrix product's node, None where there is none.
    flat: every value is whole or one number: tiles walk over the elements in order.
    """

    kind: str
    rows: int
    columns: int
    roles: Mapping[torch.fx.Node, str]
    host: frozenset[torch.fx.Node]
    product: torch.fx.Node | None
    flat: bool


def form_of(graph: Graph) -> Form:
    """The form of a region's graph; raises Unsupported with the reason."""
    if graph.region.requires_grad:
        raise Unsupported("a backward: Helion's source is written for a forward alone")
    nodes = [n for n in graph.module.graph.nodes if n.op == "call_function"]
    products = [n for n in nodes if base(n) in PRODUCTS]
    if len(products) > 1:
        raise Unsupported("several matrix products")
    host = _host_views(graph)
    working = [n for n in nodes if n not in host and base(n) not in VIEWS and base(n) != "getitem"]
    if not working:
        raise Unsupported("nothing to compute")
    reducing = [n for n in working if base(n) in {*REDUCTIONS, *NORMS, *SOFTMAX, *VARIANCES}]
    for node in working:
        if base(node) not in KNOWN:
            raise Unsupported(f"{base(node)} is not in the Helion generator's table")
    if products and reducing:
        raise Unsupported("a reduction next to a matrix product")
    rows, columns = _matrix(graph, products, reducing, working)
    roles = _Roles(graph, host, rows, columns, products[0] if products else None)
    settled = roles.settle()
    kind = PRODUCT if products else ROWS if reducing else CHAIN
    flat = kind == CHAIN and {settled[n] for n in settled} <= {FULL, ONE}
    return Form(kind, rows, columns, settled, host, products[0] if products else None, flat)


def _host_views(graph: Graph) -> frozenset[torch.fx.Node]:
    """Views of inputs alone."""
    views: set[torch.fx.Node] = set()
    for node in graph.module.graph.nodes:
        if node.op == "call_function" and base(node) in VIEWS - {"clone"}:
            if all(a.op == "placeholder" or a in views for a in node.all_input_nodes):
                views.add(node)
    return frozenset(views)


def _matrix(
    graph: Graph, products: Sequence[torch.fx.Node], reducing: Sequence[torch.fx.Node], working: Sequence[torch.fx.Node]
) -> tuple[int, int]:
    if products:
        m, n = fake(products[0]).shape
        return int(m), int(n)
    leading = [n.all_input_nodes[0] for n in reducing] or list(working)
    shapes = [tuple(fake(n).shape) for n in leading]
    widest = max(shapes, key=math.prod)
    if not widest or not math.prod(widest):
        raise Unsupported("a tensor without elements or dimensions")
    return math.prod(widest[:-1]), int(widest[-1])


class _Roles:
    """Follows each value's place in the matrix through the graph."""

    def __init__(
        self, graph: Graph, host: frozenset[torch.fx.Node], rows: int, columns: int, product: torch.fx.Node | None
    ) -> None:
        self.graph, self.host, self.rows, self.columns, self.product = graph, host, rows, columns, product
        self.roles: dict[torch.fx.Node, str] = {}

    def settle(self) -> Mapping[torch.fx.Node, str]:
        """Every value's role that is read in the kernel."""
        self._factors_are_given()
        for node in self.graph.module.graph.nodes:
            if node.op == "placeholder" or node in self.host:
                if self._is_read(node):
                    self.roles[node] = self._of_input(node)
                if any(u.op == "output" for u in node.users):
                    raise Unsupported("an input that is returned")
            elif node.op == "call_function":
                self.roles[node] = self._of_call(node)
        return self.roles

    def _factors_are_given(self) -> None:
        """Raises Unsupported for a product of what the kernel would compute first, or of what f32 does not hold."""
        if self.product is None:
            return
        for factor in operands(self.product):
            if factor.op != "placeholder" and factor not in self.host:
                raise Unsupported("a product of something that is computed in the region")
            if fake(factor).dtype not in MULTIPLIED:
                raise Unsupported(f"a product of {fake(factor).dtype}")

    def _is_read(self, node: torch.fx.Node) -> bool:
        """Tile by tile in the kernel's own lines: as a factor alone it has no place among rows and columns."""
        readers = [u for u in node.users if u not in self.host and u.op != "output"]
        if self.product is None or node not in operands(self.product):
            return bool(readers)
        added = base(self.product) == "addmm" and bind(self.product)["self"] is node
        return added or any(u is not self.product for u in readers)

    def _of_input(self, node: torch.fx.Node) -> str:
        value = fake(node)
        role = self._by_shape(tuple(value.shape))
        if role == "":
            raise Unsupported(f"a tensor of the shape {list(value.shape)} among {self.rows} rows of {self.columns}")
        if role in (FULL, KEPT, ROW) and not value.is_contiguous() and value.dim() != 2:
            raise Unsupported("a strided tensor of more than two dimensions")
        return role

    def _by_shape(self, shape: tuple[int, ...]) -> str:
        count = math.prod(shape)
        if count == 1:
            return ONE
        if shape[-1] == self.columns and count == self.rows * self.columns:
            return FULL if self.rows > 1 or len(shape) > 1 else COLUMN if self._wide() else FULL
        if shape[-1] == self.columns and count == self.columns:
            return COLUMN
        if shape[-1] == 1 and count == self.rows:
            return KEPT
        return ""

    def _wide(self) -> bool:
        return self.product is not None

    def _of_call(self, node: torch.fx.Node) -> str:
        name = base(node)
        if node is self.product:
            return FULL
        given = [self.roles[n] for n in node.all_input_nodes if n in self.roles]
        if name == "getitem":
            return self._of_part(node)
        if name in VIEWS:
            return self._of_view(node, given[0])
        if name in {*NORMS, *SOFTMAX}:
            self._last_dimension(node)
            return FULL
        if name in REDUCTIONS or name in VARIANCES:
            return self._of_reduction(node)
        return self._joined(given)

    def _of_part(self, node: torch.fx.Node) -> str:
        source, number = node.all_input_nodes[0], node.args[1]
        if base(source) in NORMS:
            return FULL if number == 0 else KEPT
        if base(source) in VARIANCES:
            return self.roles[source]
        raise Unsupported(f"a part of {base(source)}")

    def _of_view(self, node: torch.fx.Node, role: str) -> str:
        before, after = tuple(fake(node.all_input_nodes[0]).shape), tuple(fake(node).shape)
        if base(node) in ("t", "transpose", "permute"):
            raise Unsupported("a transposed intermediate")
        if before == after or role == ONE:
            return role
        count = math.prod(after)
        if base(node) == "expand":
            return role  # a tile broadcasts where it is read
        if count == math.prod(before):
            if role == FULL and after and after[-1] == self.columns:
                return FULL
            if role == ROW and after and after[-1] == 1:
                return KEPT
            if role == KEPT and after[-1:] != (1,) and count == self.rows:
                return ROW
            if role in (ROW, KEPT) and (after[-1:] == (1,)) == (role == KEPT):
                return role
            if role == COLUMN and after[-1] == self.columns:
                return COLUMN
        raise Unsupported(f"a view of {list(before)} as {list(after)}")

    def _last_dimension(self, node: torch.fx.Node) -> None:
        arguments, value = bind(node), fake(node.all_input_nodes[0])
        if self.roles[node.all_input_nodes[0]] != FULL:
            raise Unsupported("a norm of something smaller than the region")
        if base(node) in SOFTMAX:
            good = arguments["dim"] % value.dim() == value.dim() - 1
        else:
            good = list(arguments.get("normalized_shape") or arguments["shape"]) == [self.columns]
        if not good:
            raise Unsupported("a reduction over another dimension than the last")

    def _of_reduction(self, node: torch.fx.Node) -> str:
        arguments, source = bind(node), node.all_input_nodes[0]
        dims = arguments.get("dim")
        dims = [dims] if isinstance(dims, int) else list(dims or [])
        rank = fake(source).dim()
        if self.roles[source] != FULL or len(dims) != 1 or dims[0] % rank != rank - 1:
            raise Unsupported("a reduction over another dimension than the last")
        return KEPT if arguments.get("keepdim") else ROW

    def _joined(self, given: Sequence[str]) -> str:
        """Of an elementwise operation: the widest of its operands'."""
        roles = set(given) - {ONE}
        if not roles:
            return ONE
        if roles == {ROW}:
            return ROW
        if ROW in roles:
            raise Unsupported("a row's number next to something wider, without a dimension of its own")
        if roles <= {KEPT}:
            return KEPT
        return COLUMN if roles <= {COLUMN} else FULL


def operands(product: torch.fx.Node) -> Sequence[torch.fx.Node]:
    """The two factors of a matrix product."""
    arguments = bind(product)
    names = ("mat1", "mat2") if base(product) == "addmm" else ("self", "mat2")
    return [arguments[n] for n in names]
