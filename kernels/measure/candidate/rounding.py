"""One rounding of float64 (or float32) numbers to a narrower type, to the nearest or by chance, in the wide type."""

from __future__ import annotations

from dataclasses import dataclass

import torch

MANTISSA = {
    torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7, torch.float8_e4m3fn: 3,
    torch.float8_e5m2: 2,
}  # fmt: skip
"""Bits behind the leading one."""
UNIT = 2.0**-24
"""Half a unit in the last place of float32, relative: what one operation in it costs."""


@dataclass(slots=True)
class Rounding:
    """How numbers are rounded: to the nearest without a generator, else up or down as likely as they are near."""

    generator: torch.Generator | None = None

    def to(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The numbers as `dtype` holds them, in their own type. What it holds already stays; its range is ignored."""
        spare = MANTISSA[value.dtype] - MANTISSA.get(dtype, 52)
        if spare <= 0 or not value.numel():
            return value
        bits_type = torch.int64 if value.dtype == torch.float64 else torch.int32
        bits = value.detach().contiguous().view(bits_type)
        if self.generator is None:
            added = (bits >> spare & 1) + ((1 << (spare - 1)) - 1)
        else:
            added = torch.randint(
                0, 1 << spare, bits.shape, dtype=bits_type, device=bits.device, generator=self.generator
            )
        made = (bits + added & -(1 << spare)).view(value.dtype)
        made = self._below_normal(value, made, dtype)
        return torch.where(value.isfinite(), made, value)

    def _below_normal(self, value: torch.Tensor, made: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Steps are no smaller than the type's smallest number. bf16 and f32 have float32's range: none is reached."""
        if dtype in (torch.float32, torch.bfloat16):
            return made
        info = torch.finfo(dtype)
        step = info.smallest_normal * info.eps
        places = value / step
        if self.generator is not None:
            drawn = torch.rand(value.shape, dtype=value.dtype, device=value.device, generator=self.generator)
            places = (places + drawn).floor()
        else:
            places = places.round()
        return torch.where(value.abs() < info.smallest_normal, places * step, made)

    def jitter(self, value: torch.Tensor, size: float) -> torch.Tensor:
        """Each number off by chance, `size` of its own in the root mean square; infinities stay, as masks have them.

        Rounding to the nearest leaves all.
        """
        if self.generator is None or not value.numel():
            return value
        noise = torch.rand(value.shape, dtype=value.dtype, device=value.device, generator=self.generator)
        off = value * noise.sub_(0.5).mul_(size * 12**0.5)
        return value + off.masked_fill_(~value.isfinite(), 0.0)
