"""What the templates of the oracle need beside its JSON: words, numbers, which kernel computes which operation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from app.analysis.reissue import kernel_keys
from app.units import amount, count, plain
from app.web.charts.plotly import operation_rows as drawn_operations
from app.web.views.long_lists import heaviest
from profiler.oracle.model import (
    FOREACH,
    MODES,
    PERSISTENT,
    POINTWISE,
    REDUCTION,
    SCAN,
    SDPA_REPLACED,
    TEMPLATE,
    alike,
)
from profiler.region import op_kinds

Json = Mapping[str, Any]

KIND_WORDS = {
    POINTWISE: "element by element",
    REDUCTION: "reduction, looping over each row",
    PERSISTENT: "reduction, whole rows at once",
    TEMPLATE: "Inductor's own matrix product",
    FOREACH: "many tensors in one launch",
    SCAN: "scan, split over blocks",
}

MODE_WORDS = {"default": "torch.compile(f)", "max-autotune": 'torch.compile(f, mode="max-autotune")'}

CALLED = frozenset(
    {op_kinds.GEMM, op_kinds.ATTENTION, op_kinds.CONVOLUTION, op_kinds.SORT, op_kinds.FFT, op_kinds.OTHER}
)
"""Kinds of operations that Inductor leaves to a library where it writes no kernel of them."""

TAKEN_ALONG = {"add": ("addmm", "baddbmm"), "mul": ("addmm", "baddbmm")}
"""Operations that Inductor lets a library's matrix product do on the way."""

LONG_LISTING = 200_000
"""Characters of a listing that a page shows; the rest is in the plain file."""

MOST_KERNELS = 60
"""Kernels of one stage that a page lists, each with its source."""

LISTINGS = (
    ("ttir", "TTIR", "Triton's IR: blocks of values, nothing of threads yet"),
    ("ttgir", "TTGIR", "Triton's GPU IR: which thread holds what, what goes through shared memory"),
    ("ptx", "PTX", "NVIDIA's virtual instructions"),
    ("sass", "SASS", "what the GPU runs"),
    ("amdgcn", "AMDGCN", "what the GPU runs"),
)
"""Listings of a compiled kernel in the order in which the compiler writes them: key, name, what it is."""


def section(region: Json) -> dict[str, Any]:
    """Context of partials/oracle.html. state: "answered", "unavailable" (with the reason), "unasked"."""
    predictions = region.get("oracle") or ()
    answered = [p for p in predictions if not p["unavailable"]]
    if not answered:
        reason = next((p["unavailable"] for p in predictions), "")
        return {"state": "unavailable" if predictions else "unasked", "reason": reason, "modes": [], "rows": {}}
    modes = [_mode(p) for p in sorted(answered, key=lambda p: MODES.index(p["mode"]) if p["mode"] in MODES else 9)]
    for later in modes[1:]:
        later["same"] = _same(modes[0], later)
    first = answered[0]
    return {
        "state": "answered",
        "reason": next((f"{p['mode']}: {p['unavailable']}" for p in predictions if p["unavailable"]), ""),
        "how": first["how"].replace("asked of Inductor", "from Inductor"),
        "torch": first["torch"],
        "triton": first["triton"],
        "device": first["device"],
        "sizes": ", ".join(f"{name} = {size}" for name, size in (first["binding"] or {}).items()),
        "symbolic": first["symbolic"],
        "training": first["training"],
        "modes": modes,
        "rows": operation_rows(drawn_operations(cost).shown if (cost := region.get("cost")) else (), modes[0]),
        "recompiles": recompiles(region.get("recompiles")),
    }


def recompiles(found: Json | None) -> str:
    """How torch.compile meets the sizes that vary, in a sentence; "" where there is one size."""
    if not found:
        return ""
    graphs, sizes = found["graphs"], len({tuple(sorted(b.items())) for b in found["bindings"]})
    text = f"Over its {sizes} sizes torch.compile makes {count(graphs, 'graph')}"
    if found["gives_up"]:
        return f"{text}, more than the {found['limit']} after which it gives up and runs eagerly."
    if found["because"]:
        return f"{text}; none for all sizes at once: {found['because']}."
    symbolic = found["symbolic"]
    served = (
        f", the last one for any size, with {count(symbolic['launches'], 'launch', 'launches')}" if symbolic else ""
    )
    return f"{text}{served}."


def measured_compilations(validation: Json | None) -> list[dict[str, Any]]:
    """What torch.compile's candidates launched when they were measured, by mode: the real compile beside the answer.

    Only for the same program at the same sizes. Kernels are those that the profiler saw in one call.
    """
    if validation is None or (validation.get("archived") or {}).get("match") == "other-sizes":
        return []
    names = {"compile": "default", "compile-max-autotune": "max-autotune"}
    rows = []
    for candidate in validation.get("candidates") or ():
        seen = candidate.get("kernels") or ()
        if candidate["name"] in names and seen:
            generated = [k for k in seen if k.startswith("triton_")]
            rows.append(
                {
                    "mode": names[candidate["name"]],
                    "device": validation.get("device"),
                    "launches": len(seen),
                    "generated": len(generated),
                    "library": len(seen) - len(generated),
                    "kernels": list(seen),
                }
            )
    return rows


