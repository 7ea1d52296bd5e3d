"""What a user pastes for FlexAttention: both functions, the block mask with when it is made, the call."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernels.libraries.operand_text import atom
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, Role, node_of
from profiler.region.graph.nodes import shape
from profiler.region.graph.scores.functions import sizes_of, tensors_of

RESERVED = frozenset({"score", "b", "h", "q_idx", "kv_idx", "torch", "attend", "score_mod", "mask_mod", "block_mask"})
"""Names that the pasted code gives a meaning of its own."""
RESHAPED = re.compile(r"\.reshape\([\d, ]*\)$")
TENSOR = re.compile(r"\btensor(\d+)\b")
ONCE, AGAIN = (
    "of positions alone: once, for every layer and step",
    "again when {names} changes, and one for every layer",
)


def flex_text(graph: Graph, match: Match, texts: Mapping[str, Role]) -> str:
    """The code. texts: operands as the user would give them."""
    roles, sizes = match.roles, sizes_of(match)
    read = tensors_of(match)
    named = {name: _named(graph, match, name, str(texts[name])) for name in read}
    score, keep = (_with_names(str(roles[role]), named) for role in ("score", "keep"))
    imported = "create_block_mask, flex_attention" if keep else "flex_attention"
    code = [f"from torch.nn.attention.flex_attention import {imported}", "", "attend = torch.compile(flex_attention)"]
    code += [f"{name} = {given}" for name, given in named.values() if given]
    if score:
        code += ["", "def score_mod(score, b, h, q_idx, kv_idx):", f"    return {score}", ""]
    if keep:
        code += ["", "def mask_mod(b, h, q_idx, kv_idx):", f"    return {keep}", ""]
        fixed = keep == roles["positions"]
        again = AGAIN.format(names=" or ".join(n for r, (n, _) in named.items() if r in str(roles["keep"])))
        counts = [str(n) if told else "None" for n, told in
                  ((sizes.batch, roles["by_batch"]), (sizes.heads, roles["by_head"]))]  # fmt: skip
        make = "create_block_mask" if fixed else "torch.compile(create_block_mask)"
        first = re.match(r"\(*(\w+)", str(texts["q"]))
        device = f"{first.group(1) if first else 'q'}.device"
        code += [f"# {ONCE if fixed else again}"]
        code += [f"block_mask = {make}(mask_mod, {', '.join(counts)}, {sizes.rows}, {sizes.columns}, device={device})"]
    more = [", score_mod=score_mod"] * bool(score) + [", block_mask=block_mask"] * bool(keep)
    q, k, v = (texts[role] for role in ("q", "k", "v"))
    given = f"{q}, {k}, {v}{''.join(more)}, scale={roles['scale']}{grouped(match)}"
    return "\n".join([*code, f"y = attend({given})"])


def grouped(match: Match) -> str:
    """What the call is told where several heads of queries read one of keys."""
    return ", enable_gqa=True" if times_read(match) > 1 else ""


def times_read(match: Match) -> int:
    """How many heads of queries read one of keys and values."""
    sizes = sizes_of(match)
    return sizes.heads // sizes.groups


def of_heads(graph: Graph, match: Match, texts: Mapping[str, Role]) -> dict[str, Role]:
    """q, k and v as [batch, heads, time, dimension]."""
    return {role: _of_heads(graph, match, role, texts, lead) for role, lead in _leads(match).items()}


def _leads(match: Match) -> dict[str, tuple[int, int]]:
    sizes = sizes_of(match)
    return {"q": (sizes.batch, sizes.heads), "k": (sizes.batch, sizes.groups), "v": (sizes.batch, sizes.groups)}


def _of_heads(graph: Graph, match: Match, role: str, texts: Mapping[str, Role], lead: tuple[int, int]) -> str:
    """The operand as [batch, heads, time, dimension]."""
    text, node = str(texts[role]), node_of(graph, match.roles[role])
    if node is None or shape(node)[:-2] == lead:
        return text
    own = shape(node)[:-2]
    tail = shape(node)[-2:]
    if role == "k" and match.roles.get("k_transposed") is False:
        tail = (tail[1], tail[0])
    way = "expand" if own == (1, 1) else "reshape"
    text = RESHAPED.sub("", text)
    return f"{atom(text)}.{way}({', '.join(map(str, (*lead, *tail)))})"


def _named(graph: Graph, match: Match, name: str, text: str) -> tuple[str, str]:
    """(what the functions call a tensor, what it is where that is no name of the user's)."""
    node = node_of(graph, match.roles[name])
    ones = [i for i, size in enumerate(shape(node)) if size == 1] if node is not None else []
    if text.isidentifier() and text not in RESERVED and not ones:
        return text, ""
    given = f"{atom(text)}.squeeze({ones[0] if len(ones) == 1 else tuple(ones)})" if ones else text
    return name, given


def _with_names(code: str, named: Mapping[str, tuple[str, str]]) -> str:
    return TENSOR.sub(lambda place: named[place.group()][0], code)
