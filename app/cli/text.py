"""What the command line prints of the API's objects, as text for people. Pure functions."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from app.analysis.device_host import UNRUNNABLE
from app.check.safe import visible
from app.objects.advice import Advice, WorthInstalling
from app.objects.evidence import Figures
from app.objects.kernel_verdict import ValidationWithKernel, Verdict
from app.objects.region import AdviceAnswer, Region, RegionBody
from app.objects.trace import Action, OracleProgress, Origin, Trace, TraceBody
from app.trace_report.actions.listed import followed_words, place, saving_words, with_alternatives
from app.trace_report.launches_left import list_names
from app.trace_report.rests_on import rests_on_words

if TYPE_CHECKING:
    from app.trace_report.ranks import RankReports

BAR_CHARS = 24
"""Of a progress bar."""


def advice_text(advice: Advice | AdviceAnswer) -> str:
    """The tool, the action and the call."""
    lines = [f"{advice['tool']}{' (' + advice['mode'] + ')' if advice.get('mode') else ''}: {advice['headline']}"]
    lines += [advice["action"]] if advice.get("action") else []
    lines += ["    " + line for line in (advice.get("call") or "").splitlines()]
    lines += [f"worth installing to try: {installing_words(w)}" for w in advice.get("worth_installing") or ()]
    return "\n".join(lines)


def installing_words(worth: WorthInstalling) -> str:
    """The call, by how much it is predicted to win over what is advised, and the command."""
    gain = worth["speedup"]
    faster = f", predicted {gain['mid']:.2f} times as fast as what is advised" if gain and gain["mid"] > 1 else ""
    return f"{worth['candidate'].removeprefix('library:')}{faster}: {worth['install']}"


def region_text(region: AdviceAnswer) -> str:
    """A region's advice, what its predicted times rest on, and its criteria."""
    marks = {True: "yes", False: "no ", None: "?  "}
    rests = region.get("rests_on")
    basis = [rests["sentence"]] if rests else []
    basis += [note for note in region.get("notes") or () if UNRUNNABLE in note]
    because = [f"  {marks[c['holds']]} {c['name']}: {c['because']}" for c in region["criteria"]]
    changes = [f"  would change it: {c['because']}" for c in region.get("would_change") or ()]
    return "\n".join([region.get("name") or "", advice_text(region), *basis, *because, *changes])


def ranks_text(reports: RankReports) -> str:
    """The spread between ranks, then each rank's trace."""
    from app.trace_report.ranks import spread_text

    lines = [spread_text(reports["spread"])] if reports["spread"] else []
    for trace in reports["ranks"]:
        lines += ["", f"rank {trace.get('rank')}", trace_text(trace)]
    return "\n".join(lines).strip()


def origin_words(origin: Origin) -> str:
    """What a predicted trace is, in words."""
    return f"from the module, predicted for {origin['device']}"


def step_text(trace: Trace | TraceBody) -> str:
    """A step's time, the steps' spread, why the GPU idles in it and its bottleneck, in one line; "" where they are
    unknown."""
    times, parts, critical = trace.get("step_times"), trace.get("step_parts"), trace.get("critical")
    origin = trace.get("origin")
    if not times or not parts or not critical:
        return ""
    wall = parts["wall_us"]
    waits = (
        (parts["idle_launch_us"], "for launches"),
        (parts["idle_host_us"], "for the host"),
        (parts["idle_communication_us"], "for communication"),
        (parts["idle_device_us"], "queued"),
    )
    idle = ", ".join(f"{words} {time_us / wall:.1%}" for time_us, words in waits if time_us)
    spread = (
        f"{times['low_us'] / 1e3:.2f} to {times['high_us'] / 1e3:.2f}, {times['count']} measured, "
        f"{times['left_out']} left out"
    )
    told = origin_words(origin) if origin else spread
    return (
        f"step: {wall / 1e3:.2f} ms ({told}); GPU idle {parts['idle_share'] or 0.0:.1%}"
        f"{' (' + idle + ')' if idle else ''}; {critical['because']}"
    )


def gain_lines(trace: Trace | TraceBody) -> list[str]:
    """The step estimated after what is followed together, after the best three, and what is not known of that."""
    gain = trace.get("gain")
    if not gain:
        return []
    lines = []
    whole, best = gain["all"], gain["top"]
    same = whole is not None and best is not None and best["advice"] == whole["advice"]
    for total, words in (
        (whole, f"after {followed_words(trace)}"),
        (None if same else best, "after the changes that save most"),
    ):
        if total:
            time = total["step_time_us"]
            low, mid, high = time["low"] / 1e3, time["mid"] / 1e3, time["high"] / 1e3
            lines.append(
                f"estimated {words}: {mid:.2f} ms a step ({low:.2f} to {high:.2f}, predicted), "
                f"{total['speedup']['mid']:.2f} times as fast: {list_names(total['advice'])}"
            )
    return lines + [f"not known: {item['text']} ({item['time_us'] / 1e3:.2f} ms)" for item in gain["unknown"]]


MOST_ACTIONS = 8


def action_lines(actions: Sequence[Action]) -> list[str]:
    """What to do, in the API's order, each with what to type and where."""
    first = with_alternatives(actions)
    lines = []
    for rank, (action, others) in enumerate(first[:MOST_ACTIONS], 1):
        lines += _action_lines(f"{rank}.", action)
        lines += [f"   {line}" for other in others for line in _action_lines("or:", other)]
    left = len(first) - MOST_ACTIONS
    return [*lines, f"   and {left} more: --json has them"] if left > 0 else lines


