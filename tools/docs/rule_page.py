"""Write docs/rule.md from the rule's own code: `python -m tools.docs.rule_page`, with --check to only compare."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from app.advice import off_floor, rule, sensitivity, widget
from app.advice.beyond_triton import WAYS
from app.advice.case import Case
from app.advice.criteria import CRITERIA
from app.advice.declaration import Declaration
from app.advice.evidence import decision_thresholds
from app.advice.model import EFFORT_ORDER, Criterion
from app.advice.rule import MODE_ORDER
from app.estimate.facts import RegionFacts
from app.thresholds import DEFAULTS, VARIABLE
from kernels.measure import outcome
from profiler.hardware import DEFAULT_DEVICE, find_device
from profiler.region.model import Workload

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "rule.md"

HEAD = """# The rule

Generated from `app/advice` by `python -m tools.docs.rule_page`; a test holds it to the code.

Tritonworthy decides what to do about a region by {count} conditions. Each is a criterion with a value, a threshold, a
reason and a source, and each is shown on the region's page and in the JSON whether it holds or not. `holds` is `null`
where it could not be judged.

{terminal} end the question. The others say which tools may compete. Then the estimate decides, and after a validation
the measurement.

"Sources" are the texts that this project started from; what is "this project's rule" is a choice made here.
"""

ESTIMATE = """## The estimate decides

{doc}

Effort grows in this order: {tools}; within a tool: {modes}. {effort}

With the objective `memory` the bytes written on the way take the place of the time. Predicted times are ranges. How
they are made is in `app/estimate/predict.py`; `tritonworthy accuracy fit` makes the rates that they multiply with, and
[accuracy.md](accuracy.md) says what that leaves over.

## A library call far above its floor

{far}

## What would change an advice

{flip}

At most {shown} changes are told, the nearest first: of the step (share, time, target, calls), of the shapes, of
predicted and observed times (by up to a factor of {most:g}), and of the thresholds below.

## The measurement overrules

After a validation the advice is issued again: confirmed, overturned, a tie, or still unmeasured, and it says which.
{winner}

{decision}

Effort among candidates: {efforts}; within torch.compile: {measured_modes}.

Where the wall time of back-to-back calls is more than {ratio:g} times the device time the reason says that the host
sets the pace.

## The widget

{widget}

{mapping}

Kinds of operation: {kinds}. Bound by: {bounds}. The page's table of answers is made by this same rule
(`app/advice/widget_table.py`); the browser only looks up.

## Thresholds

Every number has a name. `{variable}="worth_share=0.02, win_margin=0.15"` replaces defaults by name, for the server and
for every command; so does the path of a TOML file with such lines. A name that is none stops the start.

