"""Launches: when a region is launch-bound, the host and not the GPU setting its pace. Pure functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from app.advice.model import Criterion
from app.atlas.interpolation import EIGHTY
from app.estimate.facts import RegionFacts
from app.estimate.predict import HOST_DEVIATION
from app.thresholds import Thresholds
from kernels.measure.records import LAUNCH_BOUND

if TYPE_CHECKING:
    from app.estimate import predict
    from profiler.region.model import Workload


def told_by_launches(facts: RegionFacts, workload: Workload) -> bool:
    """Whether the region is judged by its own launches: no trace, no compiled kernels, nothing observed."""
    return facts.gpu_idle_share is None and not facts.compiled and not workload.observed


def launch_share(facts: RegionFacts, eager: predict.Prediction) -> tuple[float, float]:
    """Launches of one call, and their share of eager's predicted time on the device."""
    launches = facts.launches or max((s.cost.unfused.launches for s in facts.shapes), default=0)
    return launches, min(1.0, eager.launch_us / eager.time_us.mid)


LAUNCHES = 3
"""From so many on a region can be launch-bound by itself: with fewer there is nothing to save by fusing."""


def launch_bound_alone(
    facts: RegionFacts, workload: Workload, eager: predict.Prediction | None, settings: Thresholds
) -> bool:
    """Of a region without a trace: run one by one, launching its kernels takes longer than running them."""
    if eager is None or not told_by_launches(facts, workload):
        return False
    launches, share = launch_share(facts, eager)
    return is_host_bound(eager) or (launches >= LAUNCHES and share >= settings.launch_share)


def other_clock_chance(
    facts: RegionFacts, workload: Workload, eager: predict.Prediction | None, by_wall: bool
) -> float:
    """Chance that a validation is decided by the other of wall and device time. by_wall: by the former, as
    `launch_bound_alone` says.

    Which one decides is a matter of a ratio of two predicted times, each off by a deviation of its own. Of
    the corpus's fit third 5 programs of 91 were decided by the other, all predicted within a factor of 1.4 of the ratio
    that decides.
    0 where it is read off a trace.
    """
    if eager is None or not told_by_launches(facts, workload) or eager.host_us <= 0 or eager.time_us.low <= 0:
        return 0.0
    device = math.log(eager.time_us.high / eager.time_us.low) / (2 * EIGHTY)
    deviation = math.hypot(HOST_DEVIATION, device)
    over = math.log(eager.host_us / (LAUNCH_BOUND * eager.time_us.mid)) / deviation
    by_host = 0.5 * math.erfc(-over / math.sqrt(2))
    return 1 - by_host if by_wall else by_host


def is_host_bound(eager: predict.Prediction) -> bool:
    """One that a validation would judge by wall time: back to back, the host takes longer than the GPU."""
    return eager.host_us > LAUNCH_BOUND * eager.time_us.mid


def launch_bound(criterion: Criterion) -> bool:
    """kernel-problem failed for its launches, and not for communication or the host."""
    return criterion.holds is False and criterion.value not in ("communication", "host copy", "waiting for the host")
