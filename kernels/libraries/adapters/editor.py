"""The copy of a graph in which library calls take the place of what they compute, and operands in their form."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from kernels.codegen.index import Unsupported
from kernels.libraries.patterns.terms import promoted
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match
from profiler.region.graph.nodes import is_call

Maker = Callable[["Editor", Match], torch.fx.Node]
FRESH = ("mm", "bmm", "addmm", "baddbmm", "_grouped_mm", "_to_copy")
"""Operations whose result is new and not kept for their backward."""
LAYOUT = ("view", "_unsafe_view", "reshape")


class Editor:
    """A copy of the graph in which operations are replaced."""

    def __init__(self, graph: Graph) -> None:
        self.module = copy.deepcopy(graph.module)
        self.graph = self.module.graph
        self.nodes = {n.name: n for n in self.graph.nodes}
        holders = [n for n in self.graph.nodes if n.op == "placeholder"]
        self.nodes |= {name: node for (name, _), node in zip(graph.inputs, holders, strict=True)}

    def node(self, role: Any) -> torch.fx.Node | None:
        """The node that a role names; None where the role is empty."""
        return None if role is None else self.nodes[role]

    def need(self, role: Any) -> torch.fx.Node:
        node = self.node(role)
        if node is None:
            raise Unsupported("a role of the match is empty")
        return node

    def call(
        self, function: Callable[..., Any], *args: Any, like: torch.fx.Node | None = None, **kwargs: Any
    ) -> torch.fx.Node:
        """A call whose result is shaped like `like` (by default like what the function gives on the fakes)."""
        node = self.graph.call_function(function, args, kwargs)
        if like is not None:
            node.meta["val"] = like.meta["val"]
        else:
            values = torch.fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
            with torch.no_grad():
                node.meta["val"] = function(*values[0], **values[1])
        return node

    def cast(self, node: torch.fx.Node, dtype: torch.dtype) -> torch.fx.Node:
        if node.meta["val"].dtype == dtype:
            return node
        return self.call(torch.ops.aten._to_copy.default, node, dtype=dtype)

    def heads_as(self, node: torch.fx.Node, match: Match, heads: str) -> torch.fx.Node:
        """As [batch, heads, time, dimension], by the sizes among the roles; one head for every batch is spread."""
        shape = tuple(node.meta["val"].shape)
        lead = [int(n) for name in ("batch", heads) if isinstance(n := match.roles[name], int)]
        if list(shape[:-2]) == lead:
            return node
        if math.prod(shape[:-2]) == 1:
            node = node if len(shape) == 4 else self.call(torch.reshape, node, (1, 1, *shape[-2:]))
            return self.call(torch.ops.aten.expand.default, node, [*lead, *shape[-2:]])
        return self.call(torch.reshape, node, (*lead, *shape[-2:]))

    def kept(self, node: torch.fx.Node, match: Match) -> bool:
        """A call in the match's place may not write over the node: it is given, or others read it.

        What a product, a cast or a view of them made for this match alone may be overwritten: their backward does not
        read it either.
        """
        came: torch.fx.Node | None = None
        while not any(u.name not in match.operations and u is not came for u in node.users):
            if not is_call(node, *LAYOUT):
                return not is_call(node, *FRESH)
            came, node = node, node.all_input_nodes[0]
        return True

    def replace(self, match: Match, maker: Maker) -> None:
        """Put the library call in the place of the match's output, in its dtype and shape.

        An output of several parts is replaced part by part; where the call gives one tensor, its first part is.
        """
        output = self.nodes[match.output]
        with self.graph.inserting_before(output):
            made = maker(self, match)
            if isinstance(output.meta["val"], torch.Tensor):
                output.replace_all_uses_with(self.fitted(made, output.meta["val"]))
                return
            for user in list(output.users):
                part = user.args[1]
                several = not isinstance(made.meta["val"], torch.Tensor)
                if part and not several:
                    if user.users:
                        raise Unsupported("the call gives one of the results that are used")
                    continue
                one = self.part(made, part) if several else made
                user.replace_all_uses_with(self.fitted(one, user.meta["val"]))

    def fitted(self, made: torch.fx.Node, wanted: torch.Tensor) -> torch.fx.Node:
        """The call's result in the dtype and shape that the region has."""
        made = self.cast(made, wanted.dtype)
        if tuple(made.meta["val"].shape) != tuple(wanted.shape):
            if made.meta["val"].numel() != wanted.numel():
                raise Unsupported(f"the call gives {tuple(made.meta['val'].shape)}, not {tuple(wanted.shape)}")
            made = self.call(torch.reshape, made, tuple(wanted.shape))
        return made

    def part(self, made: torch.fx.Node, index: int) -> torch.fx.Node:
        """One result of a call that gives several."""
        node = self.graph.call_function(operator.getitem, (made, index))
        node.meta["val"] = made.meta["val"][index]
        return node

    def swap(self, role: Any, made: torch.fx.Node) -> None:
        """Give what comes after the call a second result of it, in the place of the operation that plays the role."""
        old = self.need(role)
        later = [u for u in old.users if u > made]
        with self.graph.inserting_after(made):
            new = self.fitted(made, old.meta["val"])
        for user in later:
            user.replace_input_with(old, new)

    def done(self) -> torch.fx.GraphModule:
        self.graph.eliminate_dead_code()
        self.graph.lint()
        self.module.recompile()
        return self.module