def library_name(name: str) -> str:
    """A library call's name as the pages say it: attention without the backend that is the device's choice."""
    return {"sdpa": "SDPA", "sdpa_backward": "SDPA's backward"}.get(alike(name), name.removeprefix("aten."))


def _mode(prediction: Json) -> dict[str, Any]:
    kernels = [
        {
            **kernel,
            "number": number,
            "listed": False,
            "key": key,
            "words": KIND_WORDS.get(kernel["kind"], kernel["kind"]),
            "short": [o.removeprefix("aten.") for o in kernel["operations"]],
            "where": spans(kernel["lines"]),
        }
        for number, (key, kernel) in enumerate(
            zip(kernel_keys(prediction["kernels"]), prediction["kernels"], strict=True), 1
        )
    ]
    externs = [{**e, "short": library_name(e["name"])} for e in prediction["externs"]]
    stages = list(dict.fromkeys([k["stage"] for k in kernels] + [e["stage"] for e in prediction["externs"]]))
    listed = {
        stage: heaviest([k for k in kernels if k["stage"] == stage], lambda k: k["bytes_moved"] or 0, MOST_KERNELS)
        for stage in stages
    }
    for kernel in (k for rows in listed.values() for k in rows.shown):
        kernel["listed"] = True
    return {
        **prediction,
        "code": MODE_WORDS.get(prediction["mode"], prediction["mode"]),
        "kernels": kernels,
        "generated": sum(k["calls"] for k in kernels),
        "library": sum(e["calls"] for e in prediction["externs"]),
        "stages": [
            {
                "name": stage,
                "kernels": listed[stage].shown,
                "left": listed[stage].left,
                "externs": [e for e in externs if e["stage"] == stage],
            }
            for stage in sorted(stages, key=("forward", "backward").index)
        ],
        "same": False,
    }


def _same(one: Json, other: Json) -> bool:
    """Whether two modes are the same kernels, source and all, and the same calls."""

    def kernels_of(mode: Json) -> tuple[list[Any], list[Any]]:
        return [(k["name"], k["source"], k["calls"]) for k in mode["kernels"]], list(mode["externs"])

    return kernels_of(one) == kernels_of(other)


def spans(lines: Iterable[int]) -> str:
    """Line numbers in words: "line 5", "lines 5 to 8 and 11"; "" for none."""
    runs: list[list[int]] = []
    for line in sorted(set(lines)):
        if runs and line == runs[-1][1] + 1:
            runs[-1][1] = line
        else:
            runs.append([line, line])
    if not runs:
        return ""
    words = [str(a) if a == b else f"{a} to {b}" if b > a + 1 else f"{a}, {b}" for a, b in runs]
    joined = ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]
    return f"{'line' if joined.isdigit() else 'lines'} {joined}"


def operation_rows(operations: Iterable[Json], mode: Json) -> dict[str, dict[str, Any]]:
    """Which of a mode's kernels computes an operation of the cost, by the operation's name.

    kernels: their numbers, more than one where the compiler's record leaves it open; library: the call's name where no
    kernel does. By the kernel's lines against the operation's, then by its aten operations; an operation that autograd
    adds has no line, and is looked for in the backward's kernels.
    """
    return {o["name"]: _who(o, mode) for o in operations}


def _who(operation: Json, mode: Json) -> dict[str, Any]:
    base = re.sub(r"_\d+$", "", operation["name"])
    line = operation["line"]
    stage = "forward" if line else "backward"  # the backward may compute what is written again: not shown
    near = [k for k in mode["kernels"] if k["stage"] == stage and (line in k["lines"] or not line)]
    exact = [k for k in near if f"aten.{base}" in k["operations"]]
    called = operation["kind"] in CALLED
    library = "" if exact else _library(operation, base, mode, unclaimed=called or not near)
    kernels = exact or ([] if called or library or not line else near)
    return {"kernels": kernels, "library": library}


def _library(operation: Json, base: str, mode: Json, *, unclaimed: bool) -> str:
    """The library call that an operation became; "" for none. unclaimed: no kernel has its line."""
    externs = [library_name(str(e["name"])) for e in mode["externs"]]
    if base in externs:
        return base
    if not unclaimed:
        return ""
    replaced = [r["name"] for r in mode["replaced"]]
    attention = [e for e in externs if e.startswith("SDPA")]
    if SDPA_REPLACED in replaced and attention and operation["line"]:
        return attention[0]
    if operation["kind"] == op_kinds.GEMM:
        return next((e for e in externs if e.endswith("mm")), "")
    if operation["kind"] in CALLED and len(set(externs)) == 1:
        return externs[0]
    return next((e for e in externs if e in TAKEN_ALONG.get(base, ())), "")


