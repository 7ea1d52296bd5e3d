"""The rule as a tree: the advice's criteria become nodes, and the path that the advice took is lit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

from app.advice.criteria import CRITERIA
from app.objects.advice import Advice, Criterion


@dataclass(frozen=True, slots=True)
class Question:
    """One question of the rule. criteria: which of the advice's answer it, the first one decides.

    leaf: the tool that it leads to; on: the answer that leads there. ends: that answer ends the matter, else it lets
    the tool compete. why: whose experience it rests on, in a sentence.
    """

    question: str
    criteria: tuple[str, ...]
    leaf: str
    on: bool
    ends: bool
    why: str


QUESTIONS: tuple[Question, ...] = tuple(
    Question(
        asked.text,
        (criterion.name, *(other.name for other in CRITERIA if other.joins == criterion.name)),
        asked.tool,
        asked.on,
        asked.ends,
        asked.why,
    )
    for criterion in CRITERIA
    if (asked := criterion.question) is not None
)
"""In the rule's order; a criterion that has none lets no tool compete and ends nothing."""


State = Literal["lit", "taken", "dim"]
"""Of a question in the tree."""


class Node(TypedDict):
    """A question in the tree. chosen: the advice is its leaf.

    state: "taken": its answer leads to its leaf; "lit": it was passed on the way; "dim": it was never asked.
    """

    question: str
    why: str
    leaf: str
    branch: Literal["yes", "no"]
    ends: bool
    answer: Literal["unknown", "yes", "no"]
    criteria: list[Criterion]
    state: State
    chosen: bool


class Tree(TypedDict):
    """The rule's questions, and the tool at the end. ended: by a question that ends the matter."""

    nodes: list[Node]
    tool: str
    mode: str
    ended: bool
    headline: str


def light_tree(advice: Advice) -> Tree:
    """The tree with the path that the advice took."""
    judged = {c["name"]: c for c in advice.get("criteria") or ()}
    competing: set[str] = {o["tool"] for o in advice.get("alternatives") or () if o.get("admitted", True)}
    nodes: list[Node] = []
    ended = False
    for question in QUESTIONS:
        criteria = [judged[name] for name in question.criteria if name in judged]
        holds = criteria[0]["holds"] if criteria else None
        leads = holds is question.on if question.ends else question.leaf in competing
        state: State = "dim" if ended else "taken" if leads else "lit"
        ends_here = question.ends and leads and not ended
        nodes.append(
            {
                "question": question.question,
                "why": question.why,
                "leaf": advice["tool"] if ends_here else question.leaf,
                "branch": "yes" if question.on else "no",
                "ends": question.ends,
                "answer": "unknown" if holds is None else "yes" if holds else "no",
                "criteria": criteria,
                "state": state,
                "chosen": state == "taken" and (ends_here or (not question.ends and question.leaf == advice["tool"])),
            }
        )
        ended = ended or ends_here
    return {"nodes": nodes, "tool": advice["tool"], "mode": advice.get("mode") or "", "ended": ended,
            "headline": advice["headline"]}  # fmt: skip
