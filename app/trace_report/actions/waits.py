"""What no kernel changes: layout conversions, waiting for the host, communication that nothing hides."""

from __future__ import annotations

from collections.abc import Sequence

from app.objects.trace import ActionWhere, KernelRow
from app.trace_report.actions.model import Blocker, Option, where_at
from app.trace_report.step_model import Change, Left, Step, busy_us

LAYOUT, SYNC, OVERLAP = "channels-last", "host-wait", "overlap"
CONVERSIONS = ("nchwtonhwc", "nhwctonchw")
"""In names of kernels with which cuDNN turns images around before and after a convolution."""
WAITS = (
    "synchronise", "scalar-read", "tensor-branch", "value-comparison", "data-dependent-size", "copy-to-host",
    "copy-from-host",
)  # fmt: skip
"""Kinds of compile_blocker_kinds in which the host waits for the GPU."""
WORTH = 0.02
"""Share of the step from which waiting is worth a line."""


def channels_last(step: Step, kernels: Sequence[KernelRow]) -> list[Option]:
    """Images kept channels-last: the kernels that convert them go away."""
    rows = [k for k in kernels if any(mark in k["name"].lower() for mark in CONVERSIONS)]
    spent = sum(k["time_us"] for k in rows)
    places = sorted({i for k in rows for i in k["regions"]})
    busy = sum(busy_us(step.regions[i]) for i in places)
    if not busy or spent < WORTH * step.parts["wall_us"]:
        return []
    share = min(1.0, spent / busy)
    left = Left(1.0, 1 - share / 2, 1 - share)
    return [
        Option(
            LAYOUT, "layout", LAYOUT, "Keep images channels-last",
            "model = model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)",
            f"kernels that turn images around for convolutions take {spent / step.parts['wall_us']:.0%} of the step",
            {"kind": "predicted", "text": f"between nothing and the time of {len(rows)} kinds of kernels in the trace"},
            Change(time=dict.fromkeys(places, left)), tuple(places),
        )
    ]  # fmt: skip


def host_wait(step: Step, blockers: Sequence[Blocker]) -> list[Option]:
    """The host's pauses and waits. Only their length is known: what is saved is bounded by it."""
    waiting = step.parts["idle_host_us"]
    if waiting < WORTH * step.parts["wall_us"]:
        return []
    named = _wait_named(blockers)
    what = f"it may wait in {named['op']}" if named else "it waits for the GPU, for data, or does slow Python"
    return [
        Option(
            SYNC, "host", "wait", "Find what the host waits for", named["remedy"] if named else "",
            f"nothing runs on the GPU for {waiting / step.parts['wall_us']:.0%} of the step because of the host: "
            f"{what}",
            {"kind": "bound", "text": "between nothing and all of the recorded waiting"},
            Change(ended_us=Left(0.0, waiting / 2, waiting)), (), where=_where(named), counted=False,
        )
    ]  # fmt: skip


def _wait_named(blockers: Sequence[Blocker]) -> Blocker | None:
    """What makes the host wait for the GPU: a call that synchronises, or a value that is read; best with its line."""
    waits = [b for b in blockers if b["kind"] in WAITS]
    return min(waits, key=lambda b: (not b["sources"], WAITS.index(b["kind"])), default=None)


def _where(blocker: Blocker | None) -> ActionWhere | None:
    return (
        where_at(*((told[0] if told else "") for told in (blocker["modules"], blocker["sources"]))) if blocker else None
    )


def overlap(step: Step) -> list[Option]:
    """Communication while nothing is computed, and waiting for it. Bounded by what could hide it."""
    exposed = step.parts["communication_us"] + step.parts["idle_communication_us"]
    if exposed < WORTH * step.parts["wall_us"]:
        return []
    most = min(exposed, step.parts["kernels_us"])
    return [
        Option(
            OVERLAP, "communication", "overlap", "Hide communication behind computation", "",
            f"for {exposed / step.parts['wall_us']:.0%} of the step the GPU has nothing but communication: smaller "
            "buckets, prefetching, or a later wait lets kernels run beside it",
            {"kind": "bound", "text": "between nothing and all that kernels of the step could hide"},
            Change(ended_us=Left(0.0, most / 2, most)), (), counted=False,
        )
    ]  # fmt: skip
