"""Policies: what somebody would run who asks nobody. Each names the candidates of a case, the preferred one first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.accuracy.case import Case

Policy = Callable[[Case], tuple[str, ...]]
EASY = ("compile", "eager")
"""What is left to a policy whose own candidate was not measured."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A policy on one case. regret: its candidate's figure over the best; right: the winner's tool is its tool."""

    record: str
    half: str
    candidate: str
    regret: float
    right: bool


def knowing(case: Case) -> tuple[str, ...]:
    """What DESIGN's decision rule picks from the measured figures: as good as advice by that rule can be."""
    return (case.decided({"tool": "skip"}).winner or "",)


def always_eager(_: Case) -> tuple[str, ...]:
    """Leave everything as it is."""
    return ("eager",)


def always_compile(_: Case) -> tuple[str, ...]:
    """torch.compile in its default mode; eager where that does not run."""
    return EASY


def always_max_autotune(_: Case) -> tuple[str, ...]:
    """torch.compile with autotuning."""
    return ("compile-max-autotune", *EASY)


def always_triton(case: Case) -> tuple[str, ...]:
    """The kernel written for the pattern, else the generated one; eager where there is neither."""
    kernels = case.of_tool("triton")
    written = tuple(n for n in kernels if n != "triton:generated")
    return (*written, *kernels, "eager")


def expected_tool(case: Case) -> tuple[str, ...]:
    """The expected tool. A label names neither mode nor call: the fastest measured of the tool counts."""
    return () if case.label is None else (*_fastest_first(case, (case.label.expected,)), *EASY)


def expected_or_accepted_tools(case: Case) -> tuple[str, ...]:
    """The fastest of the expected and the accepted tools."""
    if case.label is None:
        return ()
    return (*_fastest_first(case, (case.label.expected, *case.label.accepted)), *EASY)


def _fastest_first(case: Case, tools: tuple[str, ...]) -> tuple[str, ...]:
    fastest_first = sorted((c for c in case.contenders if c.tool in tools), key=lambda c: c.time_us)
    return tuple(c.name for c in fastest_first)


POLICIES: Mapping[str, Policy] = {
    "the decision rule, had it known the measurement": knowing,
    "always eager": always_eager,
    "always torch.compile": always_compile,
    "always max-autotune": always_max_autotune,
    "always Triton": always_triton,
    "published label": expected_tool,
    "published label, or what it accepts": expected_or_accepted_tools,
}


def follow(case: Case, policy: Policy) -> Followed | None:
    """What a policy comes to on a case; None where it says nothing, or none of its candidates was measured."""
    chosen = next((c for name in policy(case) if (c := case.contender(name))), None)
    if chosen is None:
        return None
    winner = case.contender(case.decided({"tool": "skip" if chosen.tool == "eager" else chosen.tool}).winner or "")
    assert winner is not None
    return Followed(case.record, case.half, chosen.name, chosen.time_us / case.least, winner.tool == chosen.tool)
