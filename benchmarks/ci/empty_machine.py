"""How long CI takes on a machine that has nothing: `python -m benchmarks.ci.empty_machine [--rounds 3] [--out RECORD]`.

In each round an empty home, empty caches, a fresh environment of Python. The steps of `action.yml` are run as they
stand: the wheel is installed with all that it needs, a trace is checked against another one's and a region against a
contract, the step's summary, SARIF and other reports are written, and the comment is posted on a server of this machine
that speaks GitHub's calls. Packages are those of constraints.txt, from where this machine's pip has them. The wheel is
built before, of this checkout; the time of that is told and not counted. On two cores, of however many there are.

Run it where nothing else runs. Prints the claims that the record does not bear out; 1 where there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from tests.app.check.validators import VALIDATORS
from tests.ci.forges import GitHub, serving
from tests.ci.steps import environment, load, run_action
from tools.stamp import stamp

ROOT = Path(__file__).resolve().parent.parent.parent
RECORD = ROOT / "tests" / "records" / "ci-empty-machine.json"
TRACE = ROOT / "tests" / "data" / "traces" / "handrolled_blocks_bf16_eager.json.gz"
CONFIG = Path(__file__).with_name("tritonworthy.toml")
CONTRACT = "gelu chain"
"""The contract in the configuration."""
CORES = 2
MOST_S = 120.0
ROUNDS = 3
ENVIRONMENT = "Fresh environment of Python"
NEEDED = ("torch", "triton", "numpy")


class Round(TypedDict):
    """One run. seconds: by step. cpu_s: processor time of all its processes. load: of the machine when it began."""

    load: float
    seconds: dict[str, float]
    total_s: float
    cpu_s: float
    exit_code: str
    comments: int
    comment_chars: int
    sarif_rules: list[str]
    contracts: list[str]
    versions: dict[str, str]


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder / "dist")]
    copy = folder / "copy"
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    subprocess.run([*command, "."], cwd=copy, check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def one_round(wheel: Path, folder: Path) -> Round:
    """The action's steps in an empty folder. AssertionError where a report is not valid, or a step fails."""
    work, home = folder / "work", folder / "home"
    for empty in (work, home, folder / "tmp"):
        empty.mkdir(parents=True)
    for name in ("step.json.gz", "main.json.gz"):
        shutil.copy(TRACE, work / name)
    shutil.copy(CONFIG, work)
    (folder / "event.json").write_text(json.dumps({"pull_request": {"number": 7}}))
    load_before = os.getloadavg()[0]
    with serving(GitHub()) as github:
        job = environment(
            HOME=str(home), XDG_CACHE_HOME=str(home / "cache"), TMPDIR=str(folder / "tmp"),
            PIP_NO_CACHE_DIR="1", PIP_CONSTRAINT=str(ROOT / "constraints.txt"),
            GITHUB_ACTIONS="true", GITHUB_API_URL=github.url, GITHUB_REPOSITORY="o/r",
            GITHUB_EVENT_PATH=str(folder / "event.json"),
        )  # fmt: skip
        for own in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"):
            job.pop(own, None)
        began, used_s = time.monotonic(), _children_s()
        base = str(Path(sys.base_prefix) / "bin" / "python3")
        subprocess.run([base, "-m", "venv", str(folder / "venv")], env=job, check=True)
        made_s = time.monotonic() - began
        python = str(folder / "venv" / "bin" / "python")
        given = {"wheel": str(wheel), "python": python, "files": "step.json.gz", "baseline": "main.json.gz"}
        run = run_action(load(ROOT / "action.yml"), given, work, job, {
            "actions/upload-artifact": lambda here, settings: {"artifact-url": ""},
            "github/codeql-action/upload-sarif": lambda here, settings: {},
        }, token="secret")  # fmt: skip
        total_s, cpu_s = time.monotonic() - began, _children_s() - used_s
        bodies = github.bodies()
    if not run.ok:
        raise AssertionError(run.log)
    reports = {path.suffix[1:]: path.read_bytes().decode() for path in (work / "reports").iterdir()}
    for name, suffix in (("markdown", "md"), ("junit", "xml"), ("json", "json"), ("html", "html")):
        VALIDATORS[name](reports[suffix])
    sarif = VALIDATORS["sarif"](reports["sarif"])
    assert bodies == [run.summary] == [reports["md"]]
    report = json.loads(reports["json"])
    return {
        "load": round(load_before, 2),
        "seconds": {name: round(s, 1) for name, s in {ENVIRONMENT: made_s, **run.seconds}.items()},
        "total_s": round(total_s, 1),
        "cpu_s": round(cpu_s, 1),
        "exit_code": run.outputs["exit-code"],
        "comments": len(bodies),
        "comment_chars": len(bodies[0]),
        "sarif_rules": [rule["id"] for rule in sarif["runs"][0]["tool"]["driver"]["rules"]],
        "contracts": [f"{row['name']}: {row['outcome']}" for row in report.get("contracts", [])],
        "versions": _versions(python, job),
    }


