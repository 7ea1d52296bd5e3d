"""The predicted trace of each model against the recorded one: regions by what they are, and a step's time.

A region is the same where name, kind, text (operations with shapes, types and layouts), passes and calls of a step are.
Two things are forgiven. The sizes of a text's symbols are compared in their order by size, not by the time that each
took, which a prediction can't have: symbols of one number of sizes are sorted together. A region without a text is the
same where the reason for that and the operations' names are (`matched_by_names` counts them): its shapes may differ.
"""

from __future__ import annotations

import difflib
import gzip
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from app.program.layout import MARK
from benchmarks.program.recorded_models import Model, gave_host_times, is_unread
from benchmarks.program.recorded_prediction import predict
from benchmarks.program.recorded_results import PACKED, PREDICTED, RESULTS, Overhead, Results, Run
from profiler.region.mining.mine import MinedRegion, Mining, mine
from profiler.trace import read_trace
from profiler.trace.model import Trace

Key = tuple[str, str, str, bool, float]
SIZES = re.compile(r"^(\w+): sizes\[([\d, ]+)\]$", re.M)
ENDED = 3
"""Status of a prediction that ends before the program does: what was recorded until then is compared."""
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
    kernel time in regions, theirs; matched_by_names: of matched, without a text. kernels_us, step_us: of a step,
    recorded and predicted. The step was measured without a profiler in ways that disagree: recorded_step_us by the
    device's events, steps launched in turn; wall_us the same on the host's clock; waited_us each waited for, and spread
    of these, longest less shortest over the median; overhead.its_bare_us within the capture. unread: the model's
    comparison was not looked at while the recorder was worked on. gave_host_times: the host's times of a prediction are
    from its recording. predicted_by: versions of the libraries that predicted."""

    name: str
    device: str
    regions: int
    matched: int
    matched_by_names: int
    time_share: float
    predicted_regions: int
    recorded_step_us: float
    wall_us: float
    waited_us: float
    spread: float
    predicted_step_us: float
    recorded_kernels_us: float
    predicted_kernels_us: float
    recorded_launches: int
    predicted_launches: int
    unread: bool
    gave_host_times: bool
    predicted_by: Mapping[str, str]
    overhead: Overhead
    slowdown: float | None
    unmatched: tuple[Unmatched, ...]

    @property
    def recall(self) -> float:
        """Share of the recorded step's regions."""
        return self.matched / self.regions if self.regions else 0.0

    @property
    def step_error(self) -> float:
        """Predicted over measured by events, less one."""
        return self.predicted_step_us / self.recorded_step_us - 1.0

    @property
    def waited_error(self) -> float:
        """Predicted over the step that is waited for, less one."""
        return self.predicted_step_us / self.waited_us - 1.0


class Record(msgspec.Struct, frozen=True):
    """What tests/records has of it. date: of the recording; compared: when predictions were compared with it.
    versions: of the libraries on the host with the GPU. predicted_anew: by the code of that later day, else before
    anything was recorded. not_compared: models without a run or a prediction."""

    date: str
    compared: str
    predicted_anew: bool
    device: str
    versions: Mapping[str, str]
    rows: tuple[Compared, ...]
    not_compared: tuple[str, ...] = ()


class _Mark(msgspec.Struct):
    versions: dict[str, str] = {}


class _Header(msgspec.Struct):
    """Of a predicted trace."""

    mark: _Mark = msgspec.field(name=MARK, default_factory=_Mark)


@dataclass(frozen=True, slots=True)
class _Half:
    """One trace of a model."""

    trace: Trace
    mining: Mining


