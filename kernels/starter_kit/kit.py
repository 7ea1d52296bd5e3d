"""The starter kit: a kernel's file, a replay script, a README and the validation, from a region's text. Pure: nothing
of a region is run, and the same arguments give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernels.candidates import GENERATED, Candidate, candidates
from kernels.codegen.helion.source import text_of
from kernels.codegen.index import Unsupported
from kernels.host import Host
from kernels.starter_kit import about
from kernels.starter_kit.entry import kernel_file, replay_file
from kernels.starter_kit.model import Kit
from kernels.starter_kit.module import BundleError
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse, to_text
from profiler.region.model import Region

Json = Mapping[str, Any]

HELION_FILE = "helion_region.py"
MOST_SIZES = 16
"""Sizes that one file is made for: a generated kernel is one for each."""


def make_kit(text: str, bindings: Sequence[Mapping[str, int]] | None = None, candidate: str | None = None,
             validation: Json | None = None) -> Kit:  # fmt: skip
    """The kit of a region. bindings: its symbols' sizes, by default those of the text. candidate: by default the
    fastest Triton kernel of the validation, else the first that fits.

    A region without a kernel gets a kit with the reason. Raises RegionError for a text that cannot be read, KeyError
    for a candidate that is no Triton kernel of this name.
    """
    region = parse(text, "region")
    sizes = [dict(b) for b in bindings or _measured_sizes(validation) or region.bindings]
    order, reason = _chosen(region, sizes[0], candidate, validation)
    canonical = to_text(region)
    kept = dict(validation) if validation else {"region": canonical, "outcome": None, "candidates": []}
    made: tuple[str, str] | None = None
    chosen, failed = "", []
    for name in order:
        try:
            made = _kernel(region, sizes[:MOST_SIZES], name, validation, len(sizes))
        except (BundleError, Unsupported, ValueError) as fault:
            failed.append(f"{name}: {fault}")
            continue
        chosen, failed = name, []
        break
    reason = "; ".join(failed) or reason
    files = {"replay.py": replay_file(region, sizes[:MOST_SIZES])}
    if made is not None:
        files = {made[0]: made[1], **files}
    helion = text_of(lower(region, sizes[0]))
    files |= {HELION_FILE: helion} if helion else {}
    told = dict.fromkeys(files, "the kernel, its test and its benchmark") | {
        "replay.py": "runs the region eagerly and under torch.compile, for a bug report",
        "validation.json": "the measurement, as the API has it",
    }
    if helion:
        told[HELION_FILE] = "the region in Helion, for its first size: it alone imports helion; call `region`"
    title = f"Starter kit: {chosen or 'no kernel'}"
    files["README.md"] = about.readme(title, canonical, chosen, validation, told, reason)
    files["validation.json"] = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
    return Kit(_file(chosen)[:-3] if chosen else "region", chosen, files, reason)


def _measured_sizes(validation: Json | None) -> list[dict[str, int]]:
    shapes: Sequence[Json] = next(
        (c["shapes"] for c in (validation or {}).get("candidates", ()) if c.get("shapes")), ()
    )
    return [dict(s["binding"]) for s in shapes]


def _chosen(
    region: Region, sizes: Mapping[str, int], asked: str | None, validation: Json | None
) -> tuple[list[str], str]:
    """Candidates to try, the best first; or none and the reason."""
    offered = [_for_a_kit(c, region) for c in candidates(lower(region, sizes), Host()) if c.tool == "triton"]
    by_name = {c.name: c for c in offered}
    if asked is not None:
        if asked not in by_name and asked not in _known():
            raise KeyError(asked)
        candidate = by_name.get(asked)
        if candidate is None:
            return [], f"nothing in this region that {asked} computes"
        return ([asked], "") if candidate.available else ([], f"{asked}: {candidate.reason}")
    able = [c.name for c in offered if c.available]
    seen = {c["name"]: c for c in (validation or {}).get("candidates", ())}
    right = [n for n in able if n in seen and seen[n].get("status") in ("ok", "correct")]
    timed = sorted((seen[n]["time_us"]["median"], n) for n in right if seen[n].get("time_us"))
    order = list(dict.fromkeys([*(n for _, n in timed), *right, *(n for n in able if n not in seen)]))
    if order:
        return order, ""
    reasons = [f"{c.name}: {c.reason}" for c in offered if not c.available]
    reasons += [f"{n}: {seen[n].get('status')} {seen[n].get('message') or ''}".rstrip() for n in able]
    return [], "; ".join(reasons) or "no Triton kernel fits this region"


def _for_a_kit(candidate: Candidate, region: Region) -> Candidate:
    """A kit calls one function: a backward has no place in it yet."""
    if candidate.available and region.requires_grad:
        return replace(candidate, available=False, reason="a kit holds kernels of a forward alone")
    return candidate


def _known() -> frozenset[str]:
    from kernels.hand_written import WRITTEN

    return frozenset({GENERATED, *(w.name for w in WRITTEN)})


def _file(candidate: str) -> str:
    """`triton:rms_norm` -> triton_rms_norm.py: no name of a package or of a standard module."""
    return candidate.replace(":", "_") + ".py"


def _kernel(
    region: Region, sizes: Sequence[Mapping[str, int]], candidate: str, validation: Json | None, count: int
) -> tuple[str, str]:
    name = _file(candidate)
    title = f"{candidate}, a Triton kernel with its test and its benchmark, written by Tritonworthy"
    notes = [f"It is made for the first {len(sizes)} of {count} sizes."] if count > len(sizes) else []
    doc = about.docstring(title, to_text(region), candidate, validation, name, notes)
    return name, kernel_file(region, sizes, candidate, doc)
