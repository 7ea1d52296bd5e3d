"""What the templates need of our own Triton beside Inductor's: the columns, and each compiled kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from app.requests.kernel_code import keys
from app.web.views import oracle

if TYPE_CHECKING:
    from kernels.kernel_listing_model import Own

Json = Mapping[str, Any]

MOST_KERNELS = 8
"""As kernels.kernel_listing: from so many on there may be more that were not compiled."""


def columns(region: Json, own: Own) -> dict[str, Any]:
    """Context of partials/columns.html: Inductor's kernels of the default mode, and our own."""
    modes = oracle.section(region)["modes"]
    first = modes[0] if modes else None
    kernels = first["kernels"] if first else []
    return {
        "region": region,
        "own": own,
        "own_query": urlencode({"candidate": own.candidate}) if own.candidate else "",
        "inductor": "\n\n".join(k["source"].strip() for k in kernels),
        "inductor_calls": [e["name"] for e in first["externs"]] if first else [],
        "inductor_mode": first,
    }


def machine_code_context(region: Json, own: Own, answer: Json, base: str) -> dict[str, Any]:
    """Context of partials/own_machine.html: one machine's context for each kernel of the call.

    base: under which the listings of the kernels are.
    """
    query = urlencode({"candidate": own.candidate})
    made = []
    for place, (key, machine) in enumerate(zip(keys(answer["kernels"]), answer["kernels"], strict=True)):
        shown = {k: v for k, v in machine.items() if k != "findings"}
        listings = f"{base}/{quote(key, safe='')}"
        kernel = {"source": machine["source"], "lines": [], "kind": "", "name": machine["kernel"], "stage": "forward"}
        context = oracle.machine(
            {
                "machine": shown, "findings": machine["findings"], "kernel": kernel, "device": answer["device"],
                "arch": answer["arch"], "region_id": region.get("id"), "mode": "", "key": machine["kernel"],
                "base": listings, "tried_by": "its tuner would time",
            }
        )  # fmt: skip
        context["source_lines"] = in_use(context["source_lines"])
        made.append({**context, "preamble": [], "listing_query": query, "id_prefix": f"own-{place}-"})
    return {"region": region, "own": own, "own_query": query, "machines": made, "device": answer["device"],
            "cut": len(made) >= MOST_KERNELS}  # fmt: skip


def in_use(lines: Sequence[Json]) -> list[Json]:
    """Of a file's lines those of the functions that became instructions: a family's other kernels are left out."""
    blocks: list[list[Json]] = [[]]
    for line in lines:
        text = line["text"]
        if text and not text[0].isspace() and text[0] not in ")#" and not _goes_on(blocks[-1]):
            blocks.append([])
        blocks[-1].append(line)
    kept = [line for block in blocks if any(at["total"] for at in block) for line in block]
    while kept and not kept[-1]["text"].strip():
        kept.pop()
    return kept


def _goes_on(block: Sequence[Json]) -> bool:
    """Whether what stands so far is a decorator, whose function follows."""
    said = [line["text"] for line in block if line["text"].strip()]
    return bool(said) and all(text.startswith("@") for text in said)