| threshold | default | unit | decides | source |
|-|-|-|-|-|
{thresholds}
"""


def page() -> str:
    """The whole document."""
    terminal = [f"`{criterion.name}`" for criterion in CRITERIA if criterion.ends]
    parts = [HEAD.format(count=len(CRITERIA), terminal=f"{', '.join(terminal[:-1])} and {terminal[-1]}")]
    parts += [_section(criterion) for criterion in CRITERIA]
    decision = decision_thresholds(DEFAULTS)
    parts.append(ESTIMATE.format(
        doc=_text(rule.least_effort), far=_far_from_the_floor(), tools=_arrows(EFFORT_ORDER), modes=_arrows(MODE_ORDER),
        measured_modes=_arrows(outcome.MODE_EFFORT),
        effort=_text(rule.effort), flip=_text(sensitivity.would_change), shown=sensitivity.SHOWN, most=sensitivity.MOST,
        winner=_text(outcome.winner), efforts=_arrows(outcome.EFFORT), ratio=outcome.HOST_PACED,
        decision="\n".join(f"- `{n}` ({getattr(decision, n):g})" for n in decision.__slots__),
        widget=_text(widget.facts_of), mapping=_mapping(),
        kinds=", ".join(f"`{k}` is {title}" for k, (_, title) in widget.KINDS.items()),
        bounds=", ".join(f"`{b}`" for b in widget.BOUNDS), variable=VARIABLE,
        thresholds="\n".join(
            f"| `{t.name}` | {t.default:g} | {t.unit} | {t.meaning} | {t.source} |" for t in DEFAULTS.described()
        ),
    ))  # fmt: skip
    return "\n".join(parts)


def _section(criterion: Declaration) -> str:
    """One criterion: what its function says of it, its source, the numbers that it compares with, and what it does."""
    example = _example(criterion)
    lines = [f"## {criterion.name}", "", criterion.meaning, ""]
    lines += [f"- From: {example.source}."]
    used = [t for t in DEFAULTS.described() if t.name in criterion.thresholds]
    lines += [f"- Threshold: `{t.name}` ({t.default:g} {t.unit}): {t.meaning}; {t.source}." for t in used]
    limit = example.threshold
    lines += [f"- Compared with: {limit}."] if isinstance(limit, str) and not used else []
    lines += [f"- Terminal: {criterion.ends}." if criterion.ends else "- Not terminal: it admits or refuses tools."]
    fires = "holds" if criterion.fires_at else "does not hold"
    where = "" if criterion.always else ", and something is advised"
    lines += [f"- [In a check](ci.md): finds regions for which it {fires}{where}."]
    lines += ["", *_beyond_triton()] if criterion.name == "needs-cuda" else []
    return "\n".join([*lines, ""])


def _beyond_triton() -> list[str]:
    """What gives more than Triton, as a table."""
    rows = [f"| {w.name} | {arch}* | {bought} | {w.source} |" for w in WAYS for arch, bought in w.buys.items()]
    return ["| more than Triton gives | compiled for | buys | source |", "|-|-|-|-|", *rows]


def _example(criterion: Declaration) -> Criterion:
    """The criterion for a region of which nothing is known: its source is the same for all."""
    device = find_device(DEFAULT_DEVICE)
    assert device is not None
    return criterion(Case(RegionFacts(), Workload(), device, DEFAULTS, (), None, None, ""))


def _mapping() -> str:
    """What each slider becomes, on both sides of each threshold, told by the facts that come out."""
    rows = ["| answer | facts |", "|-|-|"]
    for at in (0.0, DEFAULTS.textbook, DEFAULTS.custom):
        facts = widget.facts_of(widget.WidgetAnswers(0.5, at, 0.5, kind="normalisation"))
        covered = f"`{facts.covers[0].candidate}` covers it" if facts.covers else "no library covers it"
        fuses = "torch.compile fuses it" if facts.fuses else "nothing fuses it"
        rows.append(f"| uniqueness from {at:g}, of a normalisation | {covered}; {fuses} |")
    rows.append(f"| irregularity from {DEFAULTS.irregular:g} | several shapes: tuning is worth having |")
    rows.append(f"| share of the step under {DEFAULTS.worth_share:g} | not worth it |")
    return "\n".join(rows)


def _arrows(names: Iterable[str]) -> str:
    return " < ".join(f"`{n}`" for n in names)


def _far_from_the_floor() -> str:
    """What counts as far, and what is proposed."""
    limits = ", ".join(f"{kind} {times:g}" for kind, times in off_floor.FAR.items())
    return (
        f"{_text(off_floor.finding)}\n\n{inspect.cleandoc(off_floor.__doc__ or '')}\n\n"
        f"Times the floor from which it is told: {limits}; {off_floor.UNMEASURED:g} times further where only the\n"
        f"datasheet's rates are known. The floor of a call counts {off_floor.KERNEL_US:g} µs besides. Modes of such\n"
        f"advice: {', '.join(f'`{mode}`' for mode in off_floor.MODES)}."
    )


def _text(function: Callable[..., object]) -> str:
    """A docstring as paragraphs."""
    doc = inspect.getdoc(function)
    assert doc
    return doc


def main(arguments: list[str]) -> int:
    """Write the page; with --check, 1 where it is not what the code gives."""
    if "--check" in arguments:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
