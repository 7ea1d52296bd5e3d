"""Whether a kernel is right: against its reference in float64, by the reference's own error in the kernel's dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernels.spec import Operation, exact, outputs_of

FLOOR = {torch.float64: 1e-14, torch.float32: 3e-7, torch.float16: 5e-4, torch.bfloat16: 4e-3}
"""Relative error that rounding the result alone may cost, in the 2-norm."""
CODES = (torch.float8_e4m3fn, torch.float8_e5m2)
"""Dtypes of few steps, which are compared by steps: their rounding alone costs 3 to 6 %, in which faults would hide."""
NEAR, FEW_NEAR = 0.005, 2
"""Share of such numbers, and how many at least, that may be the neighbour of the right one, being near the border."""
AT_HOME = 1 << 21
"""Elements up to which float64 is computed on the CPU."""
FEW, FACTOR = 16, 4.0
"""Fewer results than that have bounds so many times as wide: their errors do not average out."""
NORM, LARGEST = 2.0, 4.0
"""How many times the reference's error is allowed: in the 2-norm, and at the worst element."""


def disagreement(operation: Operation, got: Any, arguments: Sequence[Any]) -> str:
    """What is wrong with `got` = run(*arguments); "" where nothing is.

    Shapes and dtypes as the reference's; NaN and infinities where float64 has them; every other number within twice
    the reference's error in the 2-norm, and four times at the worst element (so that one wrong element among millions
    shows); 8-bit floats the reference's, but for a few on the step beside it; integers equal, unless they are indices
    that `agree` holds to what they stand for.
    """
    mine = outputs_of(got)
    plain = outputs_of(operation.reference(*arguments))
    precise = exact(_at_home(arguments))
    wanted = outputs_of(operation.reference(*precise))
    terms = operation.terms(*precise) if operation.terms is not None else (None,) * len(plain)
    relative = operation.conditioned(arguments) if operation.conditioned is not None else 0.0
    if len(mine) != len(plain):
        return f"{len(mine)} outputs, not {len(plain)}"
    for i, (a, b, there, added) in enumerate(zip(mine, plain, wanted, terms, strict=True)):
        c = there.to(a.device)
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i} is {a.dtype}{[*a.shape]}, not {b.dtype}{[*b.shape]}"
        if i in operation.indices:
            continue
        fault = fault_of(a, b, c, relative if isinstance(relative, float) else relative[i], added)
        if fault:
            return f"output {i}: {fault}"
    if operation.agree is not None:
        try:
            operation.agree(mine, arguments)
        except AssertionError as fault:
            return f"indices: {fault}"
    return ""


