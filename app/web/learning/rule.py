"""The rule as a tree: the advice's criteria become nodes, and the path that the advice took is lit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.advice.criteria import CRITERIA

Json = Mapping[str, Any]


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


def tree(advice: Json) -> dict[str, Any]:
    """Context of partials/learn/tree.html: nodes with `state` (lit, taken, dim), and the tool at the end.

    "taken": its answer leads to its leaf; "lit": it was passed on the way; "dim": it was never asked.
    """
    judged = {c["name"]: c for c in advice.get("criteria") or ()}
    competing = {o["tool"] for o in advice.get("alternatives") or () if o.get("admitted", True)}
    nodes: list[dict[str, Any]] = []
    ended = False
    for question in QUESTIONS:
        found = [judged[name] for name in question.criteria if name in judged]
        holds = found[0]["holds"] if found else None
        leads = holds is question.on if question.ends else question.leaf in competing
        state = "dim" if ended else "taken" if leads else "lit"
        ends_here = question.ends and leads and not ended
        nodes.append(
            {
                "question": question.question,
                "why": question.why,
                "leaf": advice["tool"] if ends_here else question.leaf,
                "branch": "yes" if question.on else "no",
                "ends": question.ends,
                "answer": "unknown" if holds is None else "yes" if holds else "no",
                "criteria": found,
                "state": state,
                "chosen": state == "taken" and (ends_here or (not question.ends and question.leaf == advice["tool"])),
            }
        )
        ended = ended or ends_here
    return {"nodes": nodes, "tool": advice["tool"], "mode": advice.get("mode") or "", "ended": ended,
            "headline": advice["headline"]}  # fmt: skip
