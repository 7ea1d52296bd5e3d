"""Fuzzing, guided by coverage: `python -m tools.fuzz.fuzz --minutes 12 --targets trace region --record`.

Each target runs in a process of its own, begins with its corpus in tests/fuzz/corpus, and leaves that behind minimised
and within a size. An input that raises anything undocumented, or takes too much time or memory, is saved there as
crash-*; once it is mended it stays, and is replayed by the tests. Needs the extra `fuzz`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.stamp import stamp

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
RECORD = ROOT / "tests" / "records" / "fuzz.json"
WORK = ROOT / "build" / "fuzz"

KEPT_BYTES = {"trace": 90_000, "report": 80_000, "execution": 30_000, "region": 40_000, "advice": 40_000,
              "query": 8_000}  # fmt: skip
"""Size of what is kept of each target's corpus."""
HANG_S = 60
MEMORY_MIB = 6000
CRASH = "crash-"
VERSIONS = ("atheris", "msgspec", "isal", "numpy", "torch")

Json = dict[str, Any]


# ------------------------------------------------------------------------------------------------------ in a child


def fuzz(target_name: str, arguments: list[str]) -> None:
    """Run libFuzzer on a target until its time is over; the process ends with it."""
    import atheris
    import torch  # noqa: F401 - not instrumented: only our own code guides

    with atheris.instrument_imports(include=["profiler", "app", "kernels"], enable_loader_override=False):
        from tests.fuzz import targets
        from tests.fuzz.mutate import mutate

        target = targets.TARGETS[target_name]
        with_seeds(target_name, target)

    seen: set[str] = set()

    def one(data: bytes) -> None:
        try:
            targets.run_bounded(target, data)
        except Exception as error:
            where = place_of(error)
            if where not in seen:
                seen.add(where)
                path = save_crash(target_name, data)
                print(f"CRASH {path.name} {where}", file=sys.stderr, flush=True)
                traceback.print_exc()

    def mutate_input(data: bytes, most: int, seed: int) -> bytes:
        return mutate(target.kind, bytes(data), most, seed, atheris.Mutate)

    atheris.Setup([sys.argv[0], *arguments, f"-max_len={target.max_bytes}"], one, custom_mutator=mutate_input)
    atheris.Fuzz()


def with_seeds(name: str, target: Any) -> None:
    """Run one good input, so that what is imported late is imported now, and instrumented."""
    from tests.fuzz.seeds import seeds

    target.run(seeds(name)[0])


def save_crash(target: str, data: bytes) -> Path:
    """Keep an input that failed."""
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{CRASH}{hashlib.sha256(data).hexdigest()[:16]}"
    path.write_bytes(data)
    return path