def _action_lines(rank: str, action: Action) -> list[str]:
    more = [action["because"], action["call"], f"numerics: {action['numerics']}" if action["numerics"] else ""]
    if where := place(action):
        more.append(f"at {where}")
    return [
        visible(f"{rank} {action['title']}: {saving_words(action)}"),
        *(f"   {visible(text)}" for text in more if text),
    ]


def oracle_lines(progress: OracleProgress | None) -> list[str]:
    """Whose kernels the advice goes by; nothing where Inductor was not asked."""
    if progress is None or not progress["asked"]:
        return []
    answered, asked = progress["answered"], progress["asked"]
    of = f"{asked} region{'s' * (asked != 1)} asked about, which take {progress['of_time']:.1%} of all regions' time"
    return [f"Inductor answered for {answered} of {of}; the others go by the fusion rules"]


def _predicted_by(region: RegionBody | Region) -> str:
    """What a region's line says of Inductor."""
    if region["prediction"] == "oracle":
        return "by Inductor's kernels"
    why = next((p["unavailable"] for p in region["oracle"] if p["unavailable"]), "")
    return f"by the fusion rules, for Inductor has no answer: {why}" if why else ""


def trace_text(trace: Trace | TraceBody) -> str:
    """A trace's notes and its regions with their advice."""
    share = trace.get("linked_share")
    linked = "" if share is None else f", {share:.1%} of kernel time linked"
    lines = [f"{trace['name']}: {trace['kernels']} kernels, {trace['steps']} step{'s' * (trace['steps'] != 1)}{linked}"]
    lines += [text] if (text := step_text(trace)) else []
    lines += gain_lines(trace)
    lines += action_lines(trace.get("actions") or ())
    lines += oracle_lines(trace.get("oracle"))
    lines += [f"{note['level']}: {note['message']} {note.get('remedy', '')}".rstrip() for note in trace["notes"]]
    lines += [
        f"torch.compile: {o['op']} ({o['calls_per_step']:.3g} a step) {o['does']}. {o['remedy']}"
        for o in trace.get("compile_obstacles", ())
    ]
    lines += [text] if (text := rests_on_words(trace["regions"])) else []
    for number, region in enumerate(trace["regions"], 1):
        share = region.get("share_of_step")
        told = ("" if share is None else f"{share:.1%} of the step", _predicted_by(region))
        more = "; ".join(part for part in told if part)
        lines += ["", f"{number}. {region['name']}" + (f" ({more})" if more else "")]
        advice = region["advice"]
        lines += ["   " + line for line in advice_text(advice).splitlines()] if advice else []
    return "\n".join(lines)


def validation_text(validation: Figures) -> str:
    """The outcome and one line a candidate."""
    lines = [f"{validation['outcome']}: {validation['reason']}"]
    for candidate in validation["candidates"]:
        time_us = candidate.get("time_us")
        took = "" if time_us is None else f"  {time_us['median']:.1f} µs [{time_us['low']:.1f}, {time_us['high']:.1f}]"
        lines.append(f"  {candidate['name']:<40} {candidate['status']}{took}  {candidate.get('message', '')}".rstrip())
    return "\n".join(lines)


VERDICTS: Mapping[Verdict, str] = {
    "keep": "keep it", "delete": "delete it", "wrong": "wrong", "cheats": "it cheats", "crashed": "it crashed",
    "hung": "it hung", "unmeasured": "not measured",
}  # fmt: skip
"""Verdicts on a user's kernel in words."""


def kernel_verdict_text(validation: ValidationWithKernel) -> str:
    """The verdict on the user's kernel, then the validation."""
    verdict = validation["kernel_verdict"]
    name = verdict["candidate"].partition(":")[2]
    return f"{name}: {VERDICTS[verdict['verdict']]}: {visible(verdict['because'], 1000)}\n{validation_text(validation)}"


def show_progress(progress: Mapping[str, object]) -> None:
    """One line of a measurement's progress, on stderr."""
    fraction = progress.get("fraction")
    done = f"{fraction:4.0%} " if isinstance(fraction, float) else ""
    parts = (progress.get("phase"), progress.get("candidate"), progress.get("message"))
    print(done + " ".join(str(part) for part in parts if part), file=sys.stderr)


def progress_line(progress: OracleProgress) -> str:
    """How many of a trace's regions Inductor has been asked about."""
    ended, asked = progress["answered"] + progress["failed"], progress["asked"]
    return f"Inductor asked: {ended} of {asked} region{'s' * (asked != 1)}"


def progress_bar(progress: OracleProgress) -> str:
    """The same, with a bar in front."""
    ended = progress["answered"] + progress["failed"]
    full = BAR_CHARS * ended // max(1, progress["asked"])
    return f"[{'#' * full}{'-' * (BAR_CHARS - full)}] {progress_line(progress)}"


def show_oracle_progress(progress: OracleProgress) -> None:
    """On stderr; nothing where nobody is asked."""
    if not progress["asked"]:
        return
    if sys.stderr.isatty():
        print(f"\r{progress_bar(progress)}", end="\n" if progress["done"] else "", file=sys.stderr, flush=True)
    else:
        print(progress_line(progress), file=sys.stderr, flush=True)
