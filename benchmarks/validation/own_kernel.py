"""The verdicts on kernels of a user's: `python benchmarks/validation/own_kernel.py --seconds 150 --out FILE`.

Each function of `users_kernels` is judged by `tritonworthy validate --kernel` on one GPU, as a user would: first those
whose verdict rests on no time, side by side and next to the region as it is written alone, then one by one those that
are timed, next to everything that can run their region. Exit statuses and verdicts are written after each, and
printed. Exits 1 where one is not as it was written to be.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 (run as a file)

from kernels.measure.planner import software  # noqa: E402

KERNELS = Path(__file__).with_name("users_kernels.py")
REGIONS = {
    "rms norm": (
        "x: bf16[8192, 4096]\nw: bf16[4096]\nv = x.float()\n"
        "return (v * rsqrt(v.square().mean(-1, keepdim=True) + 1e-6) * w.float()).to(bf16)\n"
    ),
    "causal convolution": (
        "x: bf16[8, 4096, 4096]\nw: bf16[4096, 1, 4]\nreturn F.silu(F.conv1d(F.pad(x, (3, 0)), w, groups=4096))\n"
    ),
}
KEEP, DELETE, WRONG, CHEATS, CRASHED, HUNG = 0, 3, 4, 5, 6, 7
UNTIMED = {"too_large": WRONG, "caching": CHEATS, "crashing": CRASHED, "hanging": HUNG}
TIMED = {"causal_convolution": ("causal convolution", KEEP), "rms_norm": ("rms norm", DELETE)}
HANG_S = 15.0
"""From when on the hanging kernel counts as hung."""
UNTIMED_S = 100.0
"""For a verdict that rests on no time, several side by side: the first start on a fresh machine took 62 s."""
LEFT_S = 10.0
"""For a command to end after its budget."""
COMMAND = (sys.executable, "-m", "app.cli")
"""`tritonworthy`, from a checkout in which nothing is installed."""


def environment() -> dict[str, str]:
    """Of a command that runs elsewhere: the checkout is found first."""
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *others])}


@dataclass(frozen=True, slots=True)
class Run:
    """One command. expected, exit_status: of `tritonworthy validate`. times_us: device time, median of a candidate."""

    function: str
    region: str
    expected: int
    exit_status: int | None
    verdict: str
    times_us: dict[str, float]
    seconds: float


class Command:
    """A `tritonworthy validate --kernel` that was started. limit_s: until it is killed."""

    def __init__(self, folder: Path, function: str, region: str, expected: int, limit_s: float, *more: str) -> None:
        text = folder / f"{region}.txt"
        text.write_text(REGIONS[region], encoding="utf-8")
        command = [*COMMAND, "validate", str(text), "--kernel", f"{KERNELS.name}:{function}"]
        command += ["--budget", f"{limit_s - LEFT_S:.0f}", "--json", *more]
        self.named, self.limit_s, self.started = (function, region, expected), limit_s, time.monotonic()
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def result(self) -> Run:
        """What came of it."""
        try:
            out, errors = self.process.communicate(timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            return Run(*self.named, None, "killed at the limit", {}, round(time.monotonic() - self.started, 1))
        try:
            body = json.loads(out)
            verdict = body["kernel_verdict"]
            words = f"{verdict['verdict']}: {verdict['because']}"
            times = {c["name"]: c["time_us"]["median"] for c in body["candidates"] if c.get("time_us")}
        except (ValueError, KeyError, TypeError):
            words, times = f"no answer: {(errors or out).strip()[-300:]}", {}
        return Run(*self.named, self.process.returncode, words, times, round(time.monotonic() - self.started, 1))


def runs(seconds: float) -> Iterator[Run]:
    """All, as they end, within so many seconds."""
    ends = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / KERNELS.name).write_text(KERNELS.read_text(encoding="utf-8"), encoding="utf-8")
        limit_s = min(seconds * 0.4, UNTIMED_S)
        more = ("--candidates", "eager", "--kernel-limit", f"{HANG_S:.0f}")
        started = [Command(folder, name, "rms norm", told, limit_s, *more) for name, told in UNTIMED.items()]
        for command in started:
            yield command.result()
        for number, (name, (region, told)) in enumerate(TIMED.items()):
            share_s = (ends - time.monotonic()) / (len(TIMED) - number)
            yield Command(folder, name, region, told, max(share_s, 2 * LEFT_S)).result()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="for all of it")
    parser.add_argument("--out", type=Path, help="where to write the verdicts as JSON")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: nothing is timed without one")
        return 2
    if asked.out:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
    name = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.cuda.get_device_name())"], capture_output=True, text=True
    ).stdout.strip()  # in a process of its own: a context of ours would count as another's on the card
    about = {"device": name, "date": f"{datetime.date.today()}", "software": software()}
    about |= {"regions": REGIONS, "kernels": KERNELS.read_text(encoding="utf-8")}
    done: list[Run] = []
    for run in runs(asked.seconds):
        done.append(run)
        mark = "" if run.exit_status == run.expected else f"NOT {run.expected} "
        times = ", ".join(f"{n} {t:.1f}" for n, t in sorted(run.times_us.items(), key=lambda item: item[1])[:4])
        print(f"{run.function:12}{mark}{run.exit_status} {run.seconds:5.0f} s {run.verdict[:200]} {times}", flush=True)
        if asked.out:
            asked.out.write_text(json.dumps({**about, "runs": [asdict(r) for r in done]}, indent=1) + "\n")
    return int(any(r.exit_status != r.expected for r in done))


if __name__ == "__main__":
    sys.exit(main())
