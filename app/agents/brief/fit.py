"""Makes a brief fit its bound: what matters least goes first, and what went is counted. Pure functions.

Texts are bounded where they are made (`one_line`); code is whole or not there at all, for half of an edit is a wrong
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeVar, cast

from app.agents.brief.tokens import MAX_TOKENS, cut, json_text, token_bound
from app.check.safe import visible, visible_block
from app.objects.brief import Brief, BriefAction, BriefEdit, BriefValidation, KernelExplained

TITLE, REASON, NAME, PLACE, COMMAND = 30, 70, 40, 60, 90
"""Most tokens of a title, a reason, a name, a path, a command."""
CODE = 300
"""Of code; a longer one is left out."""

Listed = Literal["warnings", "do_not", "do"]
_KEPT: tuple[tuple[Listed, int], ...] = (
    ("warnings", 4), ("do_not", 8), ("do", 8), ("warnings", 2), ("do_not", 5), ("do", 6), ("warnings", 1),
    ("do_not", 3), ("do", 4), ("do_not", 2), ("do", 3), ("do_not", 1), ("do", 2),
)  # fmt: skip
"""How many entries of a list are kept, tried in this order until all fits."""
_SHORT_REASON, _SHORTEST = 30, 15

Answer = TypeVar("Answer")


def one_line(text: str, most: int) -> str:
    """Text from outside on one visible line, within so many tokens."""
    return cut(visible(text, 1200), most)


def code_text(text: str) -> str:
    """Code with its lines, every character visible; "" where it is too long to be given whole."""
    shown = visible_block(text, 6000)
    return shown if len(text) <= 6000 and token_bound(shown) <= CODE else ""


def is_within(answer: object, most: int = MAX_TOKENS) -> bool:
    """Whether an answer is within its bound."""
    return token_bound(json_text(answer)) <= most


def fit_brief(brief: Brief, most: int = MAX_TOKENS) -> Brief:
    """The brief within the bound."""
    return _first_within(brief, _shorter_briefs, most)


def fit_validation(answer: BriefValidation, most: int = MAX_TOKENS) -> BriefValidation:
    """A validation within the bound: slow and failed candidates go first."""
    return _first_within(answer, _shorter_validations, most)


def fit_kernel(answer: KernelExplained, most: int = MAX_TOKENS) -> KernelExplained:
    """What a kernel is, within the bound: other kernels go first, then regions with less time."""
    return _first_within(answer, _shorter_kernels, most)


def _first_within(answer: Answer, shorter: Callable[[Answer], Iterator[Answer]], most: int) -> Answer:
    if is_within(answer, most):
        return answer
    last = answer
    for last in shorter(answer):
        if is_within(last, most):
            break
    return last


def _shorter_briefs(brief: Brief) -> Iterator[Brief]:
    for listed, kept in _KEPT:
        while len(brief[listed]) > kept:
            brief = _without_last(brief, listed)
            yield brief
        if (listed, kept) == ("do", 4):  # what the code computes is in the trace as well
            for place in reversed(range(len(brief["do"]))):
                if place or brief["of"] != "region":
                    brief = _with_edit(brief, place, before="")
                    yield brief
    brief = _reasons_cut(brief, _SHORT_REASON)
    yield brief
    for place in reversed(range(len(brief["do"]))):
        brief = _with_edit(brief, place, before="")
        yield brief
    while len(brief["do"]) > 1:
        brief = _without_last(brief, "do")
        yield brief
    brief = _reasons_cut(brief, _SHORTEST)
    yield brief
    for place in range(len(brief["do"])):
        brief = _with_edit(brief, place, after="")
        yield brief
    for listed in ("warnings", "do_not", "do"):
        while brief[listed]:
            brief = _without_last(brief, listed)
            yield brief


def _without_last(brief: Brief, listed: Listed) -> Brief:
    left: dict[str, object] = {**brief["left_out"], listed: brief["left_out"][listed] + 1}
    return cast("Brief", dict(brief) | {listed: brief[listed][:-1], "left_out": left})


def _with_edit(brief: Brief, place: int, before: str | None = None, after: str | None = None) -> Brief:
    action = brief["do"][place]
    old = action["edit"]
    edit: BriefEdit = {
        **old,
        "before": old["before"] if before is None else before,
        "after": old["after"] if after is None else after,
    }
    if edit == old:
        return brief
    changed: BriefAction = {**action, "edit": edit}
    actions = [*brief["do"][:place], changed, *brief["do"][place + 1 :]]
    return {**brief, "do": actions, "left_out": {**brief["left_out"], "edits": brief["left_out"]["edits"] + 1}}


def _reasons_cut(brief: Brief, most: int) -> Brief:
    return {
        **brief,
        "do": [{**a, "because": cut(a["because"], most)} for a in brief["do"]],
        "do_not": [{**a, "because": cut(a["because"], most)} for a in brief["do_not"]],
        "warnings": [cut(text, most) for text in brief["warnings"]],
        "bottleneck": cut(brief["bottleneck"], most),
    }


def _shorter_validations(answer: BriefValidation) -> Iterator[BriefValidation]:
    while len(answer["candidates"]) > 1:
        answer = {**answer, "candidates": answer["candidates"][:-1], "left_out": answer["left_out"] + 1}
        yield answer
    answer = {**answer, "warnings": []}
    yield answer
    yield {**answer, "candidates": [], "left_out": answer["left_out"] + len(answer["candidates"])}


def _shorter_kernels(answer: KernelExplained) -> Iterator[KernelExplained]:
    while len(answer["others"]) > 3:
        answer = {**answer, "others": answer["others"][:-1], "left_out": answer["left_out"] + 1}
        yield answer
    while len(answer["regions"]) > 1:
        answer = {**answer, "regions": answer["regions"][:-1], "left_out": answer["left_out"] + 1}
        yield answer
    while answer["others"]:
        answer = {**answer, "others": answer["others"][:-1], "left_out": answer["left_out"] + 1}
        yield answer
    yield {**answer, "regions": [{**r, "code": ""} for r in answer["regions"]]}
