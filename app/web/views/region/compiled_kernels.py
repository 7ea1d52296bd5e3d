"""What a page shows of compiled kernels: Inductor's and this app's own, line by line, with what the compiler decided.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict
from urllib.parse import quote, urlencode

from app.objects.kernel import Finding, Kernel, Machine, OwnMachines, SourceLine, Tally
from app.objects.oracle import OracleKernel
from app.objects.region import RegionBody
from app.requests.kernel_code import keys
from app.units import amount, count, percent, plain
from app.web.charts.names import id_of
from app.web.views.region.predicted_kernels import KIND_WORDS, ModePrediction, describe_lines, oracle_section
from kernels.kernel_listing_model import Own, Part

MOST_KERNELS = 8
"""As kernels.kernel_listing: from so many on there may be more that were not compiled."""

LONG_LISTING = 200_000
"""Characters of a listing that a page shows; the rest is in the plain file."""

LISTINGS = (
    ("ttir", "TTIR", "Triton's IR: blocks of values, nothing of threads yet"),
    ("ttgir", "TTGIR", "Triton's GPU IR: which thread holds what, what goes through shared memory"),
    ("ptx", "PTX", "NVIDIA's virtual instructions"),
    ("sass", "SASS", "what the GPU runs"),
    ("amdgcn", "AMDGCN", "what the GPU runs"),
)
"""Listings of a compiled kernel in the order in which the compiler writes them: key, name, what it is."""


class LocatedKernel(OracleKernel):
    """A kernel with the lines of the region's text that it is from, in words."""

    where: str


class AnnotatedLine(TypedDict):
    """A line of a kernel's source. total, kinds: of the instructions that came of it; findings: that name it."""

    number: int
    text: str
    total: int
    kinds: str
    findings: list[str]


class Listing(TypedDict):
    """One of the compiler's texts. left: characters that the page does not show; lines: of all of it."""

    key: str
    name: str
    what: str
    text: str
    left: int
    lines: int


class MachinePage(TypedDict):
    """Context of partials/kernels/machine.html.

    base: under which the listings are; tried_by: who would time its other configurations. facts: (name, value, a word
    on it). preamble: lines before the kernel. unplaced: instructions of no line. listing_query, id_prefix: of links and
    marks, where a page has several kernels.
    """

    machine: Machine
    findings: list[Finding]
    kernel: LocatedKernel
    device: str
    arch: str
    region_id: str | None
    mode: str
    key: str
    base: str
    tried_by: str
    words: str
    facts: list[tuple[str, str, str]]
    preamble: list[str]
    source_lines: list[AnnotatedLine]
    unplaced: int
    listings: list[Listing]
    listing_query: str
    id_prefix: str


class ShownPart(TypedDict):
    """A kernel's source, and the lines of the region's text that it computes: numbers, and in words."""

    name: str
    source: str
    lines: list[int]
    where: str


class Columns(TypedDict):
    """Context of partials/kernels/columns.html: Inductor's kernels of the default mode, and our own.

    text_lines: the region's text.
    """

    region: RegionBody
    own: Own
    own_query: str
    text_lines: list[str]
    inductor: list[ShownPart]
    own_parts: list[ShownPart]
    inductor_calls: list[str]
    inductor_mode: ModePrediction | None


class OwnMachinePage(TypedDict):
    """Context of partials/kernels/own_machine.html. cut: there may be kernels that were not compiled."""

    region: RegionBody
    own: Own
    own_query: str
    machines: list[MachinePage]
    device: str
    cut: bool


def machine_page(answer: Kernel) -> MachinePage:
    """One of Inductor's kernels as the compiler made it."""
    base = f"/regions/{answer['region_id']}/kernels/{answer['mode']}/{quote(answer['key'], safe='')}"
    return _show_machine(answer, base, "Inductor would time", answer["region_id"])


