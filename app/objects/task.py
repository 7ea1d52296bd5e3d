"""What the child of a job is asked to do, by kind of job; it is stored with the job. app.jobs.tasks does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Required, TypeAlias

from typing_extensions import TypedDict

from app.objects.advice import Advice
from app.objects.common import Binding, Versions
from app.objects.region import RegionShape, SlimRegion
from app.objects.trace import SlimTrace


class ProbedHost(TypedDict):
    """What was found out of a host, as `kernels.host.from_json` reads it."""

    gpu: str | None
    capability: list[int] | None
    versions: Versions
    packages: list[str]
    features: list[str]
    note: str


class RegionLimits(TypedDict, total=False):
    """Limits of one region's advice, as profiler.child.limits.Limits takes them."""

    timeout_s: float
    grace_s: float
    memory_bytes: int | None
    cpu_s: float | None


class Context(TypedDict, total=False):
    """What a server tells all its children. thresholds: of the rule, by name. atlas_dir: of the user's own."""

    host: ProbedHost
    atlas_dir: str
    thresholds: dict[str, float]
    region_limits: RegionLimits


class AnyTask(Context, total=False):
    """What tasks of all kinds may have. on: the kind of GPU of the fleet; client: who asked, where these are told
    apart."""

    on: str
    client: str


class SentFile(TypedDict):
    """A file of the folder of uploads, by its name there, or by its path. name: what people call it."""

    path: str
    name: str


class ReadTask(AnyTask, total=False):
    """A trace to read. companions: by field. beside_unknown: the id of a companion that is not here."""

    path: Required[str]
    name: Required[str]
    max_uncompressed_bytes: int | None
    group: str | None
    companions: dict[str, SentFile]
    beside_unknown: str | None


class ValidateTask(AnyTask, total=False):
    """A region to measure, by its text. candidates: null for all. device: "cpu" for no GPU. budget_s: for all of it."""

    region: Required[str]
    name: str
    shapes: list[RegionShape] | None
    candidates: list[str] | None
    device: str | None
    budget_s: float | None
    share_of_step: float | None
    advice_before: Advice | None
    cache_dir: str | None


class LandscapeTask(AnyTask, total=False):
    """A candidate's kernel to measure, at one binding. points: at most. target: compile for it, and measure nothing."""

    region: Required[str]
    candidate: Required[str]
    binding: Binding
    device: str | None
    budget_s: float | None
    points: int | None
    target: str | None


class CheckSource(TypedDict, total=False):
    """What is checked: a file by `path`, a region by `text`, or a `trace` or `region` that is here already."""

    name: Required[str]
    path: str
    text: str
    trace: SlimTrace
    region: SlimRegion


class CheckHistory(TypedDict):
    """Of which commit a check is, where what it measures is to be kept in the history.

    software: versions that the trace was recorded with; method: how it was recorded, "" where nothing is said of it.
    """

    commit: str
    branch: str
    software: Versions
    method: str


class CheckTask(AnyTask, total=False):
    """Sources to check. config: as app.check.config.from_mapping reads it. archives: folders of records."""

    config: Mapping[str, object]
    history: CheckHistory
    sources: Required[list[CheckSource]]
    baseline: CheckSource | None
    archives: list[str]
    max_uncompressed_bytes: int | None


class MachinesTask(TypedDict):
    """A candidate whose kernels are to be compiled, for a GPU of that architecture. It is no job: nothing stores it."""

    text: str
    sizes: Binding
    candidate: str
    arch: str


Task: TypeAlias = ReadTask | ValidateTask | LandscapeTask | CheckTask
