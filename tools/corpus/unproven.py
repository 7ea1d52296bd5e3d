"""Which regions of the corpus are advised Triton, and of these which kernel can be launched: without a GPU.

`python -m tools.corpus.unproven` goes over the fit and development thirds as on an H200 with torch and triton alone and
prints the table; `--write` puts it into docs/unproven.md and tests/records/unproven.json. The blind third stays unseen.
tests/records/unproven-before.json has which kernels an earlier commit offered for the same programs: `row_of`'s
`offered`, run in a worktree of that commit.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from app.accuracy.corpus.programs import DEVELOPMENT, FIT, Program, load_programs

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE, RECORD = ROOT / "docs" / "unproven.md", ROOT / "tests" / "records" / "unproven.json"
BEFORE, ADVISED = RECORD.with_name("unproven-before.json"), RECORD.with_name("advised-h200.json")
DEVICE = "NVIDIA H200"
TUNED = "compile-max-autotune"
PROVEN, UNPROVEN = "can be launched", "unproven"


class Row(msgspec.Struct, frozen=True):
    """One program. advised: the candidate that is advised. launched: whether it is offered as one that can run.

    lacking: why the generator refuses the region, "" where it takes it. offered: all kernels of ours that can run it,
    written by hand or generated, whatever is advised.
    """

    program: str
    label: str
    mode: str
    advised: str
    launched: bool
    lacking: str = ""
    offered: tuple[str, ...] = ()


class Before(msgspec.Struct, frozen=True):
    """What an earlier commit offered: program -> the kernels of ours that could run it."""

    commit: str
    date: str
    offered: dict[str, tuple[str, ...]]


def row_of(program: Program) -> Row:
    """The program's advice as on the host that the page is about, held against what is offered to be launched."""
    from app.analysis import service
    from app.analysis.analyze import AdviceContext, decide, prepare
    from app.analysis.device_choice import choose_device
    from kernels.candidates import candidates
    from kernels.host import Host, probe_host
    from profiler.region.graph.lowering import lower
    from profiler.region.language.text import parse
    from profiler.region.model import Workload

    host = Host(DEVICE, (9, 0), {}, frozenset({"torch", "triton"}), probe_host().features)
    region, bindings = service.bind(parse(program.text, program.name), None, 1.0)
    device, _ = choose_device(DEVICE, None)
    prepared = prepare(region, Workload(bindings=bindings, share_of_step=1.0), device, AdviceContext(host=host))
    advice = decide(prepared).advice
    chosen = next(a for a in advice.alternatives if (a.tool, a.mode) == (advice.tool, advice.mode or a.mode))
    sizes = dict(bindings[0].sizes) if bindings[0].sizes else None
    offered = tuple(c.name for c in candidates(lower(region, sizes), host) if c.available and c.tool == "triton")
    return Row(
        program.name, program.label, program.mode, chosen.candidate, chosen.candidate in offered,
        prepared.facts.not_generated.rstrip("."), offered,
    )  # fmt: skip


class Run(msgspec.Struct, frozen=True):
    """What became of an advised kernel on a GPU. status: "ok", or why it has no time. times_us: of all that ran."""

    status: str
    message: str
    times_us: dict[str, float]


def runs_of(rows: Sequence[Row], file: Path = ADVISED) -> dict[str, Run]:
    """By program, the validation of the kernel that is advised: of the corpus's measurements, and of those that
    `launched.py --more advised` made since for programs that had none."""
    from app.accuracy.corpus.measured import load_measured

    named = {r.program: r.advised for r in rows if r.launched and r.advised.startswith("triton:")}
    runs: dict[str, Run] = {}
    for record in load_measured(FIT, DEVELOPMENT):
        name = str(record["name"])
        if record["device"] == DEVICE and name in named:
            candidates = {c["name"]: c for c in record["candidates"]}
            times = {n: c["time_us"]["median"] for n, c in candidates.items() if c["time_us"]}
            own = candidates.get(named[name])
            if own is not None:
                runs[name] = Run(own["status"], own["message"], times)
    for name, program in msgspec.json.decode(file.read_bytes())["programs"].items():
        if name in named and (name not in runs or runs[name].status != "ok"):
            candidates = program.get("candidates", {})
            times = {n: c["time_us"]["median"] for n, c in candidates.items() if c.get("time_us")}
            own = candidates.get(named[name], {"status": "not run", "message": program.get("failed", "")})
            runs[name] = Run("ok" if "time_us" in own else own["status"], own.get("message", ""), times)
    return runs


