"""The planner's side of `landscape_host`."""

from __future__ import annotations

from tests.kernels.measure.landscape.landscape_host import plan

main = plan
