"""The planner's answer as the session uses it. No torch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from kernels.measure.memory import Need
from kernels.measure.messages import Card, Offered, Planned, Shape, UserKernel
from kernels.measure.records import INTERPRETER_LOOSEST, Record, label_of
from kernels.measure.stats import least_possible_us
from profiler.hardware import find_device
from profiler.region.language.text import parse
from profiler.region.model import FLOATING


class Plan:
    """What there is to measure. Per tool, since without a GPU the tools are checked in different ways."""

    def __init__(self, answer: Planned, sizes: Sequence[Mapping[str, int]], calls: Sequence[float]) -> None:
        self.sizes = [dict(s) for s in sizes]
        self.calls = list(calls)
        self.region = answer.region
        self.device: Card | None = answer.device
        self.software = answer.software
        self.coverage = answer.coverage
        self.reduced = answer.reduced
        self.reduced_wide = answer.reduced_wide
        self.offered = answer.candidates
        known = find_device(self.device.name) if self.device else None
        self.floors_us = [b.floor_us for b in answer.bindings]
        self.least_us = [
            least_possible_us(b.bytes_touched, b.flops, b.matmul_dtype, known) if known else 0.0
            for b in answer.bindings
        ]
        self.costs = answer.bindings
        self.working_bytes = max((b.working_bytes + b.set_bytes for b in answer.bindings), default=0)

    @property
    def floor_us(self) -> float | None:
        """Per call, weighted by calls; None on an unknown device."""
        if None in self.floors_us:
            return None
        return float(np.average([f for f in self.floors_us if f is not None], weights=self.weights))

    @property
    def weights(self) -> list[float] | None:
        return self.calls if sum(self.calls) > 0 else None

    def records(
        self, wanted: Sequence[str] | None, advised: str | None = None, kernel: UserKernel | None = None
    ) -> list[Record]:
        """One record per candidate; eager always, since everything is held against it.

        advised: the candidate of the advice; one that is measured on request only is then measured too. kernel: the
        user's own, always measured.
        """
        records = []
        for item in self.offered:
            if wanted is None and item.on_request and item.name != advised:
                continue
            if wanted is not None and item.name not in wanted and item.tool != "eager":
                continue
            record = Record(item.name, item.tool, item.call, item.note, source=item.source)
            if not item.available and not self._compile_without_gpu(item):
                missing = "not installed" in item.reason or "not_installed" in item.reason
                status = "not_run" if item.untried else "not_installed" if missing else "unsupported"
                record.fail(status, item.reason or "not available here")
            records.append(record)
        if kernel is not None:
            call = f"{kernel.function}  # of {os.path.basename(kernel.path)}"
            records.append(Record(kernel.candidate, "triton", call, "the user's own"))
        names = {r.name for r in records}
        for name in wanted or ():
            if name not in names:
                tool = name.split(":")[0].split("-")[0]
                record = Record(name, tool if tool in ("library", "compile", "triton", "cuda") else "eager")
                record.fail("unsupported", "no candidate of this name exists for this region")
                records.append(record)
        return records

    def _compile_without_gpu(self, item: Offered) -> bool:
        """Said with its own message by the session."""
        return self.device is None and item.tool == "compile"

    def tasks(self, tool: str) -> list[Shape]:
        """What a worker builds and checks: every binding on a GPU, smaller sizes without one.

        Triton's interpreter cuts f32 to bf16 where a GPU rounds, so bf16 is checked as f32 first; the user's own kernel
        only where it is wrong (`wider_task`).
        """
        if self.device is not None:
            return [Shape(self.region, s) for s in self.sizes]
        texts = [self.reduced_wide, self.reduced] if tool in ("eager", "triton") else [self.reduced]
        return [Shape(t, {}) for t in dict.fromkeys(texts) if t is not None]

    def wider_task(self) -> list[Shape]:
        """Without a GPU, the region with f32 where it has bf16; [] where there is no bf16."""
        wide = self.reduced_wide
        return [Shape(wide, {})] if self.device is None and wide is not None and wide != self.reduced else []

    def need(self, record: Record) -> Need:
        """What the candidate needs of the card, as it measured; without a GPU all that the text's operations write."""
        peaks = [*record.peak_bytes, *[None] * len(self.costs)]
        calls = [
            max(0, peak - cost.set_bytes) if peak is not None else cost.working_bytes
            for peak, cost in zip(peaks, self.costs, strict=False)
        ]
        return Need(
            record.name,
            inputs_bytes=sum(c.set_bytes for c in self.costs),
            call_bytes=max(calls, default=0),
            outputs_bytes=max((c.outputs_bytes for c in self.costs), default=0),
            held_bytes=record.held_bytes,
            renewed_bytes=max((c.renewed_bytes for c in self.costs), default=0),
        )

    def eager_tasks(self, tool: str) -> list[int]:
        """For each of a tool's tasks, the number of eager's task on the same region."""
        eager = self.tasks("eager")
        return [eager.index(t) for t in self.tasks(tool)]

    def labels(self, tool: str) -> list[str]:
        if self.device is not None:
            return [label_of(s) for s in self.sizes]
        return ["" for _ in self.tasks(tool)]

    def loosest(self, tool: str) -> list[float]:
        """How many times eager's error passes, per task; [] for the usual bound."""
        if self.device is not None or tool not in ("triton", "kernel") or self.reduced == self.reduced_wide:
            return []
        return [2.0, INTERPRETER_LOOSEST][-len(self.tasks(tool)) :]

    def checked_how(self, record: Record) -> str:
        """What a check without a GPU was: where, and in which types."""
        tasks = self.tasks(record.checked_as)
        unable = [*record.unable, *[""] * len(tasks)][: len(tasks)]
        types = dict.fromkeys(
            t for task, why in zip(tasks, unable, strict=True) if not why for t in _types(task.region)
        )
        version = f" {self.software['triton']}" if "triton" in self.software else ""
        interpreted = record.checked_as in ("triton", "kernel")
        where = f"in Triton{version}'s interpreter on the CPU" if interpreted else "on the CPU"
        missing = [f"not in {why}" for why in dict.fromkeys(unable) if why]
        return "; ".join([f"checked {where} at reduced sizes{_listed(types)}", *missing])


def _types(text: str) -> list[str]:
    """Floating types of a region's inputs."""
    return [i.dtype for i in parse(text).inputs if i.dtype in FLOATING]


def _listed(types: Iterable[str]) -> str:
    names = list(types)
    return f", in {' and '.join(names)}" if names else ""