SLOWER = 1.1
MENDED = {
    "made-norm-0028": "sums and largest numbers of rows were left to the backward in bf16; they are f32 now",
    "trace-d906e4f650": "cuDNN's batch norm is taken apart; then the check ran out of memory, by 79 draws where one is "
    "enough, and on an H100 held each candidate's own inputs against eager's",
}
"""Programs of which what failed has been mended and has not run on a GPU since."""


def launched_section(rows: Sequence[Row], runs: Mapping[str, Run]) -> list[str]:
    """Lines of the section on what became of the advised kernels on a GPU."""
    named = [r for r in rows if r.launched and r.advised.startswith("triton:")]
    ran = [r for r in named if r.program in runs and runs[r.program].status == "ok"]
    slower, ratios = [], []
    for r in ran:
        times = runs[r.program].times_us
        other = min((t, n) for n, t in times.items() if not n.startswith("triton:"))
        ratios.append(times[r.advised] / other[0])
        if ratios[-1] > SLOWER:
            slower.append((ratios[-1], r, times[r.advised], other))
    alone = sum(TUNED not in runs[r.program].times_us for r in ran)
    lines = [
        f"## Launched on an {DEVICE.removeprefix('NVIDIA ')}",
        "",
        f"Of the {len(named)} that can be launched, {len(ran)} ran and were right (the corpus's measurements, and "
        "`python benchmarks/validation/launched.py --more advised`, tests/records/advised-h200.json). Whether a kernel "
        f"runs and is right was asked; {alone} were timed next to eager, torch.compile's default and installed "
        "libraries alone, without max-autotune. Device time over the fastest of what is no kernel of ours: median "
        f"{statistics.median(ratios):.2f}, at most 1 in {sum(q <= 1.0 for q in ratios)} of {len(ratios)}, above "
        f"{SLOWER} in {len(slower)}: there the advice was wrong.",
        "",
        "| slower | kernel | µs | fastest other | µs | ratio |",
        "| --- | --- | ---: | --- | ---: | ---: |",
    ]
    for ratio, r, own_us, (other_us, other_name) in sorted(slower, key=lambda item: -item[0]):
        lines.append(
            f"| {r.program} | `{r.advised}` | {own_us:,.1f} | `{other_name}` | {other_us:,.1f} | {ratio:.2f} |"
        )
    others = [r for r in named if r not in ran]
    if others:
        lines += ["", "| did not run, or was refused | kernel | why | mended since |", "| --- | --- | --- | --- |"]
        for r in others:
            run = runs.get(r.program, Run("not run", "", {}))
            why = _cell(": ".join(t for t in (run.status, run.message) if t))
            lines.append(f"| {r.program} | `{r.advised}` | {why} | {MENDED.get(r.program, '')} |")
    return [*lines, ""]


def rows_of(programs: Sequence[Program], processes: int) -> list[Row]:
    """In the programs' order."""
    if processes < 2:
        return [row_of(p) for p in programs]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return pool.map(row_of, programs, chunksize=8)


