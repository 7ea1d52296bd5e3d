"""What a kit says of itself: the file's docstring, the README. Figures are the Validation's, or there are none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]

LICENCE = (
    "Licence: MIT. Copyright (c) 2026 Tritonworthy contributors. Permission is hereby granted, free of charge, to any",
    "person obtaining a copy of this software, to deal in it without restriction, including the rights to use, copy,",
    "modify, merge, publish, distribute, sublicense and sell copies, provided that this notice stays in all copies or",
    'substantial portions. The software is provided "as is", without warranty of any kind.',
)


def measured(validation: Json | None) -> bool:
    """Whether it has times, taken on a named GPU."""
    return bool(validation and validation.get("device") and any(c.get("time_us") for c in validation["candidates"]))


def figures(validation: Json | None, candidate: str) -> list[str]:
    """Under what it was measured, and what each candidate took."""
    if validation is None or not measured(validation):
        return ["It was not measured here: there are no times. --bench takes them on your GPU."]
    software = ", ".join(f"{k} {v}" for k, v in (validation.get("software") or {}).items())
    where = f"Measured on {validation['device']}, {validation.get('date') or 'without a date'}, with {software}."
    lines = [where, "Device time of one cold call in µs, by turns: median, 95 % interval, times eager's."]
    width = max(len(c["name"]) for c in validation["candidates"])
    for c in validation["candidates"]:
        time, ratio = c.get("time_us"), c.get("ratio_to_eager")
        if not time:
            continue
        span = f"{time['low']:.1f} to {time['high']:.1f}"
        of = f"{ratio['median']:.3f}" if ratio else ""
        mark = "  <- this kernel" if c["name"] == candidate else ""
        lines.append(f"    {c['name']:{width}} {time['median']:10.1f} {span:>22} {of:>7}{mark}".rstrip())
    if not any(c["name"] == candidate and c.get("time_us") for c in validation["candidates"]):
        lines.append("The kernel of this kit was not among them.")
    shapes = next((c.get("shapes") or () for c in validation["candidates"] if c.get("shapes")), ())
    if len(shapes) > 1:
        lines.append("Over all sizes, weighted by their calls per step.")
    return lines


def docstring(title: str, text: str, candidate: str, validation: Json | None, file: str, notes: list[str]) -> str:
    """Of the kernel's file. Safe between triple quotes."""
    lines = [
        f"{title}.", "",
        *(f"    {line}" for line in text.splitlines()), "",
        *figures(validation, candidate), "",
        f"    python {file}            test it, then time it",
        f"    python {file} --test     against float64, within twice the error of the region run eagerly",
        f"    python {file} --bench    eager, torch.compile and this kernel by turns", "",
        "It needs torch and triton, and a GPU that Triton has a back end for. Without one, TRITON_INTERPRET=1 runs the",
        "test in Triton's interpreter (which needs numpy). The kernel and what it needs come first; `region`, `kernel`",
        "and the sizes stand at the end. What is called kernels/... is a file of Tritonworthy that a part is from.",
        *notes, "",
        *LICENCE,
    ]  # fmt: skip
    return "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''") + "\n"


def readme(title: str, text: str, candidate: str, validation: Json | None, files: Mapping[str, str], why: str) -> str:
    """README.md of the archive. files: name -> what it is. why: why there is no kernel, "" where there is one."""
    listed = [f"| `{name}` | {what} |" for name, what in files.items()]
    kernel = next((n for n in files if n.endswith(".py") and n not in ("replay.py", "helion_region.py")), "")
    run = [f"python {kernel}" if kernel else "", "python replay.py"]
    return "\n".join([
        f"# {title}", "",
        *([f"There is no kernel in this kit: {why}.", ""] if why else []),
        "```", *text.splitlines(), "```", "",
        "| file | what it is |", "|-|-|", *listed, "",
        "```", *(r for r in run if r), "```", "",
        "Needs torch and triton; nothing else is imported, fetched or sent.", "",
        "## What was measured", "",
        "```", *figures(validation, candidate), "```", "",
        *LICENCE, "",
    ])  # fmt: skip
