"""How optimizers are written, as data: the operations of one step in order, and what each computes on one tensor.

p is the parameter, g its gradient, m and v an optimizer's moments, d what is only inside. Over lists of tensors
(`_foreach_add_`), one tensor at a time (`add_`) and as torch.optim's older releases wrote them. Torch-free data.
"""

from __future__ import annotations

from dataclasses import dataclass

STEP_SIZE, CORRECTION, FACTOR, EPS = "the step size", "the bias correction", "the factor", "eps"


@dataclass(frozen=True, slots=True)
class Line:
    """One operation. names: its spellings, without `_foreach_`. code: what it computes; `#` is its number.

    place: of the number among the recorded arguments. default: what stands there where it was not recorded; what: its
    name.
    """

    names: str
    code: str
    place: int = 1
    default: float = 1.0
    what: str = FACTOR


@dataclass(frozen=True, slots=True)
class Recipe:
    """The operations of one step, in order."""

    name: str
    lines: tuple[Line, ...]


DECAY = Line("mul_", "p = p * #", default=0.99999, what="the weight decay")
PENALTY = Line("add add_", "g = g + # * p", 2, 0.01, "the weight decay")
MOMENTS = (
    Line("lerp_", "m = lerp(m, g, #)", 2, 0.1),
    Line("mul_", "v = v * #", default=0.999),
    Line("addcmul_", "v = addcmul(v, g, g, value=#)", 3, 0.001),
)
OLD_MOMENTS = (
    Line("mul_", "m = m * #", default=0.9),
    Line("add_", "m = m + # * g", 2, 0.1),
    *MOMENTS[1:],
)
ADAM_UPDATE = (
    Line("sqrt", "d = sqrt(v)"),
    Line("div_ div", "d = d / #", what=CORRECTION),
    Line("add_ add", "d = d + #", default=1e-8, what=EPS),
    Line("addcdiv_", "p = addcdiv(p, m, d, value=#)", 3, -1e-3, STEP_SIZE),
)
RMS_UPDATE = (
    Line("mul_", "v = v * #", default=0.99),
    Line("addcmul_", "v = addcmul(v, g, g, value=#)", 3, 0.01),
    Line("sqrt", "d = sqrt(v)"),
    Line("add_ add", "d = d + #", default=1e-8, what=EPS),
    Line("addcdiv_", "p = addcdiv(p, g, d, value=#)", 3, -1e-2, STEP_SIZE),
)
ADAGRAD_UPDATE = (
    Line("addcmul_", "v = addcmul(v, g, g, value=#)", 3),
    Line("sqrt", "d = sqrt(v)"),
    Line("add_ add", "d = d + #", default=1e-10, what=EPS),
    Line("mul mul_", "g = g * #", default=-1e-2, what=STEP_SIZE),
    Line("addcdiv_", "p = addcdiv(p, g, d, value=#)", 3),
)
ADAGRAD_ALONE = (
    *ADAGRAD_UPDATE[:3],
    Line("addcdiv_", "p = addcdiv(p, g, d, value=#)", 3, -1e-2, STEP_SIZE),
)
MOMENTUM = (
    Line("mul_", "m = m * #", default=0.9),
    Line("add_", "m = m + # * g", 2),
    Line("add_", "p = p + # * m", 2, -0.1, STEP_SIZE),
)
PLAIN = (Line("add_", "p = p + # * g", 2, -0.1, STEP_SIZE),)

STEPS: tuple[Recipe, ...] = (
    Recipe("AdamW", (DECAY, *MOMENTS, *ADAM_UPDATE)),
    Recipe("AdamW", (DECAY, *OLD_MOMENTS, *ADAM_UPDATE)),
    Recipe("Adam with a penalty", (PENALTY, *MOMENTS, *ADAM_UPDATE)),
    Recipe("Adam with a penalty", (PENALTY, *OLD_MOMENTS, *ADAM_UPDATE)),
    Recipe("Adam", (*MOMENTS, *ADAM_UPDATE)),
    Recipe("Adam", (*OLD_MOMENTS, *ADAM_UPDATE)),
    Recipe("RMSprop", (PENALTY, *RMS_UPDATE)),
    Recipe("RMSprop", RMS_UPDATE),
    Recipe("Adagrad", (PENALTY, *ADAGRAD_UPDATE)),
    Recipe("Adagrad", ADAGRAD_UPDATE),
    Recipe("Adagrad", (PENALTY, *ADAGRAD_ALONE)),
    Recipe("Adagrad", ADAGRAD_ALONE),
    Recipe("SGD with momentum and a penalty", (PENALTY, *MOMENTUM)),
    Recipe("SGD with momentum", MOMENTUM),
    Recipe("SGD with a penalty", (PENALTY, *PLAIN)),
    Recipe("SGD", PLAIN),
)
"""Longer ones first: of those that begin alike the longest is meant."""

OTHERS: tuple[Recipe, ...] = (
    Recipe("zeros", (Line("zero_", "g = zeros_like(g)"),)),
    Recipe("clipping", (Line("norm", "total = torch.linalg.vector_norm(g)"), Line("mul_ mul", "g = g * c"))),
    Recipe("norm", (Line("norm", "total = torch.linalg.vector_norm(g)"),)),
    Recipe(
        "loss scaling",
        (Line("_amp_foreach_non_finite_check_and_unscale_", "overflow = logical_not(isfinite(g)).any()\ng = g * c"),),
    ),
)
"""What else is done to all gradients at once. c: a factor on the GPU."""


def sections(names: list[str]) -> list[Recipe] | None:
    """The recipes that names are, one after the other; None where some of them are of none."""
    sequence: list[Recipe] = []
    at = 0
    while at < len(names):
        recipe = next((r for r in (*STEPS, *OTHERS) if _begins(names[at:], r)), None)
        if recipe is None:
            return None
        sequence.append(recipe)
        at += len(recipe.lines)
    return sequence


def _begins(names: list[str], recipe: Recipe) -> bool:
    return len(names) >= len(recipe.lines) and all(
        name in line.names.split() for name, line in zip(names, recipe.lines, strict=False)
    )
