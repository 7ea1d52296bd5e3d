"""What the command line prints of the API's objects, as text for people. Pure functions."""

from __future__ import annotations

import sys
from typing import Any

from app.trace_report.speedup import list_names

Json = dict[str, Any]


def advice_text(advice: Json) -> str:
    """The tool, the action and the call."""
    lines = [f"{advice['tool']}{' (' + advice['mode'] + ')' if advice.get('mode') else ''}: {advice['headline']}"]
    lines += [advice["action"]] if advice.get("action") else []
    lines += ["    " + line for line in (advice.get("call") or "").splitlines()]
    return "\n".join(lines)


def region_text(region: Json) -> str:
    """A region's advice with its criteria."""
    marks = {True: "yes", False: "no ", None: "?  "}
    because = [f"  {marks[c['holds']]} {c['name']}: {c['because']}" for c in region["criteria"]]
    changes = [f"  would change it: {c['because']}" for c in region.get("would_change") or ()]
    return "\n".join([region["name"], advice_text(region), *because, *changes])


def ranks_text(found: Json) -> str:
    """The spread between ranks, then each rank's trace."""
    from app.trace_report.ranks import spread_text

    lines = [spread_text(found["spread"])] if found["spread"] else []
    for trace in found["ranks"]:
        lines += ["", f"rank {trace['rank']}", trace_text(trace)]
    return "\n".join(lines).strip()


def step_text(trace: Json) -> str:
    """A step's time, its spread, why the GPU idles in it and its bottleneck, in one line."""
    times, parts = trace["step_times"], trace["step_parts"]
    wall = parts["wall_us"]
    idle = ", ".join(
        f"{words} {parts[name] / wall:.1%}"
        for name, words in (
            ("idle_launch_us", "for launches"),
            ("idle_host_us", "for the host"),
            ("idle_communication_us", "for communication"),
            ("idle_device_us", "queued"),
        )
        if parts[name]
    )
    return (
        f"step: {times['median_us'] / 1e3:.2f} ms ({times['low_us'] / 1e3:.2f} to {times['high_us'] / 1e3:.2f}, "
        f"{times['count']} measured, {times['left_out']} left out); GPU idle {parts['idle_share']:.1%}"
        f"{' (' + idle + ')' if idle else ''}; {trace['critical']['because']}"
    )


def gain_lines(gain: Json | None) -> list[str]:
    """The step estimated after all changes, after the best three, and what is not known of that."""
    if not gain:
        return []
    lines = []
    for name, words in (("all", "after all changes"), ("top", "after the changes that save most")):
        found = gain[name]
        if found and (name == "all" or found["advice"] != gain["all"]["advice"]):
            low, mid, high = (found["step_time_us"][end] / 1e3 for end in ("low", "mid", "high"))
            lines.append(
                f"estimated {words}: {mid:.2f} ms a step ({low:.2f} to {high:.2f}, predicted), "
                f"{found['speedup']['mid']:.2f} times as fast: {list_names(found['advice'])}"
            )
    return lines + [f"not known: {item['text']} ({item['time_us'] / 1e3:.2f} ms)" for item in gain["unknown"]]


def trace_text(trace: Json) -> str:
    """A trace's notes and its regions with their advice."""
    share = trace.get("linked_share")
    linked = "" if share is None else f", {share:.1%} of kernel time linked"
    lines = [f"{trace['name']}: {trace['kernels']} kernels, {trace['steps']} step{'s' * (trace['steps'] != 1)}{linked}"]
    if trace.get("critical"):
        lines.append(step_text(trace))
    lines += gain_lines(trace.get("gain"))
    lines += [f"{note['level']}: {note['message']} {note.get('remedy', '')}".rstrip() for note in trace["notes"]]
    lines += [
        f"torch.compile: {o['op']} ({o['calls_per_step']:.3g} a step) {o['does']}. {o['remedy']}"
        for o in trace.get("compile_obstacles", ())
    ]
    for number, region in enumerate(trace["regions"], 1):
        share = region.get("share_of_step")
        lines += ["", f"{number}. {region['name']}" + ("" if share is None else f" ({share:.1%} of the step)")]
        lines += ["   " + line for line in advice_text(region["advice"]).splitlines()] if region["advice"] else []
    return "\n".join(lines)


def validation_text(validation: Json) -> str:
    """The outcome and one line a candidate."""
    lines = [f"{validation['outcome']}: {validation['reason']}"]
    for candidate in validation["candidates"]:
        time_us = candidate.get("time_us")
        took = "" if time_us is None else f"  {time_us['median']:.1f} µs [{time_us['low']:.1f}, {time_us['high']:.1f}]"
        lines.append(f"  {candidate['name']:<40} {candidate['status']}{took}  {candidate.get('message', '')}".rstrip())
    return "\n".join(lines)


def show_progress(progress: Json) -> None:
    """One line of a measurement's progress, on stderr."""
    fraction = progress.get("fraction")
    done = f"{fraction:4.0%} " if isinstance(fraction, float) else ""
    parts = (progress.get("phase"), progress.get("candidate"), progress.get("message"))
    print(done + " ".join(str(part) for part in parts if part), file=sys.stderr)