def _children_s() -> float:
    """Processor time of the children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _versions(python: str, job: Mapping[str, str]) -> dict[str, str]:
    code = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    done = subprocess.run([python, "-c", code, *NEEDED], env=job, capture_output=True, text=True, check=True)
    versions: dict[str, str] = json.loads(done.stdout)
    return versions


class Record(TypedDict, total=False):
    """What was measured: `tools.stamp`, and the rounds."""

    date: str
    versions: dict[str, str]
    cores: int
    wheel_s: float
    rounds: list[Round]


def failed_claims(record: Record) -> list[str]:
    """What the record does not bear out."""
    rounds = record["rounds"]
    said = [f"on {record['cores']} cores, not {CORES}"] if record["cores"] != CORES else []
    said += [f"{len(rounds)} rounds, fewer than {ROUNDS}"] if len(rounds) < ROUNDS else []
    for number, one in enumerate(rounds, 1):
        said += [f"round {number}: {one['total_s']} s"] if not one["total_s"] < MOST_S else []
        said += [f"round {number}: exit {one['exit_code']}"] if one["exit_code"] != "0" else []
        said += [f"round {number}: {one['comments']} comments"] if one["comments"] != 1 else []
        said += [f"round {number}: no rule in SARIF"] if not one["sarif_rules"] else []
        said += [f"round {number}: the contract was not held"] if f"{CONTRACT}: kept" not in one["contracts"] else []
    return said


def table(record: Record) -> str:
    """The rounds, as docs/ci.md shows them."""
    rounds = record["rounds"]
    head = [f"| step | {' | '.join(f'{n}, s' for n in range(1, len(rounds) + 1))} |", "|-|" + "-:|" * len(rounds)]
    steps = [(name, [one["seconds"][name] for one in rounds]) for name in rounds[0]["seconds"]]
    steps += [("all of it", [one["total_s"] for one in rounds])]
    steps += [("of processor time", [one["cpu_s"] for one in rounds])]
    rows = [f"| {name} | {' | '.join(f'{s:.1f}' for s in all_s)} |" for name, all_s in steps]
    loads = " | ".join(format(one["load"], ".2f") for one in rounds)
    return "\n".join([*head, *rows, f"| load of the machine before | {loads} |"])


def main() -> int:
    """1 where a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, help="the record; without it nothing is written")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    os.sched_setaffinity(0, cores)
    with tempfile.TemporaryDirectory() as name:
        began = time.monotonic()
        wheel = build_wheel(Path(name))
        wheel_s = time.monotonic() - began
        rounds: list[Round] = []
        for number in range(1, arguments.rounds + 1):
            rounds.append(one_round(wheel, Path(name) / str(number)))
            print(f"round {number}: {json.dumps(rounds[-1])}", flush=True)
            shutil.rmtree(Path(name) / str(number))
    record: Record = {
        **stamp(()),  # type: ignore[typeddict-item]
        "cores": len(cores),
        "wheel_s": round(wheel_s, 1),
        "rounds": rounds,
    }
    print(table(record))
    if arguments.out:
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    for line in (said := failed_claims(record)):
        print(f"does not hold: {line}")
    return int(bool(said))


if __name__ == "__main__":
    raise SystemExit(main())