# ---------------------------------------------------------------------------------------------------------- the machine


def machine(answer: Json) -> dict[str, Any]:
    """Context of partials/machine.html: one kernel as the compiler made it, from `submit.kernel_machine`.

    base: where its listings are; tried_by: who would time its other configurations. An answer may have its own.
    """
    made, kernel = answer["machine"], answer["kernel"]
    tallies = [t for line in made["lines"] for t in line["tallies"]]
    lines = source_lines(made["source"] or kernel["source"], made["lines"], answer["findings"])
    body = next((at for at, line in enumerate(lines) if line["text"].startswith("@triton.jit")), 0)
    return {
        "base": f"/regions/{answer['region_id']}/kernels/{answer['mode']}/{quote(answer['key'], safe='')}",
        "tried_by": "Inductor would time",
        **answer,
        "kernel": {**kernel, "where": spans(kernel["lines"])},
        "words": KIND_WORDS.get(kernel["kind"], kernel["kind"]),
        "facts": _facts(made, tallies),
        "preamble": [line["text"] for line in lines[:body]],
        "source_lines": lines[body:],
        "unplaced": sum(t["count"] for line in made["lines"] if not line["number"] for t in line["tallies"]),
        "listings": [
            {
                "key": key,
                "name": name,
                "what": what,
                "text": made["texts"][key][:LONG_LISTING],
                "left": max(0, len(made["texts"][key]) - LONG_LISTING),
                "lines": made["texts"][key].count("\n") + 1,
            }
            for key, name, what in LISTINGS
            if made["texts"].get(key)
        ],
    }


def _facts(made: Json, tallies: Sequence[Json]) -> list[tuple[str, str, str]]:
    """Numbers at a glance: name, value, and a word on it."""

    def widths(*of: str) -> str:
        bits = sorted({t["bits"] for t in tallies if t["kind"] in of and t["bits"]}, reverse=True)
        return ", ".join(map(str, bits)) + " bits" if bits else "–"

    def number(*of: str) -> int:
        return sum(t["count"] for t in tallies if t["kind"] in of)

    matrix = list(dict.fromkeys((m["instruction"], m["shape"]) for m in made["matrix"]))
    copies = number("asynchronous copy")
    occupancy = made["occupancy"]
    return [
        ("Registers a thread", plain(made["registers"]), f"{made['block_warps']} warps a block"),
        ("Spilled", amount(made["spill_bytes"]), "a thread, to local memory"),
        ("Shared memory", amount(made["shared_bytes"]), "a block"),
        (
            "Occupancy",
            "–" if occupancy is None else f"{occupancy:.0%}".replace("%", " %"),
            _residence(made),
        ),
        ("Loads", widths("global load", "asynchronous copy"), "a thread at a time"),
        ("Stores", widths("global store"), "a thread at a time"),
        ("Matrix instruction", ", ".join(m[0] for m in matrix) or "none", ", ".join(m[1] for m in matrix if m[1])),
        ("Barriers", str(number("barrier")), "of the block"),
        ("Async copies", str(copies), "instructions, global to shared" if copies else ""),
        (
            "Stages",
            str(max((b["copies"] for b in made["buffers"]), default=1)),
            "tiles in flight" if made["buffers"] else "no loop is pipelined",
        ),
    ]


def _residence(made: Json) -> str:
    """How many blocks an SM (AMD: a CU) holds at once, and what keeps it from more."""
    if made["blocks"] is None:
        return ""
    room = f"{count(made['blocks'], 'block')}/{'CU' if made['target'].startswith('gfx') else 'SM'}"
    return room if made["occupancy"] >= 1 else f"{room}, {made['limited_by']} run out first"


def source_lines(source: str, lines: Iterable[Json], findings: Iterable[Json]) -> list[dict[str, Any]]:
    """The kernel's source, line by line, with the instructions that came of each and the findings that name it."""
    counted = {line["number"]: line["tallies"] for line in lines}
    said: dict[int, list[str]] = {}
    for finding in findings:
        for number in finding["lines"]:
            said.setdefault(number, []).append(finding["text"])
    return [
        {
            "number": number,
            "text": text,
            "total": sum(t["count"] for t in counted.get(number, ())),
            "kinds": ", ".join(_tally(t) for t in counted.get(number, ())),
            "findings": said.get(number, []),
        }
        for number, text in enumerate(source.rstrip("\n").split("\n"), 1)
    ]


def _tally(tally: Json) -> str:
    bits = f" of {tally['bits']} bits" if tally["bits"] else ""
    return f"{tally['count']} {tally['kind']}{bits}"