def unchanged(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same bits: NaN too, and f8, which torch.equal refuses."""
    one, other = (t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (before, after))
    return torch.equal(one, other)


def pointed(index: torch.Tensor, source: torch.Tensor, dim: int) -> torch.Tensor | None:
    """The values that indices select along a dimension; None where one is out of range, or there twice.

    index has the source's rank, or one less where the dimension was not kept.
    """
    index = index.to(source.device, torch.int64)
    index = index.unsqueeze(dim) if index.dim() == source.dim() - 1 else index
    if index.numel() and not (int(index.min()) >= 0 and int(index.max()) < source.shape[dim]):
        return None
    ordered = index.sort(dim).values
    if ordered.shape[dim] > 1 and bool((ordered.diff(dim=dim) == 0).any()):
        return None
    return source.gather(dim, index)


def _at_home(arguments: Sequence[Any]) -> Sequence[Any]:
    """On the CPU where there are few elements: torch's CUDA kernels spread a row's NaN and infinities further than its
    formula does (F.rms_norm, cross entropy of an ignored row)."""
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    if sum(t.numel() for t in tensors) > AT_HOME:
        return arguments
    return [a.cpu() if isinstance(a, torch.Tensor) else a for a in arguments]


def fault_of(
    got: torch.Tensor, plain: torch.Tensor, wanted: torch.Tensor, conditioned: float = 0.0,
    terms: torch.Tensor | None = None,
) -> str:  # fmt: skip
    """What is wrong with one output; "" where nothing is. plain: the reference's in its dtype; wanted: in float64.

    conditioned: relative error that these inputs may cost any implementation, on top of the rounding of the result.
    terms: the sums of the absolute values that were added, whose rounding in f32 is allowed too.
    """
    if not got.dtype.is_floating_point:
        differ = int((got != wanted.to(got.dtype)).sum())
        return f"{differ} of {got.numel()} integers differ" if differ else ""
    if not got.numel():
        return ""
    if got.dtype in CODES:
        return fault_in_steps(got, plain, wanted)
    factor = FACTOR if got.numel() < FEW else 1.0
    floor = FLOOR[got.dtype] * factor + conditioned
    a, b, c = got.double(), plain.double(), wanted.double()
    # A result beyond the dtype's range is infinite in it. One that is infinite stays: torch's f16 GELU of infinity is
    # NaN on CPUs with AVX-512, and infinity on others.
    # As near to the largest number as any element may be off, a result may be infinite or not.
    largest_number = torch.finfo(got.dtype).max
    border = (c.abs() - largest_number).abs() <= LARGEST * FLOOR[got.dtype] * largest_number
    a = torch.where(border & torch.isinf(a) & (a.sign() == c.sign()), c, a)
    c = torch.where(torch.isfinite(c) & (c.abs() > largest_number) & ~border, b, c)
    odd = ~torch.isfinite(c)
    if not torch.equal(torch.isnan(a), torch.isnan(c)):
        return f"NaN in {int(torch.isnan(a).sum())} places, not {int(torch.isnan(c).sum())}"
    infinite = odd & ~torch.isnan(c)
    if not torch.equal(a[infinite], c[infinite]):
        return "other infinities"
    a, b, c = a[~odd], b[~odd], c[~odd]
    b = torch.where(torch.isfinite(b), b, c)  # what overflowed on the reference's way tells nothing of the error
    if not torch.isfinite(a).all():
        return "infinite where the exact result is not"
    size, largest = float(c.norm()), float(c.abs().max()) if c.numel() else 0.0
    all_told = peak = 0.0
    if terms is not None and c.numel():
        # They are summed in f32 at least, whatever the result is rounded to.
        rounding = min(FLOOR[got.dtype], FLOOR[torch.float32]) * factor
        sums = rounding * terms.to(c.device, torch.float64)[~odd].nan_to_num(0.0, 0.0, 0.0)
        all_told, peak = float(sums.norm()), float(sums.max())
    allowed = max(factor * NORM * float((b - c).norm()), floor * size, all_told, 1e-30)
    if float((a - c).norm()) > allowed:
        return f"error {float((a - c).norm()) / max(size, 1e-30):.2e} of {allowed / max(size, 1e-30):.2e} allowed"
    worst, bound = float((a - c).abs().max()) if c.numel() else 0.0, 0.0
    if c.numel():
        bound = max(factor * LARGEST * float((b - c).abs().max()), LARGEST * max(floor * largest, peak), 1e-30)
    return f"an element is off by {worst:.2e} of {bound:.2e} allowed" if worst > bound else ""


def fault_in_steps(got: torch.Tensor, plain: torch.Tensor, wanted: torch.Tensor) -> str:
    """As fault_of, of 8-bit floats: each the reference's, in its dtype or in float64, but for NEAR beside them."""
    exact = wanted.to(got.dtype)
    nan = torch.isnan(exact.float())
    if not torch.equal(torch.isnan(got.float()), nan):
        return f"NaN in {int(torch.isnan(got.float()).sum())} places, not {int(nan.sum())}"
    mine = _steps(got)
    off = torch.minimum((mine - _steps(plain)).abs(), (mine - _steps(exact)).abs())[~nan]
    beyond, near = int((off > 1).sum()), int((off == 1).sum())
    if beyond or near > max(FEW_NEAR, NEAR * off.numel()):
        return f"{beyond} of {off.numel()} numbers more than a step off, {near} by one"
    return ""


def _steps(x: torch.Tensor) -> torch.Tensor:
    """Codes in the order of their numbers, 0 and -0 as one."""
    code = x.view(torch.uint8).int()
    return torch.where(code > 127, 128 - code, code)
