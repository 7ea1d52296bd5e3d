"""Question: a case put to today's rule, as on the host that measured it. Nothing here reads the Archive's figures.

What goes in is what a user has: the text, the sizes and their calls, the device, the packages that were installed
there, and the share of the step and the objective where they were published with the region.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from app.accuracy.case import Case
from app.archive import schema
from kernels.measure.model import to_json
from profiler.region.model import Binding, Workload

if TYPE_CHECKING:
    from app.advice.model import Advice
    from app.analysis.analyze import AnalyzedRegion, CompilePrediction, Evaluated
    from app.estimate.facts import Taken
    from app.estimate.rates import Rates
    from kernels.host import Host


UNTRIED = frozenset({"not_installed", "unsupported", "not_run", "cancelled"})
"""What a candidate's status says nothing with of whether its package was there: conditions are judged first."""


@dataclass(frozen=True, slots=True)
class Question:
    """A case with its region lowered, counted and matched: the rule can be asked many times, with other rates."""

    case: Case
    prepared: AnalyzedRegion


def question(case: Case) -> Question:
    """Lower and match the case's region: needs torch. DeviceUnknownError where the device has no figures."""
    from app.analysis.analyze import AdviceContext, prepare
    from app.analysis.device_choice import choose_device
    from profiler.region.language.text import parse

    validation = case.validation
    shapes = schema.shapes_of(to_json(validation))
    bindings = tuple(Binding(sizes, calls) for sizes, calls in shapes) or (Binding(),)
    device, _ = choose_device(validation.device, None)
    context = AdviceContext(objective=case.objective, host=host_of(case))
    workload = Workload(bindings=bindings, share_of_step=case.share_of_step)
    prepared = prepare(parse(validation.region, "region"), workload, device, context)
    return Question(case_of_today(case, prepared.facts.taken), prepared)


GENERATED = "triton:generated"


def case_of_today(case: Case, taken: Taken) -> Case:
    """The case without a generated kernel that called a library for what the generator writes today.

    Its time is of other kernels than the advice means. taken: what today's generator writes where torch.compile calls.
    """
    measured = case.candidate(GENERATED)
    if not taken.operations or measured is None or all(k.startswith("generated_") for k in measured.kernels):
        return case
    left = tuple(c for c in case.contenders if c.name != GENERATED)
    return replace(case, contenders=left) if len(left) > 1 else case


def asked_for(asked: Question, case: Case) -> Question:
    """The same region asked about for another objective: `case` is of the same record."""
    context = replace(asked.prepared.context, objective=case.objective)
    return Question(case, replace(asked.prepared, context=context))


def answer(asked: Question, rates: Rates | None = None, prediction: CompilePrediction | None = None) -> Advice:
    """The rule's advice. rates: in place of the shipped ones; prediction: the oracle's, None where it was not asked."""
    return answer_in_full(asked, rates, prediction).advice


def answer_in_full(
    asked: Question, rates: Rates | None = None, prediction: CompilePrediction | None = None
) -> Evaluated:
    """The same with what it rests on: the region's facts, the oracle's answer among them."""
    from app.analysis.analyze import NO_COMPILE_PREDICTION, decide

    return decide(asked.prepared, prediction or NO_COMPILE_PREDICTION, rates=rates)


def host_of(case: Case) -> Host:
    """The host that measured, as far as the record tells: a package is there where a call of it was tried.

    What torch itself has is taken from the torch here, since records do not list it, without what their torch is too
    old for.
    """
    from kernels.host import PACKAGES, Host, probe_host
    from kernels.libraries.catalogue import ENTRIES
    from kernels.libraries.model import least_version

    validation = case.validation
    package_of = {entry.candidate: entry.package for entry in ENTRIES}
    tried = {package_of[c.name] for c in validation.candidates if c.name in package_of and c.status not in UNTRIED}
    there = tried | (PACKAGES.keys() & validation.software.keys())
    own = _numbers(least_version(str(validation.software.get("torch", ""))))
    later = {e.feature for e in ENTRIES if e.package == "torch" and own and _numbers(least_version(e.since)) > own}
    capability = str((validation.conditions.get("device") or {}).get("capability") or "").split(".")
    return Host(
        gpu=validation.device,
        capability=(int(capability[0]), int(capability[1])) if len(capability) == 2 else None,
        versions=dict(validation.software),
        packages=frozenset({"torch", "triton", *there}),
        features=probe_host().features - later,
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in version.split(".") if n)