def _show_machine(answer: Kernel, base: str, tried_by: str, region_id: str | None) -> MachinePage:
    machine, kernel = answer["machine"], answer["kernel"]
    tallies = [t for line in machine["lines"] for t in line["tallies"]]
    lines = annotate_source(machine["source"] or kernel.get("source") or "", machine["lines"], answer["findings"])
    body = next((at for at, line in enumerate(lines) if line["text"].startswith("@triton.jit")), 0)
    return {
        "machine": machine,
        "findings": answer["findings"],
        "kernel": {**kernel, "where": describe_lines(kernel["lines"])},
        "device": answer["device"],
        "arch": answer["arch"],
        "region_id": region_id,
        "mode": answer["mode"],
        "key": answer["key"],
        "base": base,
        "tried_by": tried_by,
        "words": KIND_WORDS.get(kernel["kind"], kernel["kind"]),
        "facts": _facts(machine, tallies),
        "preamble": [line["text"] for line in lines[:body]],
        "source_lines": lines[body:],
        "unplaced": sum(t["count"] for line in machine["lines"] if not line["number"] for t in line["tallies"]),
        "listings": [
            {
                "key": key,
                "name": name,
                "what": what,
                "text": text[:LONG_LISTING],
                "left": max(0, len(text) - LONG_LISTING),
                "lines": text.count("\n") + 1,
            }
            for key, name, what in LISTINGS
            if (text := machine["texts"].get(key))
        ],
        "listing_query": "",
        "id_prefix": "",
    }


def _facts(machine: Machine, tallies: Sequence[Tally]) -> list[tuple[str, str, str]]:
    """Numbers at a glance: name, value, and a word on it."""

    def widths(*kinds: str) -> str:
        bits = sorted({t["bits"] for t in tallies if t["kind"] in kinds and t["bits"]}, reverse=True)
        return ", ".join(map(str, bits)) + " bits" if bits else "–"

    def total(*kinds: str) -> int:
        return sum(t["count"] for t in tallies if t["kind"] in kinds)

    matrix = list(dict.fromkeys((m["instruction"], m["shape"]) for m in machine["matrix"]))
    copies = total("asynchronous copy")
    occupancy = machine["occupancy"]
    return [
        ("Registers a thread", plain(machine["registers"]), f"{machine['block_warps']} warps a block"),
        ("Spilled", amount(machine["spill_bytes"]), "a thread, to local memory"),
        ("Shared memory", amount(machine["shared_bytes"]), "a block"),
        (
            "Occupancy",
            "–" if occupancy is None else percent(occupancy),
            _describe_residence(machine),
        ),
        ("Loads", widths("global load", "asynchronous copy"), "a thread at a time"),
        ("Stores", widths("global store"), "a thread at a time"),
        ("Matrix instruction", ", ".join(m[0] for m in matrix) or "none", ", ".join(m[1] for m in matrix if m[1])),
        ("Barriers", str(total("barrier")), "of the block"),
        ("Async copies", str(copies), "instructions, global to shared" if copies else ""),
        (
            "Stages",
            str(max((b["copies"] for b in machine["buffers"]), default=1)),
            "tiles in flight" if machine["buffers"] else "no loop is pipelined",
        ),
    ]


def _describe_residence(machine: Machine) -> str:
    """How many blocks an SM (AMD: a CU) holds at once, and what keeps it from more."""
    if machine["blocks"] is None:
        return ""
    room = f"{count(machine['blocks'], 'block')}/{'CU' if machine['target'].startswith('gfx') else 'SM'}"
    return room if (machine["occupancy"] or 0.0) >= 1 else f"{room}, {machine['limited_by']} run out first"


def annotate_source(source: str, lines: Iterable[SourceLine], findings: Iterable[Finding]) -> list[AnnotatedLine]:
    """The kernel's source, line by line, with the instructions that came of each and the findings that name it."""
    tallies = {line["number"]: line["tallies"] for line in lines}
    texts: dict[int, list[str]] = {}
    for finding in findings:
        for number in finding["lines"]:
            texts.setdefault(number, []).append(finding["text"])
    return [
        {
            "number": number,
            "text": text,
            "total": sum(t["count"] for t in tallies.get(number, ())),
            "kinds": ", ".join(_describe_tally(t) for t in tallies.get(number, ())),
            "findings": texts.get(number, []),
        }
        for number, text in enumerate(source.rstrip("\n").split("\n"), 1)
    ]