def compare(folder: Path, models: Sequence[Model], device_name: str, record: Path | None, *, anew: bool) -> int:
    """Print what differs; with `record` write what was compared. anew: predict once more; where that fails, nothing is
    compared and 1 is returned."""
    results = msgspec.json.decode((folder / RESULTS).read_bytes(), type=Results)
    runs = {run.name: run for run in results.runs}
    done: list[Compared] = []
    left_out, dates = [], []
    failed = False
    with TemporaryDirectory(prefix="tritonworthy-") as temporary:
        unpacked = Path(temporary)
        for archive in sorted(folder.glob(PACKED.replace(".", "*."))):
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(unpacked)
                dates += ["{:04}-{:02}-{:02}".format(*i.date_time) for i in packed.infolist() if _is_recorded(i, runs)]
        for model in models:
            run = runs.get(model.name)
            predicted = unpacked / f"{model.name}.{PREDICTED}.json.gz"
            if anew and run is not None:
                predicted.unlink(missing_ok=True)  # the one of before is not compared as this one
                if predict(model, unpacked, device_name or results.device) not in (0, ENDED):
                    predicted.unlink(missing_ok=True)
                    failed = True
            if run is None or not predicted.is_file():
                print(f"{model.name}: not compared: {'not run' if run is None else 'not predicted'}")
                left_out.append(model.name)
                continue
            made = compared(run, unpacked / run.trace, predicted)
            done.append(made)
            show(made)
    if record is not None:
        versions = results.runs[0].versions if results.runs else {}
        made_record = Record(
            min(dates, default=""), datetime.now(UTC).date().isoformat(), anew, results.device, versions, tuple(done),
            tuple(left_out),
        )  # fmt: skip
        record.write_bytes(msgspec.json.format(msgspec.json.encode(made_record), indent=1) + b"\n")
    return 1 if failed else 0


def _is_recorded(member: zipfile.ZipInfo, runs: Mapping[str, Run]) -> bool:
    return any(member.filename == run.trace for run in runs.values())


def predicting_versions(path: Path) -> dict[str, str]:
    """Of the libraries by which a trace was predicted; none of one that was recorded."""
    return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=_Header).mark.versions


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
    unmatched, matched, by_names, matched_us = [], 0, 0, 0.0
    total_us = sum(r.time_us_per_step for r in recorded.mining.regions)
    missing = []
    for region in recorded.mining.regions:
        same = left.get(key_of(region))
        if same:
            same.pop()
            matched += 1
            by_names += region.text is None
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
        matched_by_names=by_names,
        time_share=matched_us / total_us if total_us else 0.0,
        predicted_regions=len(predicted.mining.regions),
        recorded_step_us=run.events_us or run.wall_us,
        wall_us=run.wall_us,
        waited_us=run.waited_us,
        spread=run.spread,
        predicted_step_us=predicted.mining.step_time_us,
        recorded_kernels_us=recorded.mining.kernel_time_us,
        predicted_kernels_us=predicted.mining.kernel_time_us,
        recorded_launches=launches(recorded.mining),
        predicted_launches=launches(predicted.mining),
        unread=is_unread(run.name),
        gave_host_times=gave_host_times(run.name),
        predicted_by=predicting_versions(predicted_path),
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
    return (region.title, region.kind, sizes_sorted(text), region.backward, round(region.calls_per_step, 3))


def sizes_sorted(text: str) -> str:
    """The text with its sizes in their order, not by the time that each took: `N: sizes[8, 2]`, `M: sizes[96, 384]`."""
    columns: dict[int, dict[str, Sequence[int]]] = {}
    for name, sizes in SIZES.findall(text):
        values = [int(size) for size in sizes.split(",")]
        columns.setdefault(len(values), {})[name] = values
    in_order: dict[str, Sequence[int]] = {}
    for together in columns.values():
        rows = sorted(zip(*together.values(), strict=True))
        in_order |= dict(zip(together, zip(*rows, strict=True), strict=True))
    return SIZES.sub(lambda line: f"{line[1]}: sizes[{', '.join(map(str, in_order[line[1]]))}]", text)


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
        f"{made.name:24} regions {made.matched}/{made.regions} ({made.recall:.0%}, {made.time_share:.1%} of time;"
        f" {made.matched_by_names} by names alone; {made.predicted_regions} predicted),"
        f" launches {made.predicted_launches}/{made.recorded_launches}; step {made.predicted_step_us / 1e3:.2f} ms"
        f" predicted, {made.recorded_step_us / 1e3:.2f} ms by events ({made.step_error:+.0%}), "
        f"{made.waited_us / 1e3:.2f} waited for ({made.waited_error:+.0%}); kernels "
        f"{made.predicted_kernels_us / 1e3:.2f} and {made.recorded_kernels_us / 1e3:.2f}"
    )
    for one in made.unmatched:
        print(f"    {one.time_share:.1%} {one.title} ({one.calls:g} calls)")
        print("\n".join(f"        {line}" for line in one.why.splitlines()))
