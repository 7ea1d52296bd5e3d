"""What the kernel that makes parts compiles to: addresses beyond 2^31, which no small case reaches."""

from __future__ import annotations

import re

from kernels.ops.matmul import bf16_parts
from profiler.oracle.compiler.machine_code import compile_for

SIZES = ("rows", "columns", "x_row", "x_column", "pitch", "row_step", "part_step")


def test_a_parts_place_is_counted_in_64_bits() -> None:
    """With 2^30 elements the third part begins at 2^31, and the step itself is still given in 32 bits."""
    signature = {"x": "*fp32", "parts": "*bf16", **dict.fromkeys(SIZES, "i32")}
    made = compile_for(bf16_parts.bf16_parts, signature, {"BR": 8, "BC": 512}, "sm_90", 4, 1)
    used = [line for line in made.texts["ttir"].splitlines() if re.search(r"%part_step\b(?!:)", line) and " = " in line]
    assert used and all("arith.extsi" in line for line in used), used
