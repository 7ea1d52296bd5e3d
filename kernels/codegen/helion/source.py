"""Writes a region's Helion source: one function with one kernel, as a person would write it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from kernels.codegen.expressions.ops import TORCH_DTYPES
from kernels.codegen.helion import forms
from kernels.codegen.helion.expressions import REDUCTIONS, atom, number, pointwise
from kernels.codegen.helion.forms import CHAIN, COLUMN, FULL, KEPT, NORMS, ONE, ROW, VARIANCES, Form, base, form_of
from kernels.codegen.index import Unsupported
from kernels.codegen.nodes import bind, computed, dtype_of, fake
from kernels.codegen.pieces import node_names
from profiler.region.graph.lowering import Graph

EIGHT_BITS = frozenset({"f8e4m3", "f8e5m2"})
SHORT = EIGHT_BITS | {"bf16", "f16"}
COMPARED = frozenset({"gt", "lt", "ge", "le", "eq", "ne"})
KERNEL = "region"
"""What the function is called: what a profiler shows is `_helion_region`."""
WIDTH = 110


@dataclass(frozen=True, slots=True)
class HelionSource:
    """text: a module whose function `region` takes the region's inputs in order and returns a tensor or a tuple.

    code_lines: those of the function, without imports, comments and empty lines. form: chain, rows or product.
    """

    text: str
    code_lines: int
    form: str


def write(graph: Graph) -> HelionSource:
    """The region's Helion source; raises Unsupported with the reason where it has none."""
    form = form_of(graph)
    return _Writer(graph, form).written()


def text_of(graph: Graph) -> str:
    """The region's Helion source, "" where it has none."""
    try:
        return write(graph).text
    except Unsupported:
        return ""


