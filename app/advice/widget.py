"""The widget: three answers become facts, and the same rule decides. No second rule."""

from __future__ import annotations

from dataclasses import dataclass

from app.advice.library_defaults import BY_HAND_ONLY, DONE_BY_LIBRARY, TABLE, Known
from app.advice.model import Advice
from app.advice.rule import advise
from app.estimate.facts import RegionFacts
from app.thresholds import DEFAULTS, Thresholds
from profiler.hardware import DEFAULT_DEVICE, Device, find_device
from profiler.region.model import Workload

KINDS = {
    # the widget's kind: (the rule's kind, title)
    "gemm": ("gemm", "the matrix product"),
    "attention": ("attention", "attention"),
    "elementwise": ("pointwise", "the elementwise chain"),
    "quantised_gemm": ("quantised_gemm", "the quantised matrix product"),
    "normalisation": ("rms_norm", "the normalisation"),
    "reduction": ("reduction", "the reduction"),
    "custom": ("other", "the custom operation"),
}
BOUNDS = ("memory", "compute")


@dataclass(frozen=True, slots=True)
class WidgetAnswers:
    """share_of_step, uniqueness and irregularity are 0 to 1; bound is "memory" or "compute"; kind is one of KINDS.

    share_of_step may be None: not known. ValueError for anything else.
    """

    share_of_step: float | None
    uniqueness: float
    irregularity: float
    bound: str | None = None
    kind: str | None = None

    def __post_init__(self) -> None:
        for name in ("share_of_step", "uniqueness", "irregularity"):
            answer = getattr(self, name)
            if answer is None and name == "share_of_step":
                continue
            if isinstance(answer, bool) or not isinstance(answer, int | float) or not 0 <= answer <= 1:
                raise ValueError(f"{name} is a number from 0 to 1, not {answer!r}")
        if self.bound not in (None, *BOUNDS):
            raise ValueError(f"bound is {' or '.join(BOUNDS)}, not {self.bound!r}")
        if self.kind is not None and self.kind not in KINDS:
            raise ValueError(f"kind is one of {', '.join(KINDS)}, not {self.kind!r}")


def facts_of(answers: WidgetAnswers, settings: Thresholds = DEFAULTS) -> RegionFacts:
    """The facts that the answers stand for.

    Uniqueness below `textbook`: a library has it. From `custom` on: no library, and nothing fused exists, except that a
    chain of elementwise operations always fuses. Between: standard operations that torch.compile fuses.
    """
    kind, title = KINDS[answers.kind or "custom"] if answers.kind else ("other", "the operation")
    textbook = answers.uniqueness < settings.textbook
    custom = answers.uniqueness >= settings.custom
    chain = answers.kind == "elementwise"
    covers = (_cover(kind),) if textbook and not chain else ()
    return RegionFacts(
        kind=kind if covers or not kind_has_library(kind) else "other",
        title=title,
        by_hand=not covers,
        covers=covers,
        kinds=frozenset({answers.kind}) & {"gemm", "attention"} if answers.kind else frozenset(),
        bound=answers.bound,
        fuses=chain or not custom,
        uniqueness=answers.uniqueness,
        irregularity=answers.irregularity,
    )


def kind_has_library(kind: str) -> bool:
    """A library has this kind in its plain form; a variant that it does not cover is another kind."""
    return kind in TABLE


def _cover(kind: str) -> Known:
    package, name, code, condition = TABLE.get(kind, ("torch", "the library that has it", "", "it does exactly this"))
    already = kind in DONE_BY_LIBRARY and kind not in BY_HAND_ONLY
    own = package == "torch"
    return Known(f"library:{name}", package, code, True, ((condition, None),), own, already and kind == "gemm", "")


def advise_widget(answers: WidgetAnswers, settings: Thresholds = DEFAULTS, device: Device | None = None) -> Advice:
    """The rule's advice for the widget's answers."""
    chosen = device or find_device(DEFAULT_DEVICE)
    assert chosen is not None
    return advise(facts_of(answers, settings), Workload(share_of_step=answers.share_of_step), chosen, settings)
