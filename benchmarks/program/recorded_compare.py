"""The predicted trace of each model against the recorded one: regions by what they are, and a step's time.

A region is the same where name, kind, text (operations with shapes and types), calls of a step and, so far as recorded,
the operations' own names are. Nothing is forgiven: a region that differs in one operand's layout is not matched.
"""

from __future__ import annotations

import difflib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.program.recorded_models import Model, is_unread
from benchmarks.program.recorded_prediction import predict
from benchmarks.program.recorded_results import PACKED, PREDICTED, RESULTS, Overhead, Results, Run
from profiler.region.mining.mine import MinedRegion, Mining, mine
from profiler.trace import read_trace
from profiler.trace.model import Trace

Key = tuple[str, str, str, bool, float]
LONGEST = 160
"""Characters of a line of a difference."""


class Unmatched(msgspec.Struct, frozen=True):
    """A region of the recorded step that the predicted one has not. why: what differs in the nearest predicted one."""

    title: str
    kind: str
    calls: float
    time_share: float
    why: str


class Compared(msgspec.Struct, frozen=True):
    """One model. regions, matched: of the recorded step, and those that the predicted one has too; time_share: of the
    kernel time in regions, theirs. kernels_us, step_us: of a step, recorded (the step timed without a profiler,
    launched in turn) and predicted. unread: the model's comparison was not looked at while the recorder was worked
    on."""

    name: str
    device: str
    regions: int
    matched: int
    time_share: float
    predicted_regions: int
    recorded_step_us: float
    predicted_step_us: float
    recorded_kernels_us: float
    predicted_kernels_us: float
    recorded_launches: int
    predicted_launches: int
    unread: bool
    overhead: Overhead
    slowdown: float | None
    unmatched: tuple[Unmatched, ...]

    @property
    def recall(self) -> float:
        """Share of the recorded step's regions."""
        return self.matched / self.regions if self.regions else 0.0

    @property
    def step_error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted_step_us / self.recorded_step_us - 1.0


class Record(msgspec.Struct, frozen=True):
    """What tests/records has of it. versions: of the libraries on the host with the GPU."""

    date: str
    device: str
    versions: Mapping[str, str]
    rows: tuple[Compared, ...]


@dataclass(frozen=True, slots=True)
class _Half:
    """One trace of a model."""

    trace: Trace
    mining: Mining


def compare(folder: Path, models: Sequence[Model], device_name: str, record: Path | None, *, anew: bool) -> int:
    """Print what differs; with `record` write what was compared. anew: predict once more."""
    results = msgspec.json.decode((folder / RESULTS).read_bytes(), type=Results)
    runs = {run.name: run for run in results.runs}
    done = []
    with TemporaryDirectory(prefix="tritonworthy-") as temporary:
        unpacked = Path(temporary)
        for archive in sorted(folder.glob(PACKED.replace(".", "*."))):
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(unpacked)
        for model in models:
            run = runs.get(model.name)
            predicted = unpacked / f"{model.name}.{PREDICTED}.json.gz"
            if anew:
                predict(model, unpacked, device_name or results.device)
            if run is None or not predicted.is_file():
                print(f"{model.name}: not compared: {'not run' if run is None else 'not predicted'}")
                continue
            made = compared(run, unpacked / run.trace, predicted)
            done.append(made)
            show(made)
    if record is not None:
        versions = results.runs[0].versions if results.runs else {}
        made_record = Record(datetime.now(UTC).date().isoformat(), results.device, versions, tuple(done))
        record.write_bytes(msgspec.json.format(msgspec.json.encode(made_record), indent=1) + b"\n")
    return 0


def half(path: Path) -> _Half:
    """Read and mine one."""
    trace = read_trace(path)
    return _Half(trace, mine(trace))


def compared(run: Run, recorded_path: Path, predicted_path: Path) -> Compared:
    """Both traces of one model."""
    recorded, predicted = half(recorded_path), half(predicted_path)
    left: dict[Key, list[MinedRegion]] = {}
    for region in predicted.mining.regions:
        left.setdefault(key_of(region), []).append(region)
    unmatched, matched, matched_us = [], 0, 0.0
    total_us = sum(r.time_us_per_step for r in recorded.mining.regions)
    missing = []
    for region in recorded.mining.regions:
        same = left.get(key_of(region))
        if same:
            same.pop()
            matched += 1
            matched_us += region.time_us_per_step
        else:
            missing.append(region)
    others = [region for regions in left.values() for region in regions]
    for region in missing:
        share = region.time_us_per_step / total_us if total_us else 0.0
        unmatched.append(
            Unmatched(region.title, region.kind, region.calls_per_step, round(share, 4), why(region, others))
        )
    return Compared(
        name=run.name,
        device=run.device,
        regions=len(recorded.mining.regions),
        matched=matched,
        time_share=matched_us / total_us if total_us else 0.0,
        predicted_regions=len(predicted.mining.regions),
        recorded_step_us=run.events_us or run.wall_us,
        predicted_step_us=predicted.mining.step_time_us,
        recorded_kernels_us=recorded.mining.kernel_time_us,
        predicted_kernels_us=predicted.mining.kernel_time_us,
        recorded_launches=launches(recorded.mining),
        predicted_launches=launches(predicted.mining),
        unread=is_unread(run.name),
        overhead=run.overhead,
        slowdown=run.slowdown,
        unmatched=tuple(unmatched),
    )


def launches(mining: Mining) -> int:
    """Kernels of a step in regions."""
    return round(sum(region.launches for region in mining.regions))


def key_of(region: MinedRegion) -> Key:
    """What makes it the same region: its name, kind, operations with their shapes, passes and calls of a step."""
    text = region.text if region.text is not None else f"{region.missing} {' '.join(region.operations)}"
    return (region.title, region.kind, text, region.backward, round(region.calls_per_step, 3))


def why(region: MinedRegion, others: Sequence[MinedRegion]) -> str:
    """The nearest predicted region that has no recorded one, and where it differs."""
    if not others:
        return "no predicted region is left over"
    mine_lines = lines_of(region)
    nearest = max(others, key=lambda o: difflib.SequenceMatcher(None, mine_lines, lines_of(o)).ratio())
    differing = [
        line[:LONGEST]
        for line in difflib.unified_diff(mine_lines, lines_of(nearest), "recorded", "predicted", n=0, lineterm="")
        if line[:3] not in ("---", "+++") and not line.startswith("@@")
    ]
    return "\n".join(differing[:12])


def lines_of(region: MinedRegion) -> list[str]:
    """A region as lines to compare."""
    title, kind, text, backward, calls = key_of(region)
    return [f"title {title}", f"kind {kind}", f"backward {backward}", f"calls {calls:g}", *text.splitlines()]


def show(made: Compared) -> None:
    """Print one."""
    print(
        f"{made.name:24} regions {made.matched}/{made.regions} ({made.recall:.0%}, {made.time_share:.1%} of time),"
        f" launches {made.predicted_launches}/{made.recorded_launches}; step {made.predicted_step_us / 1e3:.2f} ms"
        f" predicted, {made.recorded_step_us / 1e3:.2f} ms measured ({made.step_error:+.0%}); kernels "
        f"{made.predicted_kernels_us / 1e3:.2f} and {made.recorded_kernels_us / 1e3:.2f}"
    )
    for one in made.unmatched:
        print(f"    {one.time_share:.1%} {one.title} ({one.calls:g} calls)")
        print("\n".join(f"        {line}" for line in one.why.splitlines()))