def operand(e: Editor, match: Match) -> torch.fx.Node:
    """x, in the wider of its own and the result's dtype: an f32 result of a bf16 row is stored in f32."""
    x = e.need(match.roles["x"])
    wanted = e.nodes[match.output].meta["val"]
    wanted = (wanted if isinstance(wanted, torch.Tensor) else wanted[0]).dtype
    own = x.meta["val"].dtype
    return e.cast(x, promoted(own, wanted) or own)


def vector(e: Editor, node: torch.fx.Node) -> torch.fx.Node:
    """[1, N] as [N]."""
    value = node.meta["val"]
    return node if value.dim() == 1 else e.call(torch.reshape, node, (value.numel(),))


@dataclass(frozen=True, slots=True)
class Heads:
    """Operands of an attention call. grouped: fewer heads of k and v than of q."""

    q: torch.fx.Node
    k: torch.fx.Node
    v: torch.fx.Node
    grouped: bool

    def result(self) -> torch.Tensor:
        """A fake of the call's result."""
        q, v = self.q.meta["val"], self.v.meta["val"]
        made: torch.Tensor = q.new_empty((*q.shape[:-1], v.shape[-1]))
        return made


def heads_of(e: Editor, match: Match) -> Heads:
    """q, k and v of [.., heads, time, dimension]. Raises Unsupported where they do not fit together."""
    roles = match.roles
    q, k, v = (e.need(roles[name]) for name in ("q", "k", "v"))
    if not roles.get("k_transposed", True):
        k = e.call(torch.transpose, k, -2, -1)
    if "batch" in roles:  # heads that are not an axis of their own
        q, k, v = e.heads_as(q, match, "heads"), e.heads_as(k, match, "groups"), e.heads_as(v, match, "groups")
    dtype = q.meta["val"].dtype
    if any(n.meta["val"].dtype != dtype for n in (k, v)):
        raise Unsupported("q, k and v of different dtypes")
    shapes = [tuple(n.meta["val"].shape) for n in (q, k, v)]
    ranks = {len(s) for s in shapes}
    if len(ranks) != 1 or shapes[0][-1] != shapes[1][-1] or shapes[1][-2] != shapes[2][-2]:
        raise Unsupported(f"q, k and v of shapes {shapes}")
    grouped = shapes[0][:-2] != shapes[1][:-2]
    if grouped and (
        shapes[0][:-3] != shapes[1][:-3] or shapes[1][:-2] != shapes[2][:-2] or shapes[0][-3] % shapes[1][-3]
    ):
        raise Unsupported(f"q, k and v of shapes {shapes}")
    return Heads(q, k, v, grouped)


def repeated(e: Editor, heads: Heads) -> Heads:
    """Every head of k and v as often as heads of q read it: for kernels that take no fewer of them."""
    if not heads.grouped:
        return heads
    times = heads.q.meta["val"].shape[-3] // heads.k.meta["val"].shape[-3]
    k, v = (e.call(torch.repeat_interleave, node, times, -3) for node in (heads.k, heads.v))
    return Heads(heads.q, k, v, grouped=False)


def attention_operands(
    e: Editor, match: Match, repeats: Sequence[torch.dtype] = (torch.float32,)
) -> tuple[Heads, torch.fx.Node | None]:
    """q, k, v and the mask as SDPA's fast kernels take them: true stays, additive in q's dtype, two or four dimensions,
    its last dimension dense. repeats: Entry.repeats.
    """
    roles, heads = match.roles, heads_of(e, match)
    if heads.q.meta["val"].dtype in repeats:
        heads = repeated(e, heads)
    mask = e.node(roles.get("mask"))
    if mask is not None:
        value = mask.meta["val"]
        if roles.get("mask_kind") == "drop":
            mask = e.call(torch.logical_not, mask)
        elif roles.get("mask_kind") == "keep":
            mask = e.cast(mask, torch.bool)
        elif value.dtype != torch.bool:
            mask = e.cast(mask, heads.q.meta["val"].dtype)
        elif match.by_hand:
            raise Unsupported("a boolean mask that is added")
        if len(heads.q.meta["val"].shape) == 4 and value.dim() == 3:
            # torch's cuDNN backend takes masks of two or four dimensions: see covers._mask_as_passed
            mask = e.call(torch.reshape, mask, (1, *value.shape))
        if mask.meta["val"].shape[-1] > 1 != mask.meta["val"].stride(-1):
            mask = e.call(torch.ops.aten.clone.default, mask, memory_format=torch.contiguous_format)
    return heads, mask
