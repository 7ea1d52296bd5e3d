"""torch.compile's three phases on a live region: what is captured, what is lowered, what is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.web.views import oracle
from profiler.trace.analyze.compile_blocker_kinds import BREAK, KINDS

Json = Mapping[str, Any]

TEXT = """\
x: bf16[8192, 4096]
w: bf16[4096, 4096]
b: bf16[4096]
h = x @ w + b
h = layer_norm(h, (4096,))
return relu(h)
"""
"""The sources' example: four launches become two."""


def phases(region: Json) -> dict[str, Any]:
    """Context of partials/learn/phases.html for a region with its cost and what the oracle said of it."""
    cost = region["cost"]
    section = oracle.section(region)
    first = section["modes"][0] if section["modes"] else None
    statements = [line for line in region["text"].splitlines() if line.strip() and not _is_input(line)]
    return {
        "phase_region": region,
        "statements": statements,
        "aten": [o["label"] for o in cost["operations"] if o.get("launches") or o["bytes_read"] or o["bytes_written"]],
        "written": first,
        "by_rules": [k["label"] for k in cost["kernels"]] if first is None else [],
        "before": cost["unfused"]["launches"],
        "after": first["launches"] if first else cost["fused"]["launches"],
        "breaks": breaks(),
    }


def _is_input(line: str) -> bool:
    name, colon, _ = line.partition(":")
    return bool(colon) and name.strip().isidentifier() and "=" not in name


def breaks() -> list[dict[str, str]]:
    """What breaks a graph, as this app names it in traces: title, what it does, what helps."""
    return [{"name": kind, "title": k.title, "because": k.because, "remedy": k.remedy}
            for kind, k in KINDS.items() if k.effect == BREAK]  # fmt: skip
