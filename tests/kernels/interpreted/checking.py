"""A region's candidate against the same region in float64, by eager's own error."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch

from kernels.agreement import CODES, FLOOR, fault_in_steps, unchanged
from kernels.measure.candidate.reference import reference
from kernels.tuning import Variant
from profiler.region.graph.lowering import lower
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import Region


def inputs_of(region: Region, seed: int = 0, scale: float = 1.0) -> list[torch.Tensor]:
    """Random tensors with the region's shapes, dtypes and strides; offsets sorted, from 0 to where they end."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for item, fake in zip(region.inputs, program(region).inputs, strict=True):
        if item.offsets is not None:
            cuts = torch.randint(item.offsets + 1, (fake.shape[0] - 2,), generator=generator).sort().values
            value = torch.cat((torch.zeros(1), cuts, torch.full((1,), item.offsets))).to(fake.dtype)
        elif fake.dtype == torch.bool:
            value = torch.rand(fake.shape, generator=generator) > 0.4
        elif fake.dtype.is_floating_point:
            value = (torch.randn(fake.shape, generator=generator, dtype=torch.float64) * scale).to(fake.dtype)
        else:
            value = torch.randint(0, 7, fake.shape, generator=generator).to(fake.dtype)
        if fake.stride() != value.stride():
            laid_out = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)
            value = laid_out.copy_(value)
        made.append(value)
    return made


def distance(a: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative error in the 2-norm; infinite and NaN places must agree."""
    a, exact = a.double(), exact.double()
    odd = ~torch.isfinite(exact)
    assert torch.equal(torch.isnan(a), torch.isnan(exact))
    assert torch.equal(a[odd & ~torch.isnan(exact)], exact[odd & ~torch.isnan(exact)])
    clean, wanted = a[~odd], exact[~odd]
    return float((clean - wanted).norm() / wanted.norm().clamp_min(1e-30))


def assert_as_exact_as_eager(
    text: str, build: Callable[[Region], Callable[..., Sequence[torch.Tensor]]], seed: int = 0, scale: float = 1.0
) -> None:
    """Every output of the candidate is within twice eager's error of float64, or within the dtype's floor."""
    region = parse(text)
    values = inputs_of(region, seed, scale)
    kept = [v.clone() for v in values]
    module = program(region).module
    exact = reference(module, values, [False] * len(values), [None] * len(program(region).outputs)).outputs
    with torch.no_grad():
        eager = module(*values)
    got = build(region)(*values)
    assert len(got) == len(eager)
    for value, before in zip(values, kept, strict=True):
        assert unchanged(value, before), "an input was changed"
    for mine, plain, wanted in zip(got, eager, exact, strict=True):
        assert (mine.shape, mine.dtype, mine.stride()) == (plain.shape, plain.dtype, plain.stride())
        if not plain.dtype.is_floating_point:
            assert torch.equal(mine, wanted.to(mine.dtype))
            continue
        if plain.dtype in CODES:
            assert fault_in_steps(mine, plain, wanted) == ""
            continue
        allowed = max(2 * distance(plain, wanted), FLOOR[plain.dtype])
        assert distance(mine, wanted) <= allowed, f"{distance(mine, wanted)} of {allowed}"


def generated(region: Region) -> Callable[..., Sequence[torch.Tensor]]:
    """`triton:generated` of a region."""
    from kernels.codegen.generated import generate

    return generate(lower(region)).module


def far(variant: Variant) -> Variant:
    """It, as if offsets did not fit in 32 bits."""
    constants = tuple((name, True if name == "FAR" else value) for name, value in variant.constants)
    return dataclasses.replace(variant, constants=constants)
