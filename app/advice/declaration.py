"""Declaration: one criterion with all that is said of it anywhere, so that adding one is adding its declaration.

Who needs the criteria goes over `app.advice.criteria.CRITERIA`: the rule, what would change an advice, the words, the
widget, checks, the tree on /learn, docs/rule.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from app.advice.model import Criterion, Tool

if TYPE_CHECKING:
    from app.advice.case import Case
    from app.advice.options import Option


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a criterion says of one Case; holds is None where it cannot be judged. source: "" for the criterion's."""

    holds: bool | None
    value: float | str | None
    threshold: float | str | None
    because: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A criterion as a question of the rule's tree.

    tool: where the answer `on` leads. ends: that answer ends the matter, else it lets the tool compete. why: whose
    experience it rests on, in a sentence.
    """

    text: str
    tool: Tool
    on: bool
    why: str
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A criterion as a sentence that speaks for a tool where it is true, so that a check mark always does.

    on: what `holds` is where it is true. only_if_given: nothing was asked where the criterion has no threshold.
    """

    text: str
    tool: Tool
    on: bool = True
    only_if_given: bool = False


@dataclass(frozen=True, slots=True)
class FactNumber:
    """A number of RegionFacts that the criterion turns on, moved to see what would change an advice.

    words: how it is said, "with {side} rows"; form: of the number. only_with: another field, without which it is not
    moved. new_options: with another number the options are made anew.
    """

    field: str
    of: str
    words: str
    form: str
    low: float = 0.0
    high: float = 1.0
    whole: bool = False
    only_with: str = ""
    new_options: bool = False


@dataclass(frozen=True, slots=True)
class Declaration:
    """A criterion: a function of the Case, whose docstring docs/rule.md shows, and what goes with it.

    name: stable, kebab-case. source: where the criterion is from. thresholds: names of those it compares with.
    figure: how its numbers are written, None for scores from 0 to 1.

    ends: how it ends the question, in words, "" where it does not. ends_at: the answer is `skip` where it is judged so;
    leave: then the headline says this of why the region is left. overruled: a measurement of the region may say
    otherwise. moves_with_step: it is judged again where only the step's time, its target or a share has changed.

    refuses(option, judged): why an option may not compete, "" where the criterion does not mind.

    claim: the criterion read forward, for the tool that it is shown under.

    question: of the rule's tree; joins: the criterion whose question this one is shown with, where it has none.

    fires_at: a check's assertion of this name finds regions where it is judged so; always: also where nothing is
    advised.
    """

    judge: Callable[[Case], Judgement]
    _: KW_ONLY
    name: str
    source: str
    claim: Claim
    thresholds: tuple[str, ...] = ()
    numbers: tuple[FactNumber, ...] = ()
    figure: Callable[[float], str] | None = None
    ends: str = ""
    ends_at: bool | None = None
    leave: str = ""
    overruled: bool = True
    moves_with_step: bool = False
    refuses: Callable[[Option, Criterion], str] | None = None
    fires_at: bool = True
    always: bool = False
    question: Question | None = None
    joins: str = ""

    def __call__(self, case: Case) -> Criterion:
        """The criterion, judged."""
        judged = self.judge(case)
        return Criterion(
            self.name, judged.holds, judged.value, judged.threshold, judged.because, judged.source or self.source
        )

    @property
    def meaning(self) -> str:
        """What holds where the criterion does, as its function says."""
        return inspect.getdoc(self.judge) or ""