def place_of(error: BaseException) -> str:
    """Kind of an error and the innermost line of ours that it came through: one fault, however many inputs find it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if str(ROOT) in f.filename]
    own = [f for f in frames if "/.venv/" not in f.filename]
    last = own[-1] if own else None
    at = f"{Path(last.filename).relative_to(ROOT)}:{last.lineno}" if last else "?"
    return f"{type(error).__name__} at {at}: {' '.join(str(error).split())[:120]}"


# ------------------------------------------------------------------------------------------------------ the corpus


def minimise(target_name: str, inputs: Iterable[bytes]) -> list[bytes]:
    """The smallest inputs that together pass every pair of lines of ours that all of them pass, within the size."""
    from tests.fuzz import targets

    target = targets.TARGETS[target_name]
    with_seeds(target_name, target)
    seen: set[tuple[str, int, int]] = set()
    kept: list[bytes] = []
    room = KEPT_BYTES[target_name]
    for data in sorted(set(inputs), key=lambda d: (len(d), d)):
        if len(data) > room:
            break
        passed = pairs_passed(target, data)
        if not passed <= seen:
            seen |= passed
            kept.append(data)
            room -= len(data)
    return kept


def pairs_passed(target: Any, data: bytes) -> set[tuple[str, int, int]]:
    """(file, line, line after it) of everything of ours that one input runs."""
    passed: set[tuple[str, int, int]] = set()
    own = tuple(str(ROOT / name) for name in ("profiler", "app", "kernels"))

    def enter(frame: Any, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(own):
            return None
        name, before = f"{code.co_filename}:{code.co_name}", frame.f_lineno

        def line(frame: Any, event: str, _: Any) -> Any:
            nonlocal before
            if event == "line":
                passed.add((name, before, frame.f_lineno))
                before = frame.f_lineno
            return line

        return line

    sys.settrace(enter)
    try:
        target.run(data)
    except Exception as error:
        passed.add((place_of(error), 0, 0))
    finally:
        sys.settrace(None)
    return passed


def keep(target: str, folder: Path) -> int:
    """Put the minimised corpus of a run in the place of the one before; what crashed once stays."""
    home = CORPUS / target
    home.mkdir(parents=True, exist_ok=True)
    old = [p for p in home.iterdir() if not p.name.startswith(CRASH)]
    kept = minimise(target, [p.read_bytes() for p in (*folder.iterdir(), *old)])
    for path in old:
        path.unlink()
    for data in kept:
        (home / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    return len(kept)


# -------------------------------------------------------------------------------------------------------- the runs


def run(target: str, minutes: float) -> Json:
    """Fuzz one target in a child; what happened."""
    folder = WORK / target
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    home = CORPUS / target
    if home.is_dir():
        for path in home.iterdir():
            if not path.name.startswith(CRASH):
                shutil.copy(path, folder / path.name)
    from tests.fuzz import seeds

    seeds.write(target, folder)
    before = {p.name for p in home.glob(f"{CRASH}*")} if home.is_dir() else set()
    seconds = max(1, round(minutes * 60))
    command = [
        sys.executable, "-m", "tools.fuzz.fuzz", "--child", target, "--", str(folder), f"-max_total_time={seconds}",
        f"-timeout={HANG_S}", f"-rss_limit_mb={MEMORY_MIB}", "-print_final_stats=1", "-len_control=0",
        f"-artifact_prefix={home}/{CRASH}lib-",
    ]  # fmt: skip
    home.mkdir(parents=True, exist_ok=True)
    log = WORK / f"{target}.log"
    started = time.monotonic()
    with log.open("wb") as file:
        code = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    elapsed = time.monotonic() - started
    text = log.read_text("utf-8", "replace")
    last = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)/", text)
    executions = re.findall(r"number_of_executed_units: (\d+)", text) or re.findall(r"^#(\d+)", text, re.MULTILINE)
    whole = code == 0 and re.search(r"Done \d+ runs in \d+ second", text) is not None
    summary = {
        "target": target,
        "minutes": round(elapsed / 60, 2),
        "executions": int(executions[-1]) if executions else 0,
        "edges": int(last[-1][0]) if last else 0,
        "features": int(last[-1][1]) if last else 0,
        "inputs": int(last[-1][2]) if last else 0,
        "crashes": sorted({p.name for p in home.glob(f"{CRASH}*")} - before),
        "whole": whole,
    }
    summary["kept"] = keep(target, folder)
    return summary


def replay_crashes(target: str) -> dict[str, bool]:
    """Each input that crashed once, and whether it does no more."""
    from tests.fuzz import targets

    passed = {}
    for path in sorted((CORPUS / target).glob(f"{CRASH}*")):
        try:
            targets.run_bounded(targets.TARGETS[target], path.read_bytes())
            passed[path.name] = True
        except Exception:
            passed[path.name] = False
    return passed


def record(runs: list[Json]) -> Json:
    """Add runs to the record; the whole of it."""
    known: Json = json.loads(RECORD.read_text()) if RECORD.exists() else {"runs": []}
    known["runs"] += [{**stamp(VERSIONS), **r} for r in runs]
    known["minutes"] = round(sum(r["minutes"] for r in known["runs"]), 2)
    known["executions"] = sum(r["executions"] for r in known["runs"])
    known["crashes"] = {target: replay_crashes(target) for target in KEPT_BYTES if (CORPUS / target).is_dir()}
    RECORD.write_text(json.dumps(known, indent=1) + "\n")
    return known


def main() -> int:
    """0 where nothing crashed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="of each target (default: 1)")
    parser.add_argument("--targets", nargs="+", choices=KEPT_BYTES, default=list(KEPT_BYTES))
    parser.add_argument("--record", action="store_true", help=f"add the runs to {RECORD.relative_to(ROOT)}")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        fuzz(args.child, args.arguments)
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    runs = []
    for target in args.targets:
        runs.append(run(target, args.minutes))
        print(json.dumps(runs[-1]), flush=True)
        if args.record and runs[-1]["whole"]:
            record(runs[-1:])
    return int(any(r["crashes"] or not r["whole"] for r in runs))


if __name__ == "__main__":
    raise SystemExit(main())