class _Writer:
    def __init__(self, graph: Graph, form: Form) -> None:
        self.graph, self.form = graph, form
        self.names = node_names(graph)
        self.said: dict[torch.fx.Node, str] = {}
        self.factors = ("", "")  # what the product's two are called, laid out as they are multiplied
        self.host: list[str] = []
        self.body: list[str] = []
        self.loaded: dict[torch.fx.Node, str] = {}
        used = set(self.names.values())
        self.results: list[str] = []
        self.taken = used | {"m", "n", "k", "tile", "tile_m", "tile_n", "tile_k", "acc", "torch", "F", "hl", "helion"}

    def written(self) -> HelionSource:
        inputs = [n for n in self.graph.module.graph.nodes if n.op == "placeholder"]
        for node in inputs:
            self.said[node] = self._free(self.names[node]) if self.names[node] in RESERVED else self.names[node]
        parameters = ", ".join(f"{self.said[n]}: torch.Tensor" for n in inputs)
        outputs = self._outputs()
        given = {self.said[n] for n in inputs}
        spare = (name for name in ("out", *(f"out_{i}" for i in range(1, 4000))) if name not in given)
        self.results = [next(spare) for _ in outputs]
        self.taken |= set(self.results)
        self._host_lines()
        loop = self._loop()
        stores = [self._operation(n) for n in self._needed(outputs)]
        assert not any(stores)
        results = [self._store(number_, node) for number_, node in enumerate(outputs)]
        lines = [self._decorator(), f"def {KERNEL}({parameters}):", *_indented(self.host, 1), *_indented(loop, 1)]
        lines += [*_indented(self.body, 2), f"    return {', '.join(results)}"]
        head = ["import torch"]
        head += ["import torch.nn.functional as F"] if any("F." in line for line in self.body) else []
        head += ["", "import helion", "import helion.language as hl", "", ""]
        return HelionSource("\n".join([*head, *lines, ""]), len(lines), self.form.kind)

    def _decorator(self) -> str:
        product = self.form.product
        exact = product is not None and fake(product).dtype == torch.float32
        more = ', dot_precision="ieee"' if exact else ""
        return f"@helion.kernel(static_shapes=True{more})"

    def _outputs(self) -> list[torch.fx.Node]:
        returned: Any = next(n for n in self.graph.module.graph.nodes if n.op == "output").args[0]
        outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if any(not isinstance(o, torch.fx.Node) or o.op == "placeholder" or o in self.form.host for o in outputs):
            raise Unsupported("an output that nothing computes")
        for node in outputs:
            if math.prod(fake(node).shape) != self._elements(self.form.roles[node]):
                raise Unsupported("an output that is a broadcast of something smaller")
            if not fake(node).is_contiguous():
                raise Unsupported("an output that is not laid out row by row")
        return outputs

    def _elements(self, role: str) -> int:
        rows, columns = self.form.rows, self.form.columns
        return {FULL: rows * columns, KEPT: rows, ROW: rows, COLUMN: -1, ONE: -1}[role]

    def _needed(self, outputs: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
        wanted: set[torch.fx.Node] = set()
        waiting = list(outputs)
        while waiting:
            node = waiting.pop()
            if node not in wanted and node.op == "call_function" and node not in self.form.host:
                wanted.add(node)
                waiting += node.all_input_nodes
        return [n for n in self.graph.module.graph.nodes if n in wanted]

    def _free(self, name: str) -> str:
        free = next(n for n in (name, *(f"{name}_{i}" for i in range(1, 4000))) if n not in self.taken)
        self.taken.add(free)
        return free

    # What stands before the tiles.

    def _host_lines(self) -> None:
        for node in self.graph.module.graph.nodes:
            if node in self.form.host:
                self.said[node] = self._view_of_input(node)
        self._sizes()
        for node, role in self.form.roles.items():
            if node.op == "placeholder" or node in self.form.host:
                self._laid_out(node, role)

    def _view_of_input(self, node: torch.fx.Node) -> str:
        """As an expression: it is written where the input is taken."""
        source, name, arguments = self.said[node.all_input_nodes[0]], base(node), bind(node)
        if name in ("alias", "detach"):
            return source
        if name == "t":
            return f"{source}.t()"
        if name == "transpose":
            return f"{source}.transpose({arguments['dim0']}, {arguments['dim1']})"
        if name == "permute":
            return f"{source}.permute({', '.join(map(str, arguments['dims']))})"
        if name == "unsqueeze":
            return f"{source}.unsqueeze({arguments['dim']})"
        shape = ", ".join(str(s) for s in fake(node).shape)
        return f"{source}.expand({shape})" if name == "expand" else f"{source}.reshape({shape})"

    def _sizes(self) -> None:
        form = self.form
        if form.product is not None:
            a, b = forms.operands(form.product)
            left, right = (self._factor(node, name) for node, name in ((a, "a"), (b, "b")))
            self.host += [f"m, k = {left}.size()", f"n = {right}.size(1)"]
            self.factors = left, right
            return
        self.host.append(f"n = {form.rows * form.columns}" if form.flat else f"m, n = {form.rows}, {form.columns}")

    def _factor(self, node: torch.fx.Node, name: str) -> str:
        """What it is called: a view of an input is written once, under a name."""
        said = self.said[node]
        if said.isidentifier():
            return said
        named = self._free(name)
        self.host.append(f"{named} = {said}")
        return named

    def _laid_out(self, node: torch.fx.Node, role: str) -> None:
        """As a matrix, a vector, or a vector of one number: nothing where the tensor is that already."""
        shape = tuple(fake(node).shape)
        wanted = {
            FULL: (-1,) if self.form.flat else (self.form.rows, self.form.columns), KEPT: (-1,), ROW: (-1,),
            COLUMN: (-1,), ONE: (1,),
        }[role]  # fmt: skip
        if shape == wanted or (len(wanted) == len(shape) == 1):
            return
        text = "-1" if len(wanted) == 1 and wanted != (1,) else "1" if wanted == (1,) else "m, n"
        said = f"{self.said[node]}.reshape({text})"
        name = self._free(self.names[node] + ("_matrix" if len(wanted) == 2 else "_vector"))
        self.host.append(f"{name} = {said}")
        self.said[node] = name

    def _loop(self) -> list[str]:
        form = self.form
        for place, node in enumerate(self._outputs()):
            role = form.roles[node]
            size = "n" if form.flat else {FULL: "m, n", KEPT: "m, 1"}.get(role, "m")
            device = self.said[next(n for n in self.graph.module.graph.nodes if n.op == "placeholder")].split(".")[0]
            dtype = TORCH_DTYPES[dtype_of(fake(node))]
            self.host.append(f"{self.results[place]} = torch.empty([{size}], dtype={dtype}, device={device}.device)")
        if form.flat:
            return ["for tile in hl.tile(n):"]
        if form.kind == forms.ROWS:
            return ["for tile in hl.tile(m):"]
        if form.kind == CHAIN:
            return ["for tile_m, tile_n in hl.tile([m, n]):"]
        return ["for tile_m, tile_n in hl.tile([m, n]):", *_indented(self._accumulation(), 1)]

    def _accumulation(self) -> list[str]:
        a, b = self.factors
        step = f"acc = hl.dot({a}[tile_m, tile_k], {b}[tile_k, tile_n], acc=acc)"
        return ["acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)", "for tile_k in hl.tile(k):", f"    {step}"]

    # What stands inside of them.

    def _loaded(self, node: torch.fx.Node) -> str:
        """A tile of an input, in f32 where it is narrower."""
        if node in self.loaded:
            return self.loaded[node]
        role, form = self.form.roles[node], self.form
        rows, columns = ("tile", ":") if form.kind == forms.ROWS else ("tile_m", "tile_n")
        index = {
            FULL: "tile" if form.flat else f"{rows}, {columns}", KEPT: rows, ROW: rows, COLUMN: columns, ONE: "0",
        }[role]  # fmt: skip
        text = f"{self.said[node]}[{index}]"
        text += {KEPT: "[:, None]", COLUMN: "[None, :]"}.get(role, "")
        text += ".to(torch.float32)" if dtype_of(fake(node)) in SHORT else ""
        name = self._free(self.names[node] + "_tile")
        self.body.append(f"{name} = {text}")
        self.loaded[node] = name
        return name

    def _value(self, given: Any) -> str:
        if not isinstance(given, torch.fx.Node):
            return number(given)
        if given.op == "placeholder" or given in self.form.host:
            return self._loaded(given)
        return self.said[given]

    def _operation(self, node: torch.fx.Node) -> str:
        """Appends what computes the node; an expression that is read once is written where it is read."""
        name = base(node)
        if node is self.form.product:
            self.said[node] = self._product(node)
            return ""
        if name == "getitem":
            return self._part(node)
        if name in forms.VIEWS:
            self.said[node] = self._view(node)
            return ""
        if name in forms.NORMS:
            self._norm(node, bind(node))
            return ""
        if name in forms.VARIANCES:
            self._variance(node, bind(node))
            return ""
        text = self._expression(node, name)
        once = len(node.users) == 1 and next(iter(node.users)).op != "output" and len(text) < WIDTH // 2
        if once and text.count("torch.") + text.count("F.") <= 2 and _reads_once(node):
            self.said[node] = text
            return ""
        self.said[node] = self._named(node, text)
        return ""

    def _named(self, node: torch.fx.Node, text: str) -> str:
        if text.isidentifier():
            return text
        said = self.names[node].strip("_0123456789").removeprefix("to_copy") or "cast"
        name = self._free(f"v_{said}")
        self.body.append(f"{name} = {text}")
        return name

    def _expression(self, node: torch.fx.Node, name: str) -> str:
        arguments = bind(node)
        if name in forms.SOFTMAX:
            x = self._value(node.all_input_nodes[0])
            return f"torch.softmax({x}, dim=-1)" if name != "_log_softmax" else self._log_softmax(node, x)
        if name in REDUCTIONS:
            wide = arguments.get("dtype")
            if wide == torch.float64 or (wide is not None and not fake(node.all_input_nodes[0]).is_floating_point()):
                raise Unsupported(f"{name} in {wide} of another dtype")
            keep = ", keepdim=True" if arguments.get("keepdim") else ""
            return f"torch.{REDUCTIONS[name]}({self._value(node.all_input_nodes[0])}, dim=-1{keep})"
        if name == "_to_copy":
            return self._cast(node)
        given = [v for k, v in arguments.items() if _is_operand(k, v)]
        kinds = [dtype_of(fake(v)) for v in given if isinstance(v, torch.fx.Node)]
        if name.startswith("logical_") and set(kinds) != {"bool"}:
            raise Unsupported(f"{name} of numbers")
        said = [_compared(self._value(v), v, kinds) if name in COMPARED else self._value(v) for v in given]
        return pointwise(name, said, arguments)

    def _cast(self, node: torch.fx.Node) -> str:
        """A cast to fewer bits rounds, except where a store rounds anyway; what is computed on stays f32."""
        source = node.all_input_nodes[0]
        before, after = dtype_of(fake(source)), dtype_of(fake(node))
        value = self._value(source)
        if after not in SHORT:
            return value if computed(before) == after else f"{atom(value)}.to({TORCH_DTYPES[after]})"
        if before == after or (before in EIGHT_BITS and after not in EIGHT_BITS) or _is_stored_alone(node):
            return value
        return f"{atom(value)}.to({TORCH_DTYPES[after]}).to(torch.float32)"

    def _log_softmax(self, node: torch.fx.Node, x: str) -> str:
        shifted = self._named(node, f"{x} - torch.amax({x}, dim=-1, keepdim=True)")
        return f"{shifted} - torch.log(torch.sum(torch.exp({shifted}), dim=-1, keepdim=True))"

    def _norm(self, node: torch.fx.Node, arguments: Mapping[str, Any]) -> None:
        source = node.all_input_nodes[0]
        x = self._value(source)
        eps = arguments.get("eps")
        eps = torch.finfo(fake(source).dtype).eps if eps is None else eps
        weight, bias = arguments.get("weight"), arguments.get("bias")
        if base(node) == "native_layer_norm":
            mean = self._free("mean")
            self.body.append(f"{mean} = torch.mean({x}, dim=-1, keepdim=True)")
            centred = self._free("centred")
            self.body.append(f"{centred} = {atom(x)} - {mean}")
            self.said[node] = mean
            x = centred
        inverse = self._free("rstd")
        square = f"torch.mean({atom(x)} * {atom(x)}, dim=-1, keepdim=True)"
        self.body.append(f"{inverse} = torch.rsqrt({square} + {number(eps)})")
        result = f"{atom(x)} * {inverse}"
        result += f" * {self._value(weight)}" if weight is not None else ""
        result += f" + {self._value(bias)}" if bias is not None else ""
        parts = {0: self._named(node, result), 1: self.said.get(node, inverse), 2: inverse}
        if base(node) != "native_layer_norm":
            parts[1] = inverse
        if base(node) == "rms_norm":
            self.said[node] = parts[0]
        for user in node.users:
            if base(user) == "getitem":
                self.said[user] = parts[user.args[1]]  # type: ignore[index]

    def _variance(self, node: torch.fx.Node, arguments: Mapping[str, Any]) -> None:
        x, keep = self._value(node.all_input_nodes[0]), arguments.get("keepdim")
        correction = arguments.get("correction")
        divisor = self.form.columns - (1 if correction is None else correction)
        if divisor <= 0:
            raise Unsupported("a variance of one element")
        mean = self._free("mean")
        self.body.append(f"{mean} = torch.mean({x}, dim=-1, keepdim=True)")
        centred = self._free("centred")
        self.body.append(f"{centred} = {atom(x)} - {mean}")
        kept = ", keepdim=True" if keep else ""
        text = f"torch.sum({centred} * {centred}, dim=-1{kept}) / {number(divisor)}"
        variance = self._free("variance")
        self.body.append(f"{variance} = {text}")
        self.said[node] = variance
        if base(node) == "var_mean":
            mean = mean if keep else f"torch.mean({x}, dim=-1)"
            for user in node.users:
                self.said[user] = variance if user.args[1] == 0 else mean

    def _part(self, node: torch.fx.Node) -> str:
        assert node in self.said, "its norm has written its parts"
        return ""

    def _view(self, node: torch.fx.Node) -> str:
        source = node.all_input_nodes[0]
        before, after = self.form.roles[source], self.form.roles[node]
        value = self._value(source)
        if (before, after) == (ROW, KEPT):
            return f"{atom(value)}[:, None]"
        if (before, after) == (KEPT, ROW):
            raise Unsupported("a row's number whose dimension is taken away again")
        return value

    def _product(self, node: torch.fx.Node) -> str:
        if base(node) == "mm":
            return "acc"
        arguments = bind(node)
        bias = arguments["self"]
        scaled = "acc" if arguments.get("alpha", 1) == 1 else f"acc * {number(arguments['alpha'])}"
        added = self._value(bias)
        added += "" if arguments.get("beta", 1) == 1 else f" * {number(arguments['beta'])}"
        return f"{scaled} + {added}"

    def _store(self, place: int, node: torch.fx.Node) -> str:
        form, role = self.form, self.form.roles[node]
        rows, columns = ("tile", ":") if form.kind == forms.ROWS else ("tile_m", "tile_n")
        index = "tile" if form.flat else f"{rows}, {columns}" if role in (FULL, KEPT) else rows
        value = self._value(node)
        if role == KEPT:
            if form.kind != forms.ROWS:
                raise Unsupported("one number a row, of tiles that hold a part of it")
        if form.kind != forms.ROWS and role == ROW:
            raise Unsupported("one number a row, of tiles that hold a part of it")
        dtype = dtype_of(fake(node))
        cast = f".to({TORCH_DTYPES[dtype]})" if dtype in SHORT else ""
        self.body.append(f"{self.results[place]}[{index}] = {atom(value) if cast else value}{cast}")
        shape, name = tuple(fake(node).shape), self.results[place]
        laid = {FULL: (form.rows, form.columns), KEPT: (form.rows, 1)}.get(role, (form.rows,))
        laid = (form.rows * form.columns,) if form.flat else laid
        return name if shape == laid else f"{name}.view({', '.join(map(str, shape))})"


RESERVED = frozenset({"m", "n", "k", "tile", "tile_m", "tile_n", "tile_k", "acc", "mean", "torch", "F", "hl", "helion"})


def _is_operand(name: str, value: Any) -> bool:
    """A tensor, or the number in the place of one."""
    return isinstance(value, torch.fx.Node) or (name in ("other", "exponent", "value", "self") and value is not None)


def _is_stored_alone(node: torch.fx.Node) -> bool:
    """Nothing but stores reads it, as it is or under another shape."""
    return all(u.op == "output" or (base(u) in forms.VIEWS and _is_stored_alone(u)) for u in node.users)


def _compared(said: str, given: Any, kinds: Sequence[str]) -> str:
    """What a comparison reads: aten rounds a number to the tensor's dtype first."""
    if isinstance(given, float) and kinds and kinds[0] in ("bf16", "f16"):
        return number(float(torch.tensor(given, dtype=torch.bfloat16 if kinds[0] == "bf16" else torch.float16)))
    return said


def _reads_once(node: torch.fx.Node) -> bool:
    """Its only reader names it once: another would compute it again."""
    user = next(iter(node.users))
    twice = {*NORMS, *VARIANCES, "_log_softmax", "square", "leaky_relu"}
    return base(user) not in twice and sum(a is node for a in user.all_input_nodes) == 1 and not any(
        base(user) == "mul" and a is node for a in user.args[1:] if user.args[0] is node
    )  # fmt: skip


def _indented(lines: Sequence[str], depth: int) -> list[str]:
    return [" " * 4 * depth + line for line in lines]
