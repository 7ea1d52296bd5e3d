"""One kernel of a trace explained: its name in words, its time, the regions that launch it, their limits and advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.agents.brief.commands import given, trace_proofs
from app.agents.brief.fit import NAME, PLACE, REASON, TITLE, code_text, fit_kernel, one_line
from app.agents.brief.numbers import rounded
from app.agents.brief.tokens import MAX_TOKENS
from app.objects.brief import KernelExplained, KernelRegion, KernelRoof
from app.objects.region import Region, RegionBody
from app.objects.trace import KernelRow, Trace, TraceBody
from app.trace_report.actions.model import where_of
from app.trace_report.actions.regions import title_of
from profiler.trace.analyze import kernel_kinds as kinds

MOST_OTHERS = 12

WORDS: Mapping[str, str] = {
    kinds.COMMUNICATION: "moves data between GPUs",
    kinds.INDUCTOR: "a Triton kernel that torch.compile wrote; its name lists the operations that it fuses",
    kinds.OPTIMIZER: "updates many parameters at once: an optimizer, or a foreach operation",
    kinds.ATTENTION: "attention in one kernel",
    kinds.NORM: "normalises rows or channels",
    kinds.SOFTMAX: "softmax or a loss",
    kinds.CONVOLUTION: "a convolution of a library",
    kinds.GEMM: "a matrix product, most likely of a library",
    kinds.LOOKUP: "reads or writes by index: embedding, gather, scatter",
    kinds.SORT: "sorts, scans or takes the largest",
    kinds.RANDOM: "draws random numbers: dropout, initialisation",
    kinds.COPY: "moves data without computing: copy, cast, layout, fill",
    kinds.REDUCTION: "reduces a tensor over some dimensions",
    kinds.POINTWISE: "computes element by element; several in a row can be fused",
    kinds.OTHER: "the name tells nothing of what it computes",
}
"""What a kernel of a kind does."""


class NoKernelError(Exception):
    """No kernel of that name; the message names those that there are."""


def explain_kernel(trace: Trace | TraceBody, name: str, file: str, *, most: int = MAX_TOKENS) -> KernelExplained:
    """The kernel that takes most time of those whose name, or its short form, has `name` in it.

    file: as commands take it. Raises NoKernelError.
    """
    where = trace.get("where")
    rows = [row for row in where["kernels"] if row["name"]] if where else []
    fitting = _fitting(rows, name)
    if not fitting:
        some = "; ".join(one_line(row["label"], TITLE) for row in rows[:MOST_OTHERS])
        raise NoKernelError(
            f"no kernel of the step has {one_line(name, NAME)!r} in its name; by time there are: {some}"
        )
    row = fitting[0]
    total_us = sum(each["time_us"] for each in where["kernels"]) if where else 0.0
    regions = [_region(place, trace["regions"][place]) for place in row["regions"] if place < len(trace["regions"])]
    calls = row["calls_per_step"]
    return fit_kernel(
        {
            "of": "kernel",
            "name": one_line(row["name"], PLACE),
            "label": one_line(row["label"], NAME),
            "kind": row["kind"],
            "in_words": WORDS.get(row["kind"], ""),
            "time_us": rounded(row["time_us"]),
            "calls_per_step": rounded(calls),
            "time_us_per_call": rounded(row["time_us"] / calls) if calls else 0.0,
            "share_of_kernel_time": rounded(row["time_us"] / total_us) if total_us else None,
            "regions": regions,
            "verify": trace_proofs(given(file), regions[0]["number"] if regions else None),
            "others": [one_line(other["label"], TITLE) for other in fitting[1 : MOST_OTHERS + 1]],
            "left_out": max(0, len(fitting) - 1 - MOST_OTHERS),
        },
        most,
    )


def _fitting(rows: Sequence[KernelRow], name: str) -> list[KernelRow]:
    """Rows by time: those of exactly that name, else those that have it in theirs."""
    wanted = name.strip().lower()
    by_time = sorted(rows, key=lambda row: -row["time_us"])
    exact = [row for row in by_time if wanted in (row["name"].lower(), row["label"].lower())]
    within = [row for row in by_time if wanted and (wanted in row["name"].lower() or wanted in row["label"].lower())]
    return [*exact, *(row for row in within if row not in exact)]


def _region(place: int, region: Region | RegionBody) -> KernelRegion:
    where, advice = where_of(region), region["advice"]
    return {
        "number": place + 1,
        "name": one_line(region["name"], NAME),
        "module": one_line(where["module"], PLACE) if where else "",
        "file": one_line(where["file"], PLACE) if where else "",
        "line": where["line"] if where else None,
        "share_of_step": rounded(region["share_of_step"]),
        "kernels_per_call": rounded(region.get("kernels_per_call")),
        "roof": _roof(region),
        "advice": one_line(title_of(region["name"], advice), TITLE) if advice else "",
        "action": one_line(advice["action"], REASON) if advice else "",
        "code": code_text(advice["call"]) if advice else "",
    }


def _roof(region: Region | RegionBody) -> KernelRoof | None:
    cost = region["cost"]
    if cost is None:
        return None
    advice, ceilings = region["advice"], cost["ceilings"]
    times = {a["candidate"]: a["time_us"] for a in advice["alternatives"]} if advice else {}
    now = times.get("eager")
    multiplies, copies = ceilings["matmul_flops_per_s"], ceilings["copy_bytes_per_s"]
    return {
        "bound": cost["bound"],
        "bytes_moved": cost["unfused"]["bytes_moved"],
        "bytes_least": cost["ideal"]["bytes_moved"],
        "flops": cost["unfused"]["flops"],
        "intensity": rounded(cost["intensity"]),
        "ridge": rounded(multiplies / copies) if copies and cost["gemm_flops"] else None,
        "floor_us": rounded(cost["floor_us"]),
        "time_us": rounded(now["mid"]) if now else None,
        "of_floor": rounded(now["mid"] / cost["floor_us"]) if now and cost["floor_us"] else None,
    }
