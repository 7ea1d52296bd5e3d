"""torch's fake of a grouped product, as its kernels are: they take f32 and f16 too, the fake takes bf16 alone (2.13).

Regions are checked in f32 on a host without a GPU, where Triton's interpreter multiplies bf16 wrongly.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import _meta_registrations as metas

TAKEN = (torch.float32, torch.float16)
_library: list[Any] = []


@functools.cache
def install() -> None:
    """Once a process; where torch has no such fake, nothing."""
    original = getattr(metas, "meta_grouped_mm", None)
    if original is None:
        return

    def grouped_mm(
        mat_a: torch.Tensor, mat_b: torch.Tensor, offs: torch.Tensor | None = None, bias: torch.Tensor | None = None,
        out_dtype: torch.dtype | None = None,
    ) -> torch.Tensor:  # fmt: skip
        dtype = mat_a.dtype
        if dtype not in TAKEN or mat_b.dtype != dtype or out_dtype not in (None, dtype):
            return original(mat_a, mat_b, offs, bias, out_dtype)  # type: ignore[no-any-return]
        narrow = (torch.empty_strided(m.shape, m.stride(), dtype=torch.bfloat16, device="meta") for m in (mat_a, mat_b))
        made: torch.Tensor = original(*narrow, offs, bias, None)
        return made.to(dtype)

    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    library.impl("_grouped_mm", grouped_mm, "Meta", allow_override=True)
    _library.append(library)