def _describe_tally(tally: Tally) -> str:
    bits = f" of {tally['bits']} bits" if tally["bits"] else ""
    return f"{tally['count']} {tally['kind']}{bits}"


# ------------------------------------------------------------------------------------------------------ our own kernels


def columns(region: RegionBody, own: Own) -> Columns:
    """Inductor's kernels and our own, side by side."""
    modes = oracle_section(region)["modes"]
    first = modes[0] if modes else None
    return {
        "region": region,
        "own": own,
        "own_query": urlencode({"candidate": own.candidate}) if own.candidate else "",
        "text_lines": (region["text"] or "").rstrip().split("\n"),
        "inductor": _show_parts(inductor_parts(first)),
        "own_parts": _show_parts(own.parts),
        "inductor_calls": [e["name"] for e in first["externs"]] if first else [],
        "inductor_mode": first,
    }


def _show_parts(parts: Iterable[Part]) -> list[ShownPart]:
    return [
        {"name": p.name, "source": p.source.strip(), "lines": list(p.lines), "where": describe_lines(p.lines)}
        for p in parts
    ]


def inductor_parts(mode: ModePrediction | None) -> list[Part]:
    """A mode's kernels with a source, in the order in which they run."""
    kernels = mode["numbered"] if mode else []
    return [Part(k["name"], source, tuple(k["lines"])) for k in kernels if (source := (k.get("source") or "").strip())]


def own_machine_page(region: RegionBody, own: Own, answer: OwnMachines, base: str) -> OwnMachinePage:
    """What the compiler makes of each kernel of the call. base: under which the listings of the kernels are."""
    query = urlencode({"candidate": own.candidate})
    pages: list[MachinePage] = []
    for place, (key, machine) in enumerate(zip(keys(answer["kernels"]), answer["kernels"], strict=True)):
        kernel: OracleKernel = {
            "name": machine["kernel"],
            "kind": "",
            "calls": 1,
            "bytes_moved": None,
            "operations": [],
            "source": machine["source"],
            "stage": "forward",
            "lines": [],
        }
        as_compiled: Kernel = {
            "region_id": "",
            "key": machine["kernel"],
            "mode": "",
            "device": answer["device"],
            "arch": answer["arch"],
            "kernel": kernel,
            "machine": machine,
            "findings": machine.get("findings") or [],
        }
        page = _show_machine(as_compiled, f"{base}/{quote(key, safe='')}", "its tuner would time", id_of(region))
        page["source_lines"] = in_use(page["source_lines"])
        page["preamble"] = []
        page["listing_query"], page["id_prefix"] = query, f"own-{place}-"
        pages.append(page)
    return {
        "region": region,
        "own": own,
        "own_query": query,
        "machines": pages,
        "device": answer["device"],
        "cut": len(pages) >= MOST_KERNELS,
    }


def in_use(lines: Sequence[AnnotatedLine]) -> list[AnnotatedLine]:
    """Of a file's lines those of the functions that became instructions: a family's other kernels are left out."""
    blocks: list[list[AnnotatedLine]] = [[]]
    for line in lines:
        text = line["text"]
        if text and not text[0].isspace() and text[0] not in ")#" and not _is_decorator(blocks[-1]):
            blocks.append([])
        blocks[-1].append(line)
    kept = [line for block in blocks if any(at["total"] for at in block) for line in block]
    while kept and not kept[-1]["text"].strip():
        kept.pop()
    return kept


def _is_decorator(block: Sequence[AnnotatedLine]) -> bool:
    """Whether what stands so far is a decorator, whose function follows."""
    texts = [line["text"] for line in block if line["text"].strip()]
    return bool(texts) and all(text.startswith("@") for text in texts)