def gained(rows: Sequence[Row], before: Before) -> list[str]:
    """Lines of the section that says how many programs of each family have a kernel to run now and had one before."""
    lines = [
        "## What each family gained",
        "",
        f"Programs for which a kernel of ours, written by hand or generated, can be launched: at commit "
        f"`{before.commit}` ({before.date}, tests/records/unproven-before.json) and now, counted by the same lines "
        "over the same programs. Whether it is the fastest is another question: [measured](measured.md).",
        "",
        "| family | mode | programs | before | now | gained | lost |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for label, mode in [*sorted({(r.label, r.mode) for r in rows}), ("all", "")]:
        of = [r for r in rows if not mode or (r.label, r.mode) == (label, mode)]
        had = [bool(before.offered[r.program]) for r in of]
        has = [bool(r.offered) for r in of]
        new, lost = (
            sum(a and not b for a, b in pairs) for pairs in (zip(has, had, strict=True), zip(had, has, strict=True))
        )
        lines.append(f"| {label} | {mode} | {len(of)} | {sum(had)} | {sum(has)} | {new} | {lost} |")
    return lines


def page(rows: Sequence[Row], before: Before, runs: Mapping[str, Run]) -> str:
    """The whole document."""
    triton = [r for r in rows if r.advised.startswith("triton:")]
    proven, unproven = [r for r in triton if r.launched], [r for r in triton if not r.launched]
    refused = [r for r in rows if r.lacking]
    lines = [
        "# Advised and launched",
        "",
        "Which kernels the advice names for the [corpus](corpus.md), and whether each can be launched. Made by "
        "`python -m tools.corpus.unproven --write`, without a GPU: the fit and development thirds, predicted for an "
        "H200 by our fusion rules, with torch and triton installed.",
        "",
        f"- {len(rows)} programs, of which {len(triton)} are advised Triton.",
        f"- Of these {len(proven)} have a kernel that can be launched: {_counts(r.advised for r in proven) or 'none'}.",
        f"- {len(unproven)} are unproven: there is no candidate to run, and the advice says so.",
        f"- The generator takes {len(rows) - len(refused)} of all programs.",
        "",
        "An unproven kernel is advised only where even the slow end of its prediction is faster than what can be "
        "launched.",
        "",
        *launched_section(rows, runs),
        "## By family",
        "",
        "| family | mode | programs | advised Triton | can be launched | unproven |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for label, mode in sorted({(r.label, r.mode) for r in rows}):
        of = [r for r in rows if (r.label, r.mode) == (label, mode)]
        named = [r for r in of if r.advised.startswith("triton:")]
        launched = sum(r.launched for r in named)
        lines.append(
            f"| {label} | {mode} | {len(of)} | {len(named)} | {launched} | {len(named) - launched} |"
        )  # fmt: skip
    lines += ["", *gained(rows, before), "", "## Unproven", ""]
    if unproven:
        lines += ["| program | family | mode | what the generator lacks |", "| --- | --- | --- | --- |"]
        lines += [f"| {r.program} | {r.label} | {r.mode} | {_cell(r.lacking) or 'one kernel for all of it'} |"
                  for r in unproven]  # fmt: skip
    else:
        lines.append("None.")
    lines += [
        "",
        "## What the generator lacks",
        "",
        "Of all programs, whatever is advised: torch.compile or a library may do them well.",
        "",
        "| reason | programs |",
        "| --- | ---: |",
    ]
    reasons = Counter(reason_of(r.lacking) for r in refused)
    lines += [f"| {_cell(reason)} | {count} |" for reason, count in sorted(reasons.items(), key=lambda i: (-i[1], i))]
    return "\n".join(lines) + "\n"


def reason_of(lacking: str) -> str:
    """The reason without this region's own names and numbers, so that alike ones are counted together."""
    text = re.sub(r"\b[a-z]\w*_\d+\b", "…", lacking)
    return re.sub(r"\d[\d,.]*", "N", text)


def _counts(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}` {count}" for name, count in Counter(names).most_common())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def read_rows(file: Path = RECORD) -> list[Row]:
    """As they were written."""
    return msgspec.json.decode(file.read_bytes(), type=list[Row])


def read_before(file: Path = BEFORE) -> Before:
    """What was offered before."""
    return msgspec.json.decode(file.read_bytes(), type=Before)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="into docs and tests/records")
    parser.add_argument("--processes", type=int, default=1)
    chosen = parser.parse_args(arguments)
    rows = rows_of(load_programs(FIT, DEVELOPMENT), chosen.processes)
    text = page(rows, read_before(), runs_of(rows))
    if chosen.write:
        RECORD.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
        PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
