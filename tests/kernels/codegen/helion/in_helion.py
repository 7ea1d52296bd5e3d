"""Every region's source in Helion itself, on the CPU: with HELION_INTERPRET=1 its reference mode runs it and the result
is held to float64, without it Helion's compiler turns it into Triton, which needs no GPU. Prints "ok NAME" for each.
"""

from __future__ import annotations

import os

import torch

from kernels.codegen.helion.run import key_of
from kernels.codegen.helion.source import write
from kernels.codegen.text.source import load_text
from kernels.measure.candidate.inputs import one_input
from kernels.measure.candidate.reference import reference
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.kernels.codegen.helion.regions import REGIONS

INTERPRETED = os.environ.get("HELION_INTERPRET") == "1"


def main() -> None:
    """All of them; raises AssertionError or what Helion raises for the first that is wrong."""
    library = torch.library.Library("aten", "IMPL")
    # Torch's CPU has no product with a wider result, which Helion's reference mode asks for.
    library.impl("mm.dtype", lambda a, b, out_dtype: a.to(out_dtype) @ b.to(out_dtype), "CPU")
    for name, text in REGIONS.items():
        region = parse(text)
        source = write(lower(region))
        kernel = load_text(source.text, key_of(source)).region
        values = [one_input(item, {}, "cpu", number) for number, item in enumerate(region.inputs)]
        if INTERPRETED:
            _held(region, kernel, values)
        else:
            bound = kernel.bind(tuple(values))
            assert "tl.store" in bound.to_triton_code(bound.config_spec.default_config())
        print("ok", name)


def _held(region, kernel, values) -> None:  # type: ignore[no-untyped-def]
    module = program(region, None, "cpu").module
    got, own = kernel(*values), module(*values)
    exact = reference(module, values, [False] * len(values), [None] * len(own)).outputs
    for mine, eager, true in zip(got if isinstance(got, tuple) else (got,), own, exact, strict=True):
        assert (mine.shape, mine.dtype) == (eager.shape, eager.dtype)
        error, floor = ((t.double() - true).norm() / true.double().norm() for t in (mine, eager))
        assert error <= 2 * floor + 1e-6, (float(error), float(floor))


if __name__ == "__main__":
    main()
