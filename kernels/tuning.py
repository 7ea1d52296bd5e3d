"""Choosing a variant of a hand-written kernel by timing it once for each key. Nothing is timed in the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import triton
from triton import knobs

WARMUP_MS = 10
REPEAT_MS = 40


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to launch: which jit function, its constants, its warps."""

    kernel: Any
    constants: tuple[tuple[str, Any], ...]
    warps: int

    @property
    def meta(self) -> dict[str, Any]:
        return {**dict(self.constants), "num_warps": self.warps, "enable_fp_fusion": True}

    def __str__(self) -> str:
        constants = ", ".join(f"{k}={v}" for k, v in self.constants)
        return f"{self.kernel.__name__}({constants}) x {self.warps} warps"


@dataclass
class Tuner:
    """Remembers the fastest variant for each key."""

    chosen: dict[Hashable, Variant] = field(default_factory=dict)
    times_us: dict[Hashable, Mapping[str, float]] = field(default_factory=dict)

    def pick(self, key: Hashable, space: Callable[[], Sequence[Variant]], launch: Callable[[Variant], None]) -> Variant:
        """The variant for this key. The first call for a key times all of `space`; a variant that does not compile or
        needs more than the GPU has is left out. Raises RuntimeError where none is left.
        """
        found = self.chosen.get(key)
        if found is None:
            variants = space()
            found = variants[0] if len(variants) == 1 or knobs.runtime.interpret else self.time(key, variants, launch)
            self.chosen[key] = found
        return found

    def time(self, key: Hashable, variants: Sequence[Variant], launch: Callable[[Variant], None]) -> Variant:
        times: dict[str, float] = {}
        best: tuple[float, Variant] | None = None
        refused: list[str] = []
        for variant in variants:
            try:
                took = triton.testing.do_bench(
                    lambda v=variant: launch(v), warmup=WARMUP_MS, rep=REPEAT_MS, return_mode="median"
                )
            except (triton.runtime.errors.OutOfResources, triton.runtime.errors.PTXASError) as fault:
                refused.append(f"{variant}: {fault}")
                continue
            times[str(variant)] = took * 1e3
            if best is None or took < best[0]:
                best = (took, variant)
        if best is None:
            raise RuntimeError("no variant runs: " + "; ".join(refused)[:500])
        self.times_us[key] = times
        return best[1]
