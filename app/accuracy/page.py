"""docs/accuracy.md and the charts in it, from the figures. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.accuracy import drawing, table
from app.accuracy.corpus import document
from app.accuracy.published.model import comparisons
from app.accuracy.published.section import section
from app.accuracy.totals import figure_of
from app.estimate.rates import BEYOND
from app.objects.accuracy import AccuracyFigures
from app.objects.corpus import Look, ThirdFigures

CALIBRATION, REGRET = "accuracy-calibration.svg", "accuracy-regret.svg"

TARGETS: Mapping[str, str] = {
    "regret_geomean": "regret, geometric mean, at most",
    "regret_worst": "regret, worst, at most",
    "right": "right, at least",
    "within": "predicted speed-up within 20 %, at least",
}


def files(figures: AccuracyFigures, looks: Sequence[Look], development: ThirdFigures | None) -> dict[str, str]:
    """Name in docs/ -> its text. looks: at the blind third, the first one first."""
    return {
        "accuracy.md": page(figures, looks, development),
        CALIBRATION: drawing.calibration(figures["scores"]),
        REGRET: drawing.regrets(figures["scores"]),
    }


def targets(figures: AccuracyFigures) -> list[table.Row]:
    """Each target, the result, and whether that meets it."""
    rows: list[table.Row] = [("", "target", "result", "met")]
    for group, wanted in figures["targets"].items():
        for name, bound in wanted.items():
            value, met = figure_of(figures["advice"][group], name), figures["met"][group][name]
            show = table.percent if name in ("right", "within") else table.number
            verdict = {True: "yes", False: "no", None: "no case yet"}[met]
            rows.append((f"{table.GROUPS[group]}: {TARGETS[name]}", show(bound), show(value), verdict))
    return rows


def _wrong(figures: AccuracyFigures) -> str:
    lines = [
        f"- **{s['name']}** (`{s['record'].rpartition('-')[2]}`): advised `{table.call(s['advised'])}`"
        + (f", counted as `{table.call(s['counted'])}`" if s["counted"] != s["advised"] else "")
        + f"; the rule picks `{table.call(s['winner'])}` from the measured figures ({s['outcome']}, regret"
        f" {table.number(s['regret'])} by {s['by']})."
        for s in table.wrong(figures)
    ]
    return "\n".join(lines) or "None."


def page(figures: AccuracyFigures, looks: Sequence[Look], development: ThirdFigures | None) -> str:
    """The whole page: blind figures first, then those that somebody looked at."""
    thirds = [document.as_markdown(part) for part in (document.blind(looks), document.developed(development)) if part]
    return f"""# How good the advice is

Written by commands; nothing here is typed in by hand. Programs that were measured with all their candidates are put to
the rule as it is today, which does not see the measurement, and its advice is then held against that.

**Regret** is the figure of the advised tool and mode over the best measured: device time, wall time where the region is
launch-bound, peak bytes where the objective is memory. 1 is perfect. **Right**: the tool is the one that the decision
rule picks from the measured figures; a tie counts as wrong. The **speed-up** is over eager; where the advice is to
leave eager there is nothing to predict. The advice to write a Triton kernel is counted as the kernel of this project
that was measured there, the generated one where no other was. Where an advised library was not measured, the next
runnable alternative counts, in a row of its own. Only the tool counts for right: two modes of torch.compile are one.

A device time is **within 20 %** by the middle of its prediction; **inside** where the measured time is in the 80 %
interval around it, so that 80 % is the share to reach. It is **off by** the larger over the smaller (geometric mean).

{f"{chr(10)}{chr(10)}".join(thirds)}

{section(comparisons())}
{_archive(figures)}"""


def _archive(figures: AccuracyFigures) -> str:
    where = f"{', '.join(figures['devices'])}, torch {', '.join(figures['torch'])}"
    unscored, every = figures["unscored"], figures["advice"]["all"]
    alone, fit = figures.get("alone", []), figures["fit"]
    more = (
        f"\nNot scored, since nothing that the advice names was measured: {', '.join(unscored)}.\n" if unscored else ""
    )
    more += f"\nLeft out, since fewer than two candidates could be timed: {', '.join(alone)}.\n" if alone else ""
    return f"""## In-sample: the Archive

Written by `make bench-advice`. {figures["records"]} records of the Archive
({figures["programs"]} programs, {where}) are asked about with what is known of them: text, sizes,
device, installed packages, and the share of the step and the objective where they were published with the region. The
rates were fitted on half of these programs and mechanisms chosen on all, so these figures say what the advice was made
to do, not how it does on a program of yours.
{more}
{table.markdown(targets(figures))}

### The advice

{table.markdown(table.advice(figures))}

Half of the programs are kept for the test, by a hash of their structure, frozen in `app/accuracy/split.json`; records
of one program are in one half. No rate is fitted on the test half, but it was not blind: its rows were looked at
while mechanisms were chosen (one program a row where rows are few, random numbers drawn once for each pass, a warp
for each short softmax; that activations between two products take time), the kernel for two products (`fused_mlp`)
was written because its worst row asked for one, and the numbers that a fit begins from go back to a time before the
split. What a view costs the host of a compiled function (`host.part`) and `times.unrolled` rest on one
program, a recurrence; `atomics_tiled` on one, attention over a graph's edges. Where the fit half missed most, its
kernels were profiled one by one, and what set their pace is in the estimate now
([tests](../tests/app/estimate/test_measured_kernels.py)). Leave-one-out is the row to trust.

### Baselines

{table.markdown(table.policies(figures))}

The labels are those of published figures, made before the measurement. They name neither a mode nor a call: the fastest
measured candidate of the tool counts.

### Predicted and measured speed-up

![Predicted against measured speed-up]({CALIBRATION})

{table.percent(every["within_all"])} of all {every["predictions_all"]} candidates with a prediction are within 20 %.

### The fit

The rates ({fit["version"]}) are what `tritonworthy accuracy fit` makes of measurements on {", ".join(fit["devices"])},
torch {", ".join(fit["torch"])}:

{chr(10).join(f"- {line}" for line in fit["sources"])}

Leave-one-out in the table above fits them for each program on all the others of both halves: from the fit with it, all
numbers that it touches begin anew, but for the few that sixty or more samples touch. What the fit leaves over is the
width of the range around a prediction. On a device that nothing was fitted on, its ceilings stand in and both ends are
{BEYOND} times as far away, which is a guess. Of a call each sample is held against the others of its name. `host` is
what a call costs the host.

{table.markdown(table.left_over(figures["fit"]))}

### Regret of each region

![Regret of each region]({REGRET})

### Not right

{_wrong(figures)}

### Region by region

{table.markdown(table.regions(figures))}

### What the sources claim

{table.markdown(table.claims(figures))}

Ours is the median of the figures of the Archive and of `tests/records/kernels-h200.json`. A range agrees when it holds
that median, a single number when the median is within 20 % of it. Sources: S0 to S4 of the research.
"""
