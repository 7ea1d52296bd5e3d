"""Which tensors say where tokens go among experts, and how many of their elements are true if all get as many.

A router picks the top k of so many experts for each token. What follows from its indices - comparisons with an
expert's number, one-hot masks, which experts were hit - is followed from call to call, so that a result whose size
depends on it is as large as an even spread makes it. Pure functions of calls; what is not in RULES is not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

MOST_EXPERTS = 512
"""What picks of more, as sampling does of a vocabulary, is no router."""


@dataclass(frozen=True, slots=True)
class Routed:
    """tokens, top_k, experts: of the router. density: share of elements that are true under an even spread; None for
    numbers of experts."""

    tokens: int
    top_k: int
    experts: int
    density: float | None = None

    def true_of(self, mask: torch.Tensor) -> int:
        """How many elements are true, at least one; of a mask of the experts no more than there are."""
        elements = self.experts if self.is_of_experts(mask) else mask.numel()
        return max(1, round(elements * (1.0 if self.density is None else self.density)))

    def is_of_experts(self, mask: torch.Tensor) -> bool:
        """Whether a mask says which experts were hit; transformers has one more, for padding."""
        return self.density is not None and mask.dim() == 1 and mask.numel() in (self.experts, self.experts + 1)

    def said(self, mask: torch.Tensor) -> str:
        """The assumption in words."""
        return f"{self.spread()}: {self.true_of(mask):,} of {mask.numel():,} are true"

    def spread(self) -> str:
        """What is assumed of the router."""
        return f"assumed that the router spreads {self.tokens:,} tokens x {self.top_k} of {self.experts} experts evenly"


Rule: TypeAlias = Callable[[Routed, Sequence[Any], Any], Routed | None]
"""Of a call on what is routed so: what its result is, None where nobody knows."""


def picked(name: str, args: Sequence[Any], result: Any) -> tuple[torch.Tensor, Routed] | None:
    """A router's choice: the indices of topk of few along the last dimension, or None for another call."""
    if name != "topk" or not isinstance(result, tuple | list) or len(result) != 2:
        return None
    scores, top_k = args[0], args[1]
    dim = args[2] if len(args) > 2 else -1
    if scores.dim() < 2 or dim % scores.dim() != scores.dim() - 1 or top_k >= scores.size(-1):
        return None
    experts = scores.size(-1)
    if experts > MOST_EXPERTS:
        return None
    return result[1], Routed(scores.numel() // experts, top_k, experts)


def subject_of(name: str, args: Sequence[Any]) -> Any:
    """The argument of a call that its result follows from; None for a call that is not followed."""
    place = 2 if name in SCATTERS or name in ADDITIONS else 0
    return args[place] if (name in RULES or name in COUNTING) and len(args) > place else None


def follow(name: str, routed: Routed, args: Sequence[Any], result: Any) -> Iterator[tuple[torch.Tensor, Routed]]:
    """What the results of a call are whose `subject_of` is routed so."""
    if name not in RULES:
        return
    results = result if isinstance(result, tuple | list) else (result,)
    for one in results[:1] if name == "sort" else results:  # its second are places
        if isinstance(one, torch.Tensor) and (made := RULES[name](routed, args, one)) is not None:
            yield one, made


def numbers(routed: Routed) -> Routed:
    """Numbers of experts, of the same router."""
    return replace(routed, density=None)


def _same(routed: Routed, args: Sequence[Any], result: Any) -> Routed | None:
    return routed


def _is_equal(routed: Routed, args: Sequence[Any], result: Any) -> Routed | None:
    """Numbers with an expert's: one in so many. A mask with 0: where it is false."""
    if routed.density is None:
        return replace(routed, density=1 / routed.experts)
    return replace(routed, density=1 - routed.density) if _is_zero(args) else None


def _is_other(routed: Routed, args: Sequence[Any], result: Any) -> Routed | None:
    if routed.density is None:
        return replace(routed, density=1 - 1 / routed.experts)
    return routed if _is_zero(args) else None


def _is_more(routed: Routed, args: Sequence[Any], result: Any) -> Routed | None:
    """A mask, or how often each was hit, above 0."""
    return routed if routed.density is not None and _is_zero(args) else None


def _is_zero(args: Sequence[Any]) -> bool:
    return len(args) > 1 and isinstance(args[1], int | float) and args[1] == 0


def _inverted(routed: Routed, args: Sequence[Any], result: Any) -> Routed | None:
    return None if routed.density is None else replace(routed, density=1 - routed.density)


def _scattered(routed: Routed, args: Sequence[Any], result: Any) -> Routed | None:
    """Ones at the numbers of experts: a mask, of which one part more than there are experts, for padding, is false."""
    if routed.density is not None or not result.numel():
        return None
    rows = result.numel() // result.size(args[1])
    return replace(routed, density=min(1.0, args[2].numel() / (rows * routed.experts)))


def _reduced(routed: Routed, args: Sequence[Any], result: Any) -> Routed | None:
    """Whether any of several is true, or how many are."""
    if routed.density is None or not result.numel():
        return None
    return replace(routed, density=min(1.0, routed.density * args[0].numel() / result.numel()))


SCATTERS = frozenset({"scatter", "scatter_"})
ADDITIONS = frozenset({"scatter_add", "scatter_add_", "index_add", "index_add_"})
COUNTING = ADDITIONS | {"bincount", "histc"}
"""Of numbers of experts: how often each is there (`counts`)."""
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        "view _unsafe_view reshape _reshape_alias permute transpose t select slice squeeze unsqueeze expand clone"
        " _to_copy detach alias index unbind gather sort".split(),
        _same,
    ),
    "eq": _is_equal,
    "ne": _is_other,
    "gt": _is_more,
    "logical_not": _inverted,
    "bitwise_not": _inverted,
    **dict.fromkeys(SCATTERS, _scattered),
    "sum": _reduced,
    "any": _reduced,
}  # fmt: skip
